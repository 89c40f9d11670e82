//! Finds property tests whose failures cannot be repeated. They must use `testing::properties`, which prints the seed and writes
//! nothing into the source tree.

use super::Finding;
use super::tree::{File, Tree};

/// The text with which property tests begin.
const MACRO: &str = concat!("proptest", "! {");

/// Findings about the line that follows this text, and about files of regressions.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let written = tree.files.iter().filter(|file| file.path.contains("proptest-regressions/"));
    let written = written.map(|file| Finding::new(&file.path, 0, "a property test wrote it; use testing::properties"));
    tree.files.iter().filter(|file| file.is_rust()).flat_map(check_file).chain(written).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let is_bare = |at: &usize| {
        lines[*at].trim() == MACRO && !lines.get(at + 1).is_some_and(|next| next.contains("(testing::properties("))
    };
    let message = "expected #![proptest_config(testing::properties(CASES))] in the next line";
    (0..lines.len()).filter(is_bare).map(|at| Finding::new(&file.path, at + 1, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_without_a_printed_seed_are_found() {
        let found = |path: &str, next: &str| check(&Tree::of(&[(path, &format!("{MACRO}\n{next}\n}}\n"))])).len();
        let path = "crates/a/src/b.rs";
        assert_eq!(found(path, "    #![proptest_config(testing::properties(64))]"), 0);
        assert_eq!(found(path, "    #![proptest_config(ProptestConfig::with_cases(64))]"), 1);
        assert_eq!(found(path, "    #[test]"), 1);
        assert_eq!(found("crates/a/proptest-regressions/b.txt", ""), 1);
    }
}
