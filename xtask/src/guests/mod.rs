//! `cargo xtask guests`: runs pagelab on Debian's kernels and on one that is built here, each in QEMU with the same list of
//! checks.

mod boots;
mod capabilities;
mod check;
mod debugger;
mod disks;
pub mod initrd;
mod kernel;
pub mod machine;
mod merged;
mod model;
mod programs;
mod stage;
mod sysroot;
mod table;
mod tables;
pub mod transcript;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use boots::Boots;
pub use check::Outcome;
use check::Scope;
use initrd::Programs;
use kernel::{Guest, Kernel};
use machine::Board;
use stage::Stage;

use crate::cache::cache;
use crate::command::is_in_path;
use crate::dist::{self, Compiler, Target};

const USAGE: &str =
    "usage: cargo xtask guests [NAME]... [--again] [--fetch] [--small] [--only CHECK] [--limit MINUTES] [--program FILE]
                          [--judge]
  NAME             a guest of xtask/src/guests/guests.toml; default: all
  --again          fetch the newest kernels
  --fetch          fetch the kernels and the modules for `pagelab compare --kernel`; boot nothing
  --small          only the smaller checks, those of `cargo xtask test`; do not update the table in docs
  --only CHECK     only this check, such as boots; do not update the table in docs (capabilities updates its page)
  --limit MINUTES  end a guest that takes longer; default: 30
  --program FILE   check this pagelab, for example one that `cargo xtask dist` made, instead of building it
  --judge          boot nothing; evaluate the logs of the last boots, and record and simulate the programs again";

/// The parsed command line.
#[derive(Debug)]
struct Arguments {
    guests: Vec<Guest>,
    again: bool,
    only_fetch: bool,
    scope: Scope,
    limit: Duration,
    program: Option<PathBuf>,
    judges: bool,
}

