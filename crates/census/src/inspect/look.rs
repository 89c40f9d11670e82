//! One look at a process.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;

use host::maps::{self, Vma, VmaKind};
use policy::inspect::{
    Cut, Ground, Inspection, Kind, Outline, Process as About, Region, Seen, Sight, Supply, Surroundings, Told,
    VmaFacts, VmaPart, cuts, explain, group, recognise,
};
use policy::size::PageSize;

use super::error::InspectError;
use super::identity::Identity;
use super::{Detail, stacks, status};
use crate::page_sizes::AnonymousFolios;
use crate::process_census::Process;
use crate::{CensusError, Observer, Source, read_text, smaps};

/// Addresses that are looked at in one go, so that what is kept of them stays small.
const GO_BYTES: u64 = 1 << 30;
/// And mappings.
const GO_MAPPINGS: usize = 4096;

/// Looks at a process once.
pub fn look(
    observer: &Observer,
    identity: &Identity,
    supply: &Supply,
    detail: Detail,
) -> Result<Inspection, InspectError> {
    let about = status::read(identity);
    let look = Look { observer, about: &about, supply, detail };
    let mut partial = Vec::new();
    let process = Process::at(observer, identity.pid)?;
    let mapped = look.vmas()?;
    let facts = look.facts(&mapped, &mut partial);
    let facts: Vec<VmaFacts> = facts.into_iter().flat_map(|facts| at_guards(facts, &process)).collect();
    let around = Surroundings::of(&facts, stacks::of_process(identity.pid), has_guest(identity.pid));
    let groups = group(&facts, &around.stacks);
    let outlines: Vec<Outline> = groups.iter().map(|group| look.outline(&facts[group.clone()], &process)).collect();
    let seen = look.pages(&process, &facts, &groups, &outlines, &mut partial);
    let regions = groups.iter().zip(seen).zip(&outlines).map(|((group, seen), outline)| {
        let before = group.start.checked_sub(1).map(|before| &facts[before]);
        let facts = &facts[group.clone()];
        let (kind, how) = recognise(facts, before, &around);
        look.region(facts, kind, how, outline, seen)
    });
    let regions = regions.collect();
    let changed = look.vmas().is_ok_and(|later| bounds(&later) != bounds(&mapped));
    if changed {
        partial.push("its mappings changed while it was looked at: what changed is as it was before or after".into());
    }
    let sight = Sight {
        by_page: observer.source() == Source::PagemapScan,
        folios: observer.sees_folios(),
        flags: facts.iter().any(|facts| facts.told.is_some()),
        is_live: true,
    };
    Ok(Inspection { process: about, regions, supply: supply.clone(), sight, partial })
}

/// A mapping, cut at the guards inside.
fn at_guards(facts: VmaFacts, process: &Process) -> Vec<VmaFacts> {
    match facts.told.is_some_and(|told| told.flags.has("gu")) {
        true => {
            let guards = process.guards(facts.start, facts.end);
            facts.cut_at(&guards)
        }
        false => vec![facts],
    }
}

fn bounds(vmas: &[Vma]) -> Vec<(u64, u64)> {
    vmas.iter().map(|vma| (vma.start, vma.end)).collect()
}

/// Whether the process has a virtual machine of KVM open.
fn has_guest(pid: u32) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.into_iter().any(|target| target.to_string_lossy().contains("anon_inode:kvm-vm"))
}

struct Look<'a> {
    observer: &'a Observer,
    about: &'a About,
    supply: &'a Supply,
    detail: Detail,
}

