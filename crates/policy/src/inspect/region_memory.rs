//! [`RegionMemory`]: the pages found in a region, and the memory that could be larger.

use super::vma::VmaFacts;
use crate::census::{Area, Backing, Census, Mapping, Region as Run, VmaKind};
use crate::judge::{Aim, Coverage, Shape, ShapeSum, certain_cause, shapes};
use crate::size::PageSize;

/// Bytes that one TLB entry could map because addresses and frames are contiguous and equally aligned: by the contiguous bit
/// (arm64), Svnapot (RISC-V) or coalescing (AMD). Memory that counts for a larger entry also counts for the smaller ones. PMD
/// leaves are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbRuns {
    /// Bytes in aligned runs of 16K.
    pub k16_bytes: u64,
    /// Bytes in aligned runs of 32K.
    pub k32_bytes: u64,
    /// Bytes in aligned runs of 64K.
    pub k64_bytes: u64,
    /// Bytes of folios that are mapped completely, but at an address that is not a multiple of their size (mremap).
    pub misplaced_bytes: u64,
    /// Bytes of anonymous base pages whose frames are congruent with their addresses modulo the PMD size. That holds for most
    /// base pages of a large page that was split, and for one in 512 of all others. `None` where this was not read.
    pub in_place_bytes: Option<u64>,
}

/// Present memory in a window: an aligned range of PMD size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first address of the window, which may be below that of the region.
    pub start: u64,
    /// Bytes mapped by base-page PTEs without a complete larger folio behind them.
    pub base_bytes: u64,
    /// Bytes mapped by base-page PTEs that belong to complete larger folios.
    pub folio_bytes: u64,
    /// Bytes mapped by leaves of PMD size or larger, or by hugetlb pages.
    pub leaf_bytes: u64,
    /// Bytes of zero pages.
    pub zero_bytes: u64,
    /// Index, among the region's causes, of the one that explains most of the window's memory below the target.
    pub cause_index: Option<u16>,
}

/// How much memory larger pages could map, and how much they would add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Benefit {
    /// Present bytes that are smaller than the target, in slots of the target size: they could be larger.
    pub bytes: u64,
    /// Number of these slots.
    pub slots: u64,
    /// Absent bytes in these slots, which larger pages would add.
    pub absent_bytes: u64,
}

/// The extent of a region and the sizes that it is examined for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionBounds {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The largest page size that the region could have.
    pub target: Option<PageSize>,
    /// Whether anonymous folios of that size may exist on the system.
    pub may_have: bool,
    /// The base page size.
    pub base: PageSize,
    /// The size of PMD leaves.
    pub pmd: Option<PageSize>,
    /// The size of windows, where windows were requested.
    pub window: Option<PageSize>,
}

/// The memory found in a region, added run by run in address order; each page is added once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionMemory {
    /// Bytes by mapping.
    pub census: Census,
    /// The windows that have memory, where windows were requested.
    pub windows: Vec<Window>,
    /// Memory by the size of the TLB entry that could hold it; `None` where frame numbers are not visible.
    pub tlb_runs: Option<TlbRuns>,
    /// Memory that could be larger, and the cost.
    pub benefit: Benefit,
    /// Memory below the target, with the index of its mapping in the region.
    pub below_target: Vec<(usize, BelowTarget)>,
    /// Memory below the target by window, where windows were requested: the first address of the window, the index of the
    /// mapping, and the memory.
    pub below_target_by_window: Vec<(u64, usize, BelowTarget)>,
    /// The last slot across several mappings that was counted.
    last_cut_slot: Option<u64>,
}

/// Memory of one mapping that is below the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BelowTarget {
    /// Memory inside the mapping, by shape.
    ShapeSum(ShapeSum),
    /// Bytes in slots of the mapping, at unknown addresses.
    Sum(u64),
    /// Bytes of a larger folio that is mapped in part or out of place.
    PartOfFolio(u64),
    /// Bytes of a complete folio of the size or larger whose leaf was split.
    Split(u64),
    /// Bytes in a slot of the region that begins before the mapping.
    CutBelow(u64),
    /// Bytes in a slot of the region that ends after the mapping.
    CutAbove(u64),
    /// Bytes in no slot of the region.
    NoSlot(u64),
}

