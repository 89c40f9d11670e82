//! Parses the output of `cargo test`, and counts its tests ([`Output`]). Used for documentation tests, and for all
//! tests if there is no nextest.

use super::tally::{Failure, Skip, SkipReason, Tally};

/// The state of the parser.
#[derive(Debug, Default)]
pub struct Output {
    tally: Tally,
    /// The test program whose output is being read.
    program: Option<String>,
    /// How many of the program's test lines have been read: passed, failed, ignored.
    read: [usize; 3],
}

/// The outcome of a test.
#[derive(Clone, Copy)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
}

impl Outcome {
    /// Each outcome, with its word in the last line of a test program.
    const ALL: [(Outcome, &str); 3] =
        [(Outcome::Passed, "passed"), (Outcome::Failed, "failed"), (Outcome::Ignored, "ignored")];

    /// The outcome from its word in the line of a test.
    fn of(word: &str) -> Option<Outcome> {
        match word {
            "ok" => Some(Outcome::Passed),
            "FAILED" => Some(Outcome::Failed),
            word => word.starts_with("ignored").then_some(Outcome::Ignored),
        }
    }
}

impl Output {
    pub fn read(&mut self, line: &str) {
        if let Some(program) = program(line) {
            self.end_program();
            self.program = Some(program);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.read_result(counts);
        } else if let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            self.read_outcome(test, outcome);
        }
    }

    /// Ends the parsing. `success` is the exit status of cargo.
    pub fn end(mut self, success: bool) -> Tally {
        self.end_program();
        if !success && self.tally.failed.is_empty() {
            self.tally
                .failed
                .push(Failure::of_test("cargo test", None).because("cargo failed before any test did, see above"));
        }
        self.tally
    }

    fn read_outcome(&mut self, test: &str, outcome: &str) {
        if let Some(outcome) = Outcome::of(outcome) {
            self.read[outcome as usize] += 1;
            self.count(outcome, test);
        }
    }

    fn count(&mut self, outcome: Outcome, test: &str) {
        let test = format!("{} {test}", self.program.as_deref().unwrap_or("?"));
        match outcome {
            Outcome::Passed => drop(self.tally.passed.insert(test)),
            Outcome::Failed => self.tally.failed.push(Failure::of_test(&test, None)),
            Outcome::Ignored => self.tally.skips.push(Skip { test, why: SkipReason::Ignored }),
        }
    }

    /// Reads the last line of a test program: `ok. 2 passed; 0 failed; 1 ignored; ...`. If it counts more tests than were read,
    /// output of a child process has broken the lines of the other tests. These are counted without their names.
    fn read_result(&mut self, counts: &str) {
        let numbers = counts.split([';', '.']).map(str::trim);
        let of = |outcome: &str| numbers.clone().find_map(|part| part.strip_suffix(outcome)?.trim().parse().ok());
        for (outcome, word) in Outcome::ALL {
            let counts: usize = of(word).unwrap_or(0);
            for number in self.read[outcome as usize]..counts {
                self.count(outcome, &format!("({word}, number {}: its line is broken, see above)", number + 1));
            }
        }
        self.program = None;
        self.read = [0; 3];
    }

    /// Ends a test program. If it printed no result, it was killed or exited early, which is a failure.
    fn end_program(&mut self) {
        self.read = [0; 3];
        if let Some(program) = self.program.take() {
            let why = "the test program ended without a result, see above";
            self.tally.failed.push(Failure::of_test(&program, None).because(why));
        }
    }
}

/// The program that cargo is about to run: `Running tests/a.rs (target/debug/deps/a-0f)`, `Doc-tests study`.
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

    fn failed(tally: &Tally) -> Vec<&str> {
        tally.failed.iter().map(|failure| failure.test.as_str()).collect()
    }

    #[test]
    fn tests_are_named_by_their_programs() {
        let tally = tally(OUTPUT, false);
        let passed: Vec<&str> = tally.passed.iter().map(String::as_str).collect();
        let documentation = "study (documentation) crates/study/src/lib.rs - (line 3)";
        assert_eq!(passed, ["b five", documentation, "study a::one", "study a::two"]);
        assert_eq!(tally.skips.iter().map(Skip::to_string).collect::<Vec<_>>(), ["study a::three is ignored"]);
        assert_eq!(failed(&tally), ["b four"]);
    }

    /// A child process of a test has written to the same pipe, before a line or in the middle of it.
    #[test]
    fn tests_whose_lines_are_broken_count() {
        let output = OUTPUT.replace("test a::two ... ok", "wordstest a::two ... ok");
        let output = output.replace("test four ... FAILED", "test four ... words\nFAILED");
        let tally = tally(&output, false);
        assert_eq!((tally.passed.len(), tally.failed.len(), tally.skips.len()), (4, 1, 1));
        assert!(tally.passed.contains("study (passed, number 2: its line is broken, see above)"), "{:?}", tally.passed);
        assert_eq!(failed(&tally), ["b (failed, number 1: its line is broken, see above)"]);
    }

    #[test]
    fn a_program_that_is_killed_is_a_failure() {
        let output =
            "     Running unittests src/lib.rs (target/debug/deps/metal-89)\n\nrunning 1 test\nerror: test failed\n";
        assert_eq!(failed(&tally(output, false)), ["metal"]);
    }

    #[test]
    fn code_that_does_not_compile_is_a_failure() {
        assert_eq!(tally("error: could not compile `study`\n", false).failed.len(), 1);
        assert_eq!(tally("", true).failed.len(), 0);
    }
}
