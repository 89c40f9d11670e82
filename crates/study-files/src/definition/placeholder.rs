//! `{name}` placeholders in the words of a study: parameters of its size, and values of a workload's axes.

use std::collections::BTreeMap;

use super::listed::listed;

/// Maximum bytes of a word: no argument or environment variable of a program can be longer (`MAX_ARG_STRLEN`, execve(2)).
const MAX_WORD_BYTES: usize = 128 << 10;

/// A word whose placeholders cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    #[error("{word:?} asks for {{{name}}}; there are {known} (write {{{{ for a literal brace)")]
    Unknown {
        word: String,
        /// Name of the placeholder.
        name: String,
        /// The names that have a value.
        known: String,
    },
    /// A word that is too long to be passed to a program.
    #[error(
        "{begin:?}... has more than {MAX_WORD_BYTES} bytes with its placeholders filled in, the limit of Linux for an argument; \
         let the program read it from a file"
    )]
    TooLong {
        /// First characters of the word.
        begin: String,
    },
    #[error("{word:?} has an unmatched brace; write {{{{ or }}}} for a literal brace")]
    Unclosed { word: String },
}

/// Fills in the placeholders of a word.
pub fn filled(word: &str, values: &BTreeMap<String, String>) -> Result<String, PlaceholderError> {
    let unclosed = || PlaceholderError::Unclosed { word: begin(word) };
    let check_length = |text: &str| {
        if text.len() > MAX_WORD_BYTES { Err(PlaceholderError::TooLong { begin: begin(word) }) } else { Ok(()) }
    };
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            text.push_str(&from[..1]);
            rest = after;
            continue;
        }
        let (name, after) = from.strip_prefix('{').and_then(|from| from.split_once('}')).ok_or_else(unclosed)?;
        text.push_str(values.get(name).ok_or_else(|| unknown(word, name, values))?);
        check_length(&text)?;
        rest = after;
    }
    text.push_str(rest);
    check_length(&text)?;
    Ok(text)
}

/// The part of a word that an error shows.
fn begin(word: &str) -> String {
    word.chars().take(80).collect()
}

fn unknown(word: &str, name: &str, values: &BTreeMap<String, String>) -> PlaceholderError {
    let known = if values.is_empty() {
        "no parameters and axes".to_owned()
    } else {
        listed(values.keys().map(|name| format!("{{{name}}}")))
    };
    PlaceholderError::Unknown { word: begin(word), name: begin(name), known }
}

/// Every combination of axis values; the last axis changes fastest.
pub fn choices(axes: &BTreeMap<String, Vec<String>>) -> Vec<BTreeMap<String, String>> {
    axes.iter().fold(vec![BTreeMap::new()], |choices, (name, values)| {
        let with = |choice: &BTreeMap<String, String>, value: &String| {
            let mut choice = choice.clone();
            choice.insert(name.clone(), value.clone());
            choice
        };
        choices.iter().flat_map(|choice| values.iter().map(move |value| with(choice, value))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> BTreeMap<String, String> {
        BTreeMap::from([("bytes".to_owned(), "1G".to_owned()), ("n".to_owned(), "{3}".to_owned())])
    }

    #[test]
    fn placeholders_are_filled_in_once() {
        let filled = |word: &str| filled(word, &values()).unwrap();
        assert_eq!(filled("--bytes={bytes},{n}"), "--bytes=1G,{3}");
        assert_eq!(filled("awk '{{print $1}}'"), "awk '{print $1}'");
        assert_eq!(filled("plain"), "plain");
    }

    #[test]
    fn errors_name_the_placeholder_or_the_unmatched_brace() {
        let error = |word: &str| filled(word, &values()).unwrap_err().to_string();
        assert_eq!(
            error("{byte}"),
            "\"{byte}\" asks for {byte}; there are {bytes}, {n} (write {{ for a literal brace)"
        );
        for word in ["{bytes", "a}", "{", "}"] {
            assert!(error(word).contains("unmatched brace"), "{word}");
        }
    }

    #[test]
    fn a_word_longer_than_an_argument_may_be_is_refused() {
        let values = BTreeMap::from([("a".to_owned(), "x".repeat(1000))]);
        assert_eq!(filled(&"{a}".repeat(131), &values).map(|word| word.len()), Ok(131_000));
        for word in ["{a}".repeat(132), "y".repeat(131_073), "{a}".repeat(1 << 20)] {
            let error = filled(&word, &values).unwrap_err().to_string();
            assert!(error.contains("more than 131072 bytes") && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn axes_make_every_choice_once() {
        let axes = BTreeMap::from([
            ("a".to_owned(), vec!["1".to_owned(), "2".to_owned()]),
            ("b".to_owned(), vec!["x".to_owned(), "y".to_owned(), "z".to_owned()]),
        ]);
        let choices = choices(&axes);
        let text: Vec<String> = choices.iter().map(|choice| format!("{}{}", choice["a"], choice["b"])).collect();
        assert_eq!(text, ["1x", "1y", "1z", "2x", "2y", "2z"]);
        assert_eq!(self::choices(&BTreeMap::new()).len(), 1);
    }
}
