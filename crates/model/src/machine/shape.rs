//! The address-translation hardware of a processor, as plain data.

use ::policy::size::PageSize;
use paging::format::named::Named;
use paging::{Format, with_format};

use super::kernel_costs::KernelCosts;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86-64.
    X86_64,
    Arm64,
    /// 64-bit RISC-V.
    RiscV64,
}

impl Architecture {
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Arm64, Architecture::RiscV64];

    /// Its name in traces and in the kernel (`uname -m`).
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Arm64 => "aarch64",
            Architecture::RiscV64 => "riscv64",
        }
    }
}

/// A page-table format that the machine supports, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFormat {
    /// Its name, such as `arm64-4k-48`.
    pub name: String,
    /// The format with that name.
    pub format: Named,
}

impl TableFormat {
    /// Size of the kernel's base page in bytes; it can consist of several hardware pages.
    pub fn base_bytes(&self) -> u64 {
        with_format!(&self.format, format => format.geometry().page_bytes() << format.run_bits())
    }

    fn levels(&self) -> u8 {
        with_format!(&self.format, format => format.geometry().levels())
    }
}

/// A model machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name on the command line.
    pub name: String,
    /// The full name of the processor.
    pub processor: String,
    /// The instruction set of the processor.
    pub architecture: Architecture,
    /// The formats of its page tables. The first determines the kernel's base page, unless the policy has another one.
    pub formats: Vec<TableFormat>,
    /// The processors that the machine describes, in the form that [`Machine::is_cpu`] expects.
    pub cpus: Vec<String>,
    /// Its TLBs, ordered by level.
    pub tlbs: Vec<TlbShape>,
    /// Caches of page-table entries that point to tables.
    pub walk_caches: Vec<WalkCacheShape>,
    /// The page walker.
    pub walker: WalkerShape,
    /// The second stage of translation, if the machine is a virtual machine.
    pub stage2: Option<Stage2>,
    /// The kernel's costs of faults, if the file has them.
    pub kernel_costs: Option<KernelCosts>,
    /// Every figure of the file with its provenance.
    pub figures: Vec<Figure>,
}

impl Machine {
    /// The format that Linux uses with the base page of the first format.
    pub fn default_format(&self) -> &TableFormat {
        let first = &self.formats[0];
        self.format_with(first.base_bytes()).unwrap_or(first)
    }

    /// The format that Linux uses with base pages of `base_bytes`.
    ///
    /// On RISC-V the kernel tests at boot which modes the processor supports, and uses the one with the most levels
    /// (`set_satp_mode`, arch/riscv/mm/init.c). On other architectures it is the first such format of the file.
    pub fn format_with(&self, base_bytes: u64) -> Option<&TableFormat> {
        let mut of_base = self.formats.iter().filter(|format| format.base_bytes() == base_bytes);
        match self.architecture {
            // `max_by_key` returns the last maximum, so `rev` selects the first format with the most levels.
            Architecture::RiscV64 => of_base.rev().max_by_key(|format| format.levels()),
            Architecture::X86_64 | Architecture::Arm64 => of_base.next(),
        }
    }

    /// Whether the machine describes this processor. A processor is `VENDOR/FAMILY/MODEL` in decimal on x86 (in machine files the
    /// model can be `FIRST-LAST`), `IMPLEMENTER/PART` on arm64 and the `uarch` on RISC-V, each as in /proc/cpuinfo.
    pub fn is_cpu(&self, cpu: &str) -> bool {
        self.cpus.iter().any(|known| {
            let Some((prefix, models)) = known.rsplit_once('/') else { return known == cpu };
            let Some((cpu_prefix, model)) = cpu.rsplit_once('/') else { return false };
            let in_range = models.split_once('-').is_some_and(|(first, last)| {
                let number = |text: &str| text.parse::<u32>().ok();
                matches!((number(first), number(model), number(last)), (Some(a), Some(b), Some(c)) if a <= b && b <= c)
            });
            prefix == cpu_prefix && (models == model || in_range)
        })
    }
}

/// A figure of a machine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its key, such as `tlb[0].entries`.
    pub key: String,
    /// Its value, as in the file.
    pub value: String,
    /// Where the value comes from.
    pub provenance: Provenance,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The figure has this source, as described in the file.
    Source(String),
    /// The figure is an assumption, made for this reason.
    Assumed(String),
}

/// A kind of memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// An instruction fetch.
    Fetch,
    Load,
    Store,
}

impl AccessKind {
    /// All kinds.
    pub const ALL: [AccessKind; 3] = [AccessKind::Fetch, AccessKind::Load, AccessKind::Store];

    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            AccessKind::Fetch => "fetch",
            AccessKind::Load => "load",
            AccessKind::Store => "store",
        }
    }
}