impl TlbRuns {
    /// The sums of no memory, whose frames count as read.
    pub const EMPTY: TlbRuns =
        TlbRuns { k16_bytes: 0, k32_bytes: 0, k64_bytes: 0, misplaced_bytes: 0, in_place_bytes: Some(0) };

    /// Counts a run of pages whose addresses and frames are both consecutive. `page`, `frame` and `pages` are in base pages.
    pub fn add(&mut self, page: u64, frame: u64, pages: u64, base: PageSize) {
        let aligned = |run_bytes: u64| {
            let run = run_bytes / base.bytes();
            match run {
                0 | 1 => 0,
                _ if (page ^ frame) & (run - 1) != 0 => 0,
                _ => {
                    let (first, last) = (page.next_multiple_of(run), (page + pages) / run * run);
                    last.saturating_sub(first) * base.bytes()
                }
            }
        };
        self.k16_bytes += aligned(16 << 10);
        self.k32_bytes += aligned(32 << 10);
        self.k64_bytes += aligned(64 << 10);
    }

    /// The sum of both counts.
    pub fn merged(self, other: TlbRuns) -> TlbRuns {
        TlbRuns {
            k16_bytes: self.k16_bytes + other.k16_bytes,
            k32_bytes: self.k32_bytes + other.k32_bytes,
            k64_bytes: self.k64_bytes + other.k64_bytes,
            misplaced_bytes: self.misplaced_bytes + other.misplaced_bytes,
            in_place_bytes: self.in_place_bytes.zip(other.in_place_bytes).map(|(one, other)| one + other),
        }
    }
}

impl RegionBounds {
    fn aim(&self) -> Option<Aim> {
        self.target.map(if self.target == self.pmd { Aim::Leaf } else { Aim::Mthp })
    }

    /// Whether the slot that contains an address is inside the region.
    fn has_slot_at(&self, address: u64, target: PageSize) -> bool {
        let start = target.align_down(address);
        start >= self.start && start.checked_add(target.bytes()).is_some_and(|end| end <= self.end)
    }
}

impl RegionMemory {
    /// Adds runs of present memory of the mapping `vma`, which has index `at` in the region. A mapping may be added in parts that
    /// end at multiples of the PMD size.
    pub fn add(&mut self, bounds: &RegionBounds, at: usize, vma: &VmaFacts, runs: &[Run], tlb_runs: Option<TlbRuns>) {
        if let Some(tlb_runs) = tlb_runs {
            self.tlb_runs = Some(self.tlb_runs.map_or(tlb_runs, |before| before.merged(tlb_runs)));
        }
        for run in runs {
            self.census.add(run.mapping, run.length_bytes());
            if let Some(window) = bounds.window {
                add_to_windows(&mut self.windows, run, window, bounds.base);
            }
        }
        if let Some(window) = bounds.window {
            self.add_windows(bounds, at, vma, runs, tlb_runs, window);
        }
        let (Some(target), Some(aim)) = (bounds.target, bounds.aim()) else { return };
        let coverage = |mapping: &Mapping| match (aim, aim.coverage_of_any(mapping)) {
            _ if mapping.backing == Backing::File => Coverage::Unconcerned,
            (Aim::Mthp(_), Coverage::Larger) => Coverage::Covered,
            (Aim::Mthp(_), Coverage::Unseen) if mapping.backing == Backing::Anonymous && !bounds.may_have => {
                Coverage::Missing
            }
            (_, coverage) => coverage,
        };
        let area = Area { start: vma.start, end: vma.end, kind: vma.kind_for_slots(), regions: runs };
        let has_slots = vma.kind_for_slots() == VmaKind::Anonymous;
        // Outside of slots, and in private copies of a file, only the position matters: memory of split or cut folios is
        // missing too.
        let coverage_outside = |mapping: &Mapping| match coverage(mapping) {
            Coverage::Cut | Coverage::Split => Coverage::Missing,
            other => other,
        };
        let sums = if has_slots { shapes(&area, target, coverage) } else { shapes(&area, target, coverage_outside) };
        for sum in sums {
            if !matches!(sum.shape, Shape::TooSmall | Shape::NoSlot) {
                self.below_target.push((at, BelowTarget::ShapeSum(sum)));
            }
        }
        if has_slots {
            self.add_outside_slots(bounds, at, vma, runs, target, &coverage_outside);
            self.add_larger_folios(at, vma, runs, target, &coverage);
        }
        let not_covered = |mapping: &Mapping| match coverage(mapping) {
            Coverage::Covered | Coverage::Larger | Coverage::Unconcerned => Coverage::Covered,
            _ => Coverage::Missing,
        };
        for sum in shapes(&area, target, not_covered).iter().filter(|sum| certain_cause(sum.shape).is_none()) {
            self.benefit.bytes += sum.missing_bytes;
            self.benefit.slots += sum.slots;
            self.benefit.absent_bytes += (sum.slots * target.bytes()).saturating_sub(sum.present_bytes);
        }
    }

