//! The mappings (VMAs) of a process, as `/proc/PID/maps` prints them (`show_map_vma` in
//! fs/proc/task_mmu.c).

use std::fs::File;
use std::io::{BufRead, BufReader};

pub use policy::census::VmaKind;

use super::{CensusError, scan};
use crate::host;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// PROT_READ, PROT_WRITE and PROT_EXEC, as mmap takes them; 0 (PROT_NONE): no access.
    pub protection: u64,
    /// Whether stores go to the object behind it (`s`) and not to a private copy (`p`).
    pub shared: bool,
    /// Major and minor number of the file system that holds the file; 0:0 without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// The path, or the kernel's name in brackets; empty where there is none.
    pub name: String,
}

impl Vma {
    /// Bytes of addresses.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.protection & libc::PROT_WRITE as u64 != 0
    }

    /// Whether what it holds can be executed.
    pub fn is_executable(&self) -> bool {
        self.protection & libc::PROT_EXEC as u64 != 0
    }

    /// What the mapping can hold. A private mapping of `/dev/zero` is anonymous memory to the kernel
    /// (`mmap_zero` in drivers/char/mem.c), whatever its name says.
    pub fn kind(&self) -> VmaKind {
        if self.name.starts_with("/dev/dax") {
            VmaKind::Special
        } else if self.inode != 0 && self.shared {
            VmaKind::Shared
        } else if self.inode != 0 && self.name != "/dev/zero" {
            VmaKind::PrivateFile
        } else if self.name.starts_with("[stack") {
            VmaKind::Stack
        } else if self.name.starts_with('[') && self.name != "[heap]" && !self.name.starts_with("[anon") {
            VmaKind::Special
        } else {
            VmaKind::Anonymous
        }
    }
}

/// The mappings of a process at this moment, in order of address; empty where it is gone or not visible.
pub fn of_process(process: libc::pid_t) -> Vec<Vma> {
    host::content(format!("/proc/{process}/maps")).unwrap_or_default().lines().filter_map(parse_line).collect()
}

/// The mapping of a process that holds an address; `None` where none does, or where the process is gone or not
/// visible. PROCMAP_QUERY finds it in the kernel's tree (Linux 6.11); on older kernels the text is read, as far as
/// the address.
pub fn at(process: libc::pid_t, address: u64) -> Option<Vma> {
    let mut maps = File::open(format!("/proc/{process}/maps")).ok()?;
    let holds = |vma: &Vma| vma.start <= address;
    match scan::query_vma(&maps, address) {
        Ok(found) => found.map(|(vma, _)| vma).filter(holds),
        Err(_) => first_ending_above(&mut BufReader::new(&mut maps), address).filter(holds),
    }
}

/// Reads lines of `/proc/PID/maps` up to the first mapping that ends above an address.
fn first_ending_above(text: &mut impl BufRead, address: u64) -> Option<Vma> {
    let lines = text.split(b'\n').map_while(Result::ok);
    lines.filter_map(|line| parse_line(&String::from_utf8_lossy(&line))).find(|vma| vma.end > address)
}

/// Reads the text of `/proc/PID/maps`. `path` is named in errors.
///
/// The kernel hands the text out in pieces; where a running process changes a mapping in between, two
/// lines may overlap. Then the first keeps its addresses and the second has the rest.
pub fn parse(text: &str, path: &str) -> Result<Vec<Vma>, CensusError> {
    let mut vmas: Vec<Vma> = Vec::new();
    for line in text.lines() {
        let mut vma = parse_line(line).ok_or_else(|| CensusError::malformed(path, line))?;
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
    let (permissions, _offset) = (field(), field());
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    let vma = Vma {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        protection: protection(permissions),
        shared: permissions.as_bytes().get(3).map(|letter| *letter == b's')?,
        device: (hexadecimal(major)?.try_into().ok()?, hexadecimal(minor)?.try_into().ok()?),
        inode,
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
        for vma in &vmas {
            for address in [vma.start, vma.end - 1] {
                assert_eq!(first_ending_above(&mut TEXT.as_bytes(), address).as_ref(), Some(vma));
            }
        }
        assert_eq!(first_ending_above(&mut TEXT.as_bytes(), vmas.last().unwrap().end), None);
    }

    #[test]
    fn the_kernel_names_the_mapping_that_holds_an_address() {
        let own = std::process::id() as libc::pid_t;
        let (code, data) = (at as *const () as u64, TEXT.as_ptr() as u64);
        for address in [code, data] {
            let vma = at(own, address).expect("it is mapped");
            let mut text = BufReader::new(File::open("/proc/self/maps").unwrap());
            assert_eq!(first_ending_above(&mut text, address), Some(vma.clone()), "the ioctl and the text agree");
            assert!(vma.start <= address && address < vma.end && vma.kind() == VmaKind::PrivateFile, "{vma:?}");
        }
        assert_eq!(at(own, 0), None, "nothing is mapped at address 0, and the next mapping does not hold it");
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
