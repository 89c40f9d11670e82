//! Where results go: the terminal, files, the store.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use results::output::{self, Output};
use results::store::{self, Store};

use crate::failure::{Failure, say};
use crate::locale::as_the_locale_has_it;

/// Opens the store that was named, or the default one; makes it where there is none.
pub fn open_store(path: Option<&Path>) -> Result<Store, Failure> {
    open(&store_path(path)?)
}

/// Opens the store that was named, or the default one, to read it; the path where there is none.
pub fn find_store(path: Option<&Path>) -> Result<Result<Store, PathBuf>, Failure> {
    let path = store_path(path)?;
    Ok(read_store(&path)?.ok_or(path))
}

/// Opens a store to read it; `None` where there is none, or one in which nothing was stored yet. No file is made or changed.
///
/// # Errors
/// As [`Store::find`].
pub fn read_store(path: &Path) -> Result<Option<Store>, Failure> {
    Store::find(path, is_told_to_stop).map_err(Failure::input)
}

/// Opens a store. What it does has an end once pagelab is told to stop.
///
/// # Errors
/// As [`Store::open`].
pub fn open(path: &Path) -> Result<Store, Failure> {
    Store::open_until(path, is_told_to_stop).map_err(Failure::input)
}

fn is_told_to_stop() -> bool {
    tracer::signals::arrived().is_some()
}

/// The path of the store that was named, or of the default one.
///
/// # Errors
/// There is no place for the default one.
pub fn store_path(path: Option<&Path>) -> Result<PathBuf, Failure> {
    path.map_or_else(|| store::default_path().map_err(Failure::input), |path| Ok(path.to_path_buf()))
}

/// Refuses files that cannot be written, and changes nothing.
pub fn can_be_written<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    files.into_iter().try_for_each(|file| output::check(file).map_err(Failure::input))
}

/// Writes a page and says where it is.
pub fn write_page(file: &Path, html: &str) -> Result<(), Failure> {
    write(file, &|to| to.write_all(html.as_bytes()))?;
    say(format_args!("report: {}", file.display()));
    Ok(())
}

/// Writes a file, which is there wholly or not at all; or a pipe, whose reader may stop when it likes.
pub fn write(file: &Path, content: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
    write_look(file, content).map(drop)
}

/// The same for a file that is written repeatedly: whether it still has a reader.
pub fn write_look(file: &Path, content: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<Reader, Failure> {
    let failed = |error: std::io::Error| {
        Failure::input(output::Error { path: file.to_path_buf(), why: output::Why::from(error) })
    };
    let mut to = std::io::BufWriter::new(Output::create(file).map_err(Failure::input)?);
    match content(&mut to).and_then(|()| to.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe && to.get_ref().is_stream() => {
            // What is left in the buffer is for nobody.
            drop(to.into_parts());
            Ok(Reader::IsGone)
        }
        Err(error) => Err(failed(error)),
        Ok(()) => {
            let written = to.into_inner().map_err(|error| failed(error.into_error()))?;
            written.finish().map_err(Failure::input).map(|()| Reader::Reads)
        }
    }
}

/// Whether output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It has, as far as the kernel can tell.
    Reads,
    /// The other end of the pipe (`| head`) or the terminal is closed: output that repeats ends.
    IsGone,
}

impl Reader {
    /// The reader of standard output, asked by poll(2) without a write.
    pub fn of_stdout() -> Reader {
        let stdout = std::io::stdout();
        let mut asked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
        let answered = poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        if answered && asked[0].revents().is_some_and(|events| events.intersects(gone)) {
            Reader::IsGone
        } else {
            Reader::Reads
        }
    }

    fn of(printed: std::io::Result<()>) -> Result<Reader, Failure> {
        match printed {
            Ok(()) => Ok(Reader::Reads),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Reader::IsGone),
            // EIO of a closed terminal, which a disk could report too.
            Err(_) if Reader::of_stdout() == Reader::IsGone => Ok(Reader::IsGone),
            Err(error) => Err(Failure::Input(format!("standard output cannot be written: {error}"))),
        }
    }
}

/// `pagelab ... | head` is no error.
pub fn ignore_closed_pipe(printed: std::io::Result<()>) -> Result<(), Failure> {
    Reader::of(printed).map(drop)
}

/// Prints a text for people, or a document (`json`), which is UTF-8 whatever the terminal shows. Nothing in it moves the cursor.
pub fn print(text: &str, json: bool) -> Result<(), Failure> {
    print_look(text, json).map(drop)
}

/// The same for output that repeats: whether it still has a reader.
pub fn print_look(text: &str, json: bool) -> Result<Reader, Failure> {
    let mut out = std::io::stdout().lock();
    Reader::of(if json {
        writeln!(out, "{}", results::printable_json(text))
    } else {
        writeln!(out, "{}", as_the_locale_has_it(&fitted(&results::printable_lines(text))))
    })
}

/// The text with the lines folded that are longer than the terminal is wide. Lines that are indented by four are commands,
/// to be copied, or have been folded.
fn fitted(text: &str) -> Cow<'_, str> {
    let width = terminal_width();
    let is_long = |line: &str| line.chars().count() > width && !line.starts_with("    ");
    if !std::io::stdout().is_terminal() || !text.lines().any(is_long) {
        return text.into();
    }
    let lines =
        text.lines().map(|line| if is_long(line) { results::fold(line, width, 4).into() } else { Cow::from(line) });
    lines.collect::<Vec<_>>().join("\n").into()
}

/// A sentence as it is printed: folded between words on a terminal, one line elsewhere.
pub fn folded(sentence: String) -> String {
    if std::io::stdout().is_terminal() { results::fold(&sentence, terminal_width().min(100), 0) } else { sentence }
}

/// Columns of the terminal; 100 elsewhere.
pub fn terminal_width() -> usize {
    if !std::io::stdout().is_terminal() {
        return 100;
    }
    usize::from(console::Term::stdout().size().1)
}
