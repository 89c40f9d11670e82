//! The book's reference of commands as Markdown, made from the command line's definition.

use std::fmt::Write;

use clap::{Arg, Command};

/// clap's heading for options that have no heading of their own.
const OPTIONS: &str = "Options";

/// Pages with their file names below `docs/reference`: the list of verbs, and one page per verb. The command must be built.
pub fn pages(command: &Command) -> Vec<(String, String)> {
    let mut list = format!("# Commands\n\n{}\n\n| command | what it does |\n|---|---|\n", about(command));
    let mut pages = Vec::new();
    for verb in visible(command) {
        let name = verb.get_name();
        let _ = writeln!(list, "| [`pagelab {name}`](cli/{name}.md) | {} |", about(verb));
        pages.push((format!("cli/{name}.md"), page(verb)));
    }
    list.push_str(
        "\n`pagelab COMMAND --help` prints the same. [Exit codes](exit-codes.md) are the same for all commands.\n",
    );
    pages.insert(0, ("cli.md".to_owned(), list));
    pages
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

fn page(verb: &Command) -> String {
    let mut text = format!("# pagelab {}\n", verb.get_name());
    describe(verb, &mut text);
    for part in visible(verb) {
        let _ = writeln!(text, "\n## pagelab {} {}", verb.get_name(), part.get_name());
        describe(part, &mut text);
    }
    text
}

/// Writes the section of a command.
fn describe(command: &Command, text: &mut String) {
    let long = command.get_long_about().map_or_else(|| about(command), |long| prose(&long.to_string()));
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "\n{long}\n\n```text\n{}\n```", usage.trim_start_matches("Usage:").trim());
    for heading in headings(command) {
        let _ = writeln!(text, "\n**{heading}**\n");
        arguments(command).filter(|(of, _)| *of == heading).for_each(|(_, argument)| describe_argument(argument, text));
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = writeln!(text, "\n```text\n{}\n```", after.to_string().trim_end());
    }
}

/// Headings in clap's order: arguments, options, then the command's own headings.
fn headings(command: &Command) -> Vec<&str> {
    let mut found: Vec<&str> = vec!["Arguments", OPTIONS];
    for (heading, _) in arguments(command) {
        if !found.contains(&heading) {
            found.push(heading);
        }
    }
    found.retain(|heading| arguments(command).any(|(of, _)| of == *heading));
    found
}

/// Visible arguments with their headings, without `--help` and `--version`.
fn arguments(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let shown =
        |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help" && argument.get_id() != "version";
    command.get_arguments().filter(shown).map(|argument| {
        let without = if argument.is_positional() { "Arguments" } else { OPTIONS };
        (argument.get_help_heading().unwrap_or(without), argument)
    })
}

fn describe_argument(argument: &Arg, text: &mut String) {
    let short = argument.get_short().map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    let help =
        argument.get_long_help().or(argument.get_help()).map(|help| prose(&help.to_string())).unwrap_or_default();
    let help = help.replace("\n\n", "\n\n  ");
    let _ = writeln!(text, "* {short}`{argument}`: {help}{}", default(argument));
    text.push_str(&possible_values(argument));
}

/// `* name: meaning` for each possible value; empty for switches.
fn possible_values(argument: &Arg) -> String {
    let takes_one = argument.get_action().takes_values() && !argument.is_hide_possible_values_set();
    let values = argument.get_possible_values();
    let shown = values.iter().filter(|value| takes_one && !value.is_hide_set());
    shown.fold(String::new(), |mut text, value| {
        let meaning = value.get_help().map(|help| format!(": {}", prose(&help.to_string()))).unwrap_or_default();
        let _ = writeln!(text, "  * `{}`{meaning}", value.get_name());
        text
    })
}

/// A sentence about the default, which follows the help text. Help texts have no final full stop.
fn default(argument: &Arg) -> String {
    let values: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if values.iter().all(|value| value.is_empty())
        || !argument.get_action().takes_values()
        || argument.is_hide_default_value_set()
    {
        return String::new();
    }
    format!(". Default: `{}`", values.join(" "))
}

fn about(command: &Command) -> String {
    command.get_about().map(|about| prose(&about.to_string())).unwrap_or_default()
}

/// Converts help text to Markdown: outside of code, escapes what Markdown would read as a tag, emphasis or a column.
fn prose(help: &str) -> String {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => escaped(part),
        _ => format!("`{part}`"),
    };
    help.trim().split('`').enumerate().map(part).collect()
}

/// Formats options as code, so that no line breaks within them.
fn escaped(text: &str) -> String {
    text.split_inclusive([' ', '\n', '(']).map(escaped_word).collect()
}

fn escaped_word(word: &str) -> String {
    let of_option = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let option = word.find(|c| !of_option(c)).unwrap_or(word.len());
    if word.starts_with("--") && option > 2 {
        let value = |rest: &str| rest.find(|c| !of_option(c)).unwrap_or(rest.len());
        let with_value = word[option..].strip_prefix('=').map(value).filter(|&length| length > 0);
        let end = option + with_value.map_or(0, |length| 1 + length);
        return format!("`{}`{}", &word[..end], escaped_word(&word[end..]));
    }
    word.chars().fold(String::new(), |mut text, character| {
        if "<>*_|[]\\".contains(character) {
            text.push('\\');
        }
        text.push(character);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let size = Arg::new("size")
            .short('s')
            .long("size")
            .value_name("SIZE")
            .default_value("4K")
            .help("At most <this> (--how, --how=a)");
        let how = Arg::new("how").long("how").value_parser(["a", "b"]).help_heading("More").help("`x_y`, a_b");
        let verb = Command::new("look").about("Looks").arg(size).arg(how).arg(Arg::new("file").required(true));
        let hidden = Command::new("secret").hide(true);
        let mut command = Command::new("pagelab").about("All").subcommand(verb).subcommand(hidden);
        command.build();
        command
    }

    #[test]
    fn each_visible_verb_has_a_page_and_a_row() {
        let pages = pages(&command());
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cli.md", "cli/look.md"]);
        assert!(pages[0].1.contains("| [`pagelab look`](cli/look.md) | Looks |"), "{}", pages[0].1);
    }

    #[test]
    fn a_page_has_usage_arguments_values_and_defaults() {
        let page = &pages(&command())[1].1;
        assert!(page.starts_with("# pagelab look\n\nLooks\n\n```text\npagelab look [OPTIONS] <file>\n```\n"), "{page}");
        assert!(page.contains("**Arguments**\n\n* `<file>`: \n"), "{page}");
        assert!(
            page.contains("* `-s`, `--size <SIZE>`: At most \\<this\\> (`--how`, `--how=a`). Default: `4K`\n"),
            "{page}"
        );
        assert!(page.contains("**More**\n\n* `--how <how>`: `x_y`, a\\_b\n  * `a`\n  * `b`\n"), "{page}");
    }
}
