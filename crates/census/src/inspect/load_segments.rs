//! The LOAD segments and the dynamic linker of ELF files (elf(5)), as [`Loaded`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use policy::inspect::{LoadSegment, Loader};
use policy::size::PageSize;

use super::elf::{self, u16_at, u32_at, u64_at};

/// The most program headers that are read.
const MAX_HEADERS: u64 = 4096;
const HEADER_BYTES: usize = 56;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const MAX_PATH: u64 = 4096;

/// The parts of an ELF file that decide how it is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its LOAD segments, by address.
    pub segments: Vec<LoadSegment>,
    /// The path of its dynamic linker.
    pub linker: Option<String>,
}

/// Reads a 64-bit little-endian ELF file; `None` where the file is something else, or ends early.
pub fn of(file: &File) -> io::Result<Option<Loaded>> {
    elf::none_if_truncated(read(file))
}

/// As [`of`], for the regular file at a path.
fn of_path(path: &Path) -> io::Result<Option<Loaded>> {
    host::open_regular(path, None)?.map_or(Ok(None), |file| of(&file))
}

/// The largest base page size with which a program and its dynamic linker, below `root`, can be mapped; `None` where that is not
/// known.
pub fn largest_base_page(program: &Path, root: Option<&Path>) -> Option<PageSize> {
    let loaded = of_path(program).ok()??;
    let mut files = vec![(String::new(), Loader::Kernel, loaded.segments)];
    if let Some(linker) = loaded.linker {
        let linker = root.unwrap_or(Path::new("/")).join(linker.trim_start_matches('/'));
        files.push((String::new(), Loader::Kernel, of_path(&linker).ok()??.segments));
    }
    policy::inspect::largest_of_all(&files)
}

fn read(file: &File) -> io::Result<Option<Loaded>> {
    let Some(header) = elf::header(file)?.filter(|header| u16_at(header, 0x36) == HEADER_BYTES) else {
        return Ok(None);
    };
    let (table, count) = (u64_at(&header, 0x20), (u16_at(&header, 0x38) as u64).min(MAX_HEADERS));
    let mut loaded = Loaded::default();
    for at in 0..count {
        let entry: [u8; HEADER_BYTES] = elf::read(file, table.saturating_add(at * HEADER_BYTES as u64))?;
        match u32_at(&entry, 0) {
            LOAD => loaded.segments.push(LoadSegment {
                offset: u64_at(&entry, 8),
                address: u64_at(&entry, 16),
                bytes: u64_at(&entry, 40),
                alignment_bytes: u64_at(&entry, 48),
                protection: u32_at(&entry, 4) & 7,
            }),
            INTERPRETER => {
                let mut path = vec![0; u64_at(&entry, 32).min(MAX_PATH) as usize];
                file.read_exact_at(&mut path, u64_at(&entry, 8))?;
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                loaded.linker = Some(String::from_utf8_lossy(path).into_owned());
            }
            _ => {}
        }
    }
    loaded.segments.sort_by_key(|segment| segment.address);
    Ok(Some(loaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_program_are_those_that_are_mapped() {
        let own = of_path(Path::new("/proc/self/exe")).unwrap().unwrap();
        let code: Vec<&LoadSegment> = own.segments.iter().filter(|segment| segment.protection & 1 != 0).collect();
        assert_eq!(code.len(), 1);
        let function = u64_at as *const () as u64;
        let mapped = host::maps::at(std::process::id() as i32, function).unwrap().unwrap();
        assert_eq!(mapped.offset, code[0].offset & !(PageSize::K4.bytes() - 1));
        assert!(own.linker.is_none_or(|linker| Path::new(&linker).exists()));
    }

    #[test]
    fn a_pipe_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(of_path(&pipe).unwrap(), None);
        assert_eq!(of_path(Path::new("/dev/null")).unwrap(), None);
    }

    #[test]
    fn finds_no_segments_in_foreign_or_non_elf_files() {
        assert_eq!(of_path(Path::new("/proc/self/cmdline")).unwrap(), None);
        assert!(host::open_regular(Path::new("/proc/self/exe"), Some(1)).unwrap().is_none());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 63, 64, 200] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(of_path(&path).unwrap(), None, "{length}");
        }
    }
}
