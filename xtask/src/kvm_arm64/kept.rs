//! Measurements that are kept with their date, the last one of each size of base pages, and the page that shows them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::published::Published;
use super::record::Record;
use super::report;

/// What is kept.
const KEPT: &str = "docs/evidence/kvm-arm64.json";
/// Where it is shown.
const SHOWN: &str = "docs/evidence/kvm-arm64.md";

/// Puts a record in the place of the last one of the same base pages, and shows all of them.
///
/// # Errors
/// A file that cannot be read or written.
pub fn keep(root: &Path, record: Record) -> Result<(), String> {
    let kept = root.join(KEPT);
    let mut all = read(&kept)?;
    all.retain(|one| one.granule != record.granule);
    all.push(record);
    all.sort_by_key(|one| one.granule.page_bytes());
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
    fs::write(&kept, &text).map_err(|error| format!("{}: {error}", kept.display()))?;
    show(root)
}

/// Writes the page of what is kept.
///
/// # Errors
/// A file that cannot be read or written.
pub fn show(root: &Path) -> Result<(), String> {
    let page = report::page(&read(&root.join(KEPT))?, &Published::read(root)?);
    let shown = root.join(SHOWN);
    fs::write(&shown, &page).map_err(|error| format!("{}: {error}", shown.display()))?;
    println!("{}", shown.display());
    Ok(())
}

/// What is kept; nothing where there is no file.
fn read(kept: &Path) -> Result<Vec<Record>, String> {
    match fs::read_to_string(kept) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", kept.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", kept.display())),
    }
}
