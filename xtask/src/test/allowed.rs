//! The tests that may be skipped on the CI machine, and why ([`Expected`], `allowed_skips.toml`).

use serde::Deserialize;

use super::tally::{Skip, SkipReason};

const FILE: &str = include_str!("allowed_skips.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedSkips {
    /// Ignored tests that are expected: helpers that other tests start, and tools for manual use.
    ignored: Vec<Allowed>,
    /// Missing features that are expected, because a machine or a kernel may lack them.
    needs: Vec<Allowed>,
}

/// A group of expected skips.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// A part of the test's name, or of what it needs.
    text: String,
    reason: String,
}

/// The skips that CI expects.
#[derive(Debug)]
pub struct Expected(AllowedSkips);

impl Expected {
    /// Reads the file.
    pub fn read() -> Result<Expected, String> {
        toml::from_str(FILE).map(Expected).map_err(|error| format!("allowed_skips.toml: {error}"))
    }

    /// Why a skip is expected; `None` if it is not.
    pub fn reason(&self, skip: &Skip) -> Option<&str> {
        let (list, text) = match &skip.why {
            SkipReason::Ignored => (&self.0.ignored, &skip.test),
            SkipReason::Needs(what) => (&self.0.needs, what),
        };
        list.iter().find(|allowed| text.contains(&allowed.text)).map(|allowed| allowed.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tidy::tree::Tree;

    #[test]
    fn packages_and_root_are_never_expected_to_be_missing() {
        let expected = Expected::read().unwrap();
        let is_expected = |needs: &str| {
            let skip = Skip { test: "pagelab::a b".to_owned(), why: SkipReason::Needs(needs.to_owned()) };
            expected.reason(&skip).is_some()
        };
        for needs in ["redis-server and redis-tools", "root, to mount", "chromium", "gcc", "root"] {
            assert!(!is_expected(needs), "{needs}");
        }
        assert!(is_expected("/dev/kvm"));
    }

    #[test]
    fn each_entry_has_a_reason() {
        let Expected(AllowedSkips { ignored, needs }) = Expected::read().unwrap();
        assert!(ignored.iter().chain(&needs).all(|allowed| !allowed.text.is_empty() && !allowed.reason.is_empty()));
    }

    #[test]
    fn each_ignored_test_has_an_entry_and_each_entry_a_test() {
        let tree = Tree::read(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
        let names: Vec<&str> =
            tree.files.iter().filter(|file| file.is_rust()).flat_map(|file| ignored(&file.code)).collect();
        let Expected(AllowedSkips { ignored: entries, .. }) = Expected::read().unwrap();
        let is_of = |name: &str, entry: &Allowed| name.contains(entry.text.rsplit([' ', ':']).next().unwrap());
        for name in &names {
            assert!(entries.iter().any(|entry| is_of(name, entry)), "no reason for the ignored test {name}");
        }
        for entry in &entries {
            assert!(names.iter().any(|name| is_of(name, entry)), "{} is no ignored test", entry.text);
        }
    }

    /// The names of the ignored tests in a file.
    fn ignored(code: &str) -> impl Iterator<Item = &str> {
        code.split("\n#[ignore").skip(1).chain(code.split("\n    #[ignore").skip(1)).filter_map(|rest| {
            let (_, rest) = rest.split_once("fn ")?;
            rest.split('(').next()
        })
    }
}
