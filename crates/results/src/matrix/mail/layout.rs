//! Lines of a mail: ASCII, at most 72 columns whatever the text contains, but for a long word of a command line.

use crate::text::{ascii, command_line, fold, printable};

/// Columns of a line.
pub const WIDTH: usize = 72;
/// Columns of a fact before its text.
const LABEL: usize = 10;

/// Text from outside in ASCII, without anything that acts on a terminal.
pub fn plain(text: &str) -> String {
    ascii(&printable(text)).into_owned()
}

/// Folds text. A word longer than a line is broken.
pub fn folded(text: &str, indent: usize) -> String {
    let folded = fold(&plain(text), WIDTH, indent);
    folded.lines().flat_map(chunks).collect::<Vec<_>>().join("\n")
}

fn chunks(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    if letters.is_empty() {
        vec![String::new()]
    } else {
        letters.chunks(WIDTH).map(|part| part.iter().collect()).collect()
    }
}

pub fn paragraph(text: &str) -> String {
    folded(text, 0) + "\n\n"
}

/// An entry of a list.
pub fn item(text: &str) -> String {
    folded(&format!("* {text}"), 2) + "\n"
}

/// `Machine   a processor`
pub fn fact(label: &str, text: &str) -> String {
    folded(&format!("{label:<LABEL$}{text}"), LABEL) + "\n"
}

/// A table: a column of names, and columns of figures that end at fixed places.
pub struct Columns {
    /// Columns for the names.
    pub name: usize,
    /// The heading and the width of each column of figures, including the space before it.
    pub figures: Vec<(String, usize)>,
}

impl Columns {
    /// Columns of equal width, as many as there are headings.
    pub fn of_equal_width(name: usize, heads: &[&str]) -> Columns {
        let width = (WIDTH - name) / heads.len().max(1);
        Columns { name, figures: heads.iter().map(|head| (plain(head), width)).collect() }
    }

    /// The headings, on several lines if a heading is too long for its column.
    pub fn heads(&self) -> String {
        let heads: Vec<Vec<String>> = self.figures.iter().map(|(head, width)| parts(head, width - 1)).collect();
        let lines = heads.iter().map(Vec::len).max().unwrap_or(0);
        let at = |number: usize| {
            let cell = |head: &Vec<String>| (number + head.len()).checked_sub(lines).map(|at| head[at].clone());
            heads.iter().map(|head| cell(head).unwrap_or_default()).collect::<Vec<String>>()
        };
        (0..lines).map(|number| self.line("", &at(number))).collect()
    }

    /// A line of the table. If a cell does not fit its column, each cell gets a line of its own with its heading.
    pub fn row(&self, name: &str, cells: &[String]) -> String {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        let figures = || cells.iter().zip(&self.figures);
        if figures().all(|(cell, (_, width))| cell.len() < *width) {
            return self.line(name, &cells);
        }
        let below = figures().filter(|(cell, _)| !cell.is_empty());
        let below = below.map(|(cell, (head, _))| folded(&format!("    {head}: {cell}"), 6) + "\n");
        folded(name, 4) + "\n" + &below.collect::<String>()
    }

    fn line(&self, name: &str, cells: &[String]) -> String {
        let cells = cells.iter().zip(&self.figures).map(|(cell, (_, width))| format!("{cell:>width$}"));
        (self.named(name) + &cells.collect::<String>()).trim_end().to_owned() + "\n"
    }

    /// The first column of a line. A name that is too long gets lines of its own above it.
    fn named(&self, name: &str) -> String {
        let (name, width) = (plain(name), self.name);
        if name.len() > width { format!("{}\n{:width$}", folded(&name, 4), "") } else { format!("{name:<width$}") }
    }
}

/// Splits a name into parts that fit, at its separators.
fn parts(name: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in name.split_inclusive(['_', ' ', '-']) {
        let last = parts.len() - 1;
        if parts[last].is_empty() || parts[last].len() + word.trim_end().len() <= width {
            parts[last].push_str(word)
        } else {
            parts.push(word.to_owned())
        }
    }
    parts.iter().map(|part| cut(part.trim_end(), width)).collect()
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// A command line that can be pasted into a shell. Lines break between words only, with a backslash at the end: a word that is
/// longer than a line makes a longer line.
pub fn command(words: &[String]) -> String {
    let mut lines = vec![" ".to_owned()];
    for word in words {
        let word = quote(word);
        let line = lines.last_mut().expect("never empty");
        // The last two columns are for the backslash.
        if line.len() + 1 + word.len() + 2 <= WIDTH || line.trim().is_empty() {
            line.push_str(&format!(" {word}"));
        } else {
            line.push_str(" \\");
            lines.push(format!("    {word}"));
        }
    }
    lines.join("\n") + "\n"
}

fn quote(word: &str) -> String {
    if word.is_ascii() {
        return command_line(&[word.to_owned()]);
    }
    format!("$'{}'", plain(&word.replace('\\', "\\\\").replace('\'', "\\'")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_words_of_a_long_command_again() {
        let long = "x".repeat(200);
        let words = ["printf", "%s|", "a b", &long, "it's", &format!("{long} {long}"), "--name=value", "end"];
        let text = command(&words.map(str::to_owned));
        let is_one_word = |line: &str| line.trim_start().trim_end_matches(" \\").contains(&long);
        assert!(text.lines().all(|line| line.len() <= WIDTH || is_one_word(line)), "{text}");
        assert!(text.lines().any(|line| line == format!("    {long} \\")), "a word is never broken: {text}");
        let output = Command::new("sh").args(["-c", &text]).output().unwrap();
        let expected: String = words[2..].iter().map(|word| format!("{word}|")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{text}");
    }

    #[test]
    fn no_line_is_longer_whatever_it_contains() {
        let long = "\u{e9}".repeat(90);
        let columns = Columns::of_equal_width(20, &["a", &long, "c"]);
        let table = |cells: &[String]| columns.heads() + &columns.row(&long, cells);
        let (fitting, wide) = (table(&["1".to_owned(), "2".to_owned()]), table(&[long.clone(), "2".to_owned()]));
        for text in [paragraph(&long), item(&long), fact("Machine", &long), paragraph(""), fitting, wide] {
            assert!(text.is_ascii() && text.lines().all(|line| line.len() <= WIDTH), "{text}");
        }
    }
}
