//! The cost of the tracer: whole programs compared with the same programs without a tracer, and single calls.
//!
//! ```text
//! cargo bench -p platform --bench tracer -- [--full] [--rounds N] [--times N] [--work-us N] [--witness]
//! ```
//! The first table is of whole programs, run like the trials of a comparison, with a census: `true`; a program that forks; one
//! that sends itself signals; a musl program that grows its heap by single pages; one that maps 2M and unmaps it again; `make
//! -j2` over small C files. `--full` gives them the sizes of docs/evidence/speed.md. Each round has a bare trial and one under
//! each policy; printed are the median bare time, and the ratio over the rounds with its interval. The settings that policies
//! need are leased, so the benchmark waits for another pagelab.
//!
//! The second table is of calls. `churn.c` of the tracer's tests maps and unmaps with 1 ms of work between, 2 MiB each time
//! (every call is advised), and sizes from 128K to 4M. `regions.c` opens regions of 2 MiB under `default+no-guards`, where every
//! mprotect stops, among some hundred other mappings. Bare and traced runs alternate; printed are the median of the ratios of
//! neighbours, and the cost of one call. With `--witness` large unmappings stop too, as in a measured trial. Without arguments it
//! is short, so that tests can run it.
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;

use host::Host;
use platform::{HostPlatform, Session, Work};
use policy::Admission;
use policy::Policy;
use study::control::Role;
use study::metric::names;
use study::plan;
use study::runner::Platform;
use study::stats::paired_ratio;
use study::trial::{Arm, Trial};
use tracer::{Launch, Leftovers, Rewriting, Witness, run};

/// How long to wait for another pagelab.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

struct Arguments {
    full: bool,
    rounds: usize,
    times: u32,
    work_us: u32,
    witness: bool,
}

struct Blind;

impl Witness for Blind {
    fn begins(&mut self, _: i32) {}
    fn ends(&mut self, _: i32) {}
    fn unmaps(&mut self, _: i32, _: u64, _: u64) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let folder = tempfile::tempdir()?;
    programs(&arguments, folder.path())?;
    println!();
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
    let mut arguments = Arguments { full: false, rounds: 1, times: 50, work_us: 1000, witness: false };
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
            "--full" => arguments.full = true,
            other => {
                return Err(format!("expected --full, --rounds, --times, --work-us or --witness, found {other}").into());
            }
        }
    }
    Ok(arguments)
}

/// A program of the first table.
struct Program {
    name: &'static str,
    command: Vec<OsString>,
    policies: &'static [&'static str],
}

