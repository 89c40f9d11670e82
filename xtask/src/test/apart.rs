//! Steps that run at the same time as the tests: fuzz targets, documentation tests, guests. They may, because they measure
//! no times.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cargo_test::cargo_test;
use super::fuzz;
use super::steps::Steps;
use super::tally::{Failure, Tally};

/// Runs these steps one after the other, with the processor time that the tests leave. The documentation tests are run only
/// with `with_documentation`, because without nextest cargo runs them with the other tests.
pub fn run(root: &Path, skips: &Path, with_documentation: bool, steps: &Steps) -> Tally {
    if let Err(problem) = lower_priority() {
        println!("fuzz targets, documentation and guests run at the priority of the tests: {problem}");
    }
    let mut tally = steps.take("fuzz targets", || fuzz::check(root));
    if with_documentation {
        match steps.take("documentation", || cargo_test(root, &["--doc"], None, skips)) {
            Ok(tests) => tally.add(tests),
            Err(problem) => tally.failed.push(Failure::of_test("documentation", None).because(problem)),
        }
    }
    let guests = steps.take("guests", || crate::guests::small(root));
    guests.into_iter().for_each(|(check, outcome)| tally.add_guest(check, outcome));
    tally
}

/// Gives this thread, and the processes that it starts from now on, the lowest priority.
fn lower_priority() -> Result<(), String> {
    let place = fs::read_link("/proc/thread-self").map_err(|error| format!("/proc/thread-self: {error}"))?;
    let thread = place.file_name().unwrap_or_default();
    let output = Command::new("renice").args(["-n", "19", "-p"]).arg(thread).output();
    let output = output.map_err(|error| format!("cannot run renice: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nice value of this thread as a child process inherits it: field 19 of its stat.
    fn priority() -> String {
        let output = Command::new("cat").arg("/proc/self/stat").output().unwrap();
        let stat = String::from_utf8(output.stdout).unwrap();
        stat.split_whitespace().nth(18).unwrap().to_owned()
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = priority();
        let other = std::thread::spawn(|| lower_priority().map(|()| priority())).join().unwrap();
        assert_eq!((other, priority()), (Ok("19".to_owned()), before));
    }
}
