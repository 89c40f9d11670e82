//! One look at a process.

use std::collections::HashMap;
use std::ops::Range;

use host::maps::{self, Vma, VmaKind};
use policy::census::Census;
use policy::inspect::{
    Cut, Ground, Inspection, Kind, Outline, Process as About, Region, Seen, Sight, Supply, Surroundings, Told,
    VmaFacts, VmaPart, cuts, explain, explain_windows, group, recognise,
};
use policy::size::PageSize;

use super::error::InspectError;
use super::identity::Identity;
use super::subject::Subject;
use super::{Detail, status};
use crate::{CensusError, smaps};

/// Addresses that are looked at in one go, so that what is kept of them stays small.
const GO_BYTES: u64 = 1 << 30;
/// And mappings.
const GO_MAPPINGS: usize = 4096;

/// Looks at a process once.
pub fn look(
    subject: &dyn Subject,
    identity: &Identity,
    supply: &Supply,
    detail: Detail,
) -> Result<Inspection, InspectError> {
    let mut partial = Vec::new();
    let about = status::read(subject, identity, &mut partial);
    let look = Look { subject, about: &about, supply, detail };
    let mapped = look.vmas()?;
    let told = match detail.sizes_only && subject.is_by_page() {
        true => OfSmaps::new(),
        false => look.told(&mut partial),
    };
    let facts = look.facts(&mapped, &told);
    subject.usable()?;
    let around = Surroundings::of(&facts, subject.stacks(), subject.has_guest(), subject.is_go());
    let groups = group(&facts, &around.stacks);
    let outlines: Vec<Outline> = groups.iter().map(|group| look.outline(&facts[group.clone()])).collect();
    let seen = match subject.is_by_page() {
        true => look.pages(&facts, &groups, &outlines, &mut partial),
        false => look.sums(&facts, &groups, &outlines, &told),
    };
    let regions = groups.iter().zip(seen).zip(&outlines).map(|((group, seen), outline)| {
        let before = group.start.checked_sub(1).map(|before| &facts[before]);
        let facts = &facts[group.clone()];
        let (kind, how) = recognise(facts, before, &around);
        look.region(facts, kind, how, outline, (seen, !told.is_empty()))
    });
    let regions = regions.collect();
    if subject.is_live() && look.vmas().is_ok_and(|later| bounds(&later) != bounds(&mapped)) {
        partial.push(
            "its mappings changed during the inspection: those that changed are shown as they were before, or after"
                .into(),
        );
    }
    partial.extend(subject.unread());
    let sight = Sight {
        by_page: subject.is_by_page(),
        folios: subject.sees_folios(),
        flags: !told.is_empty(),
        is_live: subject.is_live(),
    };
    Ok(Inspection { process: about, regions, supply: supply.clone(), sight, partial })
}

/// The mappings of a process, cut at the guards inside.
///
/// # Errors
/// It has ended, or may not be looked at.
pub fn mappings(subject: &dyn Subject, pid: u32) -> Result<Vec<VmaFacts>, CensusError> {
    let (about, supply) = (About { pid, ..About::default() }, Supply::default());
    let look = Look { subject, about: &about, supply: &supply, detail: Detail::default() };
    let told = look.told(&mut Vec::new());
    let facts = look.facts(&look.vmas()?, &told);
    subject.usable()?;
    Ok(facts)
}

fn bounds(vmas: &[Vma]) -> Vec<(u64, u64)> {
    vmas.iter().map(|vma| (vma.start, vma.end)).collect()
}

/// What smaps says of a mapping: its end, what is asked of it, and the sums of its pages where these are all that there is.
type OfSmaps = HashMap<u64, (u64, Told, Option<Census>)>;

struct Look<'a> {
    subject: &'a dyn Subject,
    about: &'a About,
    supply: &'a Supply,
    detail: Detail,
}

