//! The outcome of the tests ([`Tally`]): which passed, which failed, and which did not run.
//!
//! A test that cannot run here reports it with `testing::skip`, which adds a line to a file, and returns. nextest and cargo count
//! such a test as passed. Here it counts as skipped, and so does a test that is marked `#[ignore]`.

use std::collections::BTreeSet;
use std::fmt;

use super::repeat;
use crate::guests::Outcome;

/// A test that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The program and the test.
    pub test: String,
    pub why: SkipReason,
}

/// Why a test did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The test needs this, which is not available.
    Needs(String),
    /// The test is marked `#[ignore]`.
    Ignored,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            SkipReason::Needs(what) => write!(f, "{} needs {what}", self.test),
            SkipReason::Ignored => write!(f, "{} is ignored", self.test),
        }
    }
}

/// A failed test, test program or step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The name of what failed.
    pub test: String,
    /// The reason of the failure, if the output does not contain it.
    pub why: Option<String>,
    /// The state of the host before the failure.
    pub host: Option<String>,
    /// The command that repeats the test.
    pub repeat: Option<String>,
}

impl Failure {
    /// The failure of a test, with the command that repeats it.
    pub fn of_test(test: &str, output: Option<&str>) -> Failure {
        let repeat = repeat::command(test, output);
        Failure { test: test.to_owned(), repeat, ..Failure::default() }
    }

    /// The same failure with a reason.
    pub fn because(self, why: impl Into<String>) -> Failure {
        Failure { why: Some(why.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.test)?;
        self.why.iter().try_for_each(|why| write!(f, ": {why}"))?;
        let mut host = self.host.iter().flat_map(|host| host.lines());
        host.next().map_or(Ok(()), |line| write!(f, "\n    host before it, {line}"))?;
        host.try_for_each(|line| write!(f, "\n      {line}"))?;
        self.repeat.iter().try_for_each(|command| write!(f, "\n    repeat: {command}"))
    }
}

/// The outcome so far. A test is identified by its program and its name, separated by a blank.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that ended without a failure. Until [`Tally::read_skips`], these include tests that called `testing::skip`.
    pub passed: BTreeSet<String>,
    /// Tests that did not run, in order. A test is listed once, even if it lacks several things.
    pub skips: Vec<Skip>,
    /// Tests that failed, and test programs that did not end.
    pub failed: Vec<Failure>,
}

impl Tally {
    /// Adds the outcome of other tests.
    pub fn add(&mut self, other: Tally) {
        self.passed.extend(other.passed);
        self.skips.extend(other.skips);
        self.failed.extend(other.failed);
    }

    /// Adds a check of a guest. Parts of the check that could not run are added as skips, under names of their own.
    pub fn add_guest(&mut self, check: String, outcome: Outcome) {
        println!("{check} {outcome}");
        let mut skip = |test: String, what: String| self.skips.push(Skip { test, why: SkipReason::Needs(what) });
        match outcome {
            Outcome::Held { needs, .. } => {
                needs.into_iter().for_each(|what| skip(format!("{check} in part"), what));
                self.passed.insert(check);
            }
            Outcome::Failed(why) => self.failed.push(Failure::of_test(&check, None).because(why)),
            Outcome::Skipped(what) => skip(check, what),
        }
    }

    /// Moves tests that have written a line to the file of skips from the passed tests to the skipped ones. A failed test
    /// stays a failure. Lines from a child process of a test are ignored.
    pub fn read_skips(&mut self, file: &str) {
        for line in file.lines() {
            let mut parts = line.splitn(3, '\t');
            let (Some(program), Some(test), Some(needs)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let test = format!("{program} {test}");
            if self.passed.remove(&test) {
                self.skips.push(Skip { test, why: SkipReason::Needs(needs.to_string()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_of_guests_are_counted_like_tests() {
        let mut tally = Tally::default();
        let needs = vec!["folios".to_owned()];
        tally.add_guest("guest x one".into(), Outcome::Held { seen: String::new(), needs });
        tally.add_guest("guest x two".into(), Outcome::Failed("why".into()));
        tally.add_guest("guest x three".into(), Outcome::Skipped("a network".into()));
        let failed: Vec<String> = tally.failed.iter().map(Failure::to_string).collect();
        let expected = "guest x two: why\n    repeat: cargo xtask guests x --small --only two";
        assert_eq!((tally.passed.len(), failed.as_slice()), (1, [expected.to_owned()].as_slice()));
        let skips: Vec<String> = tally.skips.iter().map(Skip::to_string).collect();
        assert_eq!(skips, ["guest x one in part needs folios", "guest x three needs a network"]);
    }

    #[test]
    fn a_failure_is_shown_with_the_host_before_it_and_the_command_that_repeats_it() {
        let host = Some("7 s into the run: load 1\n/proc/x: 1, was 2".to_owned());
        let failure = Failure { host, ..Failure::of_test("study one", None) };
        let expected = "study one\n    host before it, 7 s into the run: load 1\n      /proc/x: 1, was 2\n    \
                        repeat: cargo test -p study --lib -- --exact one";
        assert_eq!(failure.to_string(), expected);
    }

    #[test]
    fn a_skip_is_no_pass_and_counts_once() {
        let passed = ["a one", "a two"].map(str::to_string).into();
        let mut tally = Tally { passed, failed: vec![Failure::of_test("b three", None)], ..Tally::default() };
        tally.read_skips("a\ttwo\tredis-server\na\ttwo\tredis-tools\nb\tthree\troot\na\thelper\tgcc\n");
        assert_eq!((tally.passed.len(), tally.failed.len()), (1, 1));
        assert_eq!(tally.skips.iter().map(Skip::to_string).collect::<Vec<_>>(), ["a two needs redis-server"]);
    }
}
