//! Checks the language of comments: words that made readers stop have plain ones.

use super::Finding;
use super::tree::{File, Tree};

/// Words of an earlier style, and what says the same. Each is assembled from two parts so that this file does not contain it.
const WORDS: [(&str, &str); 5] = [
    (concat!("bes", "ide"), "next to, with, compared with"),
    (concat!("sta", "nds"), "is"),
    (concat!("to", "ld"), "reported, known"),
    (concat!("so ", "many"), "n, the number of"),
    (concat!("is ", "had"), "comes from, is available"),
];

/// Findings about comments of Rust sources.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| file.is_rust()).flat_map(odd_comments).collect()
}

fn odd_comments(file: &File) -> Vec<Finding> {
    let comments = file.text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
    let odd = comments.flat_map(|(line, number)| WORDS.iter().map(move |(word, plain)| (line, number, word, plain)));
    let odd = odd.filter(|(line, _, word, _)| has_word(line, word));
    odd.map(|(_, number, word, plain)| Finding::new(&file.path, number, format!("{word:?}: write {plain}"))).collect()
}

/// Whether a line has the words, outside of names in backticks.
fn has_word(line: &str, word: &str) -> bool {
    let is_of_word = |character: char| character.is_alphanumeric() || character == '_';
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_of_word) && !text[at + word.len()..].starts_with(is_of_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_words_of_comments_are_found_and_names_are_not() {
        for (word, _) in WORDS {
            let found = |text: String| check(&Tree::of(&[("crates/a/src/lib.rs", &text)])).len();
            assert_eq!(found(format!("    /// What {word} here.\n")), 1, "{word}");
            assert_eq!(found(format!("// What `{word}` means, un{word}ish\nlet text = \"{word}\";\n")), 0, "{word}");
        }
    }
}
