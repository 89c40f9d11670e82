//! jemalloc in a program or a library, and the base page that it was built for.
//!
//! When jemalloc starts, it compares the page of the system with its own (`pages_boot`, src/pages.c): `if (os_page > PAGE)
//! malloc_write("<jemalloc>: Unsupported system page size\n")`. PAGE is not in the data of the file, so it is read from the
//! comparison before the branch that leads to this message. Code of other compilers and architectures may differ; then jemalloc
//! is found, but not its page size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use policy::inspect::Jemalloc;
use policy::size::PageSize;

use super::elf::{self, Section, u16_at};

/// The message, in all versions since 4.0, without its newline.
const MESSAGE: &[u8] = b"<jemalloc>: Unsupported system page size";
/// The most bytes of a section that are read.
const MAX_SECTION: u64 = 256 << 20;
/// The machines of ELF files whose comparison is known (e_machine).
const X86_64: usize = 62;
const AARCH64: usize = 183;
/// The page sizes for which jemalloc can be built.
const PAGES: std::ops::RangeInclusive<u64> = 4 << 10..=2 << 20;

/// The base page size that the jemalloc in a 64-bit little-endian ELF file was built for. The outer `None` means that the file
/// has no jemalloc, the inner one that the file does not show the size.
pub fn of(file: &File) -> io::Result<Option<Option<PageSize>>> {
    elf::none_if_truncated(find(file))
}

/// The dynamic linker's directories that are searched for a library.
const DIRECTORIES: [&str; 5] = ["lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib"];
/// Their subdirectories by architecture on Debian.
const TRIPLETS: [&str; 4] = ["", "x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"];

/// The jemalloc in a program, or else in the shared library that the program names in `.dynstr`, searched below `root`.
pub fn of_program(program: &Path, root: Option<&Path>) -> Option<Jemalloc> {
    let in_file = |path: &Path| {
        let built_for = of(&host::open_regular(path, None).ok()??).ok()??;
        Some(Jemalloc { file: path.display().to_string(), built_for })
    };
    let library = || {
        let name = needed(&host::open_regular(program, None).ok()??)?;
        let directories =
            DIRECTORIES.iter().flat_map(|directory| TRIPLETS.map(|triplet| Path::new(directory).join(triplet)));
        let paths = directories.map(|directory| root.unwrap_or(Path::new("/")).join(directory).join(&name));
        paths.into_iter().find_map(|path| in_file(&path))
    };
    in_file(program).or_else(library)
}

/// The file name of a shared jemalloc that a program needs.
fn needed(program: &File) -> Option<String> {
    let (_, names) = content(program, ".dynstr").ok()??;
    let mut names = names.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.find(|name| name.starts_with("libjemalloc") && name.contains(".so")).map(str::to_owned)
}

fn find(file: &File) -> io::Result<Option<Option<PageSize>>> {
    let Some(header) = elf::header(file)? else { return Ok(None) };
    let Some((constants, data)) = content(file, ".rodata")? else { return Ok(None) };
    // A program that only searches for the message, like this one, has no newline after it.
    let is_line = |at: &usize| data.get(at + MESSAGE.len()) == Some(&b'\n');
    let Some(at) = memchr::memmem::find_iter(&data, MESSAGE).find(is_line) else { return Ok(None) };
    let message = constants.address.wrapping_add(at as u64);
    let Some((section, code)) = content(file, ".text")? else { return Ok(Some(None)) };
    let built_for = match u16_at(&header, 0x12) {
        X86_64 => x86_64::compared(&code, section.address, message),
        AARCH64 => aarch64::compared(&code, section.address, message),
        _ => None,
    };
    Ok(Some(built_for.and_then(|bytes| PageSize::new(bytes).ok())))
}

