//! `cargo xtask dist`: the program for other machines, static and stripped, the same bit for bit wherever the same compiler builds
//! the same commit.

mod build;
mod compiler;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use build::Profile;
pub use compiler::Compiler;
use target::TARGETS;
pub use target::Target;

use crate::cache::cache;

/// How it is called.
const USAGE: &str = "usage: cargo xtask dist [--target TRIPLE]... [--check] [--again]
  --target TRIPLE  only for this target; repeat it. Without: x86-64, arm64 and riscv64
  --check          build each a second time, elsewhere, and compare
  --again          ask Debian for a newer compiler, where its own is used";

/// What is asked for.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    targets: Vec<&'static Target>,
    checks: bool,
    again: bool,
}

/// Builds what is asked for, and says where it is.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("xtask: dist: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for target in &arguments.targets {
        match make(root, target, &arguments) {
            Ok(lines) => println!("{lines}"),
            Err(problem) => {
                eprintln!("xtask: dist: {}: {problem}", target.triple);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The program for guests: as for release, but built faster.
///
/// # Errors
/// A build that failed.
pub fn for_guests(root: &Path, target: &Target, compiler: &Compiler) -> Result<PathBuf, String> {
    let built = build::build(root, target, compiler, Profile::Guest, &root.join("target/guest"))?;
    Ok(built.program)
}

fn make(root: &Path, target: &Target, arguments: &Arguments) -> Result<String, String> {
    let cache = cache()?.join("pagelab");
    let compiler = Compiler::find(root, target, &cache, arguments.again)?;
    let place = root.join("target/dist");
    let built = build::build(root, target, &compiler, Profile::Release, &place)?;
    let mut record = built.record.clone();
    if arguments.checks {
        let second = build::build(root, target, &compiler, Profile::Release, &root.join("target/dist-again"))?;
        if let Some(offset) = first_difference(&read(&built.program)?, &read(&second.program)?) {
            let files = [&built.program, &second.program].map(|path| path.display().to_string());
            return Err(format!("not reproducible: {} differ at byte {offset}", files.join(" and ")));
        }
        record.push_str("built twice, and the same bit for bit\n");
    }
    let directory = place.join(target.triple);
    fs::write(directory.join("compiler"), &record).map_err(|error| format!("{}: {error}", directory.display()))?;
    let program = directory.join("pagelab");
    fs::copy(&built.program, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(format!("{}\n{record}", program.display()))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where two files begin to differ, `None` where they are the same.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let differing = one.iter().zip(other).position(|(one, other)| one != other);
    differing.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--target" => {
                let name = words.next().ok_or("--target expects the name of a target")?;
                arguments.targets.push(Target::named(name)?);
            }
            "--check" => arguments.checks = true,
            "--again" => arguments.again = true,
            _ => return Err(format!("unexpected {word:?}")),
        }
    }
    if arguments.targets.is_empty() {
        arguments.targets = TARGETS.iter().collect();
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
    fn all_targets_are_built_without_a_name() {
        assert_eq!(parsed(&[]).unwrap().targets.len(), 3);
        let one = parsed(&["--target", "riscv64gc-unknown-linux-gnu", "--check"]).unwrap();
        assert_eq!((one.targets.len(), one.checks, one.again), (1, true, false));
        assert!(parsed(&["--target"]).is_err() && parsed(&["--target", "x"]).is_err() && parsed(&["x"]).is_err());
    }

    #[test]
    fn files_are_the_same_or_differ_somewhere() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"axc"), Some(1));
        assert_eq!(first_difference(b"ab", b"abc"), Some(2));
    }
}
