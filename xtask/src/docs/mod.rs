//! `cargo xtask docs`: builds the book in docs/ as a site, and checks its links and the age of the outputs that it shows.

mod age;
mod mark;
mod mdbook;
mod program;
mod repeat;
mod site;
mod source;
mod studies;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mark::Mark;
use program::Program;
pub use source::files_below;

const USAGE: &str = "usage: cargo xtask docs [--check | --make | --studies [--program FILE] [NAME...]]
  without an option  build the site in target/book/site with mdBook, and check its links
  --check            print the age of each output in the book; fail if an output is empty
  --make             regenerate the command reference, and the outputs that are the same on every machine
  --studies          regenerate the reports of the studies (of those named) from the results of `pagelab study run NAME`
  --program FILE     use this pagelab, the build that ran them; for another build, simulations count as missing";

/// Runs the task that the options select.
pub fn run(root: &Path, options: &[String]) -> ExitCode {
    let outcome = match options.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => build(root),
        ["--check"] => check(root),
        ["--make"] => make(root),
        ["--studies", "--program", file, names @ ..] => {
            Program::named(file).and_then(|program| studies::make(root, &program, names))
        }
        ["--studies", names @ ..] => Program::build(root).and_then(|program| studies::make(root, &program, names)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Result<(), String> {
    site(root).map(|site| println!("{}", site.join("index.html").display()))
}

/// Builds the site, checks its links, and returns its path.
pub fn site(root: &Path) -> Result<PathBuf, String> {
    let mdbook = mdbook::find_or_install(root)?;
    let book = root.join("target/book");
    source::copy(root, &book)?;
    let site = book.join("site");
    let _ = fs::remove_dir_all(&site);
    mdbook::build(&mdbook, &book)?;
    let broken = site::broken_links(&site)?;
    broken.iter().for_each(|link| println!("{link}"));
    if !broken.is_empty() {
        return Err(format!("{} links are broken", broken.len()));
    }
    Ok(site)
}

/// Prints a line for each output. It is no error if an output is older than its code, because measurements are dated. An
/// empty output is an error.
fn check(root: &Path) -> Result<(), String> {
    let (mut older, mut empty, mut total) = (0, 0, 0);
    for (page, marks) in marked_pages(root)? {
        let text = read(&root.join(&page))?;
        for mark in marks {
            let age = age::of(root, &mark).map_err(|problem| format!("{page}:{}: {problem}", mark.line))?;
            let is_empty = repeat::is_empty(&text, &mark);
            let age_column = if is_empty { format!("{:19}", "empty") } else { age.to_string() };
            total += 1;
            older += usize::from(age.is_older() && !is_empty);
            empty += usize::from(is_empty);
            println!("{age_column} {page}:{}: {}", mark.line, mark.command);
        }
    }
    println!("{total} outputs, {older} older than the code that they show, {empty} empty");
    if empty == 0 {
        Ok(())
    } else {
        Err(format!("{empty} outputs are empty: run their commands and insert what they print"))
    }
}

/// Builds the program that prints the outputs, and makes the repeatable outputs again with it.
fn make(root: &Path) -> Result<(), String> {
    let program = Program::build(root)?;
    let mut reference = std::process::Command::new(program.directory.join("pagelab"));
    crate::command::succeed(reference.args(["generate", "reference"]).arg(root.join("docs/reference")))?;
    for page in pages(root)? {
        let text = read(&page)?;
        let made = repeat::all(root, &program, &text).map_err(|problem| format!("{}: {problem}", page.display()))?;
        if made != text {
            fs::write(&page, made).map_err(|error| format!("{}: {error}", page.display()))?;
        }
    }
    Ok(())
}

/// README.md and the pages of the book that show outputs, relative to the workspace.
fn marked_pages(root: &Path) -> Result<Vec<(String, Vec<Mark>)>, String> {
    let mut found = Vec::new();
    for page in pages(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let marks = mark::read(&read(&page)?).map_err(|problem| format!("{name}:{problem}"))?;
        found.push((name, marks));
    }
    found.retain(|(_, marks)| !marks.is_empty());
    Ok(found)
}

fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut pages = source::files_below(&root.join("docs"))?;
    pages.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    pages.insert(0, root.join("README.md"));
    Ok(pages)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_this_book_are_complete_and_name_existing_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = marked_pages(&root).unwrap();
        assert!(pages.len() > 10, "{pages:?}");
        for (page, marks) in pages {
            for code in marks.iter().flat_map(|mark| &mark.code) {
                assert!(root.join(code).exists(), "{page}: {code}");
            }
        }
    }

    #[test]
    fn the_summary_lists_every_page() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
        for page in source::files_below(&docs).unwrap() {
            let name = page.strip_prefix(&docs).unwrap().display().to_string();
            let is_page = name.ends_with(".md") && name != "SUMMARY.md";
            assert!(!is_page || summary.contains(&format!("({name})")), "{name} is not in docs/SUMMARY.md");
            let has_its_name = is_page && page.with_extension("html").exists();
            assert!(!has_its_name, "an HTML file next to {name} would replace it on the site");
        }
    }
}
