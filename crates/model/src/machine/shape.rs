//! What a processor has for translating addresses, as plain data.

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
    /// Every one.
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Arm64, Architecture::RiscV64];

    /// As traces and kernels call it.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Arm64 => "aarch64",
            Architecture::RiscV64 => "riscv64",
        }
    }
}

/// A page-table format that the machine can be run with, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFormat {
    /// Its name, such as `arm64-4k-48`.
    pub name: String,
    /// The format.
    pub format: Named,
}

impl TableFormat {
    /// Bytes of a base page, as software has it.
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
    /// The processor in full.
    pub processor: String,
    /// Its instruction set.
    pub architecture: Architecture,
    /// The formats of its page tables; the first says which base page kernels have unless a policy asks for another one.
    pub formats: Vec<TableFormat>,
    /// Which processors it describes, as [`Machine::is_cpu`] compares them.
    pub cpus: Vec<String>,
    /// Its TLBs, level 1 first.
    pub tlbs: Vec<TlbShape>,
    /// Caches of entries that point to tables.
    pub walk_caches: Vec<WalkCacheShape>,
    /// What walks the tables.
    pub walker: WalkerShape,
    /// The second stage, in a virtual machine.
    pub stage2: Option<Stage2>,
    /// What the kernel does at faults, if the file says it.
    pub kernel_costs: Option<KernelCosts>,
    /// Every figure of the file and what vouches for it.
    pub figures: Vec<Figure>,
}

impl Machine {
    /// The format that Linux uses where no policy asks for another base page than that of the first format.
    pub fn usual_format(&self) -> &TableFormat {
        let first = &self.formats[0];
        self.format_with(first.base_bytes()).unwrap_or(first)
    }

    /// The format that Linux uses with base pages of so many bytes.
    ///
    /// On RISC-V the kernel tries at boot which modes the processor has and takes the one with the most levels
    /// (`set_satp_mode`, arch/riscv/mm/init.c). Elsewhere it is the first of the file.
    pub fn format_with(&self, base_bytes: u64) -> Option<&TableFormat> {
        let mut of_base = self.formats.iter().filter(|format| format.base_bytes() == base_bytes);
        match self.architecture {
            // Of two with as many levels the first.
            Architecture::RiscV64 => of_base.rev().max_by_key(|format| format.levels()),
            Architecture::X86_64 | Architecture::Arm64 => of_base.next(),
        }
    }

    /// Whether it describes a processor: `VENDOR/FAMILY/MODEL` in decimal on x86 (a machine file may say `FIRST-LAST` for
    /// the model), `IMPLEMENTER/PART` on arm64, the `uarch` on RISC-V, all as /proc/cpuinfo has them.
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
    /// Where it stands, such as `tlb[0].entries`.
    pub key: String,
    /// Its value, as the file writes it.
    pub value: String,
    /// What vouches for it.
    pub ground: Ground,
}

/// What vouches for a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// A source, in words.
    Source(String),
    /// Nothing but this reason.
    Assumed(String),
}

/// Which accesses a TLB is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Serves {
    /// Instruction fetches.
    Fetch,
    /// Loads.
    Load,
    /// Stores.
    Store,
}

impl Serves {
    /// Every kind.
    pub const ALL: [Serves; 3] = [Serves::Fetch, Serves::Load, Serves::Store];

    /// As machine files call it.
    pub const fn name(self) -> &'static str {
        match self {
            Serves::Fetch => "fetch",
            Serves::Load => "load",
            Serves::Store => "store",
        }
    }
}

/// Which entry of a full set makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// The one that was not used for longest.
    Lru,
    /// The one that a binary tree of last directions points to.
    TreePlru,
    /// Any, by a seeded generator.
    Random,
    /// The one that came first; a hit changes nothing.
    Fifo,
    /// The one whose next use is predicted farthest off: static re-reference interval prediction, two bits an entry.
    Srrip,
}

impl Replacement {
    /// Every one.
    pub const ALL: [Replacement; 5] =
        [Replacement::Lru, Replacement::TreePlru, Replacement::Random, Replacement::Fifo, Replacement::Srrip];

    /// As machine files call it.
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

/// How many neighbouring pages one entry can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// At most so many, a power of two.
    Pages(u64),
    /// A whole contiguous group, whatever its size.
    Group,
}

/// What a core asks for before it stores neighbours as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// The contiguous bit, or a NAPOT entry.
    Bit,
    /// That pages and memory are aligned and contiguous.
    Contiguity,
}

/// Coalescing of neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coalescing {
    /// How far.
    pub reach: Reach,
    /// On which condition.
    pub needs: Needs,
}

/// The highest level of TLBs.
pub const MAX_TLB_LEVEL: u8 = 4;

/// One TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbShape {
    /// What tables and results call it.
    pub name: String,
    /// From 1 to [`MAX_TLB_LEVEL`]: one is asked where the ones before did not have a page.
    pub level: u8,
    /// Which accesses look into it.
    pub serves: Vec<Serves>,
    /// The sizes that it holds natively, smallest first. A larger page is stored as the largest of them.
    pub holds: Vec<PageSize>,
    /// How many sets, a power of two.
    pub sets: u32,
    /// Entries of a set.
    pub ways: u32,
    /// Which entry makes room.
    pub replacement: Replacement,
    /// Whether neighbours share an entry.
    pub coalescing: Option<Coalescing>,
    /// Cycles that a hit costs over a hit in level 1.
    pub hit_cycles: u32,
}

impl TlbShape {
    /// All entries.
    pub fn entries(&self) -> u32 {
        self.sets * self.ways
    }

    /// What it stores of a page of `leaf_bytes` that belongs to a contiguous group of `group_bytes` (those of the leaf if
    /// to none) and to aligned contiguous memory of `run_bytes`; `None` if it holds nothing so small.
    pub fn stored_bytes(&self, leaf_bytes: u64, group_bytes: u64, run_bytes: u64) -> Option<u64> {
        let native = self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= leaf_bytes)?;
        // What was stored smaller than its leaf cannot be stored together with others.
        let Some(Coalescing { reach, needs }) = self.coalescing.filter(|_| native == leaf_bytes) else {
            return Some(native);
        };
        let together = if needs == Needs::Bit { group_bytes } else { run_bytes.max(group_bytes) };
        match reach {
            Reach::Pages(pages) => Some(together.min(leaf_bytes * pages)),
            // A group is stored in a size that there is.
            Reach::Group => self.holds.iter().map(|size| size.bytes()).rfind(|bytes| *bytes <= together),
        }
    }
}

/// A cache of entries that point to tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkCacheShape {
    /// The level of the entries that it holds; 0 is the level of pages. A hit leaves `level` entries to be read at most.
    pub level: u8,
    /// How many sets, a power of two.
    pub sets: u32,
    /// Entries of a set.
    pub ways: u32,
}

/// A cache in which the walker finds lines of eight entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCacheShape {
    /// What tables and results call it.
    pub name: String,
    /// Sets, a power of two.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// Cycles until it gives an entry.
    pub cycles: u32,
}

/// What walks the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkerShape {
    /// Walks at the same time.
    pub walkers: u32,
    /// Caches that it reads entries from, the nearest first: their share that entries have, not the whole cache.
    pub caches: Vec<LineCacheShape>,
    /// Cycles until memory gives an entry.
    pub memory_cycles: u32,
}

/// The second stage of translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage2 {
    /// Its tables.
    pub format: TableFormat,
    /// With what it maps guest memory.
    pub page: PageSize,
    /// Sets of the TLB of its translations, a power of two.
    pub sets: u32,
    /// Its ways.
    pub ways: u32,
}
