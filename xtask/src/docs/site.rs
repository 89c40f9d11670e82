//! Checks the links of the built site: the linked file must exist, and the heading in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::source::files_below;

/// The broken links, one per line.
pub fn broken_links(site: &Path) -> Result<Vec<String>, String> {
    let site = &normal(site);
    let mut pages = BTreeMap::new();
    let files: BTreeSet<PathBuf> = files_below(site)?.into_iter().collect();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "html")) {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        pages.insert(file.clone(), text);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(file, text)| (file, values(text, " id=\"").collect())).collect();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        // mdBook's page for missing addresses assumes that the site is at the root of a server, so its links cannot be
        // checked here.
        if page.ends_with("404.html") {
            continue;
        }
        for link in values(text, " href=\"").chain(values(text, " src=\"")) {
            if !is_valid(page, link, &files, &anchors) {
                broken
                    .push(format!("{}: the link {link} is broken", page.strip_prefix(site).unwrap_or(page).display()));
            }
        }
    }
    Ok(broken)
}

fn is_valid(page: &Path, link: &str, files: &BTreeSet<PathBuf>, anchors: &BTreeMap<&PathBuf, BTreeSet<&str>>) -> bool {
    if link.contains(':') {
        return true;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = path.split('?').next().unwrap_or_default();
    let file = if path.is_empty() { page.to_owned() } else { normal(&page.with_file_name(path)) };
    files.contains(&file) && (anchor.is_empty() || anchors.get(&file).is_some_and(|ids| ids.contains(anchor)))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => {}
            part => normal.push(part),
        }
        normal
    })
}

/// The values of an attribute; `begin` is its name up to and including the opening quote.
fn values<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(begin).filter_map(move |(at, _)| text[at + begin.len()..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    #[test]
    fn pages_images_and_headings_must_be_there() {
        let scratch = Scratch::new("site");
        fs::create_dir(scratch.0.join("b")).unwrap();
        fs::write(scratch.0.join("b/c.html"), "<h1 id=\"top\">").unwrap();
        let links = ["b/c.html", "./b/c.html#top", "https://example.org/", "b/d.html", "b/c.html#end", "#here"];
        let page: String = links.iter().map(|link| format!("<a href=\"{link}\">")).collect();
        fs::write(scratch.0.join("a.html"), page + "<img src=\"gone.png\">").unwrap();
        let broken = broken_links(&scratch.0.join(".")).unwrap();
        let expected = ["b/d.html", "b/c.html#end", "#here", "gone.png"];
        assert_eq!(broken, expected.map(|link| format!("a.html: the link {link} is broken")));
    }
}
