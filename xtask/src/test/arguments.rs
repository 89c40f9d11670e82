//! The command line of `cargo xtask test`.

pub const USAGE: &str = "usage: cargo xtask test [--quick]
       cargo xtask test --soak N [--load] [--flaky | FILTER]
  --quick   the inner loop: rules, rustfmt, and the tests of libraries and programs that need neither root nor guests
  --soak N  run the tests N times, and list what failed how often, with seeds and logs. A run that was completed for this
            commit is not repeated: start the command again to resume. Results are in target/soak
  --load    keep all processors busy meanwhile
  --flaky   only the tests that once failed now and then (xtask/src/test/once_flaky.txt)
  FILTER    only these tests, as nextest's filtersets: 'test(a_name) | package(lease)'";

/// Selects what to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything.
    All,
    /// Only the fast tests that need no privileges.
    Quick,
    /// The tests, several times.
    Soak(Soak),
}

/// Options of a soak: the tests, several times.
#[derive(Debug, PartialEq, Eq)]
pub struct Soak {
    pub runs: u32,
    /// Whether other threads keep the processors busy meanwhile.
    pub load: bool,
    pub tests: Tests,
}

/// The tests of a soak.
#[derive(Debug, PartialEq, Eq)]
pub enum Tests {
    /// All tests.
    All,
    /// The tests that were once flaky.
    OnceFlaky,
    /// The tests of a nextest filterset.
    Filter(String),
}

/// Parses the words after `test`.
///
/// # Errors
/// They are not valid.
pub fn parse(words: &[String]) -> Result<Wanted, String> {
    let mut words = words.iter().map(String::as_str);
    match words.next() {
        None => Ok(Wanted::All),
        Some("--quick") => match words.next() {
            None => Ok(Wanted::Quick),
            Some(word) => Err(format!("--quick takes nothing more, found {word:?}")),
        },
        Some("--soak") => {
            let number = words.next().unwrap_or_default();
            let runs = number.parse().ok().filter(|runs| *runs > 0);
            let runs = runs.ok_or_else(|| format!("--soak expects a number of runs above 0, found {number:?}"))?;
            let mut soak = Soak { runs, load: false, tests: Tests::All };
            for word in words {
                match (word, &soak.tests) {
                    ("--load", _) => soak.load = true,
                    (_, Tests::OnceFlaky | Tests::Filter(_)) => {
                        return Err(format!("one choice of tests is enough, found {word:?} as well"));
                    }
                    ("--flaky", _) => soak.tests = Tests::OnceFlaky,
                    (word, _) if word.starts_with('-') => return Err(format!("there is no option {word:?}")),
                    (filter, _) => soak.tests = Tests::Filter(filter.to_owned()),
                }
            }
            Ok(Wanted::Soak(soak))
        }
        Some(word) => Err(format!("there is no option {word:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Wanted, String> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_quick_and_soak_are_understood() {
        assert_eq!(parsed(""), Ok(Wanted::All));
        assert_eq!(parsed("--quick"), Ok(Wanted::Quick));
        let soak = |load, tests| Ok(Wanted::Soak(Soak { runs: 10, load, tests }));
        assert_eq!(parsed("--soak 10"), soak(false, Tests::All));
        assert_eq!(parsed("--soak 10 --load --flaky"), soak(true, Tests::OnceFlaky));
        assert_eq!(parsed("--soak 10 test(x) --load"), soak(true, Tests::Filter("test(x)".to_owned())));
    }

    #[test]
    fn wrong_words_are_named() {
        for (words, named) in [
            ("--slow", "\"--slow\""),
            ("--quick x", "\"x\""),
            ("--soak", "above 0"),
            ("--soak 0", "\"0\""),
            ("--soak 3 --lode", "\"--lode\""),
            ("--soak 3 --flaky test(x)", "\"test(x)\""),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(named), "{words}: {error}");
        }
    }
}
