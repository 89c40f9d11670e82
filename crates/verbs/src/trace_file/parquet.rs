//! `pagelab trace dump --parquet`: writes runs, events and, if recorded, accesses as Parquet files.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use results::output::Output;
use results::parquet::{Column, ColumnType, ParquetFile};
use serde_json::{Value, json};
use trace::{Access, Block, Event, PAGE_SHIFT, Run};

use super::kind_name;
use super::{Damages, about, open};
use crate::failure::Failure;

/// Maximum number of rows in a row group.
const GROUP: usize = 1 << 20;
/// The size of the buffered rows in bytes after which a row group is written.
const GROUP_BYTES: usize = 64 << 20;

/// Rows of one kind, stored by column.
trait Rows: Default {
    const FILE: &'static str;
    const COLUMNS: &'static [(&'static str, ColumnType)];

    fn count(&self) -> usize;

    /// The size of the rows in bytes, including texts.
    fn bytes(&self) -> usize;

    /// The columns, in the order of [`Rows::COLUMNS`].
    fn into_columns(self) -> Vec<Column>;
}

/// Declares a row type with its file and the type of each column.
macro_rules! rows {
    ($(#[$doc:meta])* $name:ident in $file:literal { $($column:ident: $type:ty => $kind:ident,)* }) => {
        $(#[$doc])*
        #[derive(Default)]
        struct $name {
            $($column: Vec<$type>,)*
            /// Bytes of texts that are not static.
            text_bytes: usize,
        }

        impl Rows for $name {
            const FILE: &'static str = $file;
            const COLUMNS: &'static [(&'static str, ColumnType)] = &[$((stringify!($column), ColumnType::$kind),)*];

            fn count(&self) -> usize {
                self.run.len()
            }

            fn bytes(&self) -> usize {
                const ROW_BYTES: usize = $(size_of::<$type>() + )* 0;
                self.count() * ROW_BYTES + self.text_bytes
            }

            fn into_columns(self) -> Vec<Column> {
                vec![$(Column::$kind(self.$column),)*]
            }
        }
    };
}

rows! {
    /// Rows of runs. The address is that of the page.
    Runs in "runs.parquet" {
        thread: u32 => U32,
        run: u64 => U64,
        address: u64 => U64,
        kind: Cow<'static, str> => Text,
        accesses: u32 => U32,
    }
}

rows! {
    /// Rows of accesses. The size is 0 if unknown.
    Accesses in "accesses.parquet" {
        thread: u32 => U32,
        run: u64 => U64,
        address: u64 => U64,
        bytes: u32 => U32,
        is_store: bool => Bool,
    }
}

rows! {
    /// Rows of events. The arguments are JSON.
    Events in "events.parquet" {
        thread: u32 => U32,
        run: u64 => U64,
        order: u64 => U64,
        call: Cow<'static, str> => Text,
        arguments: Cow<'static, str> => Text,
        result: i64 => I64,
    }
}

impl Runs {
    fn add(&mut self, thread: u32, number: u64, run: &Run) {
        self.thread.push(thread);
        self.run.push(number);
        self.address.push(run.page << PAGE_SHIFT);
        self.kind.push(kind_name(run.kind).into());
        self.accesses.push(run.accesses);
    }
}

impl Accesses {
    fn add(&mut self, thread: u32, number: u64, page: u64, access: Access) {
        self.thread.push(thread);
        self.run.push(number);
        self.address.push((page << PAGE_SHIFT) + u64::from(access.offset()));
        self.bytes.push(access.bytes().unwrap_or(0));
        self.is_store.push(access.is_store());
    }
}

impl Events {
    fn add(&mut self, thread: u32, event: &Event) {
        // Serialising a call gives its name and its arguments in one object; this takes the name out.
        let mut arguments = json!(event.call);
        let call = arguments.as_object_mut().and_then(|call| call.remove("call"));
        self.thread.push(thread);
        self.run.push(event.run);
        self.order.push(event.order);
        self.call.push(call.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned().into());
        let arguments = arguments.to_string();
        self.text_bytes += arguments.len();
        self.arguments.push(arguments.into());
        self.result.push(event.result);
    }
}

/// A Parquet file and its buffered rows.
struct Table<R> {
    path: PathBuf,
    file: ParquetFile<Output>,
    rows: R,
    written: u64,
}

