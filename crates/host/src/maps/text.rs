//! Parses the text of `/proc/PID/maps`.

use std::io::{self, BufRead};

use super::vma::Vma;
use crate::read::escaped_line;

/// A line that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: expected {expected}, found {line:?}; the file is damaged, or the kernel is newer than this program")]
pub struct MalformedLine {
    path: String,
    expected: &'static str,
    line: String,
}

/// The most characters of a line that an error shows.
const SHOWN: usize = 200;

impl MalformedLine {
    /// The error for a line of this file, with what was expected there.
    pub fn new(path: &str, expected: &'static str, line: &str) -> MalformedLine {
        MalformedLine { path: path.to_string(), expected, line: line.chars().take(SHOWN).collect() }
    }
}

/// The highest end of user space: five levels on x86-64 and Sv57 on RISC-V have 56 bits, arm64 has 52 (LPA2).
pub const MAX_USER_END: u64 = 1 << 56;
/// The smallest base page of the 64-bit architectures.
const MIN_PAGE: u64 = 4096;
/// The one page of the kernel that maps shows (x86-64, arch/x86/entry/vsyscall/vsyscall_64.c).
const VSYSCALL: (&str, u64, u64) = ("[vsyscall]", 0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000);

const LINE: &str = "a line as in proc(5)";
const RANGE: &str = "addresses of user space, in multiples of 4K";
const ORDER: &str = "a mapping above the previous ones";

/// Reads lines of `/proc/PID/maps` up to the first mapping that ends above an address. `path` is used in errors.
pub fn first_ending_above(text: &mut impl BufRead, address: u64, path: &str) -> io::Result<Option<Vma>> {
    for line in text.split(b'\n') {
        let line = line?;
        let line = escaped_line(&line);
        let malformed = |expected| io::Error::other(MalformedLine::new(path, expected, &line));
        let vma = parse_line(&line).map_err(malformed)?;
        if vma.end > address {
            return Ok(Some(vma));
        }
    }
    Ok(None)
}

/// Parses the text of `/proc/PID/maps`. `path` is used in errors.
///
/// The kernel returns the text in pieces. If a running process changes a mapping in between, two lines may overlap; then the
/// first keeps its addresses and the second gets the rest.
pub fn parse(text: &str, path: &str) -> Result<Vec<Vma>, MalformedLine> {
    let mut vmas = Vec::new();
    text.lines().try_for_each(|line| append(&mut vmas, line, path))?;
    Ok(vmas)
}

/// Parses a line of `/proc/PID/maps`, and appends its mapping to those of the lines before it, as in [`parse`]. Refuses a mapping
/// that is not above those before it.
pub fn append(vmas: &mut Vec<Vma>, line: &str, path: &str) -> Result<(), MalformedLine> {
    let malformed = |expected| MalformedLine::new(path, expected, line);
    let mut vma = parse_line(line).map_err(malformed)?;
    vma.start = vma.start.max(vmas.last().map_or(0, |last| last.end));
    if vma.start >= vma.end {
        return Err(malformed(ORDER));
    }
    vmas.push(vma);
    Ok(())
}

/// Parses one line: `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`. Addresses are checked only here: they must be in user
/// space, or be the kernel's page `[vsyscall]`.
pub fn parse_line(line: &str) -> Result<Vma, &'static str> {
    let vma = fields(line).ok_or(LINE)?;
    let is_aligned = (vma.start | vma.end).is_multiple_of(MIN_PAGE);
    let is_user = vma.end <= MAX_USER_END && vma.name != VSYSCALL.0;
    if is_aligned && (is_user || (vma.name.as_str(), vma.start, vma.end) == VSYSCALL) { Ok(vma) } else { Err(RANGE) }
}

fn fields(line: &str) -> Option<Vma> {
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
        let text = "1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n5000-6000 rw-p 0 0:0 0\n";
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
    fn addresses_that_no_user_space_has_are_refused() {
        let range = |range: &str, name: &str| parse_line(&format!("{range} r-xp 0 0:0 0 {name}")).map(|vma| vma.end);
        assert_eq!(range("ffffffffff600000-ffffffffff601000", "[vsyscall]"), Ok(0xffff_ffff_ff60_1000));
        assert_eq!(range("fffffffffff000-100000000000000", ""), Ok(MAX_USER_END));
        for (wrong, name) in [
            ("ffffffffff600000-ffffffffff601000", ""),
            ("ffffffffff600000-ffffffffff602000", "[vsyscall]"),
            ("ffffffffffe00000-ffffffffffffffff", "[vsyscall]"),
            ("1000-2000", "[vsyscall]"),
            ("1000-2001", ""),
            ("800-2000", ""),
            ("1000-100000000001000", ""),
            ("1000-fffffffffffff000", ""),
            ("ffffffffffe00000-fffffffffffff000", ""),
        ] {
            assert_eq!(range(wrong, name), Err(RANGE), "{wrong} {name}");
        }
    }

    #[test]
    fn mappings_do_not_go_back() {
        for second in ["1000-3000", "2000-3000", "0-1000"] {
            let text = format!("1000-3000 rw-p 0 0:0 0\n{second} rw-p 0 0:0 0\n");
            let error = parse(&text, "maps").unwrap_err().to_string();
            assert!(error.contains(ORDER) && error.contains(second), "{error}");
        }
    }

    #[test]
    fn refuses_malformed_mappings_and_quotes_the_line() {
        for line in ["", "x", "1-2", "2-1 rw-p 0 0:0 0", "1-2 rw 0 0:0 0", "1-2 rw-p 0 0:0 x", "1-2 rw-p 0 00 1 a"] {
            assert_eq!(parse_line(line), Err(LINE), "{line:?}");
        }
        let error = parse("1000-2000 rw-p 0 0:0 0\nrubbish\n", "/proc/1/maps").unwrap_err().to_string();
        assert!(error.contains("/proc/1/maps") && error.contains("rubbish"), "{error}");
    }
}
