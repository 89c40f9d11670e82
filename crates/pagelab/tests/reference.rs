//! Tests that the book's reference of commands and causes matches the output of this program, which also has manual pages and
//! completions.

use std::fs;
use std::path::{Path, PathBuf};

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

#[test]
fn the_reference_in_the_book_is_current() {
    let made = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_pagelab"))
        .args(["generate", "reference"])
        .arg(made.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut pages = files(&made.path().join("cli"));
    let names = |files: Vec<PathBuf>| files.iter().map(|file| file.file_name().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names(pages.clone()),
        names(files(&book.join("cli"))),
        "cargo xtask docs --make, and delete what is gone"
    );
    pages.extend(["cli.md", "causes.md"].map(|name| made.path().join(name)));
    for page in pages {
        let name = page.strip_prefix(made.path()).unwrap();
        let (made, book) = (fs::read_to_string(&page).unwrap(), fs::read_to_string(book.join(name)).unwrap());
        assert!(made == book, "{} is not current: cargo xtask docs --make", name.display());
    }
}

#[test]
fn every_visible_verb_has_a_manual_page_and_is_completed() {
    let made = tempfile::tempdir().unwrap();
    let pagelab = |words: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_pagelab")).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    pagelab(&["man", made.path().to_str().unwrap()]);
    let scripts = ["bash", "zsh", "fish"].map(|shell| pagelab(&["completions", shell]));
    let list = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md")).unwrap();
    let verbs: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("| [`pagelab ")?.split('`').next()).collect();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in verbs {
        let page = fs::read_to_string(made.path().join(format!("pagelab-{verb}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
        assert!(scripts.iter().all(|script| script.contains(verb)), "{verb}");
    }
    assert!(scripts.iter().all(|script| !script.contains("guest-session")));
}
