//! What the tracer costs a program that maps memory often, or opens parts of it.
//!
//! ```text
//! cargo bench -p metal --bench tracer -- [--rounds N] [--times N] [--work-us N] [--witness]
//! ```
//! `tests/programs/churn.c` maps and unmaps with 1 ms of work between, 2 MiB each time (every call is
//! advised), and sizes from 128K to 4M. `tests/programs/regions.c` opens regions of 2 MiB under `default+no-guards`,
//! where every mprotect stops, among some hundred other mappings. Bare and traced runs alternate; printed are the median of the
//! ratios of neighbours, and the cost of one call. With `--witness` large unmappings stop too, as they
//! do when a trial is measured. Without arguments it is short, so that tests can run it.
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;

use metal::host::Host;
use metal::tracer::{Launch, Leftovers, Rewriting, Witness, run};
use study::policy::Policy;

struct Arguments {
    rounds: usize,
    times: u32,
    work_us: u32,
    witness: bool,
}

struct Blind;

impl Witness for Blind {
    fn begins(&mut self, _: i32) {}
    fn ends(&mut self, _: i32, _: &[u64]) {}
    fn unmaps(&mut self, _: i32, _: u64, _: u64) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let folder = tempfile::tempdir()?;
    let churn = compile(folder.path(), "churn")?;
    let regions = compile(folder.path(), "regions")?;
    println!("{:<22} {:>9} {:>9} {:>12}", "calls", "bare", "ratio", "per call");
    for (name, program, bytes, policy) in [
        ("mmap of 2M", &churn, 2 << 20, "thp"),
        ("mmap of 128K to 4M", &churn, 0, "thp"),
        ("mprotect, +no-guards", &regions, 2 << 20, "default+no-guards"),
    ] {
        let command: Vec<OsString> = [
            program.clone().into_os_string(),
            arguments.times.to_string().into(),
            bytes.to_string().into(),
            arguments.work_us.to_string().into(),
        ]
        .into();
        let pairs: Vec<(f64, f64)> = (0..arguments.rounds)
            .map(|_| Ok((bare(&command)?, traced(&command, policy, arguments.witness)?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let seconds = median(pairs.iter().map(|(bare, _)| *bare).collect());
        let ratio = median(pairs.iter().map(|(bare, traced)| traced / bare).collect());
        let each_us =
            median(pairs.iter().map(|(bare, traced)| (traced - bare) * 1e6).collect()) / f64::from(arguments.times);
        println!("{name:<22} {:>7.3} s {:>8.2}% {each_us:>9.1} us", seconds, (ratio - 1.0) * 100.0);
    }
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments { rounds: 1, times: 50, work_us: 1000, witness: false };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut number = || {
            words
                .next()
                .ok_or(format!("{word} needs a number"))?
                .parse::<u32>()
                .map_err(|error| format!("{word}: {error}"))
        };
        match word.as_str() {
            "--rounds" => arguments.rounds = number()? as usize,
            "--times" => arguments.times = number()?,
            "--work-us" => arguments.work_us = number()?,
            "--witness" => arguments.witness = true,
            other => return Err(format!("expected --rounds, --times, --work-us or --witness, found {other}").into()),
        }
    }
    Ok(arguments)
}

fn compile(folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let status = Command::new("gcc").arg("-O1").arg("-o").arg(&program).arg(&source).status()?;
    if status.success() { Ok(program) } else { Err(format!("gcc could not compile {}", source.display()).into()) }
}

fn bare(command: &[OsString]) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(&command[0]).args(&command[1..]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn traced(command: &[OsString], policy: &str, witness: bool) -> Result<f64, Box<dyn Error>> {
    let policy: Policy = policy.parse()?;
    let rewriting = Rewriting::of(&policy, Host::open("/")?.geometry());
    let mut file = tempfile::tempfile()?;
    let stdout = Some(file.try_clone()?.into());
    let launch = Launch {
        command: command.to_vec(),
        user: None,
        variables: Vec::new(),
        stdin: Some(File::open("/dev/null")?.into()),
        stdout,
        stderr: None,
        disable_thp: false,
    };
    let mut blind = Blind;
    let witness = witness.then_some(&mut blind as &mut dyn Witness);
    run(&launch, &rewriting, witness, Leftovers::Follow)?;
    let mut output = String::new();
    file.rewind()?;
    file.read_to_string(&mut output)?;
    Ok(output.trim().parse()?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
