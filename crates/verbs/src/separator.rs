//! Accepts a command without a preceding `--`, if no word of the command could be an option of pagelab.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, Args, Command};

use crate::failure::Failure;
use crate::sim;

/// Inserts `--` before the command that the verb takes; `None` if the verb takes no command, or none is given.
///
/// # Errors
/// A word of the command is also an option of the verb.
pub fn insert(words: &[OsString], mut cli: Command) -> Option<Result<Vec<OsString>, Failure>> {
    cli.build();
    let verb = cli.find_subcommand(words.get(1)?)?;
    if !verb.get_positionals().all(Arg::is_last_set) || verb.get_positionals().next().is_none() {
        return None;
    }
    let at = 2 + first_positional(verb, &words[2..])?;
    let (before, command) = words.split_at(at);
    if command.iter().any(|word| word == "--") {
        return None;
    }
    // A trace in place of a command is one word, and what follows is for pagelab.
    if verb.get_name() == "limits" && sim::is_trace(Path::new(&command[0])) {
        return Some(Ok([before, &command[1..], &["--".into()], &command[..1]].concat()));
    }
    let is_option = |word: &&OsString| text(word).is_some_and(|word| option(verb, word).is_some());
    if let Some(word) = command.iter().find(is_option) {
        let (word, name, verb) = (word.display(), command[0].display(), verb.get_name());
        return Some(Err(Failure::Input(format!(
            "{word} can be an option of pagelab or of {name}: give pagelab's options first, then --, then the command \
             (pagelab {verb} [OPTIONS] -- {name} ...)"
        ))));
    }
    Some(Ok([before, &["--".into()], command].concat()))
}

/// The words after a verb, with the `--` that the command line may lack. Used for arguments that are stored as the user wrote them and
/// parsed again later.
///
/// # Errors
/// A word of the command is also an option of the verb.
pub fn inserted<A: Args>(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    const VERB: &str = "verb";
    let line: Vec<OsString> = ["pagelab".into(), VERB.into()].into_iter().chain(words.iter().cloned()).collect();
    let cli = Command::new("pagelab").subcommand(A::augment_args(Command::new(VERB)));
    insert(&line, cli).map_or(Ok(words), |separated| Ok(separated?.split_off(2)))
}

/// The position of the first word that is neither an option nor the value of an option; `None` if there is none, or if an option
/// is unknown.
fn first_positional(verb: &Command, words: &[OsString]) -> Option<usize> {
    let mut at = 0;
    loop {
        let word = text(words.get(at)?)?;
        if word == "--" {
            return None;
        }
        if !word.starts_with('-') || word == "-" {
            return Some(at);
        }
        let takes_value = option(verb, word)?.get_action().takes_values();
        let has_value = if word.starts_with("--") { word.contains('=') } else { word.chars().count() > 2 };
        at += if takes_value && !has_value { 2 } else { 1 };
    }
}

/// The option of the verb that a word is.
fn option<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    let of = |names: &dyn Fn(&Arg) -> bool| verb.get_arguments().find(|argument| names(argument));
    match word.strip_prefix("--") {
        Some(long) => of(&|argument| argument.get_long() == long.split('=').next()),
        None => {
            let short = word.strip_prefix('-')?.chars().next()?;
            of(&|argument| argument.get_short() == Some(short))
        }
    }
}

fn text(word: &OsString) -> Option<&str> {
    OsStr::to_str(word)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn of(line: &str) -> Option<Result<String, String>> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let joined = |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().unwrap();
        insert(&words, Cli::command()).map(|words| words.map(joined).map_err(|failure| failure.to_string()))
    }

    #[test]
    fn a_command_needs_no_separator_where_it_is_unambiguous() {
        for (line, separated) in [
            ("pagelab compare sort -S 1G lines.txt", "pagelab compare -- sort -S 1G lines.txt"),
            ("pagelab compare -p thp --max-time 2m sort -n", "pagelab compare -p thp --max-time 2m -- sort -n"),
            ("pagelab compare -pthp --aa --max-time=2m sort", "pagelab compare -pthp --aa --max-time=2m -- sort"),
            ("pagelab exec -p thp ./a.out --metric", "pagelab exec -p thp -- ./a.out --metric"),
            ("pagelab record -o file ls", "pagelab record -o file -- ls"),
        ] {
            assert_eq!(of(line), Some(Ok(separated.to_owned())), "{line}");
        }
    }

    #[test]
    fn refuses_an_ambiguous_option_and_shows_how_to_separate_it() {
        for (line, word) in [
            ("pagelab compare sort --max-time 2m", "--max-time"),
            ("pagelab compare ./a.out -p thp", "-p"),
            ("pagelab compare ls --full=x", "--full=x"),
        ] {
            let refused = of(line).unwrap().unwrap_err();
            assert!(refused.starts_with(&format!("{word} can be an option of pagelab or of ")), "{refused}");
            assert!(refused.contains("(pagelab compare [OPTIONS] -- "), "{refused}");
        }
    }

    #[test]
    fn other_lines_are_left_alone() {
        for line in [
            "pagelab",
            "pagelab apples",
            "pagelab compare",
            "pagelab compare -- sort",
            "pagelab compare thp -- sort",
            "pagelab compare --apples sort",
            "pagelab compare --max-time",
            "pagelab inspect sort",
            "pagelab show 1 2",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn stored_words_are_separated_too() {
        let of = |line: &str| {
            let words = inserted::<crate::compare::Compare>(line.split(' ').map(OsString::from).collect()).unwrap();
            words.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(of("-p base,thp ./x 64"), "-p base,thp -- ./x 64");
        assert_eq!(of("--blocks 3 -- ./x -v"), "--blocks 3 -- ./x -v");
    }
}
