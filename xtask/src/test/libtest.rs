//! Reads the output of `cargo test` and counts: for tests in documentation, and where there is no nextest.

use super::tally::{Skip, Tally, Why};

/// What was read so far.
#[derive(Debug, Default)]
pub struct Output {
    tally: Tally,
    /// The test program whose output is read.
    program: Option<String>,
}

impl Output {
    /// Reads a line.
    pub fn read(&mut self, line: &str) {
        if let Some(program) = program(line) {
            self.end_program();
            self.program = Some(program);
        } else if line.starts_with("test result: ") {
            self.program = None;
        } else if let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            self.read_outcome(test, outcome);
        }
    }

    /// The output ended; `success` is what cargo says of all of it.
    pub fn end(mut self, success: bool) -> Tally {
        self.end_program();
        if !success && self.tally.failed.is_empty() {
            self.tally.failed.push("cargo test: it failed before a test did, see above".to_string());
        }
        self.tally
    }

    fn read_outcome(&mut self, test: &str, outcome: &str) {
        let test = format!("{} {test}", self.program.as_deref().unwrap_or("?"));
        if outcome == "ok" {
            self.tally.passed.insert(test);
        } else if outcome == "FAILED" {
            self.tally.failed.push(test);
        } else if outcome.starts_with("ignored") {
            self.tally.skips.push(Skip { test, why: Why::Ignored });
        }
    }

    /// A program that began and gave no result was killed or left without one.
    fn end_program(&mut self) {
        if let Some(program) = self.program.take() {
            self.tally.failed.push(format!("{program} did not end as a test program does, see above"));
        }
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

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/b.rs (target/debug/deps/b-4567)

running 2 tests
test four ... FAILED
test five ... ok

failures:

---- four stdout ----
it failed

failures:
    four

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests study

running 1 test
test crates/study/src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn tally(output: &str, success: bool) -> Tally {
        let mut read = Output::default();
        output.lines().for_each(|line| read.read(line));
        read.end(success)
    }

    #[test]
    fn tests_are_named_by_their_programs() {
        let tally = tally(OUTPUT, false);
        let passed: Vec<&str> = tally.passed.iter().map(String::as_str).collect();
        let documentation = "study (documentation) crates/study/src/lib.rs - (line 3)";
        assert_eq!(passed, ["b five", documentation, "study a::one", "study a::two"]);
        assert_eq!(tally.skips.iter().map(Skip::to_string).collect::<Vec<_>>(), ["study a::three is ignored"]);
        assert_eq!(tally.failed, ["b four"]);
    }

    #[test]
    fn a_program_that_is_killed_is_a_failure() {
        let output =
            "     Running unittests src/lib.rs (target/debug/deps/metal-89)\n\nrunning 1 test\nerror: test failed\n";
        assert_eq!(tally(output, false).failed, ["metal did not end as a test program does, see above"]);
    }

    #[test]
    fn code_that_does_not_compile_is_a_failure() {
        assert_eq!(tally("error: could not compile `study`\n", false).failed.len(), 1);
        assert_eq!(tally("", true).failed.len(), 0);
    }
}