/// Runs the selected guests one after the other, and stores their results.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("xtask: guests: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for guest in &arguments.guests {
        if arguments.only_fetch {
            match kernel_of(guest, arguments.again) {
                Ok(kernel) => println!("{}: {}, {}", guest.name, kernel.package, kernel.image.display()),
                Err(problem) => {
                    eprintln!("xtask: guests: {}: {problem}", guest.name);
                    failed += 1;
                }
            }
            continue;
        }
        let seen = match fetch_parts(root, guest, arguments.again)
            .and_then(|fetched| run_checks(root, guest, fetched, &arguments))
        {
            Ok(seen) => seen,
            Err(problem) => {
                eprintln!("xtask: guests: {}: {problem}", guest.name);
                failed += 1;
                continue;
            }
        };
        for (check, outcome) in &seen.outcomes {
            println!("{} {check} {outcome}", guest.name);
            failed += usize::from(matches!(outcome, Outcome::Failed(_)));
        }
        println!("{}: {}; log: {}", guest.name, seen.kernel.package, seen.log.display());
        if let Some(document) = &seen.capabilities
            && let Err(problem) = store_capabilities(root, guest, &seen, document)
        {
            eprintln!("xtask: guests: {problem}");
            failed += 1;
        }
        if !arguments.scope.is_small
            && arguments.scope.only.is_none()
            && let Err(problem) = store(root, guest, seen)
        {
            eprintln!("xtask: guests: {problem}");
            failed += 1;
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fetches the kernel that the tests of `compare --kernel` boot: the kernel of CI's guest with this machine's architecture, if
/// there is such a guest.
pub fn fetch_for_tests() -> Result<(), String> {
    let is_here = |guest: &Guest| Target::named(&guest.architecture).is_ok_and(Target::is_here);
    let guest = kernel::all().into_iter().find(|guest| guest.in_ci && is_here(guest));
    guest.map_or(Ok(()), |guest| kernel_of(&guest, false).map(drop))
}

/// Runs the smaller checks in the guests of CI, and returns each check with its result. A guest that cannot be fetched is skipped.
/// A guest with this machine's architecture gets the program that was already built for the tests, so that pagelab is not built
/// again.
pub fn small(root: &Path) -> Vec<(String, Outcome)> {
    let limit = Duration::from_secs(600);
    let guests: Vec<Guest> = kernel::all().into_iter().filter(|guest| guest.in_ci).collect();
    let mut found = Vec::new();
    for guest in guests {
        let is_here = Target::named(&guest.architecture).is_ok_and(Target::is_here);
        let program = is_here.then(|| root.join("target/debug/pagelab"));
        let scope = Scope { is_small: true, is_dynamic: is_here, only: None };
        let guests = vec![guest.clone()];
        let arguments = Arguments { guests, again: false, only_fetch: false, scope, limit, program, judges: false };
        let guest = &guest;
        let name = |check: &str| format!("guest {} {check}", guest.name);
        let all = |outcome: Outcome| scope.checks().map(|check| (check.name, outcome.clone())).collect();
        let outcomes = match fetch_parts(root, guest, false).map(|fetched| run_checks(root, guest, fetched, &arguments))
        {
            Ok(Ok(seen)) => seen.outcomes,
            Ok(Err(problem)) => all(Outcome::Failed(problem)),
            Err(problem) => all(Outcome::Skipped(problem)),
        };
        found.extend(outcomes.into_iter().map(|(check, outcome)| (name(check), outcome)));
    }
    found
}

/// The results of a guest.
#[derive(Debug)]
struct GuestResults {
    kernel: Kernel,
    /// The commit from which pagelab was built, as pagelab reports it.
    commit: String,
    log: PathBuf,
    /// The date of the boots.
    date: String,
    outcomes: Vec<(&'static str, Outcome)>,
    /// The document of the check `capabilities`, if it passed.
    capabilities: Option<String>,
}

/// The downloaded or built parts of a guest.
#[derive(Debug)]
struct Fetched {
    board: &'static Board,
    target: &'static Target,
    compiler: Compiler,
    kernel: Kernel,
    busybox: PathBuf,
}

/// The kernel of a guest, fetched if it is missing.
fn kernel_of(guest: &Guest, again: bool) -> Result<Kernel, String> {
    kernel::fetch(guest, Target::named(&guest.architecture)?, &cache()?.join("pagelab"), again)
}

/// Fetches the parts that are missing.
fn fetch_parts(root: &Path, guest: &Guest, again: bool) -> Result<Fetched, String> {
    let cache = cache()?.join("pagelab");
    let target = Target::named(&guest.architecture)?;
    let board =
        Board::of(&guest.architecture, guest.built).ok_or_else(|| format!("a machine for {}", guest.architecture))?;
    let (program, package) = board.program;
    if !is_in_path(program) {
        return Err(format!("{program} ({package})"));
    }
    target.compiler()?;
    let kernel = kernel::fetch(guest, target, &cache, again)?;
    let busybox = initrd::busybox(&cache, target, again)?;
    let compiler = Compiler::find(root, target, &cache, again)?;
    Ok(Fetched { board, target, compiler, kernel, busybox })
}

/// Builds a guest, runs it, and evaluates its checks.
fn run_checks(root: &Path, guest: &Guest, fetched: Fetched, arguments: &Arguments) -> Result<GuestResults, String> {
    let Fetched { board, target, compiler, kernel, busybox } = fetched;
    let pagelab = match &arguments.program {
        Some(program) => program.clone(),
        None => dist::for_guests(root, target, &compiler)?,
    };
    let programs = Programs::make(root, target, &pagelab, &busybox)?;
    let logs = machine::logs(root)?;
    let _lock = machine::lock_guest(&logs.join(format!("{}.lock", guest.name)))?;
    println!("==> {}", kernel.package);
    let (limit, scope) = (arguments.limit, arguments.scope);
    let (name, programs) = (&guest.name, &programs);
    let memory = guest.memory.as_deref();
    let boots = Boots { name, board, kernel: &kernel.image, memory, programs, logs: &logs, limit, scope };
    let (mut outputs, date) = if arguments.judges {
        let outputs = boots.read()?;
        let first = outputs.first().map_or(Stage::Together, |(stage, _)| *stage);
        (outputs, log_date(&boots.log(first), &kernel.image)?)
    } else {
        (boots.run()?, crate::command::stamp(root).0)
    };
    model::simulate(root, target, programs, &mut outputs);
    merged::report(&pagelab, &mut outputs)?;
    sysroot::compare(root, &kernel.image, &pagelab, &mut outputs)?;
    let outcomes: Vec<(&str, Outcome)> = scope.checks().map(|check| (check.name, check.outcome(&outputs))).collect();
    let log = boots.log(Stage::Together);
    let parts = outputs.iter().flat_map(|(_, output)| &output.parts);
    let version = parts.filter_map(|part| part.output("version").ok()).next().unwrap_or("unknown");
    let capabilities = outcomes
        .iter()
        .any(|(check, outcome)| *check == check::capabilities::CHECK && matches!(outcome, Outcome::Held { .. }))
        .then(|| check::capabilities::document(&outputs))
        .flatten();
    Ok(GuestResults { kernel, commit: crate::command::commit_in(version), log, date, outcomes, capabilities })
}

/// The date of a boot's log; an error if the log is older than the kernel.
fn log_date(log: &Path, kernel: &Path) -> Result<String, String> {
    let time = |path: &Path| {
        let found = fs::metadata(path).and_then(|found| found.modified());
        found.map_err(|error| format!("{}: {error}", path.display()))
    };
    if time(log)? < time(kernel)? {
        return Err(format!("{} is older than the kernel {}", log.display(), kernel.display()));
    }
    let mut date = Command::new("date");
    date.args(["-u", "+%Y-%m-%d", "-r"]).arg(log);
    let output = date.output().map_err(|error| format!("cannot run date: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first line that the guest's QEMU prints about its version; empty if it cannot be run.
fn emulator(guest: &Guest) -> String {
    let board = Board::of(&guest.architecture, guest.built).map(|board| board.program.0).unwrap_or_default();
    let version = Command::new(board).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned()
}

/// The names of all guests, in the order of the tables.
fn order() -> Vec<String> {
    kernel::all().into_iter().map(|guest| guest.name).collect()
}

fn store_capabilities(root: &Path, guest: &Guest, seen: &GuestResults, document: &str) -> Result<(), String> {
    let origin = capabilities::Origin {
        guest: guest.name.clone(),
        kernel: seen.kernel.package.clone(),
        emulator: emulator(guest),
        commit: seen.commit.clone(),
        date: seen.date.clone(),
    };
    capabilities::keep(root, &origin, document, &order())
}

fn store(root: &Path, guest: &Guest, seen: GuestResults) -> Result<(), String> {
    let emulator = emulator(guest);
    let outcomes = seen.outcomes.into_iter().map(|(check, outcome)| (check.to_owned(), outcome)).collect();
    let (kernel, commit, date) = (seen.kernel.package, seen.commit, seen.date);
    let row = table::Row { guest: guest.name.clone(), kernel, emulator, commit, date, outcomes };
    table::keep(root, row, &order())
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let all = kernel::all();
    let mut arguments = Arguments {
        guests: Vec::new(),
        again: false,
        only_fetch: false,
        scope: Scope::default(),
        limit: Duration::from_secs(1800),
        program: None,
        judges: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--again" => arguments.again = true,
            "--fetch" => arguments.only_fetch = true,
            "--judge" => arguments.judges = true,
            "--program" => {
                let file = words.next().ok_or("--program expects a file")?;
                arguments.program = Some(PathBuf::from(file));
            }
            "--small" => arguments.scope.is_small = true,
            "--only" => {
                let name = words.next().ok_or("--only expects a check")?;
                let known = check::CHECKS.iter().map(|check| check.name);
                let names = || known.clone().collect::<Vec<_>>().join(", ");
                let found = known.clone().find(|known| known == name);
                arguments.scope.only =
                    Some(found.ok_or_else(|| format!("unknown check {name:?}; expected one of {}", names()))?);
            }
            "--limit" => {
                let minutes = words.next().and_then(|word| word.parse().ok()).filter(|minutes| *minutes > 0);
                let minutes: u64 = minutes.ok_or("--limit expects a number of minutes above 0")?;
                arguments.limit = Duration::from_secs(minutes.saturating_mul(60));
            }
            name => {
                let names = || all.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>().join(", ");
                let guest = all.iter().find(|guest| guest.name == name);
                arguments
                    .guests
                    .push(guest.ok_or_else(|| format!("unknown guest {name:?}; expected one of {}", names()))?.clone());
            }
        }
    }
    if arguments.guests.is_empty() {
        arguments.guests = all;
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn guests_go_by_their_names() {
        assert_eq!(parsed(&[]).unwrap().guests.len(), kernel::all().len());
        let two = parsed(&["arm64-6.12", "--small", "x86-64-6.1", "--limit", "5"]).unwrap();
        assert_eq!((two.guests.len(), two.scope.is_small, two.limit.as_secs()), (2, true, 300));
        assert_eq!(parsed(&["--only", "boots"]).unwrap().scope.only, Some("boots"));
        assert!(parsed(&["--only", "boats"]).unwrap_err().contains("kvm, torture"));
        assert!(parsed(&["arm64-6.12", "--judge"]).unwrap().judges && !two.judges);
        assert!(parsed(&["arm64-2.4"]).unwrap_err().contains("riscv64-newest"));
        assert!(parsed(&["--limit", "0"]).is_err() && parsed(&["--limit"]).is_err());
    }
}
