//! What was seen of the pages of a region.

use super::vma::VmaFacts;
use crate::census::{Area, Backing, Census, Mapping, Region as Run, VmaKind};
use crate::judge::{Aim, Piece, Shape, Standing, certain_cause, shapes};
use crate::size::PageSize;

/// Bytes that one entry of a TLB could map, because addresses and frames are contiguous and aligned alike: by the contiguous bit
/// (arm64), Svnapot (RISC-V) or coalescing (AMD). Larger entries count in the smaller ones too. PMD leaves do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbRuns {
    /// In aligned runs of 16K.
    pub k16_bytes: u64,
    /// In aligned runs of 32K.
    pub k32_bytes: u64,
    /// In aligned runs of 64K.
    pub k64_bytes: u64,
    /// Of folios that are mapped from end to end, but at an address that is no multiple of their size (mremap).
    pub misplaced_bytes: u64,
}

/// What is present in a window: an aligned stretch of PMD size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first address of the window, which may lie before that of the region.
    pub start: u64,
    /// Bytes that base-page entries map, behind which no larger folio is seen whole.
    pub base_bytes: u64,
    /// Bytes that base-page entries map, of larger folios that are whole.
    pub folio_bytes: u64,
    /// Bytes that leaves of PMD size or larger map, or pages of a pool.
    pub leaf_bytes: u64,
    /// Bytes of zero pages.
    pub zero_bytes: u64,
    /// What explains most of what is not at the target in it: its number among the region's causes.
    pub why: Option<u16>,
}

/// How much larger pages would bring, and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Win {
    /// Present bytes that are smaller than the target and lie in slots of it: they could be larger.
    pub bytes: u64,
    /// The number of these slots.
    pub slots: u64,
    /// Bytes in these slots that are absent: what larger pages would add.
    pub absent_bytes: u64,
}

/// Where a region lies, and what it is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The largest size that it could have.
    pub target: Option<PageSize>,
    /// Whether anonymous folios of that size may exist in the system.
    pub may_have: bool,
    /// The base page.
    pub base: PageSize,
    /// The size of PMD leaves.
    pub pmd: Option<PageSize>,
    /// The size of windows, where they are wanted.
    pub window: Option<PageSize>,
}

/// What was seen of a region, added up run by run: no page twice, in the order of addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Bytes by mapping.
    pub census: Census,
    /// The windows that have memory, where they were wanted.
    pub windows: Vec<Window>,
    /// Memory by the entries of a TLB that could hold it; `None` where frames are not seen.
    pub tlb_runs: Option<TlbRuns>,
    /// How much there is to win.
    pub win: Win,
    /// What is not at the target, by the number of its mapping in the region.
    pub pieces: Vec<(usize, Left)>,
    /// The same window by window, where windows are wanted: the first address of the window, the number of the mapping.
    pub pieces_of_windows: Vec<(u64, usize, Left)>,
    /// The slot across mappings that was counted last.
    last_cut_slot: Option<u64>,
}

/// Memory of one mapping that is not at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By its shape, inside the mapping.
    Piece(Piece),
    /// Somewhere in slots of the mapping: places are not visible.
    Sum(u64),
    /// A larger folio of which a part is mapped, or out of place.
    PartOfFolio(u64),
    /// A whole folio of the size or larger, whose leaf was split.
    Split(u64),
    /// In a slot of the region that begins before the mapping.
    CutBelow(u64),
    /// In a slot of the region that ends after the mapping.
    CutAbove(u64),
    /// In no slot of the region.
    NoSlot(u64),
}

impl TlbRuns {
    /// Counts a run of pages whose addresses and frames are both consecutive; all three in base pages.
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

    /// Both counts together.
    pub fn merged(self, other: TlbRuns) -> TlbRuns {
        TlbRuns {
            k16_bytes: self.k16_bytes + other.k16_bytes,
            k32_bytes: self.k32_bytes + other.k32_bytes,
            k64_bytes: self.k64_bytes + other.k64_bytes,
            misplaced_bytes: self.misplaced_bytes + other.misplaced_bytes,
        }
    }
}

impl Outline {
    fn aim(&self) -> Option<Aim> {
        self.target.map(if self.target == self.pmd { Aim::Leaf } else { Aim::Mthp })
    }

    /// Whether the slot that holds an address lies in the region.
    fn has_slot_at(&self, address: u64, target: PageSize) -> bool {
        let start = target.align_down(address);
        start >= self.start && start.checked_add(target.bytes()).is_some_and(|end| end <= self.end)
    }
}