    fn add_left<const N: usize>(&mut self, at: usize, left: [BelowTarget; N]) {
        self.below_target.extend(left.into_iter().filter(|left| left.bytes() > 0).map(|left| (at, left)));
    }

    /// Adds memory below the target window by window, as if the mapping ended where the window does.
    fn add_windows(
        &mut self,
        bounds: &RegionBounds,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        tlb_runs: Option<TlbRuns>,
        window: PageSize,
    ) {
        let bounds = RegionBounds { window: None, ..*bounds };
        let mut part = vma.clone();
        let mut next = runs;
        while let Some(first) = next.first() {
            let start = window.align_down(first.start.max(if part.end < vma.end { part.end } else { vma.start }));
            part.start = start.max(vma.start);
            part.offset = vma.offset + (part.start - vma.start);
            part.end = start.saturating_add(window.bytes()).min(vma.end);
            let inside = next.iter().take_while(|run| run.start < part.end);
            let inside: Vec<Run> = inside
                .map(|run| Run { start: run.start.max(part.start), end: run.end.min(part.end), ..*run })
                .collect();
            let mut seen = RegionMemory::default();
            seen.add(&bounds, at, &part, &inside, tlb_runs);
            self.below_target_by_window.extend(seen.below_target.into_iter().map(|(at, left)| (start, at, left)));
            next = &next[next.partition_point(|run| run.end <= part.end)..];
        }
    }

    /// Adds the sums of a mapping whose pages cannot be read individually. Only memory that fits in its slots, and in the slots
    /// that a cut divides, counts as memory that could be larger.
    pub fn add_sums(&mut self, bounds: &RegionBounds, at: usize, vma: &VmaFacts, sums: &Census) {
        self.census.merge(sums);
        let (Some(target), Some(aim)) = (bounds.target, bounds.aim()) else { return };
        let smaller = |mapping: &Mapping| {
            mapping.backing != Backing::File
                && mapping.backing != Backing::Hugetlb
                && matches!(aim.coverage_of_any(mapping), Coverage::Missing | Coverage::Unseen)
        };
        let bytes = sums.bytes_where(smaller);
        let is_slotted = vma.kind_for_slots() == VmaKind::Anonymous;
        let (first, last) = if is_slotted { slots_of(vma, target) } else { (vma.end, vma.end) };
        // Memory that already has the size fills slots of the mapping.
        let large = sums.bytes_where(|mapping| mapping.leaf >= target);
        let inside = bytes.min((last - first).saturating_sub(large));
        let cut = |address: u64, room: u64| if is_slotted && bounds.has_slot_at(address, target) { room } else { 0 };
        let below = (bytes - inside).min(cut(vma.start, first - vma.start));
        let above = (bytes - inside - below).min(cut(vma.end - 1, vma.end - last));
        self.benefit.bytes += inside;
        self.benefit.slots += inside.div_ceil(target.bytes());
        self.add_cut_slot(target.align_down(vma.start), below, target);
        self.add_cut_slot(target.align_down(vma.end - 1), above, target);
        let no_slot = bytes - inside - below - above;
        let left = [
            BelowTarget::Sum(inside),
            BelowTarget::CutBelow(below),
            BelowTarget::CutAbove(above),
            BelowTarget::NoSlot(no_slot),
        ];
        self.add_left(at, left);
    }

