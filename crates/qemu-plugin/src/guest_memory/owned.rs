// SPDX-License-Identifier: GPL-2.0-or-later
//! Which memory belongs to the emulated program, and which to QEMU itself.
//!
//! QEMU 7.2 places programs below its own code. Newer versions let the kernel choose addresses that the program does not specify
//! (`target_mmap`, linux-user/mmap.c), which are among QEMU's libraries and threads. There the program's memory is what it gets
//! at its start (the auxiliary vector after its environment, getauxval(3)), and what its calls map later.

use std::collections::BTreeMap;
use std::ops::Range;

use trace::Call;

use crate::guest_memory::regions::Region;
use crate::guest_memory::segments;
use crate::guest_memory::{GuestMemory, PAGE_BYTES};

/// The program's memory, by the program's addresses.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    /// All memory below this address is the program's.
    below: u64,
    /// The program's memory above: begin and end, disjoint.
    above: BTreeMap<u64, u64>,
}

impl Owned {
    /// The memory below an address.
    pub fn below(address: u64) -> Owned {
        Owned { below: address, above: BTreeMap::new() }
    }

    /// The same memory in addresses relative to `base`.
    pub fn relative_to(&self, base: u64) -> Owned {
        let above =
            self.above.iter().map(|(begin, end)| (begin.saturating_sub(base), end.saturating_sub(base))).collect();
        Owned { below: self.below.saturating_sub(base), above }
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        self.remove(range.clone());
        if !range.is_empty() {
            self.above.insert(range.start, range.end);
        }
    }

    pub fn remove(&mut self, range: Range<u64>) {
        let touched: Vec<_> = self.overlapping(&range).collect();
        for old in touched {
            self.above.remove(&old.start);
            for rest in [old.start..range.start.min(old.end), range.end.max(old.start)..old.end] {
                if !rest.is_empty() {
                    self.above.insert(rest.start, rest.end);
                }
            }
        }
    }

    /// The parts of these regions that are the program's.
    pub fn among(&self, all: &[Region]) -> Vec<Region> {
        let parts = |region: &Region| {
            let region = region.clone();
            self.parts(&region.range).into_iter().map(move |range| Region { range, ..region.clone() })
        };
        all.iter().flat_map(parts).collect()
    }

    /// The parts of a range that are the program's, in address order.
    pub fn parts(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let low = range.start..range.end.min(self.below);
        let high = range.start.max(self.below)..range.end;
        let above: Vec<_> =
            self.overlapping(&high).map(|part| part.start.max(high.start)..part.end.min(high.end)).collect();
        std::iter::once(low).chain(above).filter(|part| !part.is_empty()).collect()
    }

    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        // The last range that begins before may extend into this one.
        let before = self.above.range(..range.start).next_back();
        let all = before.into_iter().chain(self.above.range(range.start..range.end.max(range.start)));
        let (start, end) = (range.start, range.end);
        let found: Vec<_> =
            all.map(|(begin, end)| *begin..*end).filter(|own| own.end > start && own.start < end).collect();
        found.into_iter()
    }

    /// Applies a completed call.
    pub fn apply(&mut self, call: &Call, result: i64) {
        // Linux returns errors as -4095 to -1.
        if (-4095..0).contains(&result) {
            return;
        }
        let (result, page_bytes) = (result as u64, |bytes: u64| bytes.next_multiple_of(PAGE_BYTES));
        match call {
            Call::Mmap { bytes, .. } => self.insert(result..result.saturating_add(page_bytes(*bytes))),
            Call::Munmap { address, bytes } => self.remove(*address..address.saturating_add(page_bytes(*bytes))),
            Call::Mremap { address, old_bytes, new_bytes, flags, .. } => {
                if flags & libc::MREMAP_DONTUNMAP as u64 == 0 {
                    self.remove(*address..address.saturating_add(page_bytes(*old_bytes)));
                }
                self.insert(result..result.saturating_add(page_bytes(*new_bytes)));
            }
            _ => {}
        }
    }

    /// Adds the memory that a program has from the beginning: its stack, and the ELF files in the auxiliary vector after its
    /// environment.
    pub fn add_initial(&mut self, stack: &Range<u64>, vector: &[(u64, u64)], contents: &impl GuestMemory) {
        // The stack includes the guard page below it, by which the stack is recognised.
        self.insert(stack.start.saturating_sub(PAGE_BYTES)..stack.end);
        for (kind, address) in vector {
            if [libc::AT_BASE, libc::AT_SYSINFO_EHDR].contains(kind)
                && let Some(bytes) = elf_bytes(*address, contents)
            {
                self.insert(*address..address.saturating_add(bytes));
            }
        }
    }
}