impl Seen {
    /// Adds runs of present memory of the mapping `vma`, the region's `at`-th. A mapping may be given in parts that are cut at
    /// multiples of the PMD size.
    pub fn add(&mut self, outline: &Outline, at: usize, vma: &VmaFacts, runs: &[Run], tlb_runs: Option<TlbRuns>) {
        if let Some(tlb_runs) = tlb_runs {
            self.tlb_runs = Some(self.tlb_runs.unwrap_or_default().merged(tlb_runs));
        }
        for run in runs {
            self.census.add(run.mapping, run.length_bytes());
            if let Some(window) = outline.window {
                add_to_windows(&mut self.windows, run, window, outline.base);
            }
        }
        if let Some(window) = outline.window {
            self.add_pieces_of_windows(outline, at, vma, runs, tlb_runs, window);
        }
        let (Some(target), Some(aim)) = (outline.target, outline.aim()) else { return };
        let standing = |mapping: &Mapping| match (aim, aim.standing_of_any(mapping)) {
            _ if mapping.backing == Backing::File => Standing::Unconcerned,
            (Aim::Mthp(_), Standing::Larger) => Standing::Covered,
            (Aim::Mthp(_), Standing::Unseen) if mapping.backing == Backing::Anonymous && !outline.may_have => {
                Standing::Missing
            }
            (_, standing) => standing,
        };
        let area = Area { start: vma.start, end: vma.end, kind: vma.kind_for_slots(), regions: runs };
        for piece in shapes(&area, target, standing) {
            if !matches!(piece.shape, Shape::TooSmall | Shape::NoSlot) {
                self.pieces.push((at, Left::Piece(piece)));
            }
        }
        let is_misplaced = tlb_runs.is_some_and(|runs| runs.misplaced_bytes > 0);
        let standing_outside = |mapping: &Mapping| match standing(mapping) {
            // A folio across the cut of a region is there because of the cut.
            Standing::Cut | Standing::Split if !is_misplaced => Standing::Missing,
            other => other,
        };
        self.add_outside_slots(outline, at, vma, runs, target, &standing_outside);
        self.add_larger_folios(at, vma, runs, target, &standing, is_misplaced);
        let not_covered = |mapping: &Mapping| match standing(mapping) {
            Standing::Covered | Standing::Unconcerned => Standing::Covered,
            _ => Standing::Missing,
        };
        for piece in shapes(&area, target, not_covered).iter().filter(|piece| certain_cause(piece.shape).is_none()) {
            self.win.bytes += piece.missing_bytes;
            self.win.slots += piece.slots;
            self.win.absent_bytes += (piece.slots * target.bytes()).saturating_sub(piece.present_bytes);
        }
    }

    /// Adds what is not at the target, window by window: as if the mapping ended where the window does.
    fn add_pieces_of_windows(
        &mut self,
        outline: &Outline,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        tlb_runs: Option<TlbRuns>,
        window: PageSize,
    ) {
        let outline = Outline { window: None, ..*outline };
        let mut part = vma.clone();
        let mut next = runs;
        while let Some(first) = next.first() {
            let start = window.align_down(first.start.max(if part.end < vma.end { part.end } else { vma.start }));
            part.start = start.max(vma.start);
            part.end = start.saturating_add(window.bytes()).min(vma.end);
            let inside = next.iter().take_while(|run| run.start < part.end);
            let inside: Vec<Run> = inside
                .map(|run| Run { start: run.start.max(part.start), end: run.end.min(part.end), ..*run })
                .collect();
            let mut seen = Seen::default();
            seen.add(&outline, at, &part, &inside, tlb_runs);
            self.pieces_of_windows.extend(seen.pieces.into_iter().map(|(at, left)| (start, at, left)));
            next = &next[next.partition_point(|run| run.end <= part.end)..];
        }
    }

