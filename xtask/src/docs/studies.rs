//! `cargo xtask docs --studies`: reports of studies in the book, from the store of whoever calls it: the mail as the page's
//! output, the report beside it, and a picture of the report's beginning.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::Program;
use super::repeat;

/// Where the pages are. A page has the name of its study.
pub const PAGES: &str = "docs/evidence/studies";
/// What the command of an output begins with.
const REPORT: &str = "pagelab study report";
/// Width and height of a picture, in pixels.
const PICTURE: (u32, u32) = (1200, 1600);

/// Makes every page of a study, its report and its picture.
///
/// # Errors
/// A study that has no results in the store, a page without a mark, no browser, files that cannot be read or written.
pub fn make(root: &Path, program: &Program) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    for page in super::source::files_below(&root.join(PAGES))? {
        if page.extension().is_none_or(|extension| extension != "md") || page.ends_with("README.md") {
            continue;
        }
        let text = super::read(&page)?;
        let made = repeat::chosen(root, program, &text, |mark| mark.command.starts_with(REPORT))
            .map_err(|problem| format!("{}: {problem}", page.display()))?;
        fs::write(&page, made).map_err(|error| format!("{}: {error}", page.display()))?;
        report(root, program, &page)?;
    }
    Ok(())
}

/// Writes the report of a page's study, and its picture. The report names its command, so that has no path of this machine.
fn report(root: &Path, program: &Program, page: &Path) -> Result<(), String> {
    let picture = page.with_extension("png");
    let name = page.file_stem().unwrap_or_default().to_string_lossy();
    // The site has the page itself by the name with `.html`.
    let html = page.with_file_name(format!("{name}-report.html"));
    let mut command = Command::new("pagelab");
    command.current_dir(root).env("PATH", program.path()).args(["study", "report", "--quick", "--html"]);
    command.arg(html.strip_prefix(root).unwrap_or(&html)).arg(&*name);
    crate::command::succeed(&mut command)?;
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        &format!("--window-size={},{}", PICTURE.0, PICTURE.1),
    ]);
    browser.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", html.display()));
    crate::command::succeed(&mut browser)
}
