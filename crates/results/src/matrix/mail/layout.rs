//! Lines of a mail: ASCII, at most 72 columns whatever the text contains, but for a long word without spaces in a command line.

use super::super::cells::Sheet;
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

/// Minimum number of columns for a figure in [`table`], including the space before it.
const MIN_FIGURE: usize = 8;

/// A table of a report: names in its first column, then as many of the other columns as fit; the rest is another table below it.
pub fn table(sheet: &Sheet) -> String {
    let longest = |at: usize| sheet.rows.iter().map(|row| plain(&row[at]).len()).max().unwrap_or(0);
    let longest_word = |head: &str| words(head).map(|word| word.trim_end().len()).max().unwrap_or(0);
    let width = |at: usize| (longest(at).max(longest_word(&plain(&sheet.header[at]))) + 1).max(MIN_FIGURE);
    let name = (longest(0) + 1).min(WIDTH / 2);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in 1..sheet.header.len() {
        let taken = |group: &[usize]| name + group.iter().map(|at| width(*at)).sum::<usize>();
        match groups.last_mut() {
            Some(group) if taken(group) + width(at) <= WIDTH => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    let of_group = |group: &Vec<usize>| {
        let figures = group.iter().map(|at| (plain(&sheet.header[*at]), width(*at).min(WIDTH - name))).collect();
        let columns = Columns { name, figures };
        let cells = |row: &[String]| group.iter().map(|at| row[*at].clone()).collect::<Vec<_>>();
        let rows: String = sheet.rows.iter().map(|row| columns.row(&row[0], &cells(row))).collect();
        columns.heads() + &rows + "\n"
    };
    paragraph(&format!("{}:", sheet.caption)) + &groups.iter().map(of_group).collect::<String>()
}

/// The words of a name, each with the separator that follows it.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(['_', ' ', '-'])
}

/// Splits a name into parts that fit, at its separators.
fn parts(name: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in words(name) {
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

/// Columns of the indent of a word on a line of its own, and of the backslash after it.
const AROUND_WORD: usize = 6;

/// A command line that can be pasted into a shell. Lines break between words, with a backslash at the end, and in a longer word after
/// its spaces: a shell joins quoted pieces. A longer word without spaces makes a longer line.
pub fn command(words: &[String]) -> String {
    let mut lines = vec![" ".to_owned()];
    for word in words {
        let mut pieces = pieces(word).into_iter();
        let first = pieces.next().unwrap_or_default();
        let line = lines.last_mut().expect("never empty");
        // The last two columns are for the backslash.
        if line.len() + 1 + first.len() + 2 <= WIDTH || line.trim().is_empty() {
            line.push_str(&format!(" {first}"));
        } else {
            line.push_str(" \\");
            lines.push(format!("    {first}"));
        }
        for piece in pieces {
            lines.last_mut().expect("never empty").push('\\');
            lines.push(piece);
        }
    }
    lines.join("\n") + "\n"
}

/// A word as quoted pieces that fit into lines, if it has spaces to break it.
fn pieces(word: &str) -> Vec<String> {
    let fits = |piece: &str| quote(piece).len() + AROUND_WORD <= WIDTH;
    let mut pieces = vec![String::new()];
    for part in word.split_inclusive(' ') {
        let last = pieces.last_mut().expect("never empty");
        if last.is_empty() || fits(&format!("{last}{part}")) {
            last.push_str(part)
        } else {
            pieces.push(part.to_owned())
        }
    }
    pieces.iter().map(|piece| quote(piece)).collect()
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
        let server =
            "redis-server --port 17379 --bind 127.0.0.1 --save '' --appendonly no --disable-thp no --loglevel warning";
        let words =
            ["printf", "%s|", "a b", &long, "it's", &format!("{long} {long}"), "--name=value", server, "", "end"];
        let text = command(&words.map(str::to_owned));
        let is_one_word = |line: &str| line.trim_start().trim_end_matches(" \\").contains(&long);
        assert!(text.lines().all(|line| line.len() <= WIDTH || is_one_word(line)), "{text}");
        assert!(
            text.lines().any(|line| line == format!("    {long} \\")),
            "a word without spaces is never broken: {text}"
        );
        let output = Command::new("sh").args(["-c", &text]).output().unwrap();
        let expected: String = words[2..].iter().map(|word| format!("{word}|")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{text}");
    }

    #[test]
    fn a_wide_table_continues_below_itself() {
        let cells = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let long = "z".repeat(90);
        let header = cells(&["name", "one", "two words", "three", &long]);
        let wide = ["a workload of many words in its name, and more", "12.3 to 45.6", "<0.1 %", &long, "1"];
        let rows = vec![cells(&["a", "1", "2", "3", "4"]), cells(&wide)];
        let text = table(&Sheet { caption: "a caption".into(), header, rows });
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().any(|line| line.starts_with("a ") && line.ends_with('2')), "{text}");
        assert!(text.matches(&long[..60]).count() >= 1 && text.contains("12.3 to 45.6"), "{text}");
        let empty = Sheet { header: cells(&["name", "one"]), ..Sheet::default() };
        assert_eq!(table(&empty).trim(), ":\n\n      one");
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
