//! What the rules let pass that was there before them. The list may only shrink: an entry that is not needed is a finding.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

/// The list. A line has a word for the rule, and paths.
pub const LIST: &str = "xtask/known.txt";

/// A rule that knows exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `circle`: files that use each other.
    Circle,
    /// `long`: a file above the lines that a file may have without a reason.
    Long,
    /// `glob`: a file with `use super::*` outside of tests.
    Glob,
    /// `text-error`: a file of a library with `Result<_, String>`.
    TextError,
}

/// The exceptions, and which of them were needed.
#[derive(Debug, Default)]
pub struct Known {
    path: String,
    entries: Vec<Entry>,
    needed: RefCell<BTreeSet<(usize, String)>>,
}

/// A line of the list.
#[derive(Debug)]
struct Entry {
    line: usize,
    word: String,
    paths: Vec<String>,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Circle => "circle",
            Kind::Long => "long",
            Kind::Glob => "glob",
            Kind::TextError => "text-error",
        }
    }
}

impl Known {
    /// Reads the list; a workspace without one knows no exceptions.
    pub fn read(tree: &Tree) -> Known {
        Known::parse(LIST, tree.get(LIST).map_or("", |file| file.text.as_str()))
    }

    /// The list from its text; lines that begin with `#` are comments.
    pub fn parse(path: &str, text: &str) -> Known {
        let entry = |(line, number): (&str, usize)| {
            let mut words = line.split_whitespace().map(str::to_string);
            let word = words.next().filter(|word| !word.starts_with('#'))?;
            Some(Entry { line: number, word, paths: words.collect() })
        };
        Known { path: path.to_string(), entries: text.lines().zip(1..).filter_map(entry).collect(), ..Known::default() }
    }

    /// Whether a file may break a rule.
    pub fn permits(&self, kind: Kind, path: &str) -> bool {
        self.permits_all(kind, &[path.to_string()])
    }

    /// Whether one entry names all these files, and perhaps more.
    pub fn permits_all(&self, kind: Kind, paths: &[String]) -> bool {
        let covers = |entry: &&Entry| entry.word == kind.word() && paths.iter().all(|path| entry.paths.contains(path));
        let Some(entry) = self.entries.iter().find(covers) else { return false };
        self.needed.borrow_mut().extend(paths.iter().map(|path| (entry.line, path.clone())));
        true
    }

    /// Paths of the list that nothing needed, once all rules have been looked at.
    pub fn not_needed(&self) -> Vec<Finding> {
        let needed = self.needed.borrow();
        let mut findings = Vec::new();
        for entry in &self.entries {
            for path in entry.paths.iter().filter(|path| !needed.contains(&(entry.line, path.to_string()))) {
                let message = format!("{} {path} is no exception any more; take it out", entry.word);
                findings.push(Finding::new(&self.path, entry.line, message));
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_is_a_finding() {
        let known = Known::parse("known.txt", "# Comment.\n\nlong a.rs\ncircle a.rs b.rs c.rs\nglob d.rs\n");
        assert!(known.permits(Kind::Long, "a.rs") && !known.permits(Kind::Long, "b.rs"));
        assert!(known.permits_all(Kind::Circle, &["a.rs".into(), "b.rs".into()]));
        assert!(!known.permits_all(Kind::Circle, &["a.rs".into(), "d.rs".into()]));
        let found: Vec<String> = known.not_needed().iter().map(Finding::to_string).collect();
        let expected = [
            "known.txt:4: circle c.rs is no exception any more; take it out",
            "known.txt:5: glob d.rs is no exception any more; take it out",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_rule_that_does_not_exist_permits_nothing() {
        let known = Known::parse("known.txt", "lang a.rs\n");
        assert!(!known.permits(Kind::Long, "a.rs"));
        assert_eq!(known.not_needed().len(), 1);
    }
}
