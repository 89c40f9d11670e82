//! Sections of a program's file (elf(5)), by name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Sections that are looked through at most.
const MOST_SECTIONS: usize = 4096;
/// Names of sections take at most so many bytes.
const MOST_NAMES: u64 = 1 << 20;

/// Whether a 64-bit little-endian program has a section of this name; `None` where the file is something else.
pub fn has_section(path: &str, name: &str) -> Option<bool> {
    let file = File::open(path).ok()?;
    let header: [u8; 64] = read(&file, 0).ok()?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, count, names) = (long(&header, 0x28)?, short(&header, 0x3c)?, short(&header, 0x3e)?);
    let section = |at: usize| read::<64>(&file, table.checked_add(at as u64 * 64)?).ok();
    let strings = section(names)?;
    let (start, length) = (long(&strings, 0x18)?, long(&strings, 0x20)?.min(MOST_NAMES));
    let mut text = vec![0; length as usize];
    file.read_exact_at(&mut text, start).ok()?;
    let named = |at: usize| {
        let begin = u32::from_le_bytes(section(at)?[..4].try_into().ok()?) as usize;
        text.get(begin..)?.split(|byte| *byte == 0).next()
    };
    Some((0..count.min(MOST_SECTIONS)).any(|at| named(at) == Some(name.as_bytes())))
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_their_names() {
        assert_eq!(has_section("/proc/self/exe", ".text"), Some(true));
        assert_eq!(has_section("/proc/self/exe", ".go.buildinfo"), Some(false));
        assert_eq!(has_section("/proc/self/maps", ".text"), None);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 5, 63, 64, 200, whole.len() / 2] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(has_section(path.to_str().unwrap(), ".text"), None, "{length}");
        }
    }
}