    /// Adds the sums of a mapping, where its pages cannot be looked at: at most what fits its slots, and slots that a cut
    /// divides, could be larger.
    pub fn add_sums(&mut self, outline: &Outline, at: usize, vma: &VmaFacts, sums: &Census) {
        self.census.merge(sums);
        let (Some(target), Some(aim)) = (outline.target, outline.aim()) else { return };
        let smaller = |mapping: &Mapping| {
            mapping.backing != Backing::File
                && mapping.backing != Backing::Hugetlb
                && matches!(aim.standing_of_any(mapping), Standing::Missing | Standing::Unseen)
        };
        let bytes = sums.bytes_where(smaller);
        let is_slotted = vma.kind_for_slots() == VmaKind::Anonymous;
        let (first, last) = if is_slotted { slots_of(vma, target) } else { (vma.end, vma.end) };
        // What has the size already fills slots of the mapping.
        let large = sums.bytes_where(|mapping| mapping.leaf >= target);
        let inside = bytes.min((last - first).saturating_sub(large));
        let cut = |address: u64, room: u64| if is_slotted && outline.has_slot_at(address, target) { room } else { 0 };
        let below = (bytes - inside).min(cut(vma.start, first - vma.start));
        let above = (bytes - inside - below).min(cut(vma.end - 1, vma.end - last));
        self.win.bytes += inside;
        self.win.slots += inside.div_ceil(target.bytes());
        self.add_cut_slot(target.align_down(vma.start), below, target);
        self.add_cut_slot(target.align_down(vma.end - 1), above, target);
        let no_slot = bytes - inside - below - above;
        let left = [Left::Sum(inside), Left::CutBelow(below), Left::CutAbove(above), Left::NoSlot(no_slot)];
        self.pieces.extend(left.into_iter().filter(|left| left.bytes() > 0).map(|left| (at, left)));
    }

    /// Larger folios that do not count, in slots of the mapping; those that were moved out of place wherever they are.
    fn add_larger_folios(
        &mut self,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        target: PageSize,
        standing: &impl Fn(&Mapping) -> Standing,
        is_misplaced: bool,
    ) {
        let (first, last) = if is_misplaced { (vma.start, vma.end) } else { slots_of(vma, target) };
        let bytes = |wanted: Standing| -> u64 {
            let inside = |run: &Run| run.end.min(last).saturating_sub(run.start.max(first));
            runs.iter().filter(|run| standing(&run.mapping) == wanted).map(inside).sum()
        };
        let left = [Left::PartOfFolio(bytes(Standing::Cut)), Left::Split(bytes(Standing::Split))];
        self.pieces.extend(left.into_iter().filter(|left| left.bytes() > 0).map(|left| (at, left)));
    }

    /// What is not at the target and lies in no slot of its mapping.
    fn add_outside_slots(
        &mut self,
        outline: &Outline,
        at: usize,
        vma: &VmaFacts,
        runs: &[Run],
        target: PageSize,
        standing: &impl Fn(&Mapping) -> Standing,
    ) {
        let (first, last) = slots_of(vma, target);
        let (mut below, mut above, mut no_slot) = (0, 0, 0);
        for run in runs {
            match standing(&run.mapping) {
                Standing::Missing | Standing::Unseen if vma.kind_for_slots() == VmaKind::Anonymous => {
                    let head = run.end.min(first).saturating_sub(run.start);
                    let tail = run.end.saturating_sub(run.start.max(last));
                    let head_in_slot = outline.has_slot_at(vma.start, target);
                    *(if head_in_slot { &mut below } else { &mut no_slot }) += head;
                    let tail_in_slot = outline.has_slot_at(vma.end - 1, target);
                    *(if tail_in_slot { &mut above } else { &mut no_slot }) += tail;
                }
                _ => {}
            }
        }
        let left = [Left::CutBelow(below), Left::CutAbove(above), Left::NoSlot(no_slot)];
        self.pieces.extend(left.into_iter().filter(|left| left.bytes() > 0).map(|left| (at, left)));
        self.add_cut_slot(target.align_down(vma.start), below, target);
        self.add_cut_slot(target.align_down(vma.end - 1), above, target);
    }

    /// Counts memory of a slot of the region that lies in several mappings; the slot itself once.
    fn add_cut_slot(&mut self, slot: u64, bytes: u64, target: PageSize) {
        if bytes == 0 {
            return;
        }
        if self.last_cut_slot != Some(slot) {
            self.last_cut_slot = Some(slot);
            self.win.slots += 1;
            self.win.absent_bytes += target.bytes();
        }
        self.win.bytes += bytes;
        self.win.absent_bytes = self.win.absent_bytes.saturating_sub(bytes);
    }
}

/// Where the slots of a mapping begin and end; both at its end where it has none.
fn slots_of(vma: &VmaFacts, target: PageSize) -> (u64, u64) {
    let first = target.align_up(vma.start).unwrap_or(u64::MAX).min(vma.end);
    (first, target.align_down(vma.end).max(first))
}

impl Left {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Left::Piece(piece) => piece.missing_bytes + piece.unseen_bytes,
            Left::Sum(bytes)
            | Left::PartOfFolio(bytes)
            | Left::Split(bytes)
            | Left::CutBelow(bytes)
            | Left::CutAbove(bytes)
            | Left::NoSlot(bytes) => *bytes,
        }
    }
}

/// Adds a run of memory to the windows, cut at them.
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