impl<R: Rows> Table<R> {
    fn new(directory: &Path) -> Result<Table<R>, Failure> {
        let path = directory.join(R::FILE);
        let file = Output::create(&path).map_err(Failure::input)?;
        let file = ParquetFile::new(file, R::COLUMNS).map_err(|error| about(&path, error))?;
        Ok(Table { path, file, rows: R::default(), written: 0 })
    }

    /// Adds rows, and writes the buffered rows once they fill a row group.
    fn add(&mut self, add: impl FnOnce(&mut R)) -> Result<(), Failure> {
        add(&mut self.rows);
        if self.rows.count() >= GROUP || self.rows.bytes() >= GROUP_BYTES { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<(), Failure> {
        self.written += self.rows.count() as u64;
        let rows = std::mem::take(&mut self.rows);
        self.file.write(&rows.into_columns()).map_err(|error| about(&self.path, error))
    }

    fn finish(mut self) -> Result<(PathBuf, u64), Failure> {
        self.spill()?;
        let file = self.file.finish().map_err(|error| about(&self.path, error))?;
        file.finish().map_err(Failure::input)?;
        Ok((self.path, self.written))
    }
}

/// Writes the tables of a trace into a directory, which is created if necessary, and returns a summary.
pub fn write(trace: &Path, directory: &Path, as_json: bool) -> Result<String, Failure> {
    let mut reader = open(trace)?;
    let accesses_file = directory.join(Accesses::FILE);
    let exists = match accesses_file.try_exists() {
        // If the path of the directory is a file, it is refused below.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => false,
        found => found.map_err(|error| about(&accesses_file, error))?,
    };
    if !reader.header().columns.addresses && exists {
        return Err(about(&accesses_file, "of another trace: this trace has no addresses; name another directory"));
    }
    results::files::make_directories(directory).map_err(|error| {
        about(directory, format_args!("{error}; --parquet expects a directory, or a name for a new one"))
    })?;
    let mut runs = Table::<Runs>::new(directory)?;
    let mut events = Table::<Events>::new(directory)?;
    let keeps_addresses = reader.header().columns.addresses;
    let mut accesses = keeps_addresses.then(|| Table::<Accesses>::new(directory)).transpose()?;
    let mut damages = Damages::default();
    while let Some(block) = reader.next_block().map_err(|error| about(trace, error))? {
        match block {
            Block::Events { thread, events: more, .. } => {
                more.iter().try_for_each(|event| events.add(|rows| rows.add(thread, event)))?;
            }
            Block::Runs { thread, first, chunk, .. } => {
                let mut each = chunk.addresses.iter();
                for (number, run) in (first..).zip(chunk.runs()) {
                    runs.add(|rows| rows.add(thread, number, &run))?;
                    if let Some(accesses) = &mut accesses {
                        let mut addresses = each.by_ref().take(run.accesses as usize);
                        addresses
                            .try_for_each(|access| accesses.add(|rows| rows.add(thread, number, run.page, *access)))?;
                    }
                }
            }
            Block::Timestamps(_) => {}
            Block::Damaged(damage) => damages.add(damage),
        }
    }
    let mut written = vec![runs.finish()?, events.finish()?];
    if let Some(accesses) = accesses {
        written.push(accesses.finish()?);
    }
    Ok(if as_json { document(&written, &damages).to_string() } else { text(&written, &damages) })
}

fn document(written: &[(PathBuf, u64)], damages: &Damages) -> Value {
    let files: Vec<Value> =
        written.iter().map(|(path, rows)| json!({ "file": path.display().to_string(), "rows": rows })).collect();
    json!({
        "schema": "pagelab.trace-parquet/1",
        "files": files,
        "damages": damages.documents(),
        "damages_left_out": damages.others,
    })
}

fn text(written: &[(PathBuf, u64)], damages: &Damages) -> String {
    let files = written.iter().map(|(path, rows)| format!("{}: rows {rows}", path.display()));
    let damages = damages.lines().map(|line| format!("damaged {line}"));
    files.chain(damages).map(|line| results::printable(&line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Call;

    #[test]
    fn rows_with_much_text_are_written_early() {
        let directory = tempfile::tempdir().unwrap();
        let mut events = Table::<Events>::new(directory.path()).unwrap();
        let call = Call::exec("x".repeat(1 << 20));
        let event = Event { run: 0, order: 0, call, result: 0 };
        for _ in 0..100 {
            events.add(|rows| rows.add(0, &event)).unwrap();
            assert!(events.rows.bytes() < GROUP_BYTES);
        }
        assert_eq!(events.written, 64);
        assert_eq!(events.finish().unwrap().1, 100);
    }
}
