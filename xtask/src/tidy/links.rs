//! Checks links in Markdown files: the linked files and headings must exist.

use super::Finding;
use super::tree::{File, Tree};

/// Findings about links.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| file.path.ends_with(".md")).flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in prose(&file.text) {
        for target in targets(&line) {
            if let Some(problem) = problem(tree, &file.path, target) {
                findings.push(Finding::new(&file.path, number, problem));
            }
        }
    }
    findings
}

/// The lines outside of fenced code, without inline code, and their numbers.
pub fn prose(text: &str) -> impl Iterator<Item = (String, usize)> {
    let mut fenced = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let outside_of_code: String = line.split('`').step_by(2).collect();
        (!fenced).then_some((outside_of_code, number))
    })
}

/// The targets of `[text](target)` and `![text](target "title")`.
pub fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest[..rest.find(')')?].split_whitespace().next()
    })
}

fn problem(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { Some(from.to_string()) } else { resolve(from, path) };
    let Some(path) = path.filter(|path| path.is_empty() || tree.has(path)) else {
        return Some(format!("the link {target} is broken"));
    };
    let heading = heading?;
    let found = tree.get(&path).is_some_and(|file| headings(&file.text).any(|name| name == heading));
    (!found).then(|| format!("the link {target} names a heading that {path} does not have"))
}

/// The path `target`, which is relative to the file `from`, relative to the repository; `None` if it is outside the
/// repository.
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a file's headings, as forges generate them: lower case, without punctuation, `-` for blanks.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    let outside = text.lines().filter(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced
    });
    outside.filter(|line| line.starts_with('#')).map(|line| {
        let name = line.trim_start_matches('#').trim().to_lowercase();
        name.chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("docs/a.md", text), ("README.md", "# The `demo`, first\n"), ("docs/b/c.txt", "")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn valid_links_are_accepted() {
        for link in [
            "../README.md",
            "b/c.txt",
            "b",
            "./b/",
            "../a.png",
            "https://example.org/x",
            "#own",
            "../README.md#the-demo-first",
        ] {
            assert_eq!(found(&format!("# Own\n[x]({link}) and ![y]({link} \"title\")")), [""; 0], "{link}");
        }
    }

    #[test]
    fn broken_links_are_found() {
        for link in ["gone.md", "../../README.md", "b/gone", "#other", "../README.md#gone"] {
            assert_eq!(found(&format!("# Own\n[x]({link})")).len(), 1, "{link}");
        }
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(found("`[x](gone)`\n```\n[y](gone)\n```\n"), [""; 0]);
    }
}
