//! Makes the source of the site ([`copy`]): a copy of docs/ in which links to files of the repository point to copies of these
//! files.
//!
//! A page in the repository links to a file such as `../../machines/zen3.toml` by its relative path, which works on a forge. A site
//! contains only the files of the book, so these files are copied to `repository/` in the site.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::mark;
use crate::tidy::links;

/// Pages outside of docs/ that are pages of the book, too.
const PAGES_OUTSIDE: [&str; 1] = ["ARCHITECTURE.md"];
/// The front page of the book. Links to the repository's front page are changed to it.
const FRONT: &str = "README.md";

/// Copies docs/, and the files to which pages link, into `book`: pages into `src`, and `book.toml` next to that
/// directory.
pub fn copy(root: &Path, book: &Path) -> Result<(), String> {
    let source = book.join("src");
    let _ = fs::remove_dir_all(&source);
    let docs = root.join("docs");
    let mut linked = BTreeSet::new();
    for file in files_below(&docs)? {
        let name = file.strip_prefix(&docs).unwrap_or(&file).display().to_string();
        match name.as_str() {
            "book.toml" | "book.css" => put(&file, &book.join(&name))?,
            page if page.ends_with(".md") => {
                let text = page_of(root, &format!("docs/{page}"), &mut linked)?;
                write(&source.join(in_book(&format!("docs/{page}"))), &text)?;
            }
            other => put(&file, &source.join(other))?,
        }
    }
    for page in PAGES_OUTSIDE {
        let text = page_of(root, page, &mut linked)?;
        write(&source.join(in_book(page)), &text)?;
    }
    linked.iter().try_for_each(|path| put(&root.join(path), &source.join(in_book(path))))
}

/// All files below a directory, sorted.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

/// The path of a repository file in the book's source.
fn in_book(path: &str) -> String {
    let path = if path == FRONT { "docs/README.md" } else { path };
    let path = match path.strip_prefix("docs/") {
        Some(page) => page.to_owned(),
        None => format!("repository/{path}"),
    };
    // mdBook renames the page in this way, but does not change the links to it.
    path.strip_suffix("README.md").map(|directory| format!("{directory}index.md")).unwrap_or(path)
}

/// A page as the site needs it. Adds the repository files to which the page links to `linked`.
fn page_of(root: &Path, path: &str, linked: &mut BTreeSet<String>) -> Result<String, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    let mut found = Vec::new();
    let text = with_captions(path, &text)?;
    let text = relinked(path, &text, &mut found);
    for file in found {
        if root.join(&file).is_dir() {
            return Err(format!(
                "{path}: a link to the directory {file}; link to a file in it, because a site has no directories"
            ));
        }
        if !PAGES_OUTSIDE.contains(&file.as_str()) && file != FRONT {
            linked.insert(file);
        }
    }
    Ok(text)
}

/// The page with a caption below the fence after each mark.
fn with_captions(path: &str, text: &str) -> Result<String, String> {
    let marks = mark::read(text).map_err(|problem| format!("{path}:{problem}"))?;
    let captions: BTreeMap<usize, String> = marks.iter().map(|mark| (mark.after - 1, mark.caption())).collect();
    let lines = text.lines().zip(1..);
    Ok(lines.fold(String::new(), |mut page, (line, number)| {
        page.push_str(line);
        page.push('\n');
        if let Some(caption) = captions.get(&number) {
            page.push_str(&format!("\n{caption}\n\n"));
        }
        page
    }))
}

/// The page, with links that leave docs/ rewritten for the book. Adds the repository files to which they point to
/// `found`.
fn relinked(path: &str, text: &str, found: &mut Vec<String>) -> String {
    let from = in_book(path);
    let mut prose = links::prose(text).peekable();
    let mut page = String::new();
    for (line, number) in text.lines().zip(1..) {
        let mut line = line.to_owned();
        if let Some((outside_of_code, _)) = prose.next_if(|(_, at)| *at == number) {
            for target in links::targets(&outside_of_code).filter(|target| !target.contains("://")) {
                let (file, heading) = target.find('#').map_or((target, ""), |at| target.split_at(at));
                let Some(file) = links::resolve(path, file).filter(|_| !file.is_empty()) else { continue };
                if !file.starts_with("docs/") {
                    found.push(file.clone());
                }
                let new = format!("{}{heading}", relative(&from, &in_book(&file)));
                line = line.replace(&format!("]({target})"), &format!("]({new})"));
            }
        }
        page.push_str(&line);
        page.push('\n');
    }
    page
}

/// The path `to` relative to the file `from`.
fn relative(from: &str, to: &str) -> String {
    let up = from.matches('/').count();
    let shared = from.split('/').zip(to.split('/')).take_while(|(one, other)| one == other).count().min(up);
    let down: Vec<&str> = to.split('/').skip(shared).collect();
    "../".repeat(up - shared) + &down.join("/")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    make_parent(path)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn put(from: &Path, to: &Path) -> Result<(), String> {
    make_parent(to)?;
    fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

fn make_parent(path: &Path) -> Result<(), String> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_copies_in_it() {
        let text = "[a](../../machines/a.toml), [b](b.md#c), [c](../../README.md), [d](../../ARCHITECTURE.md#d)\n";
        let mut found = Vec::new();
        let made = relinked("docs/guide/x.md", text, &mut found);
        let expected = "[a](../repository/machines/a.toml), [b](b.md#c), [c](../index.md), \
                        [d](../repository/ARCHITECTURE.md#d)\n";
        assert_eq!(made, expected);
        assert_eq!(found, ["machines/a.toml", "README.md", "ARCHITECTURE.md"]);
    }

    #[test]
    fn code_own_headings_and_other_sites_stay() {
        let text = "`[a](../../a)` [b](#b) [c](https://example.org/)\n```\n[d](../../d)\n```\n";
        let mut found = Vec::new();
        assert_eq!(relinked("docs/guide/x.md", text, &mut found), text);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn pages_outside_of_docs_link_into_the_book() {
        assert_eq!(relinked("ARCHITECTURE.md", "[a](docs/guide/x.md)\n", &mut Vec::new()), "[a](../guide/x.md)\n");
    }

    #[test]
    fn an_output_has_a_caption_on_the_site() {
        let page = with_captions("a.md", mark::tests::PAGE).unwrap();
        assert!(page.contains("-->\n\n<p class=\"made\">Output of <code>echo a &lt; b</code>"), "{page}");
    }
}
