//! The book as a site, to be read from the disk.

use std::path::Path;

use super::archive::File;
use crate::docs;

/// What only a server of the site needs.
const OF_SERVERS: [&str; 3] = ["404.html", ".nojekyll", "CNAME"];

/// The files of the site, built anew, relative to its front page's directory.
///
/// # Errors
/// No mdBook, a page that it does not take, a link that leads nowhere, a file that cannot be read.
pub fn files(root: &Path) -> Result<Vec<File>, String> {
    let site = docs::site(root)?;
    let files = docs::files_below(&site)?;
    let named = files.iter().map(|file| (file, file.strip_prefix(&site).unwrap_or(file).display().to_string()));
    let kept = named.filter(|(_, name)| !OF_SERVERS.contains(&name.as_str()));
    kept.map(|(file, name)| super::read(file).map(|content| File::new(name, content))).collect()
}
