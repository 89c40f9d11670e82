//! Why memory of a region is not mapped at the largest size that the region could have.
//!
//! The rules are those of the policy judge ([`crate::judge`]): facts that follow from a mapping's shape, and permission by
//! settings and advice. An inspection does not know the history, because it did not see the memory being touched. A slot for
//! which the size is permitted, but which is full of base pages, therefore has several possible causes. All of them are reported,
//! except those that the kernel's counters and flags rule out.

use super::cause_evidence::setting;
use super::context::Context;
use super::files;
use super::found_causes::FoundCauses;
use super::history::{AnonymousPages, History};
use super::process::ThpMode;
use super::region::Explained;
use super::region_memory::{BelowTarget, RegionBounds, RegionMemory};
use super::shared;
use super::supply::Pool;
use super::vma::VmaFacts;
use crate::cause::Cause;
use crate::census::{Advice, Backing, Folio, Mapping, VmaKind};
use crate::cut::{Cut, CutBy};
use crate::file_folios::lacks_pmd_folios;
use crate::judge::{Eligibility, Rules, Shape, ShapeSum, THP, certain_cause};
use crate::kind::Kind;
use crate::remedy::{DecidingFiles, Memory};
use crate::size::PageSize;

/// The causes of a region, largest first. `vmas` are the mappings of the region and `cuts` the cuts between them.
pub fn explain(
    bounds: &RegionBounds,
    kind: &Kind,
    vmas: &[VmaFacts],
    cuts: &[Cut],
    memory: &RegionMemory,
    context: &Context,
) -> Vec<Explained> {
    let mut found = FoundCauses::default();
    if let Some(target) = bounds.target {
        let region = RegionExplainer { target, kind, vmas, cuts, memory, context };
        memory.below_target.iter().for_each(|(at, below)| region.explain(*at, below, &mut found));
    }
    if let Kind::Hugetlb { size: Some(size) } = kind {
        add_pool_cause(*size, bounds, vmas, memory, context, &mut found);
    }
    if let Some((cause, bytes, evidence)) = context.pmd.and_then(|pmd| files::explain(vmas, &memory.census, pmd)) {
        found.add(cause, Vec::new(), bytes, || evidence);
    }
    if context.pmd.is_none() && bounds.target.is_none() {
        let bytes = memory.census.bytes_where(|mapping| mapping.backing == Backing::Anonymous);
        found.add(Cause::NoTransparentPages, Vec::new(), bytes, || vec![format!("there is no {THP}/hpage_pmd_size")]);
    }
    found.explained(&memory_for_remedies(bounds, kind, vmas, context))
}

/// Bytes of mappings that the program may access. Address space that is only reserved (PROT_NONE) takes no page.
pub fn accessible_bytes(vmas: &[VmaFacts]) -> u64 {
    vmas.iter().filter(|vma| vma.protection != 0).map(|vma| vma.end - vma.start).sum()
}

/// The region in the form that [`crate::remedy`] takes.
fn memory_for_remedies<'a>(
    bounds: &RegionBounds,
    kind: &'a Kind,
    vmas: &[VmaFacts],
    context: &'a Context,
) -> Memory<'a> {
    let size = bounds.target.or(context.pmd).unwrap_or(context.base);
    let rules = Rules { settings: &context.supply.settings, disabled_for_process: None };
    let mounted = vmas.first().filter(|vma| vma.kind == VmaKind::Shared && vma.file_system.is_some());
    let file_system = vmas.first().and_then(|vma| vma.file_system.as_ref());
    let deciding = DecidingFiles {
        size: rules.deciding(size),
        mounted_file: mounted.map(|vma| vma.name.clone()),
        lacks_file_folios: file_system
            .is_some_and(|on| context.kernel.is_some_and(|kernel| lacks_pmd_folios(&on.name, kernel))),
    };
    let length_bytes = accessible_bytes(vmas);
    let pool = context.supply.pools.iter().find(|pool| pool.size == size);
    let free_pool_pages = pool.map_or(0, |pool| pool.free);
    let is_pmd = Some(size) == context.pmd;
    Memory { kind, size, is_pmd, length_bytes, runtimes: context.runtimes, deciding, free_pool_pages }
}

