//! An initramfs in the format that the kernel reads: cpio, "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Packs files, each given by its name, mode and content.
pub fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (number, (name, mode, content)) in (1..).zip(files) {
        entry(&mut archive, number, name, *mode, content);
    }
    entry(&mut archive, 0, "TRAILER!!!", 0, &[]);
    archive
}

/// Packs everything below a directory: directories, files and symbolic links, all owned by root. The entries of each directory are
/// sorted by name and come after it. Leaves out the entries named in `without`, with everything below them.
pub fn of_directory(root: &Path, without: &[&str], to: &mut impl Write) -> io::Result<()> {
    let (mut number, mut below) = (0, vec![String::new()]);
    while let Some(directory) = below.pop() {
        let mut names: Vec<String> = fs::read_dir(root.join(&directory))?
            .map(|one| Ok(one?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        for name in names {
            let name = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            if without.contains(&name.as_str()) {
                continue;
            }
            let path = root.join(&name);
            let about = fs::symlink_metadata(&path)?;
            let content = match about.file_type() {
                kind if kind.is_symlink() => fs::read_link(&path)?.into_os_string().into_encoded_bytes(),
                kind if kind.is_file() => fs::read(&path)?,
                _ => Vec::new(),
            };
            number += 1;
            let mut packed = Vec::new();
            entry(&mut packed, number, &name, about.mode(), &content);
            to.write_all(&packed)?;
            if about.is_dir() {
                below.push(name);
            }
        }
    }
    let mut last = Vec::new();
    entry(&mut last, 0, "TRAILER!!!", 0, &[]);
    to.write_all(&last)
}

fn entry(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, content: &[u8]) {
    let length = |bytes: usize| u32::try_from(bytes).expect("an initramfs of less than 4 GiB");
    let [user, group, time, major, minor, device_major, device_minor, check] = [0; 8];
    let (links, name_bytes) = (1, length(name.len() + 1));
    let fields = [
        inode,
        mode,
        user,
        group,
        links,
        time,
        length(content.len()),
        major,
        minor,
        device_major,
        device_minor,
        name_bytes,
        check,
    ];
    archive.extend(b"070701");
    fields.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
    archive.extend(name.bytes().chain([0]));
    pad(archive);
    archive.extend(content);
    pad(archive);
}

/// Pads to a multiple of 4 bytes, at which headers and contents must begin.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_a_directory_without_the_excluded_files() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("usr/bin")).unwrap();
        fs::create_dir_all(scratch.path().join("usr/share/doc/x")).unwrap();
        fs::write(scratch.path().join("usr/bin/true"), "elf").unwrap();
        std::os::unix::fs::symlink("usr/bin", scratch.path().join("bin")).unwrap();
        let mut packed = Vec::new();
        of_directory(scratch.path(), &["usr/share/doc"], &mut packed).unwrap();
        let text = String::from_utf8_lossy(&packed);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(at("usr") < at("usr/bin/true") && at("bin") < at("TRAILER!!!"));
        assert!(text.contains("usr/bin\0") && !text.contains("doc") && packed.len() % 4 == 0);
        assert!(of_directory(&scratch.path().join("none"), &[], &mut packed).is_err());
    }

    #[test]
    fn headers_and_contents_are_aligned() {
        let archive = archive(&[("init", 0o100_755, b"12345")]);
        let text = String::from_utf8_lossy(&archive);
        assert!(text.starts_with("07070100000001000081ed0000000000000000000000010000000000000005"), "{text}");
        assert_eq!((&text[94..110], text[110..].find("init")), ("0000000500000000", Some(0)));
        assert_eq!(&archive[116..121], b"12345");
        assert_eq!((&text[124..130], archive.len() % 4), ("070701", 0));
        assert!(text.contains("TRAILER!!!"));
    }
}
