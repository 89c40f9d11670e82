//! The files of a package ([`File`]), and archives of them. The bytes of an archive depend only on the files, not on the user
//! or the time.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Path relative to the installation prefix.
    pub path: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

impl File {
    /// A file that every user can read.
    pub fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), mode: 0o644, content: content.into() }
    }

    /// A file that every user can execute.
    pub fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> File {
        File { mode: 0o755, ..File::new(path, content) }
    }
}

/// Packs files below the directory `top`, sorted, with their directories. Everything is owned by root and has the same time, in
/// seconds since 1970.
pub fn tar_gz(top: &str, files: &[File], time_s: u64) -> io::Result<Vec<u8>> {
    let mut sorted: Vec<(String, &File)> = files.iter().map(|file| (format!("{top}{}", file.path), file)).collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for directory in directories(sorted.iter().map(|(path, _)| path.as_str())) {
        archive.append_data(&mut header(EntryType::Directory, 0o755, 0, time_s)?, directory, io::empty())?;
    }
    for (path, file) in sorted {
        let mut header = header(EntryType::Regular, file.mode, file.content.len() as u64, time_s)?;
        archive.append_data(&mut header, path, file.content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

/// All directories above these files, without duplicates, parents first.
fn directories<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    paths.flat_map(|path| path.match_indices('/').map(|(at, _)| path[..=at].to_owned())).collect()
}

/// A header without a path. The path is set separately, because it may be longer than the header's field for it.
fn header(kind: EntryType, mode: u32, size_bytes: u64, time_s: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size_bytes);
    header.set_mtime(time_s);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    Ok(header)
}

/// Makes a Debian package (deb(5)) from its control files and its files.
pub fn deb(control: &[File], files: &[File], time_s: u64) -> io::Result<Vec<u8>> {
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz("", control, time_s)?),
        ("data.tar.gz", tar_gz("usr/", files, time_s)?),
    ];
    let mut package = ar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = ar::Header::new(name.into(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time_s);
        package.append(&header, content.as_slice())?;
    }
    package.into_inner()
}

/// Compresses data without storing a name or a time.
pub fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<File> {
        vec![File::new("share/doc/a", "text"), File::program("bin/b", "run")]
    }

    #[test]
    fn an_archive_has_sorted_files_of_root_with_their_directories() {
        let packed = tar_gz("usr/", &files(), 7).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
            found.push((entry.path().unwrap().display().to_string(), header.mode().unwrap()));
        }
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["usr/", "usr/bin/", "usr/share/", "usr/share/doc/", "usr/bin/b", "usr/share/doc/a"]);
        assert_eq!((found[4].1, found[5].1), (0o755, 0o644));
    }

    #[test]
    fn a_path_may_be_longer_than_a_header_holds() {
        let path = format!("share/doc/{}/a.html", "long/".repeat(40));
        let packed = tar_gz("usr/", &[File::new(path.clone(), "text")], 7).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let paths = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        assert_eq!(paths.last(), Some(format!("usr/{path}")));
    }

    #[test]
    fn the_order_of_files_changes_nothing() {
        let mut other = files();
        other.reverse();
        assert_eq!(tar_gz("", &files(), 1).unwrap(), tar_gz("", &other, 1).unwrap());
        assert_ne!(tar_gz("", &files(), 1).unwrap(), tar_gz("", &files(), 2).unwrap());
    }

    #[test]
    fn a_package_of_debian_has_its_three_members() {
        let packed = deb(&[File::new("control", "Package: x\n")], &files(), 7).unwrap();
        let mut archive = ar::Archive::new(packed.as_slice());
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            names.push(String::from_utf8(entry.unwrap().header().identifier().to_vec()).unwrap());
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    }
}
