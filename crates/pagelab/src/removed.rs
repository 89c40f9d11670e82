//! Options of earlier versions that have become verbs or file keys: the error names the replacement.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An option that was removed.
struct Removed {
    /// The verb that had it.
    verb: &'static str,
    /// The option's name with its dashes.
    option: &'static str,
    /// The replacement; `VALUE` is replaced by the option's argument.
    now: &'static str,
    /// The text for `VALUE` if the option had no argument.
    value: &'static str,
}

const fn removed(verb: &'static str, option: &'static str, now: &'static str, value: &'static str) -> Removed {
    Removed { verb, option, now, value }
}

const REMOVED: [Removed; 10] = [
    removed("compare", "--stored", "use `pagelab show VALUE`", "NUMBER"),
    removed("compare", "--merge", "use `pagelab merge VALUE`", "STORE..."),
    removed("sim", "--geometry", "use `pagelab sim sweep FILE...`", ""),
    removed("sim", "--chase", "use `pagelab sim chase`", ""),
    removed("sim", "--chase-largest", "use `pagelab sim chase --largest VALUE`", "SIZE"),
    removed("sim", "--also-folios", "use --linux FILE.toml with `also_enabled = [\"VALUE\"]` under [mthp]", "SIZE"),
    removed("sim", "--pages-to-scan", "use --linux FILE.toml with `pages_to_scan = VALUE` under [khugepaged]", "PAGES"),
    removed(
        "sim",
        "--scan-sleep",
        "use --linux FILE.toml with `scan_sleep_millisecs = ...` under [khugepaged]: VALUE s are a thousand times as many",
        "SECONDS",
    ),
    removed("sim", "--max-ptes-none", "use --linux FILE.toml with `max_ptes_none = VALUE` under [khugepaged]", "PAGES"),
    removed("sim", "--instruction-rate", "use --linux FILE.toml with `instructions_per_s = VALUE`", "N"),
];

/// Adds the replacement to a command-line error if it is about a removed option.
pub fn with_new_way(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(new_way) = new_way(&error, words) else { return error };
    // A suggestion of a similarly spelled option would be misleading.
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![new_way.into()]));
    error
}

fn new_way(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let verb = words.get(1)?;
    let removed = REMOVED.iter().find(|removed| removed.verb == verb && removed.option == option)?;
    let mut after = words.iter().skip_while(|word| word.split('=').next() != Some(removed.option));
    let given = after.next().and_then(|word| word.split_once('=').map(|(_, value)| value));
    let given = given.or_else(|| after.next().map(AsRef::as_ref).filter(|word| !word.starts_with('-')));
    Some(removed.now.replace("VALUE", given.unwrap_or(removed.value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).expect_err(line);
        with_new_way(error, &words).to_string()
    }

    #[test]
    fn an_option_of_earlier_versions_names_the_new_way() {
        for (line, new_way) in [
            ("pagelab compare --stored 3", "use `pagelab show 3`"),
            ("pagelab compare --store a --stored=3 --json", "use `pagelab show 3`"),
            ("pagelab compare --stored", "use `pagelab show NUMBER`"),
            ("pagelab compare --merge a.sqlite b.sqlite", "use `pagelab merge a.sqlite`"),
            ("pagelab sim a.trace --geometry --json", "use `pagelab sim sweep FILE...`"),
            ("pagelab sim --chase", "use `pagelab sim chase`"),
            ("pagelab sim --chase-largest 1M", "use `pagelab sim chase --largest 1M`"),
            ("pagelab sim a.trace --also-folios 16K", "`also_enabled = [\"16K\"]` under [mthp]"),
            ("pagelab sim a.trace --pages-to-scan 0", "`pages_to_scan = 0` under [khugepaged]"),
            ("pagelab sim a.trace --scan-sleep 0.5", "0.5 s are a thousand times as many"),
            ("pagelab sim a.trace --max-ptes-none 7", "`max_ptes_none = 7` under [khugepaged]"),
            ("pagelab sim a.trace --instruction-rate 1e9", "`instructions_per_s = 1e9`"),
        ] {
            let said = said(line);
            assert!(said.contains(new_way) && said.contains("unexpected argument"), "{line}: {said}");
            assert!(!said.contains("similar"), "{line}: {said}");
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert!(said("pagelab compare --stores a -- true").contains("'--store'"));
        assert!(!said("pagelab sim a.trace --stored 1").contains("pagelab show"), "sim never had it");
        assert!(!said("pagelab compare -p thp").contains("use "));
    }
}
