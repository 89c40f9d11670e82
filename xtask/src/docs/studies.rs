//! `cargo xtask docs --studies`: writes the reports of studies into the book, from the store of the user that runs it. The output
//! on a page is the report in the form of a mail. The HTML report, and a picture of its beginning, are separate files.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::Program;
use super::repeat;

/// The directory of the pages. Each page is named after its study.
pub const PAGES: &str = "docs/evidence/studies";
/// How the command in an output's mark begins.
const REPORT: &str = "pagelab study report";
/// Width and height of a picture, in pixels.
const PICTURE: (u32, u32) = (1200, 1600);

/// Makes the page, the report and the picture of every study.
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

/// Writes the report of the page's study, and the picture of the report. The report shows its command, so the command must not
/// contain a path of this machine.
fn report(root: &Path, program: &Program, page: &Path) -> Result<(), String> {
    let picture = page.with_extension("png");
    let name = page.file_stem().unwrap_or_default().to_string_lossy();
    // mdBook writes the page itself under the same name with `.html`, so the report gets another name.
    let html = page.with_file_name(format!("{name}-report.html"));
    let mut command = Command::new("pagelab");
    command.current_dir(root).env("PATH", program.path()).args(["study", "report", "--html"]);
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
