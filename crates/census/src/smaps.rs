//! `/proc/PID/smaps`: the flags of mappings (`VmFlags`), which no other file has, and the sums that replace a scan on kernels
//! before 6.7.

use std::io::{self, BufRead};

use host::maps::{self, MalformedLine, Vma, VmaKind};
use host::read::{escaped_line, next_line};
use policy::census::{Backing, Census, Folio, Mapping};
use policy::inspect::{SmapsInfo, VmFlags};
use policy::size::PageSize;

use super::CensusError;

/// One mapping with its sums and flags from smaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmapsEntry {
    pub vma: Vma,
    /// Sums in bytes by their names in smaps.
    sums: Vec<(Sum, u64)>,
    /// The two-letter mnemonics of `show_smap_vma_flags`, separated by spaces.
    flags: String,
    /// Whether the kernel reports that some transparent size is possible (Linux 5.0).
    thp_eligible: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    KernelPageSize,
    Rss,
    Pss,
    Referenced,
    Anonymous,
    AnonHugePages,
    ShmemPmdMapped,
    FilePmdMapped,
    SharedHugetlb,
    PrivateHugetlb,
    SharedClean,
    SharedDirty,
    Swap,
    LazyFree,
    Ksm,
}

impl Sum {
    /// The sum with this name. A `match` and not a search, because most lines of smaps have names that are not needed.
    fn named(name: &[u8]) -> Option<Sum> {
        Some(match name {
            b"KernelPageSize" => Sum::KernelPageSize,
            b"Rss" => Sum::Rss,
            b"Pss" => Sum::Pss,
            b"Referenced" => Sum::Referenced,
            b"Anonymous" => Sum::Anonymous,
            b"AnonHugePages" => Sum::AnonHugePages,
            b"ShmemPmdMapped" => Sum::ShmemPmdMapped,
            b"FilePmdMapped" => Sum::FilePmdMapped,
            b"Shared_Hugetlb" => Sum::SharedHugetlb,
            b"Private_Hugetlb" => Sum::PrivateHugetlb,
            b"Shared_Clean" => Sum::SharedClean,
            b"Shared_Dirty" => Sum::SharedDirty,
            b"Swap" => Sum::Swap,
            b"LazyFree" => Sum::LazyFree,
            b"KSM" => Sum::Ksm,
            _ => return None,
        })
    }
}

impl SmapsEntry {
    /// Whether the mapping has a flag, for example `nh` (MADV_NOHUGEPAGE) or `hg` (MADV_HUGEPAGE).
    pub fn has_flag(&self, mnemonic: &str) -> bool {
        self.flags.split_ascii_whitespace().any(|flag| flag == mnemonic)
    }

    /// The page size of the pool, where it is a hugetlb mapping (`ht`).
    pub fn hugetlb(&self) -> Option<PageSize> {
        let size = || PageSize::new(self.bytes(Sum::KernelPageSize)).ok();
        self.has_flag("ht").then(size).flatten()
    }

    /// Bytes that are present.
    pub fn resident_bytes(&self) -> u64 {
        self.bytes(Sum::Rss)
    }

    /// Bytes that were accessed since `/proc/PID/clear_refs` was written.
    pub fn referenced_bytes(&self) -> u64 {
        self.bytes(Sum::Referenced)
    }

    /// Bytes mapped by PMD leaves: anonymous memory, shmem and files.
    pub fn pmd_mapped_bytes(&self) -> u64 {
        [Sum::AnonHugePages, Sum::ShmemPmdMapped, Sum::FilePmdMapped].map(|sum| self.bytes(sum)).iter().sum()
    }