/// Prints the table of whole programs.
fn programs(arguments: &Arguments, folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("{:<24} {:>9}  {:<14} {:>8} {:>20} {:>9}", "program", "bare", "policy", "more", "95 % interval", "stops");
    for program in all_programs(arguments.full, folder)? {
        let work = Work {
            trial_time: None,
            own_session: None,
            variables: Vec::new(),
            command: program.command.clone(),
            server: None,
            prepare: None,
            user: None,
            input: None,
            check_output: false,
            select: None,
            expected: None,
            prove_all: false,
            reads_frames: false,
            extract: None,
        };
        let session = Session::new(Host::open("/")?).with_patience(PATIENCE, |_, _| ());
        let mut platform = HostPlatform::new(session, work)?;
        let measured = rows(&program, arguments.rounds, &mut platform);
        platform.finish()?;
        measured?.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}

/// The rows of a program, one for each policy.
fn rows(program: &Program, rounds: usize, platform: &mut HostPlatform) -> Result<Vec<String>, Box<dyn Error>> {
    let bare = Arm { label: "bare".into(), policy: Policy::DEFAULT, role: Role::Bare, variant: None };
    let mut arms = vec![bare];
    let mut lines = Vec::new();
    for name in program.policies {
        let arm = Arm::of_policy(*name, name.parse()?);
        match platform.admit(&arm) {
            Admission::Admitted { .. } => arms.push(arm),
            Admission::Unsupported(why) => lines.push(format!("{:<24} {name}: {why}", program.name)),
        }
    }
    let mut walls_s: Vec<Vec<f64>> = vec![Vec::new(); arms.len()];
    let mut stops = vec![0.0; arms.len()];
    for round in 0..rounds {
        // The drawn order: a trial leaves free memory and caches to the next one.
        for (position, arm) in plan::order(1, round as u32, arms.len()).into_iter().enumerate() {
            let trial = Trial { arm, block: round as u32, position: position as u32, attempt: 0 };
            let record = platform.run(&arms[arm], trial)?;
            if !record.answer.succeeded() {
                return Err(format!("{} ended with {}", program.name, record.answer.exit).into());
            }
            walls_s[arm].push(record.value(names::WALL_S).ok_or("a trial without a wall time")?);
            stops[arm] = record.value(names::TRACER_STOPS).unwrap_or(0.0);
        }
    }
    let bare_ms = median(walls_s[0].clone()) * 1e3;
    for (at, arm) in arms.iter().enumerate().skip(1) {
        let ratio = paired_ratio(&walls_s[at], &walls_s[0], 0.95).ok_or("no pairs of times")?;
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = ratio.interval.map(|(low, high)| format!("{:+.1} to {:+.1} %", percent(low), percent(high)));
        lines.push(format!(
            "{:<24} {bare_ms:>6.1} ms  {:<14} {:>+6.1} % {:>20} {:>9}",
            program.name,
            arm.label,
            percent(ratio.ratio),
            interval.unwrap_or_default(),
            stops[at]
        ));
    }
    Ok(lines)
}

fn all_programs(full: bool, folder: &Path) -> Result<Vec<Program>, Box<dyn Error>> {
    let size = |full_size: u32, small: u32| OsString::from(if full { full_size } else { small }.to_string());
    let of = |name: &str, arguments: Vec<OsString>| -> Result<Vec<OsString>, Box<dyn Error>> {
        Ok([vec![compile(folder, name)?.into_os_string()], arguments].concat())
    };
    let usual = &["default", "base", "thp"];
    let mut programs = vec![
        Program { name: "true", command: vec!["true".into()], policies: usual },
        Program { name: "1,000 forks", command: of("forks", vec![size(1000, 20)])?, policies: usual },
        Program { name: "50,000 signals", command: of("raises", vec![size(50_000, 200)])?, policies: usual },
        Program {
            name: "1,000 mappings of 2M",
            command: of("churn", vec![size(1000, 20), "2097152".into(), "0".into()])?,
            policies: &["default", "thp", "hugetlb-2m"],
        },
    ];
    match compile_by("musl-gcc", &["-static"], folder, "grows") {
        Ok(program) => programs.push(Program {
            name: "heap by pages to 64M",
            command: vec![program.into(), size(65_536, 256)],
            policies: usual,
        }),
        Err(error) => println!("heap by pages: {error}"),
    }
    let files = if full { 24 } else { 2 };
    programs.push(Program { name: "make -j2", command: make(folder, files)?, policies: usual });
    Ok(programs)
}

/// A project of `files` files, each of which takes the compiler some hundredths of a second.
fn make(folder: &Path, files: u32) -> Result<Vec<OsString>, Box<dyn Error>> {
    let project = folder.join("project");
    std::fs::create_dir_all(&project)?;
    let objects: Vec<String> = (0..files).map(|file| format!("f{file}.o")).collect();
    let rule = "%.o: %.c\n\tgcc -O2 -c -o $@ $<\n";
    std::fs::write(project.join("Makefile"), format!("all: {}\n{rule}", objects.join(" ")))?;
    for file in 0..files {
        let functions: String = (0..20).map(|at| function(file, at)).collect();
        std::fs::write(
            project.join(format!("f{file}.c")),
            format!("#include <stdio.h>\n#include <stdlib.h>\n{functions}"),
        )?;
    }
    Ok(["make", "-s", "-j2", "-B", "-C"].map(OsString::from).into_iter().chain([project.into_os_string()]).collect())
}

fn function(file: u32, at: u32) -> String {
    format!(
        "int g{file}_{at}(int n, int *a) {{ int s = {at}; for (int i = 0; i < n; i++) {{ if (a[i] % {}) s += a[i] * i; else s ^= \
         a[i] >> 3; if (s > {file}000) printf(\"%d\\n\", s); }} return s; }}\n",
        at + 2
    )
}

fn compile(folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    compile_by("gcc", &[], folder, name)
}

fn compile_by(compiler: &str, options: &[&str], folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/tests/programs").join(name).with_extension("c");
    let status = Command::new(compiler).args(options).arg("-O1").arg("-o").arg(&program).arg(&source).status();
    if status.map_err(|error| format!("{compiler}: {error}"))?.success() {
        Ok(program)
    } else {
        Err(format!("{compiler} could not compile {}", source.display()).into())
    }
}

fn bare(command: &[OsString]) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(&command[0]).args(&command[1..]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn traced(command: &[OsString], policy: &str, witness: bool) -> Result<f64, Box<dyn Error>> {
    let policy: Policy = policy.parse()?;
    let rewriting = Rewriting::of(&policy, Host::open("/")?.page_sizes());
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
        own_session: None,
        control_group: None,
        limit: None,
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