/// Adds the absent part of a hugetlb region whose pool is empty: touching it raises SIGBUS. That is known only of private memory
/// without reservation. Elsewhere mmap has reserved the pages, or another process may have put them into the file.
fn add_pool_cause(
    size: PageSize,
    bounds: &RegionBounds,
    vmas: &[VmaFacts],
    memory: &RegionMemory,
    context: &Context,
    found: &mut FoundCauses,
) {
    let is_unreserved = |vma: &VmaFacts| !vma.shared && vma.smaps_info.is_some_and(|info| info.flags.has("nr"));
    if !vmas.iter().all(is_unreserved) {
        return;
    }
    let exhausted = |pool: &&Pool| pool.size == size && pool.free == 0 && pool.surplus_left == 0;
    if let Some(pool) = context.supply.pools.iter().find(exhausted) {
        let absent = (bounds.end - bounds.start).saturating_sub(memory.census.total_bytes());
        found.add(Cause::PoolExhausted { size }, Vec::new(), absent, || {
            vec![format!("the pool has {} pages, none of them free: touching this memory ends in SIGBUS", pool.pages)]
        });
    }
}

/// Assigns to each window the region's cause that explains most of it.
pub fn explain_windows(
    bounds: &RegionBounds,
    kind: &Kind,
    vmas: &[VmaFacts],
    cuts: &[Cut],
    memory: &mut RegionMemory,
    context: &Context,
    causes: &[Explained],
) {
    let Some(target) = bounds.target else { return };
    let sums = std::mem::take(&mut memory.below_target_by_window);
    let mut windows = std::mem::take(&mut memory.windows);
    let region = RegionExplainer { target, kind, vmas, cuts, memory, context };
    for of_window in sums.chunk_by(|one, next| one.0 == next.0) {
        let mut found = FoundCauses::default();
        of_window.iter().for_each(|(_, at, below)| region.explain(*at, below, &mut found));
        let number = found.largest_among(causes);
        let index = windows.binary_search_by_key(&of_window[0].0, |window| window.start);
        if let (Some(number), Ok(index)) = (number, index) {
            windows[index].cause_index = u16::try_from(number).ok();
        }
    }
    memory.windows = windows;
}

/// A region whose causes are being determined.
struct RegionExplainer<'a> {
    target: PageSize,
    kind: &'a Kind,
    vmas: &'a [VmaFacts],
    cuts: &'a [Cut],
    memory: &'a RegionMemory,
    context: &'a Context<'a>,
}

