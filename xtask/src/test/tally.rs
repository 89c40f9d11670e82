//! Reads the output of `cargo test -- --show-output` and counts.
//!
//! A test that cannot run here prints `skipped: needs X` and returns; libtest then counts it as
//! passed. Here it counts as skipped, and so does one that is marked `#[ignore]`.

use std::fmt;

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
    /// It is marked `#[ignore]`, with the reason that stands there.
    Ignored(String),
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Needs(what) => write!(f, "{} needs {what}", self.test),
            Why::Ignored(reason) => write!(f, "{} is ignored: {reason}", self.test),
        }
    }
}

/// What came out so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that did not run, in order; a test with several wants is here once.
    pub skips: Vec<Skip>,
    /// The tests that failed, and the programs that did not end.
    pub failed_tests: Vec<String>,
    libtest_passed: usize,
    /// The test program whose output is read.
    program: Option<String>,
    /// The test whose captured output is read.
    test: Option<String>,
    section: Section,
}

/// Where in libtest's output a line stands.
#[derive(Debug, Default, PartialEq)]
enum Section {
    #[default]
    Progress,
    Successes,
    Failures,
}

impl Tally {
    /// Reads a line; whether it should be shown.
    pub fn read(&mut self, line: &str) -> bool {
        if let Some(program) = program(line) {
            self.end_program();
            self.program = Some(program);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.read_counts(counts);
        } else if line == "successes:" {
            self.section = Section::Successes;
            self.test = None;
        } else if line == "failures:" {
            self.section = Section::Failures;
            self.test = None;
        } else if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.test = Some(test.to_string());
        } else if let Some(needs) = line.split_once("skipped: needs ").map(|(_, needs)| needs.trim()) {
            self.skip(needs);
        } else if let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            self.read_outcome(test, outcome);
        }
        self.section != Section::Successes
    }

    /// The output ended; `success` is what cargo says of all of it.
    pub fn end(&mut self, success: bool) {
        self.end_program();
        if !success && self.failed_tests.is_empty() {
            self.failed_tests.push("cargo test: it failed before a test did, see above".to_string());
        }
    }

    /// Tests that ran and passed.
    pub fn passed(&self) -> usize {
        let counted_as_passed = self.skips.iter().filter(|skip| matches!(skip.why, Why::Needs(_))).count();
        self.libtest_passed.saturating_sub(counted_as_passed)
    }

    fn read_outcome(&mut self, test: &str, outcome: &str) {
        let test = self.named(test);
        if outcome == "FAILED" {
            self.failed_tests.push(test);
        } else if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches(", ");
            let reason = if reason.is_empty() { "no reason stands there" } else { reason };
            self.skips.push(Skip { test, why: Why::Ignored(reason.to_string()) });
        }
    }

    fn read_counts(&mut self, counts: &str) {
        let words: Vec<&str> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        let passed = words.windows(2).find(|pair| pair[1] == "passed").and_then(|pair| pair[0].parse::<usize>().ok());
        self.libtest_passed += passed.unwrap_or(0);
        self.program = None;
        self.test = None;
        self.section = Section::Progress;
    }

    fn skip(&mut self, needs: &str) {
        // The output of a test that failed is no skip.
        let Some(test) = self.test.clone().filter(|_| self.section == Section::Successes) else { return };
        let test = self.named(&test);
        if self.skips.iter().all(|skip| skip.test != test) {
            self.skips.push(Skip { test, why: Why::Needs(needs.to_string()) });
        }
    }

    /// A program that began and gave no result was killed or left without one.
    fn end_program(&mut self) {
        if let Some(program) = self.program.take() {
            self.failed_tests.push(format!("{program} did not end as a test program does, see above"));
            self.section = Section::Progress;
        }
    }

    fn named(&self, test: &str) -> String {
        format!("{} {test}", self.program.as_deref().unwrap_or("?"))
    }
}

/// The program that cargo says it runs: `Running tests/a.rs (target/debug/deps/a-0f)`, `Doc-tests study`.
fn program(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{package} (documentation)"));
    }
    let path = line.strip_prefix("Running ")?.rsplit_once("/deps/")?.1.strip_suffix(')')?;
    Some(path.rsplit_once('-').map_or(path, |(name, _)| name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "   Compiling study v0.1.0
     Running unittests src/lib.rs (target/debug/deps/study-0123)

running 3 tests
test a::one ... ok
test a::two ... ok
test a::three ... ignored, a helper

successes:

---- a::two stdout ----
skipped: needs redis-server
skipped: needs redis-tools

successes:
    a::one
    a::two

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/b.rs (target/debug/deps/b-4567)

running 2 tests
test four ... FAILED
test five ... ok

successes:

successes:
    five

failures:

---- four stdout ----
skipped: needs nothing, but it failed

failures:
    four

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests study

running 1 test
test crates/study/src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn tally(output: &str, success: bool) -> (Tally, Vec<&str>) {
        let mut tally = Tally::default();
        let shown = output.lines().filter(|line| tally.read(line)).collect();
        tally.end(success);
        (tally, shown)
    }

    #[test]
    fn totals_are_summed_over_programs_and_skips_are_not_passes() {
        let (tally, _) = tally(OUTPUT, false);
        assert_eq!((tally.passed(), tally.failed_tests.len(), tally.skips.len()), (3, 1, 2));
        let skips: Vec<String> = tally.skips.iter().map(Skip::to_string).collect();
        assert_eq!(skips, ["study a::three is ignored: a helper", "study a::two needs redis-server"]);
        assert_eq!(tally.failed_tests, ["b four"]);
    }

    #[test]
    fn output_of_passed_tests_is_not_shown_and_that_of_failed_ones_is() {
        let (_, shown) = tally(OUTPUT, false);
        assert!(!shown.contains(&"skipped: needs redis-server"));
        assert!(shown.contains(&"skipped: needs nothing, but it failed") && shown.contains(&"test a::one ... ok"));
        assert_eq!(shown.iter().filter(|line| line.starts_with("test result: ")).count(), 3);
    }

    #[test]
    fn a_program_that_is_killed_is_a_failure() {
        let output =
            "     Running unittests src/lib.rs (target/debug/deps/tracer-89)\n\nrunning 1 test\nerror: test failed\n";
        let (tally, _) = tally(output, false);
        assert_eq!(tally.failed_tests, ["tracer did not end as a test program does, see above"]);
    }

    #[test]
    fn code_that_does_not_compile_is_a_failure() {
        assert_eq!(tally("error: could not compile `study`\n", false).0.failed_tests.len(), 1);
        assert_eq!(tally("", true).0.failed_tests.len(), 0);
    }
}
