//! Stores the last measurement of each size of base pages with its date, and writes the page that shows them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::published::Published;
use super::record::Record;
use super::report;

/// The stored records.
const RECORDS: &str = "docs/evidence/kvm-arm64.json";
/// The page made from them.
const PAGE: &str = "docs/evidence/kvm-arm64.md";

/// Replaces the stored record with the same base page size, and writes the page.
pub fn keep(root: &Path, record: Record) -> Result<(), String> {
    let kept = root.join(RECORDS);
    let mut all = read(&kept)?;
    all.retain(|one| one.granule != record.granule);
    all.push(record);
    all.sort_by_key(|one| one.granule.page_bytes());
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
    fs::write(&kept, &text).map_err(|error| format!("{}: {error}", kept.display()))?;
    show(root)
}

/// Writes the page of the stored records.
pub fn show(root: &Path) -> Result<(), String> {
    let page = report::page(&read(&root.join(RECORDS))?, &Published::read(root)?);
    let shown = root.join(PAGE);
    fs::write(&shown, &page).map_err(|error| format!("{}: {error}", shown.display()))?;
    println!("{}", shown.display());
    Ok(())
}

/// The stored records; empty if there is no file.
fn read(kept: &Path) -> Result<Vec<Record>, String> {
    match fs::read_to_string(kept) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", kept.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", kept.display())),
    }
}