/// The replacement policy of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Replaces the least recently used entry.
    Lru,
    /// Tree-PLRU: replaces the entry to which a binary tree of one-bit directions leads.
    TreePlru,
    /// Replaces an entry that a seeded generator chooses.
    Random,
    /// Replaces the entry that was inserted first; a hit changes nothing.
    Fifo,
    /// Static re-reference interval prediction with two bits per entry: replaces the entry whose next use is predicted farthest
    /// off.
    Srrip,
}

impl Replacement {
    /// All replacement policies.
    pub const ALL: [Replacement; 5] =
        [Replacement::Lru, Replacement::TreePlru, Replacement::Random, Replacement::Fifo, Replacement::Srrip];

    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Replacement::Lru => "lru",
            Replacement::TreePlru => "plru",
            Replacement::Random => "random",
            Replacement::Fifo => "fifo",
            Replacement::Srrip => "srrip",
        }
    }
}

/// How many neighbouring pages one entry can cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// At most this number of pages, a power of two.
    Pages(u64),
    /// A whole contiguous group, whatever its size.
    Group,
}

/// The condition under which hardware stores neighbouring pages in one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// The PTEs have the contiguous bit, or are NAPOT entries.
    Bit,
    /// Virtual and physical addresses are aligned and contiguous.
    Contiguity,
}

/// Coalescing of neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coalescing {
    /// How many pages one entry can cover.
    pub reach: Reach,
    /// The condition.
    pub needs: Needs,
}

/// The highest TLB level.
pub const MAX_TLB_LEVEL: u8 = 4;

/// The parameters of one TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbShape {
    /// The name in tables and results.
    pub name: String,
    /// The level, from 1 to [`MAX_TLB_LEVEL`]. A level is looked up only after a miss in the previous one.
    pub level: u8,
    /// The kinds of accesses that use it.
    pub serves: Vec<AccessKind>,
    /// The page sizes that it supports, smallest first. It stores a larger page as the largest of them.
    pub holds: Vec<PageSize>,
    /// Number of sets, a power of two.
    pub sets: u32,
    /// Number of entries in a set.
    pub ways: u32,
    /// The replacement policy.
    pub replacement: Replacement,
    /// How neighbouring pages share an entry; `None` if they do not.
    pub coalescing: Option<Coalescing>,
    /// Cycles by which a hit takes longer than a level 1 hit.
    pub hit_cycles: u32,
}

impl TlbShape {
    /// The total number of entries.
    pub fn entries(&self) -> u32 {
        self.sets * self.ways
    }

    /// The bytes that one entry covers for a page of `leaf_bytes`. The page belongs to a contiguous group of `group_bytes` (or of
    /// `leaf_bytes` if to none) and to aligned contiguous memory of `run_bytes`. `None` if all supported sizes are larger than the
    /// page.
    pub fn stored_bytes(&self, leaf_bytes: u64, group_bytes: u64, run_bytes: u64) -> Option<u64> {
        let native = self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= leaf_bytes)?;
        // A leaf that is stored as a smaller size is not coalesced.
        let Some(Coalescing { reach, needs }) = self.coalescing.filter(|_| native == leaf_bytes) else {
            return Some(native);
        };
        let max_bytes = if needs == Needs::Bit { group_bytes } else { run_bytes.max(group_bytes) };
        match reach {
            Reach::Pages(pages) => Some(max_bytes.min(leaf_bytes * pages)),
            // A group is stored as the largest supported size that it contains.
            Reach::Group => self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= max_bytes),
        }
    }
}

/// A cache of page-table entries that point to tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkCacheShape {
    /// The level of its entries; level 0 maps pages. After a hit, the walker reads at most `level` more entries.
    pub level: u8,
    /// Number of sets, a power of two.
    pub sets: u32,
    /// Number of entries of a set.
    pub ways: u32,
}

/// A cache from which the walker reads lines of eight entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCacheShape {
    /// The name in tables and results.
    pub name: String,
    /// Number of sets, a power of two.
    pub sets: u32,
    /// Number of lines of a set.
    pub ways: u32,
    /// Cycles to read an entry.
    pub cycles: u32,
}

/// The page walker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkerShape {
    /// Number of concurrent walks.
    pub walkers: u32,
    /// Caches from which it reads entries, the nearest first. Their size is the share that page-table entries occupy.
    pub caches: Vec<LineCacheShape>,
    /// Cycles to read an entry from memory.
    pub memory_cycles: u32,
}

/// The second stage of translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage2 {
    pub format: TableFormat,
    /// The size of the pages that map guest memory.
    pub page: PageSize,
    /// Number of sets of the TLB for second-stage translations, a power of two.
    pub sets: u32,
    /// Number of ways of that TLB.
    pub ways: u32,
}
