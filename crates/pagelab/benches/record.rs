//! The cost of recording: CPU time of `pagelab record` relative to plain QEMU user emulation of the same command.
//!
//! ```text
//! cargo build --release -p qemu-plugin
//! cargo bench -p pagelab --bench record -- [--rounds N] [CMD...]
//! ```
//! Plain and recorded runs alternate. The output contains the medians of both (user and system time of all threads), the median of
//! the ratios of adjacent runs, and the size of the trace. Without a command it sorts a small file; the tests run that.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use trace::{Block, Reader};
use tracer::child::ChildrenUsage;

/// The number of lines of the file that is sorted if no command is given.
const LINES: u32 = 20_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    // cargo adds an argument of its own.
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let mut rounds = ROUNDS;
    if words.first().is_some_and(|word| word == "--rounds") {
        rounds = words.get(1).ok_or("--rounds needs a number")?.parse()?;
        words.drain(..2);
    }
    compare(Path::new(env!("CARGO_BIN_EXE_pagelab")), None, &words, rounds)?;
    Ok(())
}

/// The result of a measurement.
pub struct Cost {
    /// CPU time of recorded runs divided by that of plain runs.
    pub ratio: f64,
    /// Loads and stores in the trace.
    pub accesses: u64,
}

/// Runs a command alternately plain and recorded, and prints the cost of both.
pub fn compare(
    pagelab: &Path,
    plugin: Option<&Path>,
    command: &[String],
    rounds: usize,
) -> Result<Cost, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let sort = ["sort".to_owned(), lines(folder.path())?];
    let command = if command.is_empty() { &sort[..] } else { command };
    let trace = folder.path().join("trace");
    // Both use the same path, so that they run the same program.
    let program = which(&command[0]).ok_or_else(|| format!("{} is not in PATH", command[0]))?;
    let mut plain = Command::new(format!("qemu-{}", std::env::consts::ARCH));
    plain.arg(program).args(&command[1..]);
    let mut recorded = Command::new(pagelab);
    recorded.args(["record", "--no-native-run", "-o"]).arg(&trace).arg("--").args(command);
    recorded.envs(plugin.map(|plugin| ("PAGELAB_QEMU_PLUGIN", plugin)));
    let pairs: Vec<(f64, f64)> =
        (0..rounds).map(|_| Ok((cpu_s(&mut plain)?, cpu_s(&mut recorded)?))).collect::<Result<_, Box<dyn Error>>>()?;
    let plain_s = median(pairs.iter().map(|(plain, _)| *plain).collect());
    let recorded_s = median(pairs.iter().map(|(_, recorded)| *recorded).collect());
    let ratio = median(pairs.iter().map(|(plain, recorded)| recorded / plain).collect());
    let (accesses, runs) = counted(&trace)?;
    let bytes = std::fs::metadata(&trace)?.len();
    println!(
        "plain {plain_s:.2} s, recorded {recorded_s:.2} s: {ratio:.2} times; {accesses} loads and stores, {runs} runs, \
         {:.3} bytes for a load or store",
        bytes as f64 / accesses as f64
    );
    Ok(Cost { ratio, accesses })
}

/// Writes a file with unsorted lines, and returns its path.
fn lines(folder: &Path) -> std::io::Result<String> {
    let path = folder.join("lines");
    let line = |number: u32| format!("{:08x} a line\n", number.wrapping_mul(0x9e37_79b9));
    std::fs::write(&path, (0..LINES).map(line).collect::<String>())?;
    Ok(path.display().to_string())
}

fn which(name: &str) -> Option<std::path::PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The user and system time of a command and its children, in seconds.
fn cpu_s(command: &mut Command) -> Result<f64, Box<dyn Error>> {
    let before = ChildrenUsage::now()?;
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let used = ChildrenUsage::now()?.since(&before);
    if status.success() { Ok(used.user_s + used.system_s) } else { Err(format!("{command:?}: {status}").into()) }
}

/// The number of loads and stores in a trace, and the number of all runs in it.
fn counted(trace: &Path) -> Result<(u64, usize), Box<dyn Error>> {
    let mut reader = Reader::new(std::io::BufReader::new(std::fs::File::open(trace)?))?;
    let (mut accesses, mut all) = (0, 0);
    while let Some(block) = reader.next_block()? {
        if let Block::Runs { chunk, .. } = block {
            all += chunk.len();
            let data = chunk.runs().filter(|run| run.kind != trace::Kind::FETCH);
            accesses += data.map(|run| u64::from(run.accesses)).sum::<u64>();
        }
    }
    Ok((accesses, all))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
