//! Parses the command-line arguments that describe variants.

use std::ffi::OsString;
use std::str::FromStr;

use study::comparison::Fragmented;

use crate::words::{Variable, WordError, parse_fragmented, parse_variable};

/// Placeholder for the whole command in the command line of a variant.
const COMMAND: &str = "{}";
/// Placeholder for the command's arguments.
const ARGUMENTS: &str = "{args}";

/// A malformed description of a variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariantError {
    #[error("expected NAME, or NAME=COMMAND with a command line as for a shell, found {0:?}")]
    Word(String),
    #[error("expected a command after the variables; {{}} is replaced by the given command, found {0:?}")]
    NoCommand(String),
    #[error("expected NAME=VALUE, found {0:?}")]
    Named(String),
    /// The value cannot be parsed.
    #[error(transparent)]
    Value(#[from] WordError),
}

/// A variant as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantWord {
    /// The variant's name.
    pub name: String,
    /// Environment variables that the variant sets or removes.
    pub variables: Vec<Variable>,
    /// The command line of the variant, with placeholders.
    command: Vec<String>,
}

impl FromStr for VariantWord {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<VariantWord, VariantError> {
        let (name, line) = text.split_once('=').unwrap_or((text, COMMAND));
        let wrong = || VariantError::Word(text.to_owned());
        let words = shlex::split(line).ok_or_else(wrong)?;
        let is_variable = |word: &&String| word.contains('=') && parse_variable(OsString::from(word)).is_ok();
        let count = words.iter().take_while(is_variable).count();
        let variables = words[..count].iter().map(|word| parse_variable(OsString::from(word)));
        match (name.trim().is_empty(), words.len() > count) {
            (true, _) => Err(wrong()),
            (false, false) => Err(VariantError::NoCommand(text.to_owned())),
            (false, true) => Ok(VariantWord {
                name: name.trim().to_owned(),
                variables: variables.collect::<Result<_, _>>()?,
                command: words[count..].to_vec(),
            }),
        }
    }
}

impl VariantWord {
    /// The command of the variant. `given`, the command of the comparison, is filled in for the placeholders.
    pub fn of(&self, given: &[OsString]) -> Vec<OsString> {
        let filled = |word: &String| match word.as_str() {
            COMMAND => given.to_vec(),
            ARGUMENTS => given.get(1..).unwrap_or_default().to_vec(),
            word => vec![OsString::from(word)],
        };
        self.command.iter().flat_map(filled).collect()
    }
}

/// Splits `NAME=VALUE`.
pub fn parse_named(text: &str) -> Result<(String, String), VariantError> {
    let (name, value) = text.split_once('=').ok_or_else(|| VariantError::Named(text.to_owned()))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses `NAME=80%@64K`: the fragmentation for a variant.
pub fn parse_fragmented_of(text: &str) -> Result<(String, Fragmented), VariantError> {
    let (name, wish) = parse_named(text)?;
    Ok((name, parse_fragmented(&wish)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<VariantWord, String> {
        text.parse().map_err(|error: VariantError| error.to_string())
    }

    #[test]
    fn placeholders_are_replaced_by_the_given_values() {
        let given = ["./old/sort", "--parallel=1", "a b"].map(OsString::from);
        let command = |text: &str| {
            let words = of(text).unwrap().of(&given);
            words.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(command("old"), ["./old/sort", "--parallel=1", "a b"]);
        assert_eq!(command("new=./new/sort {args} -u"), ["./new/sort", "--parallel=1", "a b", "-u"]);
        assert_eq!(command("wrapped=nice {}"), ["nice", "./old/sort", "--parallel=1", "a b"]);
    }

    #[test]
    fn variables_precede_the_command() {
        let word = of("arenas=MALLOC_ARENA_MAX=1 A='b c' {} x=1").unwrap();
        let names: Vec<&str> = word.variables.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names, word.name.as_str()), (vec!["MALLOC_ARENA_MAX", "A"], "arenas"));
        assert_eq!(word.command, ["{}", "x=1"]);
    }

    #[test]
    fn refuses_text_that_is_no_variant() {
        for (text, part) in [("", "expected NAME"), ("a='", "command line"), ("a=B=1", "after the variables")] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse_named("a").is_err() && parse_fragmented_of("a=0%").is_err());
        assert_eq!(parse_fragmented_of("aged=80%@64K").unwrap().1.percent, 80);
    }
}
