//! `cargo xtask docs --studies`: writes the reports of studies into the book, from the store of the user that runs it. A page has the
//! report as a mail. A picture of the HTML report's beginning, and the samples as Parquet, are separate files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::mark::{self, Mark};
use super::program::Program;
use super::repeat;

/// The directory of the pages. Each page is named after its study.
pub const PAGES: &str = "docs/evidence/studies";
/// How the command in an output's mark begins.
const REPORT: &str = "pagelab study report";
/// The option that prints a mail.
const MAIL: &str = "--mail";
/// Width and height of a picture, in pixels.
const PICTURE: (u32, u32) = (1200, 1600);

/// Makes the pages, pictures and samples of these studies; of all studies if none is named.
pub fn make(root: &Path, program: &Program, names: &[&str]) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let directory = root.join(PAGES);
    let names: Vec<String> = match names {
        [] => all(&directory)?,
        names => names.iter().map(|name| (*name).to_owned()).collect(),
    };
    for name in names {
        let page = directory.join(format!("{name}.md"));
        let wrong = |problem: String| format!("{}: {problem}", page.display());
        let text = super::read(&page)?;
        let is_report = |mark: &Mark| mark.command.starts_with(REPORT);
        let report = mark::read(&text).map_err(wrong)?.into_iter().find(is_report);
        let report = report.ok_or_else(|| wrong(format!("expected an output of `{REPORT}`, found none")))?;
        let made = repeat::chosen(root, program, &text, is_report).map_err(wrong)?;
        fs::write(&page, made).map_err(|error| wrong(error.to_string()))?;
        // The study and its size.
        let study: Vec<&str> = report.command[REPORT.len()..].split_whitespace().filter(|word| *word != MAIL).collect();
        picture(root, program, &study, &page.with_extension("png"))?;
        samples(root, program, &study, &page.with_extension("parquet"))?;
    }
    Ok(())
}

/// The studies that have a page.
fn all(directory: &Path) -> Result<Vec<String>, String> {
    let is_page = |page: &PathBuf| page.extension().is_some_and(|end| end == "md") && !page.ends_with("README.md");
    let pages = super::source::files_below(directory)?.into_iter().filter(is_page);
    Ok(pages.filter_map(|page| Some(page.file_stem()?.to_string_lossy().into_owned())).collect())
}

/// Makes the picture of a report. The report shows its command, so the command must not contain a path of this machine.
fn picture(root: &Path, program: &Program, study: &[&str], picture: &Path) -> Result<(), String> {
    const PAGE: &str = "target/study-report.html";
    let mut command = Command::new("pagelab");
    command.current_dir(root).env("PATH", program.path()).args(["study", "report"]).args(study);
    crate::command::succeed(command.args(["--html", PAGE]))?;
    let size = format!("--window-size={},{}", PICTURE.0, PICTURE.1);
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--hide-scrollbars", &size]);
    browser.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", root.join(PAGE).display()));
    crate::command::succeed(&mut browser)
}

fn samples(root: &Path, program: &Program, study: &[&str], samples: &Path) -> Result<(), String> {
    let mut command = Command::new("pagelab");
    command.current_dir(root).env("PATH", program.path()).args(["study", "export"]).args(study);
    crate::command::succeed(command.arg("-o").arg(samples))
}
