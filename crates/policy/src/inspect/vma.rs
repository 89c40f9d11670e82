//! [`VmaFacts`]: the facts about one mapping.

use crate::call::prot;
use crate::census::{Advice, VmaKind};
use crate::size::PageSize;

/// A mapping as /proc/PID/maps and, where it was read, /proc/PID/smaps show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmaFacts {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The kind of memory that it can hold.
    pub kind: VmaKind,
    /// Protection bits from [`prot`].
    pub protection: u64,
    /// Whether stores go to the mapped object.
    pub shared: bool,
    /// Major and minor number of the file system that holds the file; 0:0 without a file.
    pub device: (u32, u32),
    /// Inode number of the file; 0 without a file.
    pub inode: u64,
    /// Offset of the mapping in the file, in bytes.
    pub offset: u64,
    /// The path, or the kernel's name in brackets.
    pub name: String,
    /// Whether the file is in shared memory (tmpfs).
    pub is_shmem: bool,
    /// The file system of the file. `None` without a file, for the kernel's internal tmpfs (memfd, shared anonymous and System V
    /// memory), which is not mounted, and where the process's mount table does not list it.
    pub file_system: Option<FileSystem>,
    /// Which part of a mapping this is.
    pub part: VmaPart,
    /// The facts that only smaps has; `None` where smaps was not read or no longer had this mapping.
    pub smaps_info: Option<SmapsInfo>,
}

/// A mounted file system, as `/proc/PID/mountinfo` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type: `ext4`, `tmpfs`.
    pub name: String,
    /// The `huge=` option of a tmpfs; `None` where it is not shown, which means `never`.
    pub huge: Option<String>,
}

/// Which part of a mapping this is: guard pages inside it (MADV_GUARD_INSTALL) cut a mapping into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmaPart {
    /// The whole mapping, or its first part.
    #[default]
    First,
    /// A part after a guard.
    Further,
    /// A guard inside the mapping.
    Guard,
}

/// The facts about a mapping that only smaps has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmapsInfo {
    /// Flags from the `VmFlags` line.
    pub flags: VmFlags,
    /// Whether the kernel reports that some transparent size is possible (`THPeligible`); `None` before Linux 5.0.
    pub thp_eligible: Option<bool>,
    /// The page size of its pool, where it is a hugetlb mapping.
    pub hugetlb: Option<PageSize>,
    /// Bytes that are swapped out.
    pub swap_bytes: u64,
    /// Bytes freed with MADV_FREE that the kernel has not reclaimed yet.
    pub lazy_free_bytes: u64,
    /// Anonymous bytes that other processes also map.
    pub shared_bytes: u64,
    /// Bytes that KSM has merged.
    pub ksm_bytes: u64,
    /// Bytes of any backing that are mapped more than once, by this or other processes (`Shared_*`).
    pub mapped_again_bytes: u64,
    /// Bytes of pages outside hugetlb pools, each divided by the number of its mappings (`Pss`).
    pub proportional_bytes: u64,
}

/// Flags of a mapping (`VmFlags` in smaps, `show_smap_vma_flags` in fs/proc/task_mmu.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmFlags(u32);

/// The flags that matter here. Flags for protections are omitted because maps shows them; flags that the kernel changes on its
/// own are omitted too.
const MNEMONICS: [&str; 21] = [
    "hg", "nh", "ht", "pf", "io", "de", "lo", "um", "uw", "ui", "mg", "dc", "dd", "wf", "gu", "rr", "sr", "mm", "dp",
    "nr", "sl",
];

/// Flags that change without a call or spread across mappings. A difference in these flags is no cut.
const NOT_CUTTING: [&str; 2] = ["gu", "nr"];

impl VmFlags {
    /// Parses the text of a `VmFlags` line.
    pub fn of(text: &str) -> VmFlags {
        let bit = |word: &str| MNEMONICS.iter().position(|known| *known == word).map_or(0, |at| 1 << at);
        VmFlags(text.split_ascii_whitespace().map(bit).fold(0, |all, bit| all | bit))
    }

    /// Whether a flag is set.
    pub fn has(self, mnemonic: &str) -> bool {
        MNEMONICS.iter().position(|known| *known == mnemonic).is_some_and(|at| self.0 & 1 << at != 0)
    }

