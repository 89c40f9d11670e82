//! Checks text that must not be in the repository: promises without an issue, and paths of one machine.

use super::Finding;
use super::tree::{File, Tree};

/// Words that promise work. Each is assembled from two parts, so that this file does not contain it.
const PROMISES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Prefixes of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/tmp/", "target"),
];

/// Findings about text. Captures from other machines in fixtures/ are exempt.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let own = |file: &&File| !file.path.starts_with("fixtures/") && file.path != "Cargo.lock";
    let lines = |file: &File| check_lines(&file.path, &file.text);
    tree.files.iter().filter(own).flat_map(lines).collect()
}

fn check_lines(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if let Some(word) = PROMISES.into_iter().find(|word| promises(line, word)) {
            findings.push(Finding::new(
                path,
                number,
                format!("{word} without an issue; expected {word}(#123), or do it now"),
            ));
        }
        if let Some(start) = MACHINE_PATHS.into_iter().find(|start| has_path(line, start)) {
            findings.push(Finding::new(path, number, format!("a path of one machine ({start}...); make it relative")));
        }
    }
    findings
}

fn promises(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let issue =
            after.strip_prefix("(#").is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()));
        !before.ends_with(part_of_word) && !after.starts_with(part_of_word) && !issue
    })
}

fn has_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        !line[..at].ends_with(|character: char| character.is_alphanumeric() || "._-*}$".contains(character))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("a.md", text)])).len()
    }

    #[test]
    fn a_promise_needs_an_issue() {
        for word in PROMISES {
            assert_eq!(count(&format!("// {word}: later")), 1, "{word}");
            assert_eq!(count(&format!("// {word}(#12): later")), 0, "{word}");
            assert_eq!(count(&format!("MY_{word}S")), 0, "{word}");
        }
    }

    #[test]
    fn paths_of_one_machine_are_found_and_relative_ones_are_not() {
        for start in MACHINE_PATHS {
            assert_eq!(count(&format!("see {start}file")), 1, "{start}");
            assert_eq!(count(&format!("see crates{start}file")), 0, "{start}");
        }
    }

    #[test]
    fn captures_and_the_lock_file_keep_what_they_have() {
        let tree = Tree::of(&[("fixtures/proc/maps", MACHINE_PATHS[0]), ("Cargo.lock", PROMISES[0])]);
        assert_eq!(check(&tree), []);
    }
}