impl Look<'_> {
    fn vmas(&self) -> Result<Vec<Vma>, CensusError> {
        let pid = self.about.pid;
        let path = format!("/proc/{pid}/maps");
        let mut vmas = maps::parse(&read_text(pid, &path)?, &path)?;
        vmas.retain(|vma| vma.name != "[vsyscall]");
        if vmas.is_empty() { Err(CensusError::NoAddressSpace { pid }) } else { Ok(vmas) }
    }

    /// What is known of the mappings, with what smaps says of them.
    fn facts(&self, vmas: &[Vma], partial: &mut Vec<String>) -> Vec<VmaFacts> {
        let mut told: HashMap<u64, (u64, Told)> = HashMap::with_capacity(vmas.len());
        let path = format!("/proc/{}/smaps", self.about.pid);
        let read = File::open(&path).map_err(|error| CensusError::io(self.about.pid, &path, error)).and_then(|file| {
            smaps::read(BufReader::with_capacity(1 << 16, file), &path, |entry| {
                told.insert(entry.vma.start, (entry.vma.end, entry.told()));
            })
        });
        if let Err(error) = read {
            partial.push(format!("the flags of mappings could not be read: {error}"));
        }
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
            is_shmem: vma.inode != 0 && self.observer.shmem.contain(self.about.pid, vma.device),
            told: told.get(&vma.start).filter(|(end, _)| *end == vma.end).map(|(_, told)| *told),
        };
        vmas.iter().map(facts).collect()
    }

    fn outline(&self, vmas: &[VmaFacts], process: &Process) -> Outline {
        let (start, end) = (vmas[0].start, vmas[vmas.len() - 1].end);
        let target = self.target(vmas, start, end);
        Outline {
            start,
            end,
            target,
            may_have: target.is_none_or(|target| self.may_have(process, target)),
            base: self.observer.base,
            pmd: self.observer.pmd,
            window: self.observer.pmd.filter(|_| self.detail.windows),
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
        self.observer.transparent_sizes().rev().find(has_slot)
    }

    /// What is in the pages of all regions.
    fn pages(
        &self,
        process: &Process,
        facts: &[VmaFacts],
        groups: &[Range<usize>],
        outlines: &[Outline],
        partial: &mut Vec<String>,
    ) -> Vec<Seen> {
        let mut seen: Vec<Seen> = groups.iter().map(|_| Seen::default()).collect();
        let mut group = 0;
        for (part, start, end) in goes(facts, self.observer.chunk_alignment()) {
            let vmas: Vec<Vma> = facts[part.clone()].iter().map(as_mapped).collect();
            let present = match process.present(&vmas, start, end) {
                Ok(present) => present,
                Err(error) => {
                    partial.push(format!("nothing is known from {start:#x} on: {error}"));
                    break;
                }
            };
            for (at, present) in part.zip(present) {
                while groups[group].end <= at {
                    group += 1;
                }
                let tlb_runs = Some(present.tlb_runs).filter(|_| self.sees_frames(&facts[at]));
                let at_in_group = at - groups[group].start;
                seen[group].add(&outlines[group], at_in_group, &facts[at], &present.regions, tlb_runs);
            }
        }
        seen
    }

    /// Whether the frames of a mapping are looked at.
    fn sees_frames(&self, vma: &VmaFacts) -> bool {
        let anonymous = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Stack);
        self.observer.sees_folios() && self.observer.tlb_runs && (anonymous || self.observer.file_folios)
    }

    fn may_have(&self, process: &Process, size: PageSize) -> bool {
        process.folios_of_system().is_none_or(|all: &AnonymousFolios| all.exist(size))
    }

    fn region(&self, vmas: &[VmaFacts], kind: Kind, recognised_by: String, outline: &Outline, seen: Seen) -> Region {
        let all_cuts: Vec<Cut> = cuts(vmas).collect();
        let ground = Ground {
            process: self.about,
            supply: self.supply,
            base: self.observer.base,
            pmd: self.observer.pmd,
            sees_folios: self.observer.sees_folios(),
        };
        let causes = explain(outline, &kind, vmas, &all_cuts, &seen, &ground);
        let sum = |bytes: fn(&Told) -> u64| vmas.iter().map(|vma| vma.told.as_ref().map(bytes)).sum::<Option<u64>>();
        let is_multiple = |size: PageSize| outline.start % size.bytes() == 0 && outline.end % size.bytes() == 0;
        Region {
            start: outline.start,
            end: outline.end,
            kind,
            recognised_by,
            vmas: vmas.iter().filter(|vma| vma.part == VmaPart::First).count() as u64,
            shared: vmas[0].shared,
            swap_bytes: sum(|told| told.swap_bytes),
            shared_after_fork_bytes: sum(|told| told.shared_bytes),
            target: outline.target,
            aligned: outline.target.or(self.observer.pmd).is_some_and(is_multiple),
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

/// A mapping as it is asked for.
fn as_mapped(facts: &VmaFacts) -> Vma {
    let VmaFacts { start, end, protection, shared, device, inode, offset, .. } = *facts;
    Vma { start, end, protection, shared, device, inode, offset, name: facts.name.clone() }
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
