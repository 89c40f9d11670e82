//! Runs random programs of system calls and memory accesses natively, and compares them with their simulations ([`run`]). A
//! program that differs is shrunk and printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use validation::StablePageCache;
use validation::kinds::DifferenceKind;
use validation::lab::Lab;
use validation::script::Script;
use validation::scripts::{Difference, Scripts};

use super::arguments::{RandomScripts, Until};
use super::bench::Directory;
use super::tools::Tools;

/// The source of the interpreter of scripts.
const INTERPRETER: &str = "crates/pagelab/tests/programs/script.c";
/// The number of scripts after which memory is compacted again.
const COMPACTION_INTERVAL: u64 = 50;

/// Tries the selected scripts. Returns whether every difference is of a known kind.
pub fn run(root: &Path, tools: &Tools, requested: &RandomScripts, policies: &[&'static str]) -> Result<bool, String> {
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
    match &requested.until {
        Until::Given(file) => run_given(&mut scripts, file),
        Until::Minutes(minutes) => {
            let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
            run_random(&mut scripts, directory.path(), requested.seed, |_| Instant::now() < end)
        }
        Until::Scripts(count) => run_random(&mut scripts, directory.path(), requested.seed, |tried| tried < *count),
    }
}

/// Tries the script in a file.
fn run_given(scripts: &mut Scripts, file: &PathBuf) -> Result<bool, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let off = scripts.differences(&text).map_err(|problem| problem.to_string())?;
    print(&off);
    println!("{}", if off.is_empty() { "agrees" } else { "differs" });
    // The given script need not be minimal, so its differences are not assigned to a kind.
    Ok(off.is_empty())
}

/// Tries one script after the other. Stops when `continues` returns false for the number of scripts so far.
fn run_random(
    scripts: &mut Scripts,
    directory: &Path,
    first: u64,
    continues: impl Fn(u64) -> bool,
) -> Result<bool, String> {
    let mut stable = None;
    let (start, mut count, mut wrong, mut failed) = (Instant::now(), 0, 0, 0);
    let mut known: Vec<DifferenceKind> = Vec::new();
    while continues(count) {
        if count.is_multiple_of(COMPACTION_INTERVAL) {
            drop(stable.take());
            stable =
                Some(StablePageCache::new(directory).map_err(|error| format!("{}: {error}", directory.display()))?);
        }
        let seed = first + count;
        let script = Script::random(seed);
        match scripts.differences(&script.text()) {
            Ok(off) if off.is_empty() => {}
            Ok(off) => {
                println!("seed {seed} differs:");
                print(&off);
                let least = scripts.shrink(&script, &off);
                println!("the shrunk script (--script FILE runs it again):\n{}", least.text());
                match scripts.differences(&least.text()) {
                    Ok(still_off) => {
                        print(&still_off);
                        match DifferenceKind::of(&off, &least, &still_off) {
                            Some(kind) => {
                                println!("  known: {}", kind.reason());
                                known.push(kind);
                            }
                            None => wrong += 1,
                        }
                    }
                    Err(problem) => {
                        println!("  the shrunk script could not be compared: {problem}");
                        wrong += 1;
                    }
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
        "{count} scripts from seed {first} on in {minutes:.1} min: {known} differ in a known way, {wrong} in an unknown way, \
         {failed} not compared"
    );
    Ok(wrong == 0 && failed == 0)
}

fn print(off: &[Difference]) {
    off.iter().for_each(|off| println!("  {off}"));
}
