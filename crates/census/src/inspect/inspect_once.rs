//! [`inspect_once`]: one inspection of a process, which is not repeated if the process changes meanwhile.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;

use host::maps::{self, MalformedLine, Vma, VmaKind};
use host::read::{escaped_line, next_line};
use policy::census::Census;
use policy::inspect::{
    BasePageSupport, Contents, Context, Cut, Inspection, Kind, Neighbours, Process as About, Region, RegionBounds,
    RegionMemory, SmapsInfo, Supply, Surroundings, Visibility, VmaFacts, VmaPart, accessible_bytes, cuts, explain,
    explain_windows, group, recognise,
};
use policy::remedy::{Change, Runtime, runtimes};
use policy::size::{PageSize, format_bytes};

use super::batches::batches;
use super::error::InspectError;
use super::identity::Identity;
use super::subject::Subject;
use super::{Detail, contents, status};
use crate::{CensusError, smaps};

/// The most mappings of a capture; memory is allocated in proportion to their number.
const MAX_MAPPINGS: usize = 4 << 20;
/// The most windows of a process that are kept for a map; for 2M windows that is 8T.
const MAX_WINDOWS: u64 = 4 << 20;

/// Reads the mappings and the pages of a process, and explains the sizes of its pages region by region.
pub fn inspect_once(
    subject: &dyn Subject,
    identity: &Identity,
    supply: &Supply,
    detail: Detail,
) -> Result<Inspection, InspectError> {
    let mut partial = Vec::new();
    let about = status::read(subject, identity, &mut partial);
    let inspection = OneInspection { subject, about: &about, supply, detail, contents: RefCell::default() };
    let mapped = inspection.vmas()?;
    let bounds_before = if subject.is_live() { bounds(&mapped) } else { Vec::new() };
    let mut facts: Vec<VmaFacts> = mapped.into_iter().map(|vma| inspection.facts(vma)).collect();
    let smaps_info = if detail.sizes_only && subject.is_by_page() {
        FromSmaps::default()
    } else {
        inspection.add_smaps_info(&mut facts, &mut partial)
    };
    let facts = inspection.cut_at_guards(facts);
    subject.check()?;
    let around = Surroundings::of(&facts, subject.stacks(), subject.has_guest(), subject.is_go());
    let groups = group(&facts, &around.stacks);
    let runtimes = runtimes(about.program.as_deref(), &around.code_files, around.is_go);
    let basis = Basis { knows_flags: smaps_info.knows_flags, runtimes, environment: subject.environment() };
    let mut regions = Vec::with_capacity(groups.len());
    let mut finish = |group: &Range<usize>, outline: &RegionBounds, seen: RegionMemory| {
        let before = group.start.checked_sub(1).map(|before| &facts[before]);
        let neighbours = Neighbours { before, after: facts.get(group.end) };
        let (kind, how) = recognise(&facts[group.clone()], neighbours, &around);
        regions.push(inspection.region(&facts[group.clone()], kind, how, outline, seen, &basis));
    };
    if subject.is_by_page() {
        inspection.pages(&facts, &groups, &mut partial, &mut finish)
    } else {
        inspection.sums(&facts, &groups, smaps_info.sums, &mut finish)
    }
    if subject.is_live() && inspection.vmas().is_ok_and(|later| bounds(&later) != bounds_before) {
        partial.push(
            "its mappings changed during the inspection: those that changed are shown as they were before, or after"
                .into(),
        );
    }
    if let unplaced @ 1.. = subject.unplaced_bytes(&facts) {
        let unplaced = format_bytes(unplaced);
        partial.push(format!(
            "{unplaced} of the captured pages are in no mapping and were left out: the process changed meanwhile, or the capture"
        ));
    }
    if is_overwritten(&basis.environment) && regions.iter().any(names_a_variable) {
        partial.push(
            "it has overwritten its environment with its title, so a variable that a remedy names may be set already"
                .into(),
        );
    }
    let reads_files = !detail.sizes_only && !detail.memory_only;
    let base_page_support = if reads_files { subject.base_page_support(&facts) } else { BasePageSupport::Unknown };
    let jemalloc = if detail.jemalloc { subject.jemalloc(&facts) } else { None };
    let second_stage = (around.has_guest && !detail.memory_only).then(|| subject.second_stage());
    partial.extend(subject.unread());
    let sight = Visibility {
        by_page: subject.is_by_page(),
        folios: subject.sees_folios(),
        flags: smaps_info.knows_flags,
        is_live: subject.is_live(),
    };
    let contents = inspection.contents.take();
    let sum = |bytes: fn(&SmapsInfo) -> u64| {
        let whole = facts.iter().filter(|facts| facts.part == VmaPart::First);
        smaps_info.knows_flags.then(|| whole.filter_map(|facts| facts.smaps_info.as_ref()).map(bytes).sum())
    };
    let process = About {
        lazy_free_bytes: sum(|info| info.lazy_free_bytes),
        mapped_again_bytes: sum(|info| info.mapped_again_bytes),
        proportional_bytes: sum(|info| info.proportional_bytes),
        held_unmapped_bytes: subject.held_unmapped_bytes(),
        contents: detail.contents.then_some(contents),
        base_page_support,
        jemalloc,
        second_stage,
        ..about
    };
    let (runtimes, supply) = (basis.runtimes, supply.clone());
    Ok(Inspection { process, regions, runtimes, supply, refused_requests: None, sight, partial })
}

