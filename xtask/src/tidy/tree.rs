//! The files of the workspace ([`Tree`]), and Rust source without its comments and literals.

use std::path::Path;
use std::process::Command;

#[derive(Clone, Debug)]
pub struct File {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
    /// For Rust source: `text` with comments and literals replaced by blanks, each line with its original length.
    pub code: String,
}

/// All text files that git tracks, or would add.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The text files, sorted by path.
    pub files: Vec<File>,
    /// Paths of binary files, such as pictures.
    pub others: Vec<String>,
}

impl File {
    /// Makes a file from its content.
    pub fn new(path: &str, text: &str) -> File {
        let code = if path.ends_with(".rs") { without_comments_and_literals(text) } else { String::new() };
        File { path: path.to_string(), text: text.to_string(), code }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

impl Tree {
    /// Reads the files that `git ls-files` lists. Of binary files only the names are kept.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot run git in {}: {error}; needs git and a checkout", root.display()))?;
        if !output.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let paths = String::from_utf8_lossy(&output.stdout).into_owned();
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for path in paths.split('\0').filter(|path| !path.is_empty()) {
            match std::fs::read_to_string(root.join(path)) {
                Ok(text) => files.push(File::new(path, &text)),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => others.push(path.to_owned()),
                Err(_) => {}
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files.dedup_by(|one, other| one.path == other.path);
        Ok(Tree { files, others })
    }

    pub fn rust_below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.is_rust() && file.path.starts_with(directory))
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a path is a file or a directory with files.
    pub fn has(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        let mut paths = self.files.iter().map(|file| &file.path).chain(&self.others);
        paths.any(|one| one == path || one.starts_with(&directory))
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree {
            files: files.iter().map(|(path, text)| File::new(path, text)).collect(),
            others: vec!["a.png".to_owned()],
        }
    }
}

/// Rust source in which comments and the contents of literals are replaced by blanks. Newlines stay.
fn without_comments_and_literals(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let length = blank_length(&characters, at);
        let end = (at + length.max(1)).min(characters.len());
        for character in &characters[at..end] {
            code.push(if length == 0 || *character == '\n' { *character } else { ' ' });
        }
        at = end;
    }
    code
}

/// The length of the comment or literal that starts at this character; 0 if none starts there.
fn blank_length(characters: &[char], at: usize) -> usize {
    let rest = &characters[at..];
    let before = at.checked_sub(1).map(|index| characters[index]);
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|character| *character == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_length(rest),
        ['"', ..] => string_length(rest),
        ['b' | 'c', '"', ..] if !in_word => 1 + string_length(&rest[1..]),
        ['r', '"' | '#', ..] if !in_word => raw_string_length(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !in_word => raw_string_length(rest, 2),
        ['\'', '\\', _, tail @ ..] => 3 + tail.iter().position(|character| *character == '\'').map_or(0, |end| end + 1),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of the raw string whose hashes start at `rest[prefix..]`; 0 if it is a raw identifier (`r#name`).
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|character| **character == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return 0;
    }
    let body = prefix + hashes + 1;
    let closes =
        |at: &usize| rest[*at] == '"' && rest[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    (body..rest.len()).find(closes).map_or(rest.len(), |end| end + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_first_command_of_the_readme_is_not_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let (_, demo) = readme.lines().find_map(|line| line.split_once("-- demo ")).unwrap();
        let (_, report) = demo.rsplit_once("writes ").unwrap();
        let ignored = Command::new("git").args(["check-ignore", "-q", report]).current_dir(root).status().unwrap();
        assert!(ignored.success(), "{report:?} in .gitignore, or tidy looks at it");
    }

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x \" y") + 1"#, "f(        ) + 1"),
            (r##"g(r#"a " b"#) + r#type"##, "g(          ) + r#type"),
            ("h('\\'', 'x', b\"y\") as &'static str", "h(    ,    ,     ) as &'static str"),
            ("fn for_bar<'a>(x: &'a str)", "fn for_bar<'a>(x: &'a str)"),
            ("'\\u{1F600}' x", "            x"),
        ] {
            assert_eq!(without_comments_and_literals(text), code, "{text}");
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = "let a = \"one\ntwo\";\n/* three\nfour */ unsafe_code();\n";
        let code = without_comments_and_literals(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.lines().nth(3).unwrap().contains("unsafe_code"));
    }

    #[test]
    fn a_directory_exists_if_it_has_a_file() {
        let tree = Tree::of(&[("a/b.md", "")]);
        assert!(tree.has("a") && tree.has("a/b.md") && !tree.has("a/b"));
    }
}
