//! The book's reference of commands and causes matches the output of this program.

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
