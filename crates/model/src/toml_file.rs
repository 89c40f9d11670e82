//! Reads TOML files. Error messages have one line and suggest the key that was probably meant.

use std::fmt;

use serde::de::DeserializeOwned;

/// Why a file is not valid TOML, or has unknown keys or wrong values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlError {
    /// The line number, from 1.
    line: usize,
    /// The key in that line, if its value is wrong.
    key: Option<String>,
    /// The parser's message.
    what: String,
    /// The known name most similar to an unknown one.
    nearest: Option<String>,
}

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TomlError { line, key, what, nearest } = self;
        write!(f, "line {line}")?;
        key.iter().try_for_each(|key| write!(f, ", `{key}`"))?;
        write!(f, ": {what}")?;
        nearest.iter().try_for_each(|nearest| write!(f, "; the nearest is `{nearest}`"))
    }
}

impl std::error::Error for TomlError {}

/// Parses a file.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        TomlError { line: before.matches('\n').count() + 1, key: key(before, &what), nearest: nearest(&what), what }
    })
}

/// The first key of the line, if `what` is about a wrong value; `before` is the text before that value.
fn key(before: &str, what: &str) -> Option<String> {
    let is_of_value = ["invalid ", "unknown variant "].iter().any(|kind| what.starts_with(kind));
    let key = before.rsplit('\n').next()?.split_once('=')?.0.trim();
    is_of_value.then(|| key.to_owned())
}

/// The expected name that is most similar to the unknown name in the parser's message, if any is similar.
fn nearest(what: &str) -> Option<String> {
    if !what.starts_with("unknown ") {
        return None;
    }
    let mut names = what.split('`').skip(1).step_by(2);
    let found = names.next()?;
    policy::similar::nearest(found, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "entries")]
        _entries: u32,
        #[serde(rename = "part")]
        _part: Option<Part>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        #[serde(rename = "scan_sleep_millisecs")]
        _scan_sleep_millisecs: u32,
        #[serde(rename = "kind")]
        _kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Lru,
        Random,
    }

    #[test]
    fn an_error_names_the_line_the_key_and_the_nearest_name() {
        for (text, expected) in [
            ("entires = 3", "line 1: unknown field `entires`, expected `entries` or `part`; the nearest is `entries`"),
            ("entries = 3\n[part]\nscan_sleep_s = 1", "; the nearest is `scan_sleep_millisecs`"),
            ("entries = 3\nspeed = 1", "line 2: unknown field `speed`, expected `entries` or `part`"),
            (
                "entries = 3\n[part]\nscan_sleep_millisecs = 1\nkind = \"rand\"",
                "line 4, `kind`: unknown variant `rand`",
            ),
            ("", "missing field `entries`"),
            ("entries = 3\nentries = 4", "line 2: duplicate key"),
            ("entries = \"many\"", "line 1, `entries`: invalid type: string \"many\", expected u32"),
            ("entries = {\n\n[", "line "),
            ("\u{0}", "line 1: "),
        ] {
            let message = read::<File>(text).expect_err(text).to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{text:?}: {message}");
        }
        let far = read::<File>("entries = 3\nspeed = 1").unwrap_err().to_string();
        assert!(!far.contains("nearest"), "{far}");
        assert!(read::<File>("entries = 3\n[part]\nscan_sleep_millisecs = 1\nkind = \"lru\"").is_ok());
        let _ = Kind::Random;
    }
}