/// A section with its content.
fn content(file: &File, name: &str) -> io::Result<Option<(Section, Vec<u8>)>> {
    let Some(section) = elf::section(file, name)?.filter(|section| section.bytes <= MAX_SECTION) else {
        return Ok(None);
    };
    let length = file.metadata()?.len();
    if section.offset.checked_add(section.bytes).is_none_or(|end| end > length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut data = vec![0; section.bytes as usize];
    file.read_exact_at(&mut data, section.offset)?;
    Ok(Some((section, data)))
}

/// The largest page that the code accepts: `limit` if the code refuses `os_page > limit`, one less if it refuses the limit
/// too.
fn page_of(limit: u64, is_included: bool) -> Option<u64> {
    let page = if is_included { limit.checked_sub(1)? } else { limit };
    (page.is_power_of_two() && PAGES.contains(&page)).then_some(page)
}

/// The comparison in the code of x86-64 (Intel SDM, volume 2).
mod x86_64 {
    use super::page_of;
    use crate::inspect::elf::u32_at;

    /// The most bytes between the comparison and the branch, and between the branch's target and the message's address.
    const WITHIN: usize = 24;
    /// The conditions `above` and `above or equal`, and their opposites, as the second byte of near branches. The first byte
    /// of a short branch is 0x10 less.
    const JA: u8 = 0x87;
    const JAE: u8 = 0x83;
    const JBE: u8 = 0x86;
    const JB: u8 = 0x82;

    /// The limit that the code compares with before it branches to the message.
    pub fn compared(code: &[u8], address: u64, message: u64) -> Option<u64> {
        let messages: Vec<usize> = loads(code, address, message).collect();
        branches(code).find_map(|branch| messages.iter().find_map(|load| branch.limit(code, *load)))
    }

    /// Where the address of the message is loaded: `lea reg, [rip + x]`, or `mov reg, imm32` in a program at a fixed address.
    fn loads(code: &[u8], address: u64, message: u64) -> impl Iterator<Item = usize> {
        let is_lea = move |at: usize, bytes: &[u8]| {
            let next = address.wrapping_add(at as u64 + 7);
            bytes[0] & 0xf8 == 0x48
                && bytes[1] == 0x8d
                && bytes[2] & 0xc7 == 5
                && next.wrapping_add_signed(i64::from(u32_at(bytes, 3) as i32)) == message
        };
        let is_mov = move |bytes: &[u8]| bytes[0] & 0xf8 == 0xb8 && u64::from(u32_at(bytes, 1)) == message;
        code.windows(7).enumerate().filter(move |(at, bytes)| is_lea(*at, bytes) || is_mov(bytes)).map(|(at, _)| at)
    }

    /// A conditional branch.
    struct Branch {
        start: usize,
        end: usize,
        target: usize,
        condition: u8,
    }

    fn branches(code: &[u8]) -> impl Iterator<Item = Branch> {
        let is_known = |condition: u8| [JA, JAE, JBE, JB].contains(&condition);
        code.windows(6).enumerate().filter_map(move |(start, bytes)| {
            let (condition, length, distance) = match bytes[0] {
                0x0f => (bytes[1], 6, u32_at(bytes, 2) as i32),
                first => (first.wrapping_add(0x10), 2, i32::from(bytes[1] as i8)),
            };
            let end = start + length;
            let target = end.checked_add_signed(distance as isize)?;
            is_known(condition).then_some(Branch { start, end, target, condition })
        })
    }

    impl Branch {
        /// The limit in the comparison before this branch, if the branch leads to the load of the message or skips it.
        fn limit(&self, code: &[u8], load: usize) -> Option<u64> {
            let leads = |from: usize| (from..from + WITHIN).contains(&load);
            let is_known = match self.condition {
                JA | JAE => leads(self.target),
                _ => leads(self.end),
            };
            let is_included = [JAE, JB].contains(&self.condition);
            if is_known { limit_before(&code[..self.start], is_included) } else { None }
        }
    }

    /// The page of the last 64-bit `cmp` with a constant near the end of the code.
    fn limit_before(code: &[u8], is_included: bool) -> Option<u64> {
        let first = code.len().saturating_sub(WITHIN);
        (first..code.len()).rev().find_map(|at| {
            let bytes = code.get(at..)?;
            let constant = match *bytes {
                [0x48, 0x3d, ..] => bytes.get(2..6)?,
                [0x48 | 0x49, 0x81, 0xf8..=0xff, ..] => bytes.get(3..7)?,
                [0x48, 0x81, 0x3d, ..] => bytes.get(7..11)?,
                _ => return None,
            };
            page_of(u64::from(u32_at(constant, 0)), is_included)
        })
    }
}

/// The comparison in the code of arm64 (Arm ARM, C6.2).
mod aarch64 {
    use super::page_of;
    use crate::inspect::elf::u32_at;

    /// The most instructions between the comparison and the branch, and between the branch's target and the message's address.
    const WITHIN: usize = 6;
    /// Conditions of `b.cond`: higher, higher or same, and their opposites.
    const HI: u32 = 8;
    const HS: u32 = 2;
    const LS: u32 = 9;
    const LO: u32 = 3;

    /// The limit that the code compares with before it branches to the message.
    pub fn compared(code: &[u8], address: u64, message: u64) -> Option<u64> {
        let code: Vec<u32> = code.chunks_exact(4).map(|word| u32_at(word, 0)).collect();
        let loads: Vec<usize> = (0..code.len()).filter(|at| is_load(&code[*at..], address, *at, message)).collect();
        (0..code.len()).find_map(|at| loads.iter().find_map(|load| limit(&code, at, *load)))
    }

    /// Whether `adrp` and an `add` of the same register near it form the address of the message.
    fn is_load(code: &[u32], address: u64, at: usize, message: u64) -> bool {
        let word = code[0];
        if word & 0x9f00_0000 != 0x9000_0000 {
            return false;
        }
        let pages = i64::from((word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3);
        let page = (address.wrapping_add(at as u64 * 4) & !0xfff).wrapping_add_signed(sign_extended(pages, 21) << 12);
        let is_add = |next: &u32| {
            next & 0xffc0_0000 == 0x9100_0000
                && next >> 5 & 31 == word & 31
                && page.wrapping_add(u64::from(next >> 10 & 0xfff)) == message
        };
        code.iter().skip(1).take(WITHIN).any(is_add)
    }

    fn sign_extended(value: i64, bits: u32) -> i64 {
        value << (64 - bits) >> (64 - bits)
    }

    /// The limit in the comparison before a branch at `at`, if the branch leads to the load of the message or skips it.
    fn limit(code: &[u32], at: usize, load: usize) -> Option<u64> {
        let word = code[at];
        if word & 0xff00_0010 != 0x5400_0000 {
            return None;
        }
        let distance = sign_extended(i64::from(word >> 5 & 0x7_ffff), 19);
        let from = match word & 15 {
            HI | HS => at.checked_add_signed(distance as isize)?,
            LS | LO => at + 1,
            _ => return None,
        };
        if !(from..from + WITHIN).contains(&load) {
            return None;
        }
        code[at.saturating_sub(WITHIN)..at]
            .iter()
            .rev()
            .find_map(|word| compared_page(*word, [HS, LO].contains(&(code[at] & 15))))
    }

    /// The page in a 64-bit `cmp` with a constant.
    fn compared_page(word: u32, is_included: bool) -> Option<u64> {
        let is_cmp = word & 0xff80_001f == 0xf100_001f;
        let shift = if word >> 22 & 1 == 1 { 12 } else { 0 };
        let page = page_of(u64::from(word >> 10 & 0xfff) << shift, is_included);
        if is_cmp { page } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x1000;
    const MESSAGE_AT: u64 = 0x9_0658;

    /// Code of x86-64 that compares, branches by these bytes, and loads the message 16 bytes later.
    fn intel(compare: &[u8], branch: u8, address: u64) -> Option<u64> {
        let mut code = vec![0x90; 64];
        code[8..8 + compare.len()].copy_from_slice(compare);
        let end = 8 + compare.len() + 6;
        code[end - 6..end].copy_from_slice(&[0x0f, branch, 16, 0, 0, 0]);
        let (lea, next) = (end + 16, end + 16 + 7);
        code[lea..lea + 3].copy_from_slice(&[0x48, 0x8d, 0x3d]);
        code[lea + 3..next].copy_from_slice(&((address - CODE) as u32 - next as u32).to_le_bytes());
        x86_64::compared(&code, CODE, MESSAGE_AT)
    }

    #[test]
    fn the_page_is_that_of_the_comparison_before_the_message() {
        let (above, not_below) = (0x87, 0x83);
        for (compare, branch, page) in [
            (&[0x48, 0x3d, 0, 0x10, 0, 0][..], above, Some(4096)),
            (&[0x48, 0x3d, 1, 0x10, 0, 0][..], not_below, Some(4096)),
            (&[0x48, 0x81, 0xfb, 0, 0, 1, 0][..], above, Some(65536)),
            (&[0x48, 0x81, 0x3d, 9, 9, 9, 9, 0, 0x40, 0, 0][..], above, Some(16384)),
            (&[0x48, 0x3d, 0, 0x10, 0, 0][..], not_below, None),
            (&[0x48, 0x3d, 0, 0x11, 0, 0][..], above, None),
            (&[0x48, 0x83, 0xf8, 0x10][..], above, None),
        ] {
            assert_eq!(intel(compare, branch, MESSAGE_AT), page, "{compare:x?}");
        }
        assert_eq!(intel(&[0x48, 0x3d, 0, 0x10, 0, 0], above, MESSAGE_AT + 1), None);
    }

    #[test]
    fn code_that_jumps_over_the_message_shows_the_page_too() {
        // cmp $0x10000, %rax; jbe +12; lea message, %rdi
        let mut code = vec![0x48, 0x3d, 0, 0, 1, 0, 0x76, 12, 0x48, 0x8d, 0x3d];
        code.extend(((MESSAGE_AT - CODE) as u32 - 15).to_le_bytes());
        code.extend([0x90; 8]);
        assert_eq!(x86_64::compared(&code, CODE, MESSAGE_AT), Some(65536));
    }

    /// Code of Debian's libjemalloc for arm64: cmp x0, #0x10, lsl #12; b.hi; two nops; adrp and add of the message.
    #[test]
    fn the_comparison_of_arm64_has_a_shifted_constant() {
        let nop = 0xd503_201f;
        let arm = |compare: u32, low: u32| {
            let pages = ((MESSAGE_AT >> 12) - (CODE >> 12)) as u32;
            let adrp = 0x9000_0000 | (pages & 3) << 29 | (pages >> 2) << 5;
            let add = 0x9100_0000 | low << 10;
            let code = [nop, compare, 0x5400_0000 | 3 << 5 | 8, nop, nop, adrp, add, nop];
            let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
            aarch64::compared(&code, CODE, MESSAGE_AT)
        };
        assert_eq!(arm(0xf140_401f, 0x658), Some(65536));
        assert_eq!(arm(0xf140_041f, 0x658), Some(4096));
        assert_eq!(arm(0xf140_401f, 0x650), None);
        assert_eq!(arm(0xf100_401f, 0x658), None);
    }

    #[test]
    fn files_without_the_message_have_no_jemalloc() {
        for path in ["/proc/self/exe", "/proc/self/cmdline", "/lib64/ld-linux-x86-64.so.2", "/dev/null"] {
            if let Ok(file) = File::open(path) {
                assert_eq!(of(&file).unwrap(), None, "{path}");
            }
        }
    }
}