    /// The facts about a mapping that an inspection uses.
    pub fn smaps_info(&self) -> SmapsInfo {
        let (ksm_bytes, anonymous) = (self.bytes(Sum::Ksm), self.bytes(Sum::Anonymous));
        // File pages and pages merged by KSM are shared for reasons other than a fork.
        let is_anonymous = matches!(self.vma.kind(), VmaKind::Anonymous | VmaKind::Stack);
        let shared = self.bytes(Sum::SharedClean) + self.bytes(Sum::SharedDirty);
        let is_own = self.vma.kind() != VmaKind::Special;
        SmapsInfo {
            flags: VmFlags::of(&self.flags),
            thp_eligible: self.thp_eligible,
            hugetlb: self.hugetlb(),
            swap_bytes: self.bytes(Sum::Swap),
            lazy_free_bytes: self.bytes(Sum::LazyFree),
            shared_bytes: if is_anonymous { shared.min(anonymous).saturating_sub(ksm_bytes) } else { 0 },
            ksm_bytes,
            mapped_again_bytes: if is_own { shared + self.bytes(Sum::SharedHugetlb) } else { 0 },
            proportional_bytes: if is_own { self.bytes(Sum::Pss) } else { 0 },
        }
    }

    fn bytes(&self, wanted: Sum) -> u64 {
        self.sums.iter().find(|(sum, _)| *sum == wanted).map_or(0, |(_, bytes)| *bytes)
    }

    /// Adds the mapping's present memory to a census. The folios behind base pages stay unknown, and so do zero pages, which
    /// smaps does not report at all.
    pub fn count(&self, base: PageSize, pmd: Option<PageSize>, shmem: bool, census: &mut Census) {
        if self.vma.kind() == VmaKind::Special || self.has_flag("pf") {
            return;
        }
        if let Some(size) = self.hugetlb() {
            let bytes = self.bytes(Sum::SharedHugetlb) + self.bytes(Sum::PrivateHugetlb);
            census.add(Mapping { backing: Backing::Hugetlb, leaf: size, folio: Folio::Whole(size) }, bytes);
            return;
        }
        let anonymous = self.bytes(Sum::Anonymous);
        let file = self.bytes(Sum::Rss).saturating_sub(anonymous);
        let file_pmd = self.bytes(Sum::ShmemPmdMapped) + self.bytes(Sum::FilePmdMapped);
        let shared = if shmem { Backing::Shmem } else { Backing::File };
        for (backing, all, by_pmd) in
            [(Backing::Anonymous, anonymous, self.bytes(Sum::AnonHugePages)), (shared, file, file_pmd)]
        {
            if let Some(leaf) = pmd {
                census.add(Mapping { backing, leaf, folio: Folio::Whole(leaf) }, by_pmd);
            }
            census.add(Mapping { backing, leaf: base, folio: Folio::Unknown }, all.saturating_sub(by_pmd));
        }
    }
}

/// What was expected where a line cannot be parsed.
const LINE: &str = "a line of a mapping, as in proc(5)";
const SUM: &str = "sums that fit in 64 bits, over all mappings";
const ORDER: &str = "a mapping above those before it";

/// Reads smaps mapping by mapping: for a process with many mappings the text is hundreds of times larger than the data that is
/// kept. `path` is used in errors, and `failed` makes the error of a failed read.
pub fn read(
    mut text: impl BufRead,
    path: &str,
    failed: impl Fn(io::Error) -> CensusError,
    mut report: impl FnMut(SmapsEntry),
) -> Result<(), CensusError> {
    let mut open: Option<SmapsEntry> = None;
    let (mut line, mut end, mut sum) = (Vec::new(), 0, 0u64);
    while next_line(&mut text, &mut line).map_err(&failed)? {
        if open.is_some() && is_unused(&line) {
            continue;
        }
        let line = escaped_line(&line);
        let malformed = |expected| MalformedLine::new(path, expected, &line);
        match line.split_once(':').filter(|(name, _)| !name.contains('-')) {
            None => {
                let vma = maps::parse_line(&line).map_err(malformed)?;
                if vma.end <= end {
                    return Err(malformed(ORDER).into());
                }
                end = vma.end;
                let entry = SmapsEntry { vma, sums: Vec::new(), flags: String::new(), thp_eligible: None };
                open.replace(entry).map(&mut report);
            }
            Some((name, value)) => {
                let bytes = open.as_mut().and_then(|entry| entry.add(name, value.trim()));
                // The total must fit in 64 bits, so that all later sums do.
                sum = sum.checked_add(bytes.ok_or_else(|| malformed(LINE))?).ok_or_else(|| malformed(SUM))?;
            }
        }
    }
    open.map(report);
    Ok(())
}

