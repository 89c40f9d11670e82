//! `pagelab trace`: summarises, checks, cuts, dumps and imports traces.

mod check;
mod cut;
mod dump;
mod filter;
mod import;
mod info;
mod left_out;
mod parquet;
mod regions;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use results::input;
use serde_json::{Value, json};
use trace::{Damage, Kind, Reader};

use crate::failure::Failure;
pub use left_out::parts;

/// Arguments of `pagelab trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    #[command(subcommand)]
    verb: TraceVerb,
}

/// The verbs of `pagelab trace`.
#[derive(Debug, Subcommand)]
enum TraceVerb {
    /// Summarise a trace
    Info(FileArguments),
    /// Check every block; the exit code is 1 if something is damaged or missing
    Check(FileArguments),
    /// Write a part of a trace as a trace
    Cut(Cut),
    /// Print runs and events, or write them as Parquet files for DuckDB and pandas
    Dump(Dump),
    /// Convert another tool's trace
    Import(Import),
}

/// Arguments of verbs that only read a trace.
#[derive(Debug, Args)]
struct FileArguments {
    /// The trace
    file: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Arguments of `pagelab trace cut`.
#[derive(Debug, Args)]
struct Cut {
    /// The trace
    file: PathBuf,
    /// The file for the part
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Leave out blocks that end before the thread has executed N instructions
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Leave out blocks that begin after the thread has executed N instructions
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Keep only this thread; repeat it for more
    #[arg(long = "thread", value_name = "NUMBER")]
    threads: Vec<u32>,
    /// Leave out runs whose page is already the most recent one of its set, at 4K (16 sets), 64K (16) and 2M (8).
    /// Misses of LRU TLBs with a multiple of these sets stay the same (`sim sweep`); other counts do not
    #[arg(long)]
    most_recent: bool,
    /// Print one JSON document about what was written
    #[arg(long)]
    json: bool,
}

/// Arguments of `pagelab trace dump`.
#[derive(Debug, Args)]
struct Dump {
    /// The trace
    file: PathBuf,
    /// Write tables of runs, events and kept accesses as Parquet files into this directory instead of printing
    #[arg(long, value_name = "DIRECTORY")]
    parquet: Option<PathBuf>,
    /// Print one JSON object a line; with --parquet, one document about what was written
    #[arg(long)]
    json: bool,
}

/// Arguments of `pagelab trace import`.
#[derive(Debug, Args)]
struct Import {
    /// The other tool's output; - for standard input
    file: PathBuf,
    /// The tool
    #[arg(long, value_name = "TOOL")]
    from: ImportTool,
    /// The file for the trace
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print one JSON document about what was written
    #[arg(long)]
    json: bool,
}

/// Tools whose traces can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportTool {
    /// valgrind --tool=lackey --trace-mem=yes, its text
    Lackey,
    /// DynamoRIO's view tool, its text
    DrmemtraceView,
    /// ChampSim's records of 64 bytes, decompressed
    Champsim,
    /// perf script -F tid,addr,ip, its text: samples, not all accesses
    Perf,
}

/// Runs `pagelab trace`.
pub fn run(arguments: &TraceArguments) -> Result<(), Failure> {
    match &arguments.verb {
        TraceVerb::Info(shown) => info::run(shown),
        TraceVerb::Check(shown) => check::run(shown),
        TraceVerb::Cut(cut) => cut::run(cut),
        TraceVerb::Dump(dump) => dump::run(dump),
        TraceVerb::Import(import) => import::run(import),
    }
}

fn about(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Input(format!("{}: {error}", path.display()))
}

fn open(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let file = input::open(path).map_err(|error| about(path, error))?;
    Reader::new(BufReader::with_capacity(1 << 20, file)).map_err(|error| about(path, error))
}

/// Refuses to overwrite the input.
fn refuse_same(from: &Path, to: &Path) -> Result<(), Failure> {
    match (from.canonicalize(), to.canonicalize()) {
        (Ok(from), Ok(to)) if from == to => Err(about(&to, "is the input; name another file with -o")),
        _ => Ok(()),
    }
}

fn damage_document(damage: &Damage) -> Value {
    json!({ "offset_bytes": damage.offset, "bytes": damage.bytes, "why": damage.why.to_string() })
}

fn damage_text(damage: &Damage) -> String {
    let why = results::printable(&damage.why.to_string());
    format!("at byte {}: {why} ({} bytes skipped)", damage.offset, damage.bytes)
}

/// Places of a trace that are damaged. Only the first ones are listed, because a file may have any number; the others
/// are counted.
#[derive(Debug, Default)]
struct Damages {
    first: Vec<Damage>,
    others: u64,
}

/// The maximum number of listed places.
const MAX_DAMAGES: usize = 1000;

impl Damages {
    fn add(&mut self, damage: Damage) {
        if self.first.len() < MAX_DAMAGES { self.first.push(damage) } else { self.others += 1 }
    }

    /// The number of damaged places.
    fn count(&self) -> u64 {
        self.first.len() as u64 + self.others
    }

    fn documents(&self) -> Vec<Value> {
        self.first.iter().map(damage_document).collect()
    }

    /// One line for each listed place, and one for all others.
    fn lines(&self) -> impl Iterator<Item = String> {
        let others = (self.others > 0).then(|| format!("and {} more damaged places", self.others));
        self.first.iter().map(damage_text).chain(others)
    }
}

/// The name of a kind of run.
fn kind_name(kind: Kind) -> &'static str {
    if kind.has(Kind::KERNEL) {
        return if kind.has(Kind::STORE) { "kernel store" } else { "kernel load" };
    }
    match (kind.has(Kind::FETCH), kind.has(Kind::LOAD), kind.has(Kind::STORE), kind.has(Kind::STORE_FIRST)) {
        (true, ..) => "fetch",
        (_, true, false, _) => "load",
        (_, false, ..) => "store",
        (_, true, true, false) => "load+store",
        (_, true, true, true) => "store+load",
    }
}