/// Whether a process has overwritten its environment, as `setproctitle` does: it has text, and no variable.
fn is_overwritten(environment: &[String]) -> bool {
    environment.iter().any(|one| !one.is_empty()) && !environment.iter().any(|one| one.contains('='))
}

/// Whether a remedy for a region sets an environment variable.
fn names_a_variable(region: &Region) -> bool {
    let is_variable = |change: &Change| matches!(change, Change::Environment { .. });
    let remedies = region.causes.iter().flat_map(|cause| &cause.remedies);
    remedies.flat_map(|remedy| &remedy.changes).any(is_variable)
}

/// The mappings of a process, cut at the guards inside them.
pub fn mappings(subject: &dyn Subject, pid: u32) -> Result<Vec<VmaFacts>, CensusError> {
    let (about, supply) = (About { pid, ..About::default() }, Supply::default());
    let inspection = OneInspection {
        subject,
        about: &about,
        supply: &supply,
        detail: Detail::default(),
        contents: RefCell::default(),
    };
    let mut facts: Vec<VmaFacts> = inspection.vmas()?.into_iter().map(|vma| inspection.facts(vma)).collect();
    inspection.add_smaps_info(&mut facts, &mut Vec::new());
    let facts = inspection.cut_at_guards(facts);
    subject.check()?;
    Ok(facts)
}

fn bounds(vmas: &[Vma]) -> Vec<(u64, u64)> {
    vmas.iter().map(|vma| (vma.start, vma.end)).collect()
}

/// The facts read from smaps.
#[derive(Default)]
struct FromSmaps {
    knows_flags: bool,
    /// The sums of mappings by their first addresses, where pages cannot be read one by one.
    sums: HashMap<u64, Census>,
}

/// What the causes of all regions are based on.
struct Basis {
    knows_flags: bool,
    runtimes: Vec<Runtime>,
    /// The variables that the process was started with.
    environment: Vec<String>,
}

struct OneInspection<'a> {
    subject: &'a dyn Subject,
    about: &'a About,
    supply: &'a Supply,
    detail: Detail,
    /// The contents of the large pages read so far.
    contents: RefCell<Contents>,
}

