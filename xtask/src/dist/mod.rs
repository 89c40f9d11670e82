//! `cargo xtask dist`: builds the static, stripped program and its packages for other machines. The same compiler and commit give
//! bit-for-bit the same files.

mod build;
mod commit;
mod compiler;
mod install;
mod package;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use build::{Artifact, Profile};
use commit::Commit;
pub use compiler::Compiler;
use package::{Maintainer, Parts};
use target::TARGETS;
pub use target::Target;

use crate::cache::cache;

const USAGE: &str = "usage: cargo xtask dist [--target TRIPLE]... [--maintainer NAME] [--check] [--again]
       cargo xtask dist --install-test
  --target TRIPLE  only for this target; repeatable. Default: x86-64, arm64 and riscv64
  --maintainer 'NAME <ADDRESS>'
                   the maintainer of the packages (field Maintainer of the .deb). Default: none
  --check          build each twice, in different directories, and compare programs and packages
  --again          fetch Debian's newest compiler, if Debian's is used
  --install-test   install the packages that an earlier run made for this machine's architecture into a fresh Debian 12 and
                   13, run them there as root and as a user, remove them, and report leftovers; needs root and debootstrap
Packages (.deb and .tar.gz) are in target/dist/TRIPLE/packages: the program with the book, and the recorder's plugin.";

/// The directory of the packages, relative to that of a target.
const PACKAGES: &str = "packages";

/// The parsed command line.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    targets: Vec<&'static Target>,
    maintainer: Option<Maintainer>,
    checks: bool,
    again: bool,
}

/// Builds for the targets on the command line, and prints the paths of the results.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        words if words.contains(&"--help") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["--install-test"] => return test_installation(root),
        _ => {}
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("xtask: dist: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.maintainer.is_none() {
        println!("the packages name no maintainer; --maintainer 'NAME <ADDRESS>' names one");
    }
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

/// Tests the installation of the packages for this machine's architecture.
fn test_installation(root: &Path) -> ExitCode {
    let here = TARGETS.iter().find(|target| target.is_here());
    let packages = here.map(|target| place(root).join(target.triple).join(PACKAGES));
    match packages
        .ok_or_else(|| "no target matches this machine".to_owned())
        .and_then(|from| install::test(root, &from))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: dist: --install-test: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the program for guests: like a release build, but with less optimisation, so that it builds faster.
pub fn for_guests(root: &Path, target: &Target, compiler: &Compiler) -> Result<PathBuf, String> {
    let commit = Commit::of(root)?;
    build::build(root, target, compiler, (Artifact::Program, Profile::Guest, &commit), &root.join("target/guest"))
}

fn place(root: &Path) -> PathBuf {
    root.join("target/dist")
}

fn make(root: &Path, target: &Target, arguments: &Arguments) -> Result<String, String> {
    let cache = cache()?.join("pagelab");
    let compiler = Compiler::find(root, target, &cache, arguments.again)?;
    // The commit is read only once, because the checkout may change during a build.
    let commit = Commit::of(root)?;
    let mut record = build::record(root, target, &compiler, &commit)?;
    let make_at = |place: &Path| {
        build_and_pack(root, target, (&compiler, &commit, &record, arguments.maintainer.as_ref()), place)
    };
    let first = make_at(&place(root))?;
    if arguments.checks {
        check_equal(&first, &make_at(&root.join("target/dist-again"))?)?;
        record.push_str("built and packed twice, bit for bit identical\n");
    }
    let directory = place(root).join(target.triple);
    fs::write(directory.join("compiler"), &record).map_err(|error| format!("{}: {error}", directory.display()))?;
    let lines: Vec<String> = first.iter().map(|path| path.display().to_string()).collect();
    Ok(format!("{}\n{record}", lines.join("\n")))
}

/// Builds the program and the plugin in a directory, and packs them. Returns the paths of the program and of the
/// packages.
fn build_and_pack(
    root: &Path,
    target: &Target,
    (compiler, commit, record, maintainer): (&Compiler, &Commit, &str, Option<&Maintainer>),
    place: &Path,
) -> Result<Vec<PathBuf>, String> {
    let built = |part| build::build(root, target, compiler, (part, Profile::Release, commit), place);
    let (built, plugin) = (built(Artifact::Program)?, built(Artifact::Plugin)?);
    let directory = place.join(target.triple);
    let program = directory.join("pagelab");
    fs::copy(&built, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    let parts = Parts { program: &program, plugin: &plugin, record, commit, maintainer };
    let mut made = package::make(root, target, &parts, &directory.join(PACKAGES))?;
    made.insert(0, program);
    Ok(made)
}

/// Checks that the files of each pair are equal.
fn check_equal(made: &[PathBuf], again: &[PathBuf]) -> Result<(), String> {
    for (one, other) in made.iter().zip(again) {
        if let Some(offset) = first_difference(&read(one)?, &read(other)?) {
            let files = [one, other].map(|path| path.display().to_string());
            return Err(format!("not reproducible: {} differ at byte {offset}", files.join(" and ")));
        }
    }
    Ok(())
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The offset of the first difference between two files; `None` if they are equal.
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
            "--maintainer" => {
                let text = words.next().ok_or("--maintainer expects 'NAME <ADDRESS>'")?;
                arguments.maintainer = Some(Maintainer::parse(text)?);
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
