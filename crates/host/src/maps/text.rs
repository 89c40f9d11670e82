//! The text of `/proc/PID/maps`.

use std::io::{self, BufRead};

use super::vma::Vma;

/// A line that does not look as it should.
#[derive(Debug, thiserror::Error)]
#[error("{path}: expected a line as in proc(5), found {line:?}; the kernel may be newer than this program")]
pub struct MalformedLine {
    path: String,
    line: String,
}

impl MalformedLine {
    /// A line of this file.
    pub fn new(path: &str, line: &str) -> MalformedLine {
        MalformedLine { path: path.to_string(), line: line.to_string() }
    }
}

/// Reads lines of `/proc/PID/maps` up to the first mapping that ends above an address. `path` is named in errors.
pub fn first_ending_above(text: &mut impl BufRead, address: u64, path: &str) -> io::Result<Option<Vma>> {
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let vma = parse_line(&line).ok_or_else(|| io::Error::other(MalformedLine::new(path, &line)))?;
        if vma.end > address {
            return Ok(Some(vma));
        }
    }
    Ok(None)
}

/// Reads the text of `/proc/PID/maps`. `path` is named in errors.
///
/// The kernel hands the text out in pieces; where a running process changes a mapping in between, two
/// lines may overlap. Then the first keeps its addresses and the second has the rest.
pub fn parse(text: &str, path: &str) -> Result<Vec<Vma>, MalformedLine> {
    let mut vmas: Vec<Vma> = Vec::new();
    for line in text.lines() {
        let mut vma = parse_line(line).ok_or_else(|| MalformedLine::new(path, line))?;
        vma.start = vma.start.max(vmas.last().map_or(0, |last| last.end));
        if vma.start < vma.end {
            vmas.push(vma);
        }
    }
    Ok(vmas)
}

/// Reads one line: `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`.
pub fn parse_line(line: &str) -> Option<Vma> {
    let mut rest = line;
    let mut field = || {
        let (head, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        head
    };
    let (start, end) = field().split_once('-')?;
    let (permissions, offset) = (field(), field());
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    let vma = Vma {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        protection: protection(permissions),
        shared: permissions.as_bytes().get(3).map(|letter| *letter == b's')?,
        device: (hexadecimal(major)?.try_into().ok()?, hexadecimal(minor)?.try_into().ok()?),
        inode,
        offset: hexadecimal(offset)?,
        name: rest.trim_start().to_string(),
    };
    (vma.start < vma.end).then_some(vma)
}

fn protection(permissions: &str) -> u64 {
    let bits = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
    bits.into_iter().filter(|(letter, _)| permissions.contains(*letter)).map(|(_, bit)| bit as u64).sum()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::VmaKind;

    const TEXT: &str = include_str!("../../../../fixtures/census/maps");

    #[test]
    fn a_captured_process_is_read_whole() {
        let vmas = parse(TEXT, "maps").unwrap();
        assert_eq!(vmas.len(), TEXT.lines().count());
        let kinds: Vec<(&str, VmaKind)> = vmas.iter().map(|vma| (vma.name.as_str(), vma.kind())).collect();
        for expected in [
            ("[heap]", VmaKind::Anonymous),
            ("[stack]", VmaKind::Stack),
            ("[vdso]", VmaKind::Special),
            ("[vvar]", VmaKind::Special),
            ("[vsyscall]", VmaKind::Special),
            ("/dev/zero (deleted)", VmaKind::Shared),
            ("/anon_hugepage (deleted)", VmaKind::PrivateFile),
            ("/memfd:a name with spaces (deleted)", VmaKind::Shared),
            ("/dev/zero", VmaKind::Anonymous),
            ("", VmaKind::Anonymous),
        ] {
            assert!(kinds.contains(&expected), "{expected:?} in {kinds:?}");
        }
    }

    #[test]
    fn one_mapping_is_found_as_in_the_whole_text() {
        let vmas = parse(TEXT, "maps").unwrap();
        let first = |address| first_ending_above(&mut TEXT.as_bytes(), address, "maps");
        for vma in &vmas {
            for address in [vma.start, vma.end - 1] {
                assert_eq!(first(address).unwrap().as_ref(), Some(vma));
            }
        }
        assert_eq!(first(vmas.last().unwrap().end).unwrap(), None);
        assert!(first_ending_above(&mut &b"rubbish\n"[..], 0, "maps").is_err());
    }

    #[test]
    fn lines_that_overlap_do_not_count_twice() {
        let text = "1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n1000-3000 rw-p 0 0:0 0\n5000-6000 rw-p 0 0:0 0\n";
        let ranges: Vec<(u64, u64)> = parse(text, "maps").unwrap().iter().map(|vma| (vma.start, vma.end)).collect();
        assert_eq!(ranges, [(0x1000, 0x3000), (0x3000, 0x4000), (0x5000, 0x6000)]);
    }

    #[test]
    fn protections_are_those_of_mmap() {
        let reserved = parse_line("7f1c00000000-7f1c04000000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((reserved.protection, reserved.kind()), (libc::PROT_NONE as u64, VmaKind::Anonymous));
        let code = parse_line("55d0c0000000-55d0c0001000 r-xp 00003000 fe:01 1234    /usr/bin/a b").unwrap();
        assert_eq!(code.protection, (libc::PROT_READ | libc::PROT_EXEC) as u64);
        assert!(!code.is_writable() && code.name == "/usr/bin/a b");
    }

    #[test]
    fn what_is_not_a_mapping_is_refused_with_its_line() {
        for line in ["", "x", "1-2", "2-1 rw-p 0 0:0 0", "1-2 rw 0 0:0 0", "1-2 rw-p 0 0:0 x", "1-2 rw-p 0 00 1 a"] {
            assert_eq!(parse_line(line), None, "{line:?}");
        }
        let error = parse("1000-2000 rw-p 0 0:0 0\nrubbish\n", "/proc/1/maps").unwrap_err().to_string();
        assert!(error.contains("/proc/1/maps") && error.contains("rubbish"), "{error}");
    }
}
