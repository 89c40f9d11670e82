//! Sections of a program's file (elf(5)), by name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most sections that are searched.
const MAX_SECTIONS: usize = 4096;
/// The most bytes of section names.
const MAX_NAMES: u64 = 1 << 20;

/// Whether a 64-bit little-endian program has a section of this name; `None` where the file is something else, or ends early.
///
/// # Errors
/// The file cannot be read.
pub fn has_section(path: &str, name: &str) -> io::Result<Option<bool>> {
    match find_section(&File::open(path)?, name) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        found => found,
    }
}

fn find_section(file: &File, name: &str) -> io::Result<Option<bool>> {
    let header: [u8; 64] = read(file, 0)?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    let (table, count, names) = (long(&header, 0x28), short(&header, 0x3c), short(&header, 0x3e));
    let section = |at: usize| read::<64>(file, table.saturating_add(at as u64 * 64));
    let strings = section(names)?;
    let (start, length) = (long(&strings, 0x18), long(&strings, 0x20).min(MAX_NAMES));
    let mut text = vec![0; length as usize];
    file.read_exact_at(&mut text, start)?;
    for at in 0..count.min(MAX_SECTIONS) {
        let begin = int(&section(at)?, 0) as usize;
        let found = text.get(begin..).and_then(|rest| rest.split(|byte| *byte == 0).next());
        if found == Some(name.as_bytes()) {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn long(bytes: &[u8; 64], at: usize) -> u64 {
    u64::from(int(bytes, at)) | u64::from(int(bytes, at + 4)) << 32
}

fn int(bytes: &[u8; 64], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn short(bytes: &[u8; 64], at: usize) -> usize {
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
