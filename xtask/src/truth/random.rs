//! [`run`]: runs random scripts of system calls and memory accesses natively, and compares each with its simulation. If
//! they differ, the script is shrunk and printed.

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

/// Source of the program that runs scripts.
const INTERPRETER: &str = "crates/pagelab/tests/programs/script.c";
/// Number of scripts that share one [`StablePageCache`]. A new one compacts memory if it is fragmented.
const COMPACTION_INTERVAL: u64 = 50;

/// Tries the requested scripts. Returns whether all could be compared and every difference is of a known kind.
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

/// Tries the script in a file. Returns whether it agrees with its simulation.
fn run_given(scripts: &mut Scripts, file: &PathBuf) -> Result<bool, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let differences = scripts.differences(&text).map_err(|problem| problem.to_string())?;
    print(&differences);
    println!("{}", if differences.is_empty() { "agrees" } else { "differs" });
    // Only the differences of a shrunk script can be of a known kind, and this script may not be shrunk.
    Ok(differences.is_empty())
}

/// Tries the seeds from `first` on, as long as `continues` returns true for the number of scripts tried so far.
fn run_random(
    scripts: &mut Scripts,
    directory: &Path,
    first: u64,
    continues: impl Fn(u64) -> bool,
) -> Result<bool, String> {
    let mut stable = None;
    let (start, mut count, mut unknown, mut failed) = (Instant::now(), 0, 0, 0);
    let mut known: Vec<DifferenceKind> = Vec::new();
    while continues(count) {
        if count.is_multiple_of(COMPACTION_INTERVAL) {
            // Memory is not compacted while the previous one exists.
            drop(stable.take());
            stable =
                Some(StablePageCache::new(directory).map_err(|error| format!("{}: {error}", directory.display()))?);
        }
        let seed = first + count;
        let script = Script::random(seed);
        match scripts.differences(&script.text()) {
            Ok(differences) if differences.is_empty() => {}
            Ok(differences) => {
                println!("seed {seed} differs:");
                print(&differences);
                let shrunk = scripts.shrink(&script, &differences);
                println!("the shrunk script (--script FILE runs it again):\n{}", shrunk.text());
                match scripts.differences(&shrunk.text()) {
                    Ok(shrunk_differences) => {
                        print(&shrunk_differences);
                        match DifferenceKind::of(&differences, &shrunk, &shrunk_differences) {
                            Some(kind) => {
                                println!("  known: {}", kind.reason());
                                known.push(kind);
                            }
                            None => unknown += 1,
                        }
                    }
                    Err(problem) => {
                        println!("  the shrunk script could not be compared: {problem}");
                        unknown += 1;
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
        "{count} scripts from seed {first} on in {minutes:.1} min: {known} differ in a known way, {unknown} in an unknown way, \
         {failed} not compared"
    );
    Ok(unknown == 0 && failed == 0)
}

fn print(differences: &[Difference]) {
    differences.iter().for_each(|difference| println!("  {difference}"));
}
