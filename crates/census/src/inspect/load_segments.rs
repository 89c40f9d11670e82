//! The LOAD segments of ELF files (elf(5)).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use policy::inspect::{LoadSegment, Loader};
use policy::size::PageSize;

/// The most program headers that are read.
const MAX_HEADERS: u64 = 4096;
const HEADER_BYTES: usize = 56;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const MAX_PATH: u64 = 4096;

/// What is to be mapped of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its LOAD segments, by address.
    pub segments: Vec<LoadSegment>,
    /// The path of its dynamic linker.
    pub linker: Option<String>,
}

/// What is to be mapped of a 64-bit little-endian ELF file; `None` where the file is something else, or ends early. With `inode`,
/// also where the file is another one.
///
/// # Errors
/// The file cannot be read.
pub fn of_file(path: &Path, inode: Option<u64>) -> io::Result<Option<Loaded>> {
    // A device or a pipe is not opened.
    let about = fs::metadata(path)?;
    if !about.is_file() || inode.is_some_and(|inode| inode != about.ino()) {
        return Ok(None);
    }
    match read(&File::open(path)?) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read,
    }
}

/// The largest base page with which a program and its dynamic linker, below `root`, can be mapped; `None` where that is not
/// known.
pub fn largest_base_page(program: &Path, root: Option<&Path>) -> Option<PageSize> {
    let loaded = of_file(program, None).ok()??;
    let mut files = vec![(String::new(), Loader::Kernel, loaded.segments)];
    if let Some(linker) = loaded.linker {
        let linker = root.unwrap_or(Path::new("/")).join(linker.trim_start_matches('/'));
        files.push((String::new(), Loader::Kernel, of_file(&linker, None).ok()??.segments));
    }
    policy::inspect::largest_of_all(&files)
}

fn read(file: &File) -> io::Result<Option<Loaded>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if header[..6] != *b"\x7fELF\x02\x01" || usize::from(short(&header, 0x36)) != HEADER_BYTES {
        return Ok(None);
    }
    let (table, count) = (long(&header, 0x20), u64::from(short(&header, 0x38)).min(MAX_HEADERS));
    let mut loaded = Loaded::default();
    for at in 0..count {
        let mut entry = [0; HEADER_BYTES];
        file.read_exact_at(&mut entry, table.saturating_add(at * HEADER_BYTES as u64))?;
        match int(&entry, 0) {
            LOAD => loaded.segments.push(LoadSegment {
                offset: long(&entry, 8),
                address: long(&entry, 16),
                bytes: long(&entry, 40),
                alignment_bytes: long(&entry, 48),
                protection: int(&entry, 4) & 7,
            }),
            INTERPRETER => {
                let mut path = vec![0; long(&entry, 32).min(MAX_PATH) as usize];
                file.read_exact_at(&mut path, long(&entry, 8))?;
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                loaded.linker = Some(String::from_utf8_lossy(path).into_owned());
            }
            _ => {}
        }
    }
    loaded.segments.sort_by_key(|segment| segment.address);
    Ok(Some(loaded))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(int(bytes, at)) | u64::from(int(bytes, at + 4)) << 32
}

fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_program_are_those_that_are_mapped() {
        let own = of_file(Path::new("/proc/self/exe"), None).unwrap().unwrap();
        let code: Vec<&LoadSegment> = own.segments.iter().filter(|segment| segment.protection & 1 != 0).collect();
        assert_eq!(code.len(), 1);
        let function = long as *const () as u64;
        let mapped = host::maps::at(std::process::id() as i32, function).unwrap().unwrap();
        assert_eq!(mapped.offset, code[0].offset & !(PageSize::K4.bytes() - 1));
        assert!(own.linker.is_none_or(|linker| Path::new(&linker).exists()));
    }

    #[test]
    fn what_is_no_elf_file_or_another_one_has_no_segments() {
        assert_eq!(of_file(Path::new("/proc/self/cmdline"), None).unwrap(), None);
        assert_eq!(of_file(Path::new("/proc/self/exe"), Some(1)).unwrap(), None);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 63, 64, 200] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(of_file(&path, None).unwrap(), None, "{length}");
        }
    }
}
