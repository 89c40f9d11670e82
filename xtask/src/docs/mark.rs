//! The marks of outputs ([`Mark`]). A mark is a comment in front of an output which names the command that made the output, the
//! date, the host, and the code that the output shows.
//!
//! ```text
//! <!-- output
//! command: pagelab table decode -f x86-64 PMD 0
//! commit: fd26ecc
//! date: 2026-11-23
//! host: any
//! code: crates/paging crates/verbs/src/table
//! -->
//! ```
//! `host: any` means that the output is the same on every machine, so `cargo xtask docs --make` can make it again.

use std::collections::BTreeMap;

const BEGIN: &str = "<!-- output";
const END: &str = "-->";
/// The keys of a mark, all of which are required.
const KEYS: [&str; 5] = ["command", "commit", "date", "host", "code"];

/// The content of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The line of the page where the mark begins, counted from 1.
    pub line: usize,
    /// The line after the end of the mark.
    pub after: usize,
    /// The command that printed the output, as a shell command line.
    pub command: String,
    /// The commit of the program that printed the output.
    pub commit: String,
    /// The date in ISO 8601 format.
    pub date: String,
    /// The name of the machine, or `any` if the output is the same on every machine.
    pub host: String,
    /// Files and directories of the repository on which the output depends.
    pub code: Vec<String>,
}

impl Mark {
    /// Whether the output is the same on every machine.
    pub fn is_repeatable(&self) -> bool {
        self.host == "any"
    }

    /// The caption of the output on the site.
    pub fn caption(&self) -> String {
        let host = if self.is_repeatable() { String::new() } else { format!(" on {}", self.host) };
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let text = escaped(&format!("{}{host}, commit {}", self.date, self.commit));
        format!("<p class=\"made\">Output of <code>{}</code>, {text}.</p>", escaped(&self.command))
    }
}

/// All marks of a page. An error names the line in which the mark is wrong.
pub fn read(page: &str) -> Result<Vec<Mark>, String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut marks = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == BEGIN) {
        let length = lines[at + 1..].iter().position(|line| *line == END);
        let length = length.ok_or_else(|| format!("{}: a mark without an end", at + 1))?;
        let values = keys(&lines[at + 1..at + 1 + length]).map_err(|problem| format!("{}: {problem}", at + 1))?;
        let value = |key: &str| values[key].to_owned();
        marks.push(Mark {
            line: at + 1,
            after: at + length + 3,
            command: value("command"),
            commit: value("commit"),
            date: value("date"),
            host: value("host"),
            code: values["code"].split_whitespace().map(str::to_owned).collect(),
        });
    }
    Ok(marks)
}

fn keys<'a>(lines: &[&'a str]) -> Result<BTreeMap<&'a str, &'a str>, String> {
    let mut values = BTreeMap::new();
    for line in lines {
        let (key, value) = line.split_once(": ").ok_or_else(|| format!("expected `key: value`, found {line}"))?;
        if !KEYS.contains(&key) {
            return Err(format!("unknown key {key}; a mark has {}", KEYS.join(", ")));
        }
        values.insert(key, value.trim());
    }
    match KEYS.iter().find(|key| !values.contains_key(*key)) {
        Some(missing) => Err(format!("the mark lacks its {missing}")),
        None => Ok(values),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A page with one repeatable output.
    pub const PAGE: &str = "# A\n\n<!-- output\ncommand: echo a < b\ncommit: fd26ecc\ndate: 2026-11-23\nhost: any\ncode: crates/a xtask\n-->\n```\n$ echo old\nold\n```\n";

    #[test]
    fn a_mark_says_what_made_the_output() {
        let [mark] = read(PAGE).unwrap().try_into().unwrap();
        assert_eq!((mark.line, mark.after, mark.command.as_str()), (3, 10, "echo a < b"));
        assert_eq!(mark.code, ["crates/a", "xtask"]);
        assert!(mark.is_repeatable());
        let caption = "<p class=\"made\">Output of <code>echo a &lt; b</code>, 2026-11-23, commit fd26ecc.</p>";
        assert_eq!(mark.caption(), caption);
    }

    #[test]
    fn an_incomplete_mark_is_an_error() {
        let wrong = |from: &str, to: &str| read(&PAGE.replace(from, to)).unwrap_err();
        assert_eq!(wrong("-->\n", ""), "3: a mark without an end");
        assert_eq!(wrong("date: 2026-11-23\n", ""), "3: the mark lacks its date");
        assert!(wrong("host: any", "where: any").starts_with("3: unknown key where"));
    }
}
