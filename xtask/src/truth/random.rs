//! Runs random programs of system calls and memory accesses natively, and compares them with their simulations. A program that
//! differs is shrunk and printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use validation::compact;
use validation::kinds::Kind;
use validation::lab::Lab;
use validation::script::Script;
use validation::scripts::{Off, Scripts};

use super::arguments::{Until, Wanted};
use super::bench::Directory;
use super::tools::Tools;

/// The source of the interpreter of scripts.
const INTERPRETER: &str = "crates/pagelab/tests/programs/script.c";
/// The number of scripts after which memory is compacted again.
const COMPACTED: u64 = 50;

/// Tries the selected scripts. Returns whether every difference is of a known kind.
///
/// # Errors
/// No script can be run.
pub fn run(root: &Path, tools: &Tools, wanted: &Wanted, policies: &[&'static str]) -> Result<bool, String> {
    let directory = Directory::new("scripts").map_err(|why| why.to_string())?;
    let lab = Lab {
        pagelab: tools.pagelab.clone(),
        plugin: tools.plugin.clone(),
        directory: directory.path().to_path_buf(),
        limit_s: 20,
        user: None,
        input: None,
        prepare: None,
    };
    let mut scripts = Scripts::new(lab, &root.join(INTERPRETER), policies).map_err(|problem| problem.to_string())?;
    match &wanted.until {
        Until::Given(file) => given(&mut scripts, file),
        Until::Minutes(minutes) => {
            let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
            Ok(tried(&mut scripts, wanted.seed, |_| Instant::now() < end))
        }
        Until::Scripts(count) => Ok(tried(&mut scripts, wanted.seed, |tried| tried < *count)),
    }
}

/// Tries the script in a file.
fn given(scripts: &mut Scripts, file: &PathBuf) -> Result<bool, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let off = scripts.off(&text).map_err(|problem| problem.to_string())?;
    print(&off);
    println!("{}", if off.is_empty() { "agrees" } else { "off" });
    // The script is not known to be minimal, so its difference is not assigned a kind.
    Ok(off.is_empty())
}

/// Tries one script after the other while `goes_on` returns true for the number of scripts so far.
fn tried(scripts: &mut Scripts, first: u64, goes_on: impl Fn(u64) -> bool) -> bool {
    let (start, mut count, mut wrong, mut failed) = (Instant::now(), 0, 0, 0);
    let mut known: Vec<Kind> = Vec::new();
    while goes_on(count) {
        if count.is_multiple_of(COMPACTED) {
            compact();
        }
        let seed = first + count;
        let script = Script::random(seed);
        match scripts.off(&script.text()) {
            Ok(off) if off.is_empty() => {}
            Ok(off) => {
                println!("seed {seed} is off:");
                print(&off);
                let least = scripts.shrunk(&script, &off);
                println!("the least of it (--script FILE tries it again):\n{}", least.text());
                let still_off = scripts.off(&least.text()).unwrap_or_default();
                print(&still_off);
                match Kind::of(&off, &least, &still_off) {
                    Some(kind) => {
                        println!("  known: {}", kind.reason());
                        known.push(kind);
                    }
                    None => wrong += 1,
                }
            }
            Err(problem) => {
                failed += 1;
                println!("seed {seed} could not be compared: {problem}\n{}", script.text());
            }
        }
        count += 1;
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let known = known.len();
    println!(
        "{count} scripts from seed {first} on in {minutes:.1} min: {known} off by a known kind, {wrong} by no known one, \
         {failed} not compared"
    );
    wrong == 0 && failed == 0
}

fn print(off: &[Off]) {
    off.iter().for_each(|off| println!("  {off}"));
}