    /// The flags that only one of the two mappings has and that keep the kernel from merging them.
    pub fn difference(self, other: VmFlags) -> Vec<&'static str> {
        let differs = |(at, name): (usize, &'static str)| {
            ((self.0 ^ other.0) & 1 << at != 0 && !NOT_CUTTING.contains(&name)).then_some(name)
        };
        MNEMONICS.into_iter().enumerate().filter_map(differs).collect()
    }

    /// The advice on the mapping.
    pub fn advice(self) -> Advice {
        if self.has("nh") {
            Advice::NoHuge
        } else if self.has("hg") {
            Advice::Huge
        } else {
            Advice::None
        }
    }
}

impl VmaFacts {
    /// Length of the address range in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it is private memory without a file and not the main stack.
    pub fn is_anonymous(&self) -> bool {
        self.kind == VmaKind::Anonymous
    }

    /// Whether it can be neither read, written nor executed.
    pub fn is_inaccessible(&self) -> bool {
        self.protection == 0 || self.part == VmaPart::Guard
    }

    /// Cuts the mapping at the guards inside it, which are in address order.
    pub fn cut_at(self, guards: &[(u64, u64)]) -> Vec<VmaFacts> {
        let mut parts = Vec::new();
        let mut at = self.start;
        let part = |start: u64, end: u64, part: VmaPart| {
            let part = if start == self.start && part == VmaPart::Further { VmaPart::First } else { part };
            let offset = if self.inode == 0 { self.offset } else { self.offset + (start - self.start) };
            VmaFacts { start, end, part, offset, ..self.clone() }
        };
        for (start, end) in guards.iter().copied().filter(|(start, end)| *start >= self.start && *end <= self.end) {
            if at < start {
                parts.push(part(at, start, VmaPart::Further));
            }
            parts.push(part(start, end, VmaPart::Guard));
            at = end;
        }
        if at < self.end {
            parts.push(part(at, self.end, VmaPart::Further));
        }
        parts
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.protection & prot::WRITE != 0
    }

    /// Whether it can be executed.
    pub fn is_executable(&self) -> bool {
        self.protection & prot::EXEC != 0
    }

    /// Whether a leaf of this size can map its file: the address and the file offset are congruent.
    pub fn is_congruent(&self, size: PageSize) -> bool {
        self.start % size.bytes() == self.offset % size.bytes()
    }

    /// Whether the file behind shared memory has no name: shared anonymous memory, memfd, System V memory, and deleted files.
    /// The settings of single sizes apply to such memory (`shmem_mmap`, mm/shmem.c: the file had no links when it was
    /// mapped).
    pub fn is_unnamed(&self) -> bool {
        self.name.ends_with(" (deleted)") || self.name.starts_with("[anon_shmem:")
    }

    /// The kind of memory for the purpose of slots: the main stack and shared memory have slots like any other memory.
    pub fn kind_for_slots(&self) -> VmaKind {
        match self.kind {
            VmaKind::Anonymous | VmaKind::Stack | VmaKind::Shared => VmaKind::Anonymous,
            other => other,
        }
    }

    /// The name that the program gave to anonymous memory.
    pub fn given_name(&self) -> Option<&str> {
        let name = self.name.strip_prefix("[anon:").or_else(|| self.name.strip_prefix("[anon_shmem:"))?;
        Some(name.strip_suffix(']').unwrap_or(name))
    }

    /// Whether it has pages of a hugetlb pool.
    pub fn is_hugetlb(&self) -> bool {
        match self.smaps_info {
            Some(smaps_info) => smaps_info.flags.has("ht"),
            None => self.name.starts_with("/anon_hugepage") || self.name.starts_with("/memfd:hugetlb"),
        }
    }

    /// The advice on the mapping; `None` where smaps was not read.
    pub fn advice(&self) -> Option<Advice> {
        self.smaps_info.map(|smaps_info| smaps_info.flags.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words_and_differ_by_those_that_cut() {
        let (left, right) = (VmFlags::of("rd wr mr mw me ac hg gu"), VmFlags::of("rd wr mr mw me ac lo sd"));
        assert!(left.has("hg") && !left.has("nh") && right.has("lo"));
        assert_eq!(left.difference(right), ["hg", "lo"]);
        assert_eq!((left.advice(), right.advice()), (Advice::Huge, Advice::None));
    }
}
