//! The book as a site that is read from the disk.

use std::path::Path;

use super::archive::File;
use crate::docs;

/// Files of the site that only a web server needs.
const OF_SERVERS: [&str; 3] = ["404.html", ".nojekyll", "CNAME"];

/// Builds the site and returns its files, relative to the directory of its front page.
///
/// # Errors
/// There is no mdBook, it rejects a page, a link is broken, or a file cannot be read.
pub fn files(root: &Path) -> Result<Vec<File>, String> {
    let site = docs::site(root)?;
    let files = docs::files_below(&site)?;
    let named = files.iter().map(|file| (file, file.strip_prefix(&site).unwrap_or(file).display().to_string()));
    let kept = named.filter(|(_, name)| !OF_SERVERS.contains(&name.as_str()));
    kept.map(|(file, name)| super::read(file).map(|content| File::new(name, content))).collect()
}