/// Whether a line has the form `Name: value`, with a value that is not used. The first line of a mapping begins with an
/// address.
fn is_unused(line: &[u8]) -> bool {
    let Some(end) = line.iter().position(|byte| *byte == b':') else { return false };
    let name = &line[..end];
    let is_name = name.first().is_some_and(u8::is_ascii_uppercase) && !name.contains(&b'-');
    is_name
        && !matches!(name, b"VmFlags" | b"THPeligible")
        && (Sum::named(name).is_none() || line[end + 1..].trim_ascii() == b"0 kB")
}

impl SmapsEntry {
    /// Adds a line, and returns its value in bytes if it has one; `None` where it cannot be parsed.
    fn add(&mut self, name: &str, value: &str) -> Option<u64> {
        if name == "VmFlags" {
            self.flags = value.to_string();
        } else if name == "THPeligible" {
            self.thp_eligible = Some(value != "0");
        } else if let Some(sum) = Sum::named(name.as_bytes()) {
            let kilobytes: u64 = value.strip_suffix(" kB")?.parse().ok()?;
            let bytes = kilobytes.checked_mul(1024)?;
            // Most sums are 0 for most mappings.
            if bytes > 0 {
                self.sums.push((sum, bytes));
            }
            return Some(bytes);
        }
        Some(0)
    }
}

/// Parses the text of `/proc/PID/smaps`.
#[cfg(test)]
pub fn parse(text: &str, path: &str) -> Result<Vec<SmapsEntry>, CensusError> {
    let mut entries = Vec::new();
    let failed = |error| CensusError::Io { path: path.into(), error };
    read(text.as_bytes(), path, failed, |entry| entries.push(entry))?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../fixtures/census/smaps");

    #[test]
    fn a_captured_process_has_the_census_that_was_set_up() {
        let entries = parse(TEXT, "smaps").unwrap();
        let mut census = Census::default();
        for entry in &entries {
            entry.count(PageSize::K4, Some(PageSize::M2), entry.vma.device == (0, 1), &mut census);
        }
        let bytes = |backing: Backing, leaf: PageSize| {
            census.bytes_where(|mapping| mapping.backing == backing && mapping.leaf == leaf)
        };
        assert_eq!(bytes(Backing::Hugetlb, PageSize::M2), 2 << 20);
        assert_eq!(bytes(Backing::Anonymous, PageSize::M2), 4 << 20);
        assert!(bytes(Backing::Anonymous, PageSize::K4) >= 3 << 20);
        assert_eq!(bytes(Backing::Shmem, PageSize::K4), 128 << 10);
        assert!(bytes(Backing::File, PageSize::K4) > 0);
    }

    #[test]
    fn flags_are_whole_words() {
        let entries = parse(TEXT, "smaps").unwrap();
        assert!(entries.iter().any(|entry| entry.has_flag("nh")));
        assert!(entries.iter().any(|entry| entry.has_flag("hg")));
        assert!(entries.iter().any(|entry| entry.hugetlb() == Some(PageSize::M2)));
        assert!(entries.iter().all(|entry| !entry.has_flag("r")));
    }

    #[test]
    fn rubbish_is_refused() {
        for text in [
            "Rss: 4 kB\n",
            "rubbish\n",
            "1000-2000 rw-p 0 0:0 0\nRss: 18446744073709551615 kB\n",
            "1000-2000 rw-p 0 0:0 0\nRss: 9007199254740992 kB\nSwap: 9007199254740992 kB\n",
            "2000-3000 rw-p 0 0:0 0\n1000-2000 rw-p 0 0:0 0\n",
            "1000-fffffffffffff000 rw-p 0 0:0 0\n",
            "1000-2000 rw-p 0 0:0 0\nRss: 4 MB\n",
            "1000-2000 rw-p 0 0:0 0\nRss: -1 kB\n",
            "1000-2000 rw-p 0 0:0 0\nRss: 4 0 kB\n",
        ] {
            assert!(matches!(parse(text, "smaps"), Err(CensusError::Malformed(_))), "{text:?}");
        }
    }
}
