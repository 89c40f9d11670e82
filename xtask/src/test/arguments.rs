//! The command line of `cargo xtask test`.

pub const USAGE: &str = "usage: cargo xtask test [--quick]
       cargo xtask test --soak N [--load] [--flaky | FILTER]
  --quick   the inner loop: rules, rustfmt, clippy, and the unit tests, which need neither root nor guests
  --soak N  run the tests N times, and list how often each failed, with seeds and logs. Completed runs of this commit
            count: start the command again to resume. Results are in target/soak
  --load    keep all processors busy meanwhile
  --flaky   only the tests that used to fail occasionally (xtask/src/test/once_flaky.txt)
  FILTER    only these tests, as nextest's filtersets: 'test(a_name) | package(lease)'";

/// Selects what to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// Only the fast tests that need no privileges.
    Quick,
    /// The tests, several times.
    Soak(Soak),
}

/// Options of a soak, which runs tests many times.
#[derive(Debug, PartialEq, Eq)]
pub struct Soak {
    pub runs: u32,
    /// Whether further threads keep the processors busy meanwhile.
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
pub fn parse(words: &[String]) -> Result<Selection, String> {
    let mut words = words.iter().map(String::as_str);
    match words.next() {
        None => Ok(Selection::All),
        Some("--quick") => match words.next() {
            None => Ok(Selection::Quick),
            Some(word) => Err(format!("--quick takes no other argument, found {word:?}")),
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
                        return Err(format!("expected one selection of tests, also found {word:?}"));
                    }
                    ("--flaky", _) => soak.tests = Tests::OnceFlaky,
                    (word, _) if word.starts_with('-') => return Err(format!("unknown option {word:?}")),
                    (filter, _) => soak.tests = Tests::Filter(filter.to_owned()),
                }
            }
            Ok(Selection::Soak(soak))
        }
        Some(word) => Err(format!("unknown option {word:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Selection, String> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_quick_and_soak_are_parsed() {
        assert_eq!(parsed(""), Ok(Selection::All));
        assert_eq!(parsed("--quick"), Ok(Selection::Quick));
        let soak = |load, tests| Ok(Selection::Soak(Soak { runs: 10, load, tests }));
        assert_eq!(parsed("--soak 10"), soak(false, Tests::All));
        assert_eq!(parsed("--soak 10 --load --flaky"), soak(true, Tests::OnceFlaky));
        assert_eq!(parsed("--soak 10 test(x) --load"), soak(true, Tests::Filter("test(x)".to_owned())));
    }

    #[test]
    fn errors_name_the_wrong_argument() {
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
