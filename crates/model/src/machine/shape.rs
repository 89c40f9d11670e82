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
    /// arm64.
    Arm64,
    /// 64-bit RISC-V.
    RiscV64,
}

impl Architecture {
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Arm64, Architecture::RiscV64];

    /// Its name in traces and kernels.
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
    /// Base page size of software in bytes.
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
    /// The formats of its page tables. The first determines the kernel's base page, unless a policy asks for another one.
    pub formats: Vec<TableFormat>,
    /// The processors that it describes, in the form that [`Machine::is_cpu`] compares.
    pub cpus: Vec<String>,
    /// Its TLBs, level 1 first.
    pub tlbs: Vec<TlbShape>,
    /// Caches of entries that point to tables.
    pub walk_caches: Vec<WalkCacheShape>,
    /// The page walker.
    pub walker: WalkerShape,
    /// The second stage, in a virtual machine.
    pub stage2: Option<Stage2>,
    /// The kernel's costs at faults, if the file has them.
    pub kernel_costs: Option<KernelCosts>,
    /// Every figure of the file with its provenance.
    pub figures: Vec<Figure>,
}

impl Machine {
    /// The format that Linux uses unless a policy asks for another base page than that of the first format.
    pub fn usual_format(&self) -> &TableFormat {
        let first = &self.formats[0];
        self.format_with(first.base_bytes()).unwrap_or(first)
    }

    /// The format that Linux uses with base pages of `base_bytes`.
    ///
    /// On RISC-V the kernel tests at boot which modes the processor supports and uses the one with the most levels
    /// (`set_satp_mode`, arch/riscv/mm/init.c). Elsewhere it is the first such format of the file.
    pub fn format_with(&self, base_bytes: u64) -> Option<&TableFormat> {
        let mut of_base = self.formats.iter().filter(|format| format.base_bytes() == base_bytes);
        match self.architecture {
            // `rev` makes the first win among those with the same number of levels.
            Architecture::RiscV64 => of_base.rev().max_by_key(|format| format.levels()),
            Architecture::X86_64 | Architecture::Arm64 => of_base.next(),
        }
    }

    /// Whether the machine describes a processor: `VENDOR/FAMILY/MODEL` in decimal on x86 (a machine file may have
    /// `FIRST-LAST` for the model), `IMPLEMENTER/PART` on arm64, the `uarch` on RISC-V, all as in /proc/cpuinfo.
    pub fn is_cpu(&self, cpu: &str) -> bool {
        self.cpus.iter().any(|known| {
            let Some((before, models)) = known.rsplit_once('/') else { return known == cpu };
            let Some((found_before, model)) = cpu.rsplit_once('/') else { return false };
            let in_range = models.split_once('-').is_some_and(|(first, last)| {
                let number = |text: &str| text.parse::<u32>().ok();
                matches!((number(first), number(model), number(last)), (Some(a), Some(b), Some(c)) if a <= b && b <= c)
            });
            before == found_before && (models == model || in_range)
        })
    }
}

/// A figure of a machine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its key, such as `tlb[0].entries`.
    pub key: String,
    /// Its value, as the file writes it.
    pub value: String,
    /// The provenance for the value.
    pub provenance: Provenance,
}

/// The provenance for a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// A source, as text.
    Source(String),
    /// The value is assumed, for this reason.
    Assumed(String),
}

/// The kinds of accesses that a TLB serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Serves {
    /// Instruction fetches.
    Fetch,
    Load,
    Store,
}

impl Serves {
    /// All kinds.
    pub const ALL: [Serves; 3] = [Serves::Fetch, Serves::Load, Serves::Store];

    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Serves::Fetch => "fetch",
            Serves::Load => "load",
            Serves::Store => "store",
        }
    }
}

/// The replacement policy of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Replaces the least recently used entry.
    Lru,
    /// Replaces the entry that a binary tree of last directions points to.
    TreePlru,
    /// Replaces any entry, chosen by a seeded generator.
    Random,
    /// Replaces the oldest entry; a hit changes nothing.
    Fifo,
    /// Replaces the entry whose next use is predicted farthest off: static re-reference interval prediction, two bits
    /// per entry.
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

/// The condition under which a core stores neighbouring pages as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// The contiguous bit, or a NAPOT entry.
    Bit,
    /// Pages and memory are aligned and contiguous.
    Contiguity,
}

/// Coalescing of neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coalescing {
    /// How many pages one entry can cover.
    pub reach: Reach,
    /// The condition for coalescing.
    pub needs: Needs,
}

/// The highest level of TLBs.
pub const MAX_TLB_LEVEL: u8 = 4;

/// The parameters of one TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbShape {
    /// The name in tables and results.
    pub name: String,
    /// The level, from 1 to [`MAX_TLB_LEVEL`]. A level is looked up if the previous levels missed.
    pub level: u8,
    /// The kinds of accesses that use it.
    pub serves: Vec<Serves>,
    /// The page sizes that it supports natively, smallest first. A larger page is stored as the largest of them.
    pub holds: Vec<PageSize>,
    /// Number of sets, a power of two.
    pub sets: u32,
    /// Number of entries of a set.
    pub ways: u32,
    /// The replacement policy.
    pub replacement: Replacement,
    /// How neighbouring pages share an entry, if they do.
    pub coalescing: Option<Coalescing>,
    /// Cycles of a hit in addition to a hit in level 1.
    pub hit_cycles: u32,
}

impl TlbShape {
    /// The total number of entries.
    pub fn entries(&self) -> u32 {
        self.sets * self.ways
    }

    /// The size in bytes that it stores for a page of `leaf_bytes` that belongs to a contiguous group of `group_bytes`
    /// (`leaf_bytes` if to none) and to aligned contiguous memory of `run_bytes`; `None` if it supports no size that
    /// small.
    pub fn stored_bytes(&self, leaf_bytes: u64, group_bytes: u64, run_bytes: u64) -> Option<u64> {
        let native = self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= leaf_bytes)?;
        // A page that is stored smaller than its leaf cannot be coalesced.
        let Some(Coalescing { reach, needs }) = self.coalescing.filter(|_| native == leaf_bytes) else {
            return Some(native);
        };
        let together = if needs == Needs::Bit { group_bytes } else { run_bytes.max(group_bytes) };
        match reach {
            Reach::Pages(pages) => Some(together.min(leaf_bytes * pages)),
            // A group is stored in a size that the TLB supports.
            Reach::Group => self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= together),
        }
    }
}

/// A cache of entries that point to tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkCacheShape {
    /// The level of the entries that it holds; 0 is the level of pages. After a hit at most `level` entries are left to read.
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
    /// Caches from which it reads entries, the nearest first: the share that page-table entries occupy, not the whole cache.
    pub caches: Vec<LineCacheShape>,
    /// Cycles to read an entry from memory.
    pub memory_cycles: u32,
}

/// The second stage of translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage2 {
    pub format: TableFormat,
    /// The page size with which it maps guest memory.
    pub page: PageSize,
    /// Number of sets of the TLB of its translations, a power of two.
    pub sets: u32,
    /// Number of ways of that TLB.
    pub ways: u32,
}
