// SPDX-License-Identifier: GPL-2.0-or-later
//! The segments of an ELF file in memory (elf(5)): their addresses, and how Linux maps them.
//!
//! QEMU maps code without execute permission. In the maps of its process one region then holds both the constants and the code of
//! a file, which are separate mappings on Linux. Fault-around on a file stays inside one mapping.

use std::ops::Range;

use crate::guest_memory::regions::Region;
use crate::guest_memory::{GuestMemory, PAGE_BYTES};

/// A loaded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its whole pages, relative to the first page of the first segment.
    pub pages: Range<u64>,
    /// `PROT_*`.
    pub protection: u64,
}

/// The segments of the file at an address, in order; `None` where there is no ELF file.
pub fn of(address: u64, contents: &impl GuestMemory) -> Option<Vec<Segment>> {
    let mut header = [0; 64];
    if contents.read(address, &mut header) < header.len() || header[..4] != *b"\x7fELF" {
        return None;
    }
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (offset, entry_bytes, count) = (word(&header, 32), half(54), half(56));
    // The offset of the program headers in the file, or in memory where QEMU has moved them (its vDSO).
    let mut segments = Vec::new();
    for index in 0..count {
        let mut entry = [0; 56];
        let at = address.checked_add(offset)?.checked_add(index * entry_bytes)?;
        if contents.read(at, &mut entry) == entry.len() && entry[..4] == libc::PT_LOAD.to_le_bytes() {
            let flags = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let end = word(&entry, 16).checked_add(word(&entry, 40))?.checked_next_multiple_of(PAGE_BYTES)?;
            segments.push(Segment { pages: word(&entry, 16) & !(PAGE_BYTES - 1)..end, protection: protection(flags) });
        }
    }
    segments.sort_by_key(|segment| segment.pages.start);
    let first = segments.first()?.pages.start;
    for segment in &mut segments {
        segment.pages = segment.pages.start - first..segment.pages.end.max(first) - first;
    }
    Some(segments)
}

/// The protection of a segment with these flags (`make_prot`, fs/binfmt_elf.c).
fn protection(flags: u32) -> u64 {
    let bits = [(libc::PF_R, libc::PROT_READ), (libc::PF_W, libc::PROT_WRITE), (libc::PF_X, libc::PROT_EXEC)];
    bits.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bit)| *bit as u64).sum()
}

/// Splits regions of files at segment boundaries, and gives each part its segment's protection.
pub fn split_by_segment(regions: &mut Vec<Region>, contents: &impl GuestMemory) {
    let mut taken = Vec::new();
    // The current file: its name, its first address and its segments.
    let mut file: Option<(String, u64, Vec<Segment>)> = None;
    for region in regions.drain(..) {
        if region.name.starts_with('/')
            && let Some(segments) = of(region.range.start, contents)
        {
            file = Some((region.name.clone(), region.range.start, segments));
        }
        match &file {
            Some((name, begin, segments)) if *name == region.name => taken.extend(parts(&region, *begin, segments)),
            _ => taken.push(region),
        }
    }
    *regions = taken;
}

/// The parts of a region: one for each segment, and the memory between them unchanged.
fn parts(region: &Region, begin: u64, segments: &[Segment]) -> Vec<Region> {
    let mut parts = Vec::new();
    let mut at = region.range.start;
    let mut push = |range: Range<u64>, protection| {
        if !range.is_empty() {
            parts.push(Region { range, protection, name: region.name.clone() });
        }
    };
    for segment in segments {
        let cut = |offset: u64| begin.saturating_add(offset).clamp(at, region.range.end);
        let (from, to) = (cut(segment.pages.start), cut(segment.pages.end));
        if from < to {
            push(at..from, region.protection);
            push(from..to, segment.protection);
            at = to;
        }
    }
    push(at..region.range.end, region.protection);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that begins at the given address.
    struct Bytes(u64, Vec<u8>);

    impl GuestMemory for Bytes {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let Some(rest) = address.checked_sub(self.0).and_then(|at| self.1.get(at as usize..)) else { return 0 };
            let read = rest.len().min(to.len());
            to[..read].copy_from_slice(&rest[..read]);
            read
        }
    }

    /// A file of constants, code, constants, and data with zeroed bytes after its end, linked for 0x10000.
    fn file() -> Vec<u8> {
        let segments = [(4, 0, 0x7c4), (5, 0x1000, 0x1800), (4, 0x3000, 0x10), (6, 0x4ff0, 0x2000)];
        let mut bytes = vec![0; 64 + segments.len() * 56];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, segments.len() as u8);
        for (number, (flags, begin, length)) in segments.into_iter().enumerate() {
            let at = 64 + number * 56;
            (bytes[at], bytes[at + 4]) = (1, flags);
            bytes[at + 16..at + 24].copy_from_slice(&u64::to_le_bytes(0x1_0000 + begin));
            bytes[at + 40..at + 48].copy_from_slice(&u64::to_le_bytes(length));
        }
        bytes
    }

    #[test]
    fn regions_of_a_file_become_what_linux_maps() {
        let region = |range, protection, name: &str| Region { range, protection, name: name.to_owned() };
        // As QEMU maps it: constants and code are one region.
        let mut regions = vec![
            region(0x50_0000..0x50_4000, 1, "/a"),
            region(0x50_4000..0x50_5000, 3, "/a"),
            region(0x50_5000..0x50_7000, 3, ""),
            region(0x60_0000..0x60_1000, 1, "/b"),
        ];
        split_by_segment(&mut regions, &Bytes(0x50_0000, file()));
        let expected = [
            region(0x50_0000..0x50_1000, 1, "/a"),
            region(0x50_1000..0x50_3000, 5, "/a"),
            region(0x50_3000..0x50_4000, 1, "/a"),
            region(0x50_4000..0x50_5000, 3, "/a"),
            region(0x50_5000..0x50_7000, 3, ""),
            region(0x60_0000..0x60_1000, 1, "/b"),
        ];
        assert_eq!(regions, expected);
    }
}