impl RegionExplainer<'_> {
    fn explain(&self, at: usize, below: &BelowTarget, found: &mut FoundCauses) {
        let vma = &self.vmas[at];
        match *below {
            BelowTarget::NoSlot(bytes) => {
                let length = self.vmas.last().map_or(0, |last| last.end) - self.vmas[0].start;
                let cause = if length < self.target.bytes() { Cause::MappingTooSmall } else { Cause::NoAlignedSlot };
                found.add(cause, Vec::new(), bytes, || vec![format!("from {:#x} to {:#x}", vma.start, vma.end)]);
            }
            BelowTarget::Sum(bytes) => self.refused_or_permitted(vma, (Shape::Full, 0), bytes, found),
            BelowTarget::CutBelow(bytes) => self.cut(vma.start, vma, bytes, found),
            BelowTarget::CutAbove(bytes) => self.cut(vma.end, vma, bytes, found),
            BelowTarget::PartOfFolio(bytes) => self.part_of_folio(vma, bytes, found),
            BelowTarget::Split(bytes) if self.is_misaligned(vma) => self.misaligned(vma, bytes, found),
            BelowTarget::Split(bytes) => {
                let (cause, or) = self.history(vma).causes_of_split();
                found.add(cause, or, bytes, || self.history(vma).evidence_of_split());
            }
            BelowTarget::ShapeSum(sum) => self.add_shape_sum(vma, &sum, found),
        }
    }

    /// Whether a complete folio cannot have a leaf because its position in the shared memory does not match the slot.
    fn is_misaligned(&self, vma: &VmaFacts) -> bool {
        vma.kind == VmaKind::Shared && !vma.is_congruent(self.target)
    }

    fn misaligned(&self, vma: &VmaFacts, bytes: u64, found: &mut FoundCauses) {
        found.add(Cause::SharedMisaligned, Vec::new(), bytes, || vec![files::misaligned(vma, self.target)]);
    }

    /// Attributes memory of a slot to the cut at this address, which divides the slot.
    fn cut(&self, address: u64, vma: &VmaFacts, bytes: u64, found: &mut FoundCauses) {
        // Cuts are in address order and do not nest.
        let after = self.cuts.partition_point(|cut| cut.start <= address);
        let near = |cut: &&Cut| cut.start == address || cut.end == address;
        let Some(cut) = self.cuts[..after].last().filter(near) else {
            found.add(Cause::NoAlignedSlot, Vec::new(), bytes, || vec![format!("the mapping ends at {address:#x}")]);
            return;
        };
        let (mut causes, mut evidence) = self.refusals(vma);
        if !(causes.contains(&Cause::NotAdvised) && self.is_cut_by_advice(cut, vma)) {
            causes.push(Cause::MappingCut { by: cut.by });
            evidence.push(self.evidence_of_cut(cut, vma));
        }
        found.add_all(causes, bytes, evidence);
    }

    /// Whether the neighbours differ in MADV_HUGEPAGE alone: the kernel merges them once both are advised.
    fn is_cut_by_advice(&self, cut: &Cut, vma: &VmaFacts) -> bool {
        cut.by == CutBy::Flags && self.differing_flags(cut, vma) == ["hg"]
    }

    /// The flags in which a mapping differs from its neighbour at a cut.
    fn differing_flags(&self, cut: &Cut, vma: &VmaFacts) -> Vec<&'static str> {
        let is_neighbour = |other: &&VmaFacts| {
            if cut.start == vma.start { other.end == vma.start } else { other.start == vma.end }
        };
        let other = self.vmas.iter().find(is_neighbour);
        other.and_then(|other| Some(vma.smaps_info?.flags.difference(other.smaps_info?.flags))).unwrap_or_default()
    }

    fn evidence_of_cut(&self, cut: &Cut, vma: &VmaFacts) -> String {
        let kind = cut.by.describe();
        match cut.by {
            CutBy::Guard | CutBy::LightGuard => {
                format!("{kind} at {:#x} ({} bytes)", cut.start, cut.end - cut.start)
            }
            CutBy::Flags => {
                format!("VmFlags differ at {:#x} ({})", cut.start, self.differing_flags(cut, vma).join(" "))
            }
            _ => format!("{kind} from {:#x} on", cut.start),
        }
    }

    fn part_of_folio(&self, vma: &VmaFacts, bytes: u64, found: &mut FoundCauses) {
        if self.is_misaligned(vma) {
            return self.misaligned(vma, bytes, found);
        }
        let misplaced = self.memory.tlb_runs.map_or(0, |runs| runs.misplaced_bytes).min(bytes);
        found.add(Cause::MovedOutOfPlace, Vec::new(), misplaced, || {
            vec![format!("whole folios are mapped out of place from {:#x} on", vma.start)]
        });
        let (cause, or) = self.history(vma).causes_of_part();
        found.add(cause, or, bytes - misplaced, || self.history(vma).evidence_of_split());
    }

    fn add_shape_sum(&self, vma: &VmaFacts, sum: &ShapeSum, found: &mut FoundCauses) {
        if let Some(cause) = certain_cause(sum.shape) {
            found.add(cause, Vec::new(), sum.missing_bytes + sum.unseen_bytes, Vec::new);
            return;
        }
        // Memory whose folios are not visible is neither covered nor missing.
        found.add(Cause::FoliosInvisible, Vec::new(), sum.unseen_bytes, Vec::new);
        let shape = (sum.shape, sum.absent_bytes(self.target));
        self.refused_or_permitted(vma, shape, sum.missing_bytes, found);
    }

    /// Adds memory to which settings or advice refuse the size; if they permit it, the memory's history explains it.
    fn refused_or_permitted(&self, vma: &VmaFacts, shape: (Shape, u64), bytes: u64, found: &mut FoundCauses) {
        let (causes, evidence) = self.refusals(vma);
        if causes.is_empty() {
            self.permitted(vma, shape, bytes, found);
        } else {
            found.add_all(causes, bytes, evidence);
        }
    }

    /// All reasons for which the kernel would currently refuse the size, with the evidence.
    fn refusals(&self, vma: &VmaFacts) -> (Vec<Cause>, Vec<String>) {
        if vma.kind == VmaKind::Shared {
            return shared::refusals(vma, self.target, self.context);
        }
        // If the kernel does not report the state (before Linux 5.0), THP counts as not disabled, and the causes by history
        // apply.
        let disabled = self.context.process.thp == ThpMode::Disabled;
        let rules = Rules { settings: &self.context.supply.settings, disabled_for_process: Some(disabled) };
        let causes = rules.refusals(self.target, vma.advice());
        if !causes.is_empty() {
            let mut evidence: Vec<String> = Vec::new();
            for line in causes.iter().flat_map(|cause| self.evidence_of_refusal(cause, vma)) {
                if !evidence.contains(&line) {
                    evidence.push(line);
                }
            }
            return (causes, evidence);
        }
        match rules.eligibility(self.target, vma.advice()) {
            Eligibility::Unknown if vma.advice().is_none() => {
                (vec![Cause::Unexplained], vec!["the advice of the mapping was not read (smaps)".into()])
            }
            Eligibility::Unknown => (vec![Cause::Unexplained], setting(self.context.supply, self.target)),
            _ if self.is_excepted(vma) => {
                let flags = format!("THPeligible: 0 at {:#x}, although settings and advice permit it", vma.start);
                (vec![Cause::DisabledExceptAdvised], vec![flags])
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn evidence_of_refusal(&self, cause: &Cause, vma: &VmaFacts) -> Vec<String> {
        let settings = || setting(self.context.supply, self.target);
        match cause {
            Cause::DisabledForProcess => vec!["THP_enabled: 0 in /proc/PID/status".into()],
            Cause::AdvisedAgainst => vec![format!("VmFlags nh at {:#x}", vma.start)],
            Cause::NotAdvised => [settings(), vec![format!("no hg in VmFlags at {:#x}", vma.start)]].concat(),
            _ => settings(),
        }
    }

    /// Whether the kernel reports the mapping as not eligible although nothing visible forbids it. The kernel reports eligibility
    /// for the whole mapping and for any size, so the mapping must have a slot of PMD size and must not be of a kind that is
    /// never eligible.
    fn is_excepted(&self, vma: &VmaFacts) -> bool {
        let Some(flags) = vma.smaps_info.map(|info| info.flags) else { return false };
        let none = ["um", "uw", "ui", "pf", "io", "de"].iter().all(|flag| !flags.has(flag));
        let has_slot = self
            .context
            .pmd
            .is_some_and(|pmd| pmd.align_up(vma.start).is_some_and(|start| start + pmd.bytes() <= vma.end));
        let not_advised = vma.advice() == Some(Advice::None);
        none && has_slot && not_advised && vma.smaps_info.is_some_and(|info| info.thp_eligible == Some(false))
    }

    /// Adds memory in slots for which the kernel permits the size. `absent_bytes` is the size of the holes in all slots of the
    /// shape.
    fn permitted(&self, vma: &VmaFacts, (shape, absent_bytes): (Shape, u64), bytes: u64, found: &mut FoundCauses) {
        let about = vma.smaps_info.unwrap_or_default();
        let served = ["um", "uw", "ui"].iter().find(|flag| about.flags.has(flag));
        if let Some(flag) = served {
            let evidence = || vec![format!("VmFlags {flag} at {:#x}", vma.start)];
            found.add(Cause::ServedByUserfaultfd, Vec::new(), bytes, evidence);
            return;
        }
        let merged = about.ksm_bytes.min(bytes);
        found.add(Cause::MergedByKsm, Vec::new(), merged, || {
            vec![format!("KSM: {} kB in smaps", about.ksm_bytes >> 10)]
        });
        let bytes = bytes - merged;
        let history = self.history(vma);
        match shape {
            Shape::ZeroInSlot => {
                let (cause, or) = history.causes_of_zeroes();
                found.add(cause, or, bytes, || history.evidence_of_zeroes());
            }
            Shape::Holes => {
                let is_within_size = shared::is_within_size(vma, self.target, self.context);
                let (cause, or) = history.causes_of_holes(absent_bytes, about.swap_bytes, is_within_size);
                found.add(cause, or, bytes, || history.evidence_of_holes(bytes, about.swap_bytes));
            }
            Shape::Refilled => {
                let (cause, or) = history.causes_of_refilled();
                found.add(cause, or, bytes, || history.evidence_of_split());
            }
            _ => {
                for (cause, or, share_bytes) in history.causes_of_full(bytes) {
                    found.add(cause, or, share_bytes, || history.evidence_of_full(bytes));
                }
            }
        }
    }

    fn history(&self, vma: &VmaFacts) -> History<'_> {
        History {
            kind: self.kind,
            shared_bytes: vma.smaps_info.map_or(0, |info| info.shared_bytes),
            target: self.target,
            base_pages: self.base_pages(),
            context: self.context,
        }
    }

    /// The anonymous base pages of the region; `None` where a folio behind its base-page PTEs is not visible, or is larger than a
    /// base page and smaller than the target.
    fn base_pages(&self) -> Option<AnonymousPages> {
        let in_place_bytes = self.memory.tlb_runs?.in_place_bytes?;
        let base = self.context.base;
        let is_small = |mapping: &Mapping| match mapping.folio {
            Folio::Unknown => true,
            Folio::Whole(size) | Folio::Part(size) => size > base && size < self.target,
        };
        let of_anonymous = |wanted: &dyn Fn(&Mapping) -> bool| {
            self.memory.census.bytes_where(|mapping| mapping.backing == Backing::Anonymous && wanted(mapping))
        };
        let bytes = of_anonymous(&|mapping| mapping.folio == Folio::Whole(base));
        (of_anonymous(&is_small) == 0).then_some(AnonymousPages { bytes, in_place_bytes })
    }
}
