//! Checks the language of comments and names: words that readers stumbled over have plain replacements.

use super::Finding;
use super::tree::{File, Tree};

/// Words of an earlier style, and plain replacements. Each is assembled from two parts so that this file does not contain it.
const WORDS: [(&str, &str); 5] = [
    (concat!("bes", "ide"), "next to, with, compared with"),
    (concat!("sta", "nds"), "is"),
    (concat!("to", "ld"), "reported, known"),
    (concat!("so ", "many"), "n, the number of"),
    (concat!("is ", "had"), "comes from, is available"),
];

/// Names of documented keys and values, which stay.
const KEYS: [&str; 2] = [concat!("sta", "nds_for"), concat!("not_among_so_", "many")];

/// Findings about comments and names of Rust sources.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.files.iter().filter(|file| file.is_rust());
    rust.flat_map(|file| odd_comments(file).into_iter().chain(odd_names(file))).collect()
}

fn odd_comments(file: &File) -> Vec<Finding> {
    let comments = file.text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
    let odd = comments.flat_map(|(line, number)| WORDS.iter().map(move |(word, plain)| (line, number, word, plain)));
    let odd = odd.filter(|(line, _, word, _)| has_word(line, word));
    odd.map(|(_, number, word, plain)| Finding::new(&file.path, number, format!("{word:?}: write {plain}"))).collect()
}

fn odd_names(file: &File) -> Vec<Finding> {
    let names = file.code.lines().zip(1..).flat_map(|(line, number)| {
        let names = line.split(|character: char| !is_of_word(character)).filter(|name| !name.is_empty());
        names.map(move |name| (snake_case(name), number)).collect::<Vec<_>>()
    });
    let odd = names.filter(|(name, _)| !KEYS.contains(&name.as_str())).flat_map(|(name, number)| {
        let words = WORDS.iter().filter(move |(word, _)| has_part(&name, &word.replace(' ', "_")));
        words.map(move |(word, plain)| (number, word, plain))
    });
    odd.map(|(number, word, plain)| Finding::new(&file.path, number, format!("a name with {word:?}: write {plain}")))
        .collect()
}

/// A name in lower case, with `_` between its words.
fn snake_case(name: &str) -> String {
    let is_type = name.chars().any(char::is_lowercase);
    let mut snake = String::new();
    for character in name.chars() {
        if is_type && character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

/// Whether consecutive words of a name are these.
fn has_part(name: &str, part: &str) -> bool {
    format!("_{name}_").contains(&format!("_{part}_"))
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether a line has the words, outside of names in backticks.
fn has_word(line: &str, word: &str) -> bool {
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

    #[test]
    fn odd_words_of_names_are_found_and_documented_keys_are_not() {
        let found = |text: String| check(&Tree::of(&[("crates/a/src/lib.rs", &text)])).len();
        for (word, _) in WORDS {
            let name = word.replace(' ', "_");
            let camel: String = word.split(' ').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
            assert_eq!(found(format!("fn a_{name}_of() {{}}\nstruct A{camel};\nlet x = a.{name};\n")), 3, "{word}");
            assert_eq!(found(format!("let un{name}: u8;\nlet {name}ish = 1;\n")), 0, "{word}");
        }
        assert_eq!(found(KEYS.map(|key| format!("let {key} = 1;\n")).concat()), 0);
    }
}