    /// Adds larger folios in slots of the mapping that do not count as covered.
    fn add_larger_folios(
        &mut self,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        target: PageSize,
        coverage: &impl Fn(&Mapping) -> Coverage,
    ) {
        let (first, last) = slots_of(vma, target);
        let bytes = |wanted: Coverage| -> u64 {
            let inside = |run: &Run| run.end.min(last).saturating_sub(run.start.max(first));
            runs.iter().filter(|run| coverage(&run.mapping) == wanted).map(inside).sum()
        };
        self.add_left(at, [BelowTarget::PartOfFolio(bytes(Coverage::Cut)), BelowTarget::Split(bytes(Coverage::Split))]);
    }

    /// Adds memory below the target that is in no slot of its mapping.
    fn add_outside_slots(
        &mut self,
        bounds: &RegionBounds,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        target: PageSize,
        coverage: &impl Fn(&Mapping) -> Coverage,
    ) {
        let (first, last) = slots_of(vma, target);
        let (mut below, mut above, mut no_slot) = (0, 0, 0);
        for run in runs {
            match coverage(&run.mapping) {
                Coverage::Missing | Coverage::Unseen => {
                    let head = run.end.min(first).saturating_sub(run.start);
                    let tail = run.end.saturating_sub(run.start.max(last));
                    let head_in_slot = bounds.has_slot_at(vma.start, target);
                    *(if head_in_slot { &mut below } else { &mut no_slot }) += head;
                    let tail_in_slot = bounds.has_slot_at(vma.end - 1, target);
                    *(if tail_in_slot { &mut above } else { &mut no_slot }) += tail;
                }
                _ => {}
            }
        }
        self.add_left(at, [BelowTarget::CutBelow(below), BelowTarget::CutAbove(above), BelowTarget::NoSlot(no_slot)]);
        self.add_cut_slot(target.align_down(vma.start), below, target);
        self.add_cut_slot(target.align_down(vma.end - 1), above, target);
    }

    /// Counts memory in a slot of the region that spans several mappings; the slot itself is counted once.
    fn add_cut_slot(&mut self, slot: u64, bytes: u64, target: PageSize) {
        if bytes == 0 {
            return;
        }
        if self.last_cut_slot != Some(slot) {
            self.last_cut_slot = Some(slot);
            self.benefit.slots += 1;
            self.benefit.absent_bytes += target.bytes();
        }
        self.benefit.bytes += bytes;
        self.benefit.absent_bytes = self.benefit.absent_bytes.saturating_sub(bytes);
    }
}

/// Start and end of the slots of a mapping; both equal the end of the mapping where it has none.
fn slots_of(vma: &VmaFacts, target: PageSize) -> (u64, u64) {
    let first = target.align_up(vma.start).unwrap_or(u64::MAX).min(vma.end);
    (first, target.align_down(vma.end).max(first))
}

impl BelowTarget {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            BelowTarget::ShapeSum(sum) => sum.missing_bytes + sum.unseen_bytes,
            BelowTarget::Sum(bytes)
            | BelowTarget::PartOfFolio(bytes)
            | BelowTarget::Split(bytes)
            | BelowTarget::CutBelow(bytes)
            | BelowTarget::CutAbove(bytes)
            | BelowTarget::NoSlot(bytes) => *bytes,
        }
    }
}

/// Adds a run of memory to the windows, split at window boundaries.
fn add_to_windows(windows: &mut Vec<Window>, run: &Run, window: PageSize, base: PageSize) {
    let mut at = run.start;
    while at < run.end {
        let start = window.align_down(at);
        let end = start.saturating_add(window.bytes()).min(run.end);
        if windows.last().is_none_or(|last| last.start != start) {
            windows.push(Window { start, ..Window::default() });
        }
        if let Some(last) = windows.last_mut() {
            *match (run.mapping.backing, run.mapping.leaf > base, run.mapping.effective() > base) {
                (Backing::Zero, ..) => &mut last.zero_bytes,
                (_, true, _) => &mut last.leaf_bytes,
                (_, false, true) => &mut last.folio_bytes,
                (_, false, false) => &mut last.base_bytes,
            } += end - at;
        }
        at = end;
    }
}