impl Look<'_> {
    fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.about.pid)
    }

    fn vmas(&self) -> Result<Vec<Vma>, CensusError> {
        let pid = self.about.pid;
        let path = self.path("maps");
        let text = self.subject.text("maps").map_err(|error| CensusError::io(pid, &path, error))?;
        let mut vmas = maps::parse(&text, &path)?;
        vmas.retain(|vma| vma.name != "[vsyscall]");
        if vmas.is_empty() { Err(CensusError::NoAddressSpace { pid }) } else { Ok(vmas) }
    }

    fn told(&self, partial: &mut Vec<String>) -> OfSmaps {
        let mut told = OfSmaps::new();
        let path = self.path("smaps");
        let (sizes, sums) = (self.subject.sizes(), !self.subject.is_by_page());
        let file = self.subject.smaps().map_err(|error| CensusError::io(self.about.pid, &path, error));
        let read = file.and_then(|file| {
            smaps::read(file, &path, |entry| {
                let census = sums.then(|| {
                    let mut census = Census::default();
                    entry.count(sizes.base, sizes.pmd, self.is_shmem(&entry.vma), &mut census);
                    census
                });
                told.insert(entry.vma.start, (entry.vma.end, entry.told(), census));
            })
        });
        if let Err(error) = read {
            partial.push(format!("the flags of mappings could not be read: {error}"));
        }
        told
    }

    fn is_shmem(&self, vma: &Vma) -> bool {
        vma.inode != 0 && self.subject.is_shmem(vma.device)
    }

    /// What is known of the mappings, cut at the guards inside.
    fn facts(&self, vmas: &[Vma], told: &OfSmaps) -> Vec<VmaFacts> {
        let facts = |vma: &Vma| VmaFacts {
            start: vma.start,
            end: vma.end,
            kind: vma.kind(),
            protection: vma.protection,
            shared: vma.shared,
            device: vma.device,
            inode: vma.inode,
            offset: vma.offset,
            name: vma.name.clone(),
            part: VmaPart::First,
            is_shmem: self.is_shmem(vma),
            file_system: (vma.inode != 0).then(|| self.subject.file_system(vma.device)).flatten(),
            told: told.get(&vma.start).filter(|(end, ..)| *end == vma.end).map(|(_, told, _)| *told),
        };
        vmas.iter().map(facts).flat_map(|facts| self.at_guards(facts)).collect()
    }

    fn at_guards(&self, facts: VmaFacts) -> Vec<VmaFacts> {
        match facts.told.is_some_and(|told| told.flags.has("gu")) {
            true => {
                let guards = self.subject.guards(facts.start, facts.end);
                facts.cut_at(&guards)
            }
            false => vec![facts],
        }
    }

    fn outline(&self, vmas: &[VmaFacts]) -> Outline {
        let (start, end) = (vmas[0].start, vmas[vmas.len() - 1].end);
        let target = self.target(vmas, start, end);
        let sizes = self.subject.sizes();
        Outline {
            start,
            end,
            target,
            may_have: target.is_none_or(|target| self.subject.may_have(target)),
            base: sizes.base,
            pmd: sizes.pmd,
            window: sizes.pmd.filter(|_| self.detail.windows),
        }
    }

    /// The largest transparent size of which a slot lies in the region. Files have what their file system and readahead choose,
    /// and a pool's pages have one size.
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

    /// What is in the pages of all regions.
    fn pages(
        &self,
        facts: &[VmaFacts],
        groups: &[Range<usize>],
        outlines: &[Outline],
        partial: &mut Vec<String>,
    ) -> Vec<Seen> {
        let mut seen: Vec<Seen> = groups.iter().map(|_| Seen::default()).collect();
        let mut group = 0;
        let sizes = self.subject.sizes();
        for (part, start, end) in goes(facts, sizes.pmd.unwrap_or(sizes.base)) {
            let found = match self.subject.found(&facts[part.clone()], start, end) {
                Ok(found) => found,
                Err(error) => {
                    partial.push(format!("nothing is known from {start:#x} on: {error}"));
                    break;
                }
            };
            for (at, found) in part.zip(found) {
                while groups[group].end <= at {
                    group += 1;
                }
                let at_in_group = at - groups[group].start;
                seen[group].add(&outlines[group], at_in_group, &facts[at], &found.runs, found.tlb_runs);
            }
        }
        seen
    }

    /// The same from the sums of smaps.
    fn sums(&self, facts: &[VmaFacts], groups: &[Range<usize>], outlines: &[Outline], told: &OfSmaps) -> Vec<Seen> {
        let of_group = |(group, outline): (&Range<usize>, &Outline)| {
            let mut seen = Seen::default();
            for at in group.clone() {
                let sums = told.get(&facts[at].start).and_then(|(_, _, census)| census.as_ref());
                if let Some(census) = sums {
                    seen.add_sums(outline, at - group.start, &facts[at], census);
                }
            }
            seen
        };
        groups.iter().zip(outlines).map(of_group).collect()
    }

    fn region(
        &self,
        vmas: &[VmaFacts],
        kind: Kind,
        recognised_by: String,
        outline: &Outline,
        (mut seen, knows_flags): (Seen, bool),
    ) -> Region {
        let all_cuts: Vec<Cut> = cuts(vmas).collect();
        let sizes = self.subject.sizes();
        let ground = Ground {
            process: self.about,
            supply: self.supply,
            base: sizes.base,
            pmd: sizes.pmd,
            sees_folios: self.subject.sees_folios(),
        };
        // Without advice, flags and guards a cause would be a guess.
        let causes = match knows_flags {
            true => explain(outline, &kind, vmas, &all_cuts, &seen, &ground),
            false => Vec::new(),
        };
        explain_windows(outline, &kind, vmas, &all_cuts, &mut seen, &ground, &causes);
        let whole = || vmas.iter().filter(|vma| vma.part == VmaPart::First);
        let sum = |bytes: fn(&Told) -> u64| whole().map(|vma| vma.told.as_ref().map(bytes)).sum::<Option<u64>>();
        let is_multiple =
            |size: PageSize| outline.start.is_multiple_of(size.bytes()) && outline.end.is_multiple_of(size.bytes());
        Region {
            start: outline.start,
            end: outline.end,
            kind,
            recognised_by,
            vmas: whole().count() as u64,
            shared: vmas[0].shared,
            swap_bytes: sum(|told| told.swap_bytes),
            shared_after_fork_bytes: sum(|told| told.shared_bytes),
            target: outline.target,
            aligned: outline.target.or(sizes.pmd).is_some_and(is_multiple),
            tlb_runs: seen.tlb_runs,
            win: seen.win,
            causes,
            cut_count: all_cuts.len() as u64,
            cuts: all_cuts.into_iter().take(Region::MOST_CUTS).collect(),
            census: seen.census,
            windows: seen.windows,
        }
    }
}

/// The mappings, as many in one go as are looked at together: numbers of mappings, and the addresses.
fn goes(vmas: &[VmaFacts], alignment: PageSize) -> Vec<(Range<usize>, u64, u64)> {
    let mut goes: Vec<(Range<usize>, u64, u64)> = Vec::new();
    for (at, vma) in vmas.iter().enumerate() {
        let fits =
            |(part, start, _): &(Range<usize>, u64, u64)| part.len() < GO_MAPPINGS && vma.end - *start <= GO_BYTES;
        if let Some((part, _, end)) = goes.last_mut().filter(|go| fits(go)) {
            (part.end, *end) = (at + 1, vma.end);
            continue;
        }
        let mut start = vma.start;
        while start < vma.end {
            let end = alignment.align_down(start.saturating_add(GO_BYTES)).min(vma.end);
            goes.push((at..at + 1, start, end));
            start = end;
        }
    }
    goes
}