impl OneInspection<'_> {
    fn vmas(&self) -> Result<Vec<Vma>, CensusError> {
        let pid = self.about.pid;
        let path = self.subject.path("maps");
        let failed = |error| self.subject.read_error("maps", error);
        let (mut lines, mut line, mut vmas) = (self.subject.lines("maps").map_err(failed)?, Vec::new(), Vec::new());
        while next_line(&mut lines, &mut line).map_err(failed)? {
            maps::append(&mut vmas, &escaped_line(&line), &path)?;
            if vmas.len() > MAX_MAPPINGS && !self.subject.is_live() {
                return Err(failed(io::Error::other(format!("expected at most {MAX_MAPPINGS} mappings, found more"))));
            }
        }
        vmas.retain(|vma| vma.name != "[vsyscall]");
        let base = self.subject.sizes().base;
        if let Some(vma) = vmas.iter().find(|vma| !(vma.start | vma.end).is_multiple_of(base.bytes())) {
            let found = format!("{:x}-{:x}", vma.start, vma.end);
            return Err(MalformedLine::new(&path, "addresses in multiples of the base page", &found).into());
        }
        if vmas.is_empty() { Err(CensusError::NoAddressSpace { pid }) } else { Ok(vmas) }
    }

    /// Adds the facts of smaps to the mappings that smaps still has. A mapping that has grown meanwhile, as a heap does,
    /// counts as the same mapping.
    fn add_smaps_info(&self, facts: &mut [VmaFacts], partial: &mut Vec<String>) -> FromSmaps {
        let mut smaps_info = FromSmaps::default();
        let path = self.subject.path("smaps");
        let (sizes, sums) = (self.subject.sizes(), !self.subject.is_by_page());
        let failed = |error| self.subject.read_error("smaps", error);
        let read = self.subject.lines("smaps").map_err(failed).and_then(|file| {
            smaps::read(file, &path, failed, |entry| {
                let at = facts.binary_search_by_key(&entry.vma.start, |facts| facts.start);
                let Some(facts) = at.ok().map(|at| &mut facts[at]).filter(|facts| facts.end <= entry.vma.end) else {
                    return;
                };
                smaps_info.knows_flags = true;
                facts.smaps_info = Some(entry.smaps_info());
                if sums && facts.end == entry.vma.end {
                    let mut census = Census::default();
                    entry.count(sizes.base, sizes.pmd, facts.is_shmem, &mut census);
                    smaps_info.sums.insert(facts.start, census);
                }
            })
        });
        if let Err(error) = read {
            partial.push(format!("the flags of mappings could not be read: {error}"));
        }
        smaps_info
    }

    fn is_shmem(&self, vma: &Vma) -> bool {
        vma.inode != 0 && self.subject.is_shmem(vma.device)
    }

    /// The facts about a mapping that are known without smaps.
    fn facts(&self, vma: Vma) -> VmaFacts {
        VmaFacts {
            start: vma.start,
            end: vma.end,
            kind: vma.kind(),
            protection: vma.protection,
            shared: vma.shared,
            device: vma.device,
            inode: vma.inode,
            offset: vma.offset,
            part: VmaPart::First,
            is_shmem: self.is_shmem(&vma),
            file_system: (vma.inode != 0).then(|| self.subject.file_system(vma.device)).flatten(),
            smaps_info: None,
            name: vma.name,
        }
    }

    fn cut_at_guards(&self, facts: Vec<VmaFacts>) -> Vec<VmaFacts> {
        let has_guards = |facts: &VmaFacts| facts.smaps_info.is_some_and(|smaps_info| smaps_info.flags.has("gu"));
        if !facts.iter().any(has_guards) {
            return facts;
        }
        let cut = |facts: VmaFacts| {
            if has_guards(&facts) {
                let guards = self.subject.guards(facts.start, facts.end);
                facts.cut_at(&guards)
            } else {
                vec![facts]
            }
        };
        facts.into_iter().flat_map(cut).collect()
    }

    fn outline(&self, vmas: &[VmaFacts]) -> RegionBounds {
        let (start, end) = (vmas[0].start, vmas[vmas.len() - 1].end);
        let target = self.target(vmas, start, end);
        let sizes = self.subject.sizes();
        RegionBounds {
            start,
            end,
            target,
            may_have: target.is_none_or(|target| self.subject.may_have(target)),
            base: sizes.base,
            pmd: sizes.pmd,
            window: sizes.pmd.filter(|_| self.detail.windows),
        }
    }

    /// The largest transparent size for which the region contains a slot. For files the file system and readahead choose the
    /// size, and the pages of a pool have one size.
    fn target(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Option<PageSize> {
        let can = |vma: &VmaFacts| {
            !vma.is_hugetlb()
                && match vma.kind {
                    VmaKind::Anonymous | VmaKind::Stack => !vma.is_inaccessible(),
                    VmaKind::Shared => vma.is_shmem,
                    VmaKind::PrivateFile => vma.is_writable(),
                    VmaKind::Special => false,
                }
        };
        if !vmas.iter().any(can) {
            return None;
        }
        let has_slot = |size: &PageSize| {
            size.align_up(start).and_then(|first| first.checked_add(size.bytes())).is_some_and(|last| last <= end)
        };
        self.subject.sizes().transparent.iter().copied().rev().find(has_slot)
    }

    /// Completes every region from its pages.
    fn pages(
        &self,
        facts: &[VmaFacts],
        groups: &[Range<usize>],
        partial: &mut Vec<String>,
        finish: &mut impl FnMut(&Range<usize>, &RegionBounds, RegionMemory),
    ) {
        let sizes = self.subject.sizes();
        let mut rest = groups.iter().map(|group| (group, self.outline(&facts[group.clone()])));
        let Some((mut group, mut outline)) = rest.next() else { return };
        let (mut seen, mut windows, mut is_hidden) = (RegionMemory::default(), MAX_WINDOWS, false);
        let window = sizes.pmd.unwrap_or(sizes.base);
        for (part, addresses) in batches(facts, self.subject.max_step_bytes(), window) {
            let found = match self.subject.present_memory(&facts[part.clone()], addresses.start, addresses.end) {
                Ok(found) => found,
                Err(error) => {
                    partial.push(format!("nothing is known from {:#x} on: {error}", addresses.start));
                    break;
                }
            };
            for (at, found) in part.zip(found) {
                while group.end <= at {
                    finish(group, &outline, std::mem::take(&mut seen));
                    let Some(next) = rest.next() else { return };
                    (group, outline) = next;
                }
                if let Some(window) = outline.window.filter(|_| windows > 0) {
                    windows = windows.saturating_sub(found.max_windows(window));
                    if windows == 0 {
                        partial.push(format!(
                            "a map has at most {MAX_WINDOWS} windows: none from {:#x} on",
                            facts[at].start
                        ));
                    }
                }
                if windows == 0 {
                    outline.window = None;
                }
                seen.add(&outline, at - group.start, &facts[at], &found.runs, found.tlb_runs);
                if self.detail.contents && !is_hidden {
                    let read = contents::add(&mut self.contents.borrow_mut(), self.subject, &found.runs, sizes.base);
                    if let Err(error) = read {
                        is_hidden = true;
                        partial.push(format!("contents could not be read from {:#x} on: {error}", facts[at].start));
                    }
                }
            }
        }
        finish(group, &outline, seen);
        rest.for_each(|(group, outline)| finish(group, &outline, RegionMemory::default()));
    }

    /// Completes every region from the sums of smaps.
    fn sums(
        &self,
        facts: &[VmaFacts],
        groups: &[Range<usize>],
        mut sums: HashMap<u64, Census>,
        finish: &mut impl FnMut(&Range<usize>, &RegionBounds, RegionMemory),
    ) {
        for group in groups {
            let (outline, mut seen) = (self.outline(&facts[group.clone()]), RegionMemory::default());
            for at in group.clone() {
                if let Some(census) = sums.remove(&facts[at].start) {
                    seen.add_sums(&outline, at - group.start, &facts[at], &census);
                }
            }
            finish(group, &outline, seen);
        }
    }

    fn region(
        &self,
        vmas: &[VmaFacts],
        kind: Kind,
        recognised_by: String,
        outline: &RegionBounds,
        mut seen: RegionMemory,
        basis: &Basis,
    ) -> Region {
        let all_cuts: Vec<Cut> = cuts(vmas).collect();
        let sizes = self.subject.sizes();
        let context = Context {
            process: self.about,
            supply: self.supply,
            base: sizes.base,
            pmd: sizes.pmd,
            sees_folios: self.subject.sees_folios(),
            runtimes: &basis.runtimes,
            kernel: self.subject.kernel(),
        };
        // Without advice, flags and guards a cause would be a guess.
        let mut causes =
            if basis.knows_flags { explain(outline, &kind, vmas, &all_cuts, &seen, &context) } else { Vec::new() };
        // What it was started with has been tried.
        for cause in &mut causes {
            cause.remedies.retain(|remedy| !remedy.is_in_environment(&basis.environment));
        }
        explain_windows(outline, &kind, vmas, &all_cuts, &mut seen, &context, &causes);
        let whole = || vmas.iter().filter(|vma| vma.part == VmaPart::First);
        let sum =
            |bytes: fn(&SmapsInfo) -> u64| whole().map(|vma| vma.smaps_info.as_ref().map(bytes)).sum::<Option<u64>>();
        let is_multiple =
            |size: PageSize| outline.start.is_multiple_of(size.bytes()) && outline.end.is_multiple_of(size.bytes());
        Region {
            start: outline.start,
            end: outline.end,
            kind,
            recognised_by,
            accessible_bytes: accessible_bytes(vmas),
            vmas: whole().count() as u64,
            shared: vmas[0].shared,
            swap_bytes: sum(|smaps_info| smaps_info.swap_bytes),
            shared_after_fork_bytes: sum(|smaps_info| smaps_info.shared_bytes),
            target: outline.target,
            aligned: outline.target.or(sizes.pmd).is_some_and(is_multiple),
            tlb_runs: seen.tlb_runs,
            benefit: seen.benefit,
            causes,
            cut_count: all_cuts.len() as u64,
            cuts: all_cuts.into_iter().take(Region::MAX_CUTS).collect(),
            census: seen.census,
            windows: seen.windows,
        }
    }
}
