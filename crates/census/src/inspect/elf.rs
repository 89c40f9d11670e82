//! ELF files (elf(5)): fields of their headers, and sections by name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most sections that are searched.
const MAX_SECTIONS: usize = 4096;
/// The most bytes of section names.
const MAX_NAMES: u64 = 1 << 20;

/// A section of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its address, before the file is placed.
    pub address: u64,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Whether a 64-bit little-endian program has a section of this name; `None` where the file is something else, or ends early.
pub fn has_section(path: &str, name: &str) -> io::Result<Option<bool>> {
    let file = File::open(path)?;
    let found = header(&file).and_then(|header| header.map(|_| section(&file, name)).transpose());
    none_if_truncated(found.map(|found| found.map(|section| section.is_some())))
}

/// Turns the error of a file that ends early into `None`.
pub fn none_if_truncated<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read,
    }
}

/// The section of this name of a 64-bit little-endian file; `None` where it has none.
pub fn section(file: &File, name: &str) -> io::Result<Option<Section>> {
    let Some(header) = header(file)? else { return Ok(None) };
    let (table, count, names) = (u64_at(&header, 0x28), u16_at(&header, 0x3c), u16_at(&header, 0x3e));
    let entry = |at: usize| read::<64>(file, table.saturating_add(at as u64 * 64));
    let strings = entry(names)?;
    let (start, length) = (u64_at(&strings, 0x18), u64_at(&strings, 0x20).min(MAX_NAMES));
    let mut text = vec![0; length as usize];
    file.read_exact_at(&mut text, start)?;
    for at in 0..count.min(MAX_SECTIONS) {
        let entry = entry(at)?;
        let found = text.get(u32_at(&entry, 0) as usize..).and_then(|rest| rest.split(|byte| *byte == 0).next());
        if found == Some(name.as_bytes()) {
            let (address, offset, bytes) = (u64_at(&entry, 0x10), u64_at(&entry, 0x18), u64_at(&entry, 0x20));
            return Ok(Some(Section { address, offset, bytes }));
        }
    }
    Ok(None)
}

/// The header of a 64-bit little-endian file; `None` where the file is something else.
pub fn header(file: &File) -> io::Result<Option<[u8; 64]>> {
    let header: [u8; 64] = read(file, 0)?;
    Ok((header[..6] == *b"\x7fELF\x02\x01").then_some(header))
}

/// The bytes at an offset.
pub fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// A field of 8 bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A field of 4 bytes.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A field of 2 bytes.
pub fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_their_names() {
        let found = |path: &str, name: &str| has_section(path, name).unwrap();
        assert_eq!(found("/proc/self/exe", ".text"), Some(true));
        assert_eq!(found("/proc/self/exe", ".go.buildinfo"), Some(false));
        assert_eq!(found("/proc/self/cmdline", ".text"), None);
        assert_eq!(has_section("/proc", ".text").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(has_section("/none", ".text").unwrap_err().kind(), io::ErrorKind::NotFound);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 5, 63, 64, 200, whole.len() / 2] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(found(path.to_str().unwrap(), ".text"), None, "{length}");
        }
    }
}