/// The auxiliary vector after the environment, as types and values. The used part of the stack begins in the page `used`.
pub fn vector(stack: &Range<u64>, used: u64, contents: &impl GuestMemory) -> Option<Vec<(u64, u64)>> {
    let mut bytes = vec![0; (stack.end - used.max(stack.start)).min(MAX_BYTES) as usize];
    let read = contents.read(used, &mut bytes);
    let words: Vec<u64> = bytes[..read].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    // An entry of the program headers has 56 bytes in every 64-bit program (elf(5)).
    let begins = |six: &[u64]| six[0] == libc::AT_PHDR && six[2..4] == [libc::AT_PHENT, 56] && six[4] == libc::AT_PHNUM;
    let begin = words.windows(6).position(begins)?;
    let pairs = words[begin..].as_chunks::<2>().0.iter().map(|[kind, value]| (*kind, *value));
    Some(pairs.take_while(|(kind, _)| *kind != libc::AT_NULL).collect())
}

/// Arguments and environment have at most 6M (`_STK_LIM / 4 * 3`, fs/exec.c).
const MAX_BYTES: u64 = 6 << 20;

/// Bytes of an ELF file in memory, up to the end of its last page.
fn elf_bytes(address: u64, contents: &impl GuestMemory) -> Option<u64> {
    segments::of(address, contents)?.iter().map(|segment| segment.pages.end).max()
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

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn follows_mapping_and_unmapping() {
        let mut own = Owned::below(0x1000);
        let mmap = |bytes| Call::Mmap {
            address: 0,
            bytes,
            protection: 3,
            flags: 0x22,
            file: -1,
            offset: 0,
            file_system: None,
        };
        own.apply(&mmap(0x3001), 0x10_0000);
        own.apply(&mmap(0x1000), -12);
        assert_eq!(own.parts(&(0..u64::MAX)), [0..0x1000, 0x10_0000..0x10_4000]);
        own.apply(&Call::Munmap { address: 0x10_1000, bytes: 0x1000 }, 0);
        assert_eq!(own.parts(&(0x800..0x10_3000)), [0x800..0x1000, 0x10_0000..0x10_1000, 0x10_2000..0x10_3000]);
        let mremap = |flags: i32| Call::Mremap {
            address: 0x10_2000,
            old_bytes: 0x2000,
            new_bytes: 0x4000,
            flags: flags as u64,
            new_address: 0,
        };
        own.apply(&mremap(libc::MREMAP_MAYMOVE), 0x20_0000);
        assert_eq!(own.parts(&(0x1000..u64::MAX)), [0x10_0000..0x10_1000, 0x20_0000..0x20_4000]);
        let mut both = own.clone();
        both.apply(&mremap(libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP), 0x30_0000);
        assert_eq!(both.parts(&(0x20_1000..0x30_1000)), [0x20_1000..0x20_4000, 0x30_0000..0x30_1000]);
        // A mapping that replaces others, and one in the middle of a larger one.
        own.insert(0x10_0000..0x20_2000);
        own.remove(0x11_0000..0x12_0000);
        let all = [0x10_0000..0x11_0000, 0x12_0000..0x20_2000, 0x20_2000..0x20_4000];
        assert_eq!(own.parts(&(0x1000..u64::MAX)), all);
        own.remove(0..u64::MAX);
        assert_eq!(own.parts(&(0..u64::MAX)), std::iter::once(0..0x1000).collect::<Vec<_>>());
    }

    #[test]
    fn finds_the_interpreter_in_the_auxiliary_vector() {
        // Argument count, arguments, environment and auxiliary vector, as execve leaves them.
        let stack = 0x7000_0000..0x7000_2000;
        let auxv = [3, 0x40_0040, 4, 56, 5, 11, 7, 0x6000_0000, 33, 0x6100_0000, 0, 0];
        let on_stack = Bytes(0x7000_1000, words(&[&[1, 0x7000_1f00, 0, 0x7000_1f10, 0][..], &auxv].concat()));
        let vector = vector(&stack, 0x7000_1000, &on_stack).unwrap();
        assert_eq!(vector, [(3, 0x40_0040), (4, 56), (5, 11), (7, 0x6000_0000), (33, 0x6100_0000)]);
        assert_eq!(super::vector(&stack, 0x7000_1000, &Bytes(0x7000_1000, words(&[1, 0, 0, 3, 0, 4]))), None);
        // A header, and two segments, the last of which ends in the fourth page.
        let mut interpreter = vec![0; 64 + 2 * 56];
        interpreter[..4].copy_from_slice(b"\x7fELF");
        interpreter[32] = 64;
        (interpreter[54], interpreter[56]) = (56, 2);
        for (at, [begin, bytes]) in [(64, [0x5000_0000, 0x1800]), (120, [0x5000_2e00, 0x300])] {
            interpreter[at] = 1;
            interpreter[at + 16..at + 24].copy_from_slice(&u64::to_le_bytes(begin));
            interpreter[at + 40..at + 48].copy_from_slice(&u64::to_le_bytes(bytes));
        }
        let mut own = Owned::default();
        own.add_initial(&stack, &vector, &Bytes(0x6000_0000, interpreter));
        // There is nothing at the third address.
        assert_eq!(own.parts(&(0..u64::MAX)), [0x6000_0000..0x6000_4000, 0x6fff_f000..0x7000_2000]);
    }
}
