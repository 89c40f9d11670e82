//! What came out of the tests: which passed, which failed, and which did not run.
//!
//! A test that cannot run here says so by `testing::skip`, which writes a line to a file, and returns; whoever runs it then
//! counts it as passed. Here it counts as skipped, and so does one that is marked `#[ignore]`.

use std::collections::BTreeSet;
use std::fmt;

use crate::guests::Outcome;

/// A test that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The program and the test.
    pub test: String,
    /// Why it did not.
    pub why: Why,
}

/// Why a test did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It said that it needs something.
    Needs(String),
    /// It is marked `#[ignore]`.
    Ignored,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Needs(what) => write!(f, "{} needs {what}", self.test),
            Why::Ignored => write!(f, "{} is ignored", self.test),
        }
    }
}

/// What came out so far. A test is named by its program and its name, with a blank between them.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that ran to their end without failing; those that said that they cannot run are among them until
    /// [`Tally::read_skips`].
    pub passed: BTreeSet<String>,
    /// Tests that did not run, in order; a test with several wants is here once.
    pub skips: Vec<Skip>,
    /// The tests that failed, and the programs that did not end.
    pub failed: Vec<String>,
}

impl Tally {
    /// Adds what came out of other tests.
    pub fn add(&mut self, other: Tally) {
        self.passed.extend(other.passed);
        self.skips.extend(other.skips);
        self.failed.extend(other.failed);
    }

    /// Adds a check of a guest. What of it was not there is skipped by name, beside the rest.
    pub fn add_guest(&mut self, check: String, outcome: Outcome) {
        println!("{check} {outcome}");
        let mut skip = |test: String, what: String| self.skips.push(Skip { test, why: Why::Needs(what) });
        match outcome {
            Outcome::Held { needs, .. } => {
                needs.into_iter().for_each(|what| skip(format!("{check} in part"), what));
                self.passed.insert(check);
            }
            Outcome::Failed(why) => self.failed.push(format!("{check}: {why}")),
            Outcome::Skipped(what) => skip(check, what),
        }
    }

    /// Takes the tests that wrote lines to the file of skips out of those that passed. One that failed stays a failure, and
    /// what a test's own child wrote is nobody's.
    pub fn read_skips(&mut self, file: &str) {
        for line in file.lines() {
            let mut parts = line.splitn(3, '\t');
            let (Some(program), Some(test), Some(needs)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let test = format!("{program} {test}");
            if self.passed.remove(&test) {
                self.skips.push(Skip { test, why: Why::Needs(needs.to_string()) });
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
        assert_eq!((tally.passed.len(), tally.failed.as_slice()), (1, ["guest x two: why".to_owned()].as_slice()));
        let skips: Vec<String> = tally.skips.iter().map(Skip::to_string).collect();
        assert_eq!(skips, ["guest x one in part needs folios", "guest x three needs a network"]);
    }

    #[test]
    fn a_skip_is_no_pass_and_counts_once() {
        let passed = ["a one", "a two"].map(str::to_string).into();
        let mut tally = Tally { passed, failed: vec!["b three".into()], ..Tally::default() };
        tally.read_skips("a\ttwo\tredis-server\na\ttwo\tredis-tools\nb\tthree\troot\na\thelper\tgcc\n");
        assert_eq!((tally.passed.len(), tally.failed.len()), (1, 1));
        assert_eq!(tally.skips.iter().map(Skip::to_string).collect::<Vec<_>>(), ["a two needs redis-server"]);
    }
}
