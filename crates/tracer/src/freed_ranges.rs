//! [`FreedRanges`]: the memory that a call is about to free, which a witness inspects first. [`watches`] says which calls
//! stop for that.

use std::io;

use host::maps;
use policy::call::{Call, madv};
pub use policy::extent::InspectedRemovals;
use policy::extent::{LARGE_BYTES, LARGE_DROP_BYTES, Removal};
use policy::removal::{
    DROPPING_ADVICE, FreeingCall, REMOVING_MODES, RSS_REDUCING_ADVICE, RULES, SHM_REMAP, Unwatched, Watched,
};

use super::advised_ranges::advised_ranges;
use super::filter::{Condition, Watch};
use super::paused::Paused;
use super::permission::if_permitted;
use super::ptrace::Tid;
use super::rewriting::Rewriting;
use super::segment::{self, AttachedRange};
use super::stopped::call_of;
use super::tasks::{Space, Tasks};

/// What a stopped call is about to free.
#[derive(Debug, Default)]
pub struct FreedRanges {
    /// Ranges of private memory that the witness wants to inspect.
    pub ranges: Vec<(u64, u64)>,
    /// Whether the call frees memory that is not private, or swaps memory out.
    pub reduces_rss: bool,
    /// Whether the call replaces the whole image.
    pub replaces_image: bool,
    /// How memory can be freed from now on, or is freed by this call, without being inspected.
    pub unwatched: Option<Unwatched>,
}

/// The calls that stop for a witness, except those that `others` stop unconditionally.
pub fn watches(inspected_removals: InspectedRemovals, others: &[Watch]) -> Vec<Watch> {
    let stops = |number: i64| others.iter().any(|other| other.number == number && other.conditions.is_empty());
    let of_call = |freeing_call: FreeingCall| {
        conditions(freeing_call, inspected_removals)
            .into_iter()
            .map(move |conditions| Watch::new(number(freeing_call), conditions))
    };
    RULES.iter().flat_map(|rule| of_call(rule.freeing_call)).filter(|watch| !stops(watch.number)).collect()
}

/// The conditions under which a call stops for a witness: it stops if all conditions of at least one of the lists hold.
fn conditions(freeing_call: FreeingCall, inspected_removals: InspectedRemovals) -> Vec<Vec<Condition>> {
    let advised = |argument: u8, how: &u64| vec![Condition::Equals32(argument, *how as u32)];
    let advice = || DROPPING_ADVICE.iter().chain(&RSS_REDUCING_ADVICE);
    match (freeing_call, inspected_removals) {
        // Segments are detached seldom, and the size is no argument.
        (FreeingCall::Shmdt, _) => vec![vec![]],
        (FreeingCall::Munmap, InspectedRemovals::Large) => vec![vec![Condition::AtLeast(1, LARGE_BYTES)]],
        (FreeingCall::Madvise, InspectedRemovals::Large) => {
            let large = Condition::AtLeast(1, LARGE_DROP_BYTES);
            vec![vec![large, Condition::Equals32(2, madv::DONTNEED as u32)]]
        }
        (_, InspectedRemovals::Large) => vec![],
        (FreeingCall::Mmap, InspectedRemovals::All) => vec![vec![Condition::Has(3, libc::MAP_FIXED as u32)]],
        (FreeingCall::Madvise, InspectedRemovals::All) => advice().map(|how| advised(2, how)).collect(),
        (FreeingCall::ProcessMadvise, InspectedRemovals::All) => advice().map(|how| advised(3, how)).collect(),
        (FreeingCall::Shmat, InspectedRemovals::All) => vec![vec![Condition::Has(2, SHM_REMAP)]],
        (FreeingCall::Fallocate, InspectedRemovals::All) => {
            REMOVING_MODES.map(|mode| vec![Condition::Has(1, mode)]).into()
        }
        (
            FreeingCall::Munmap
            | FreeingCall::Mremap
            | FreeingCall::Brk
            | FreeingCall::RemapFilePages
            | FreeingCall::Truncate
            | FreeingCall::Ftruncate
            | FreeingCall::Execve
            | FreeingCall::Execveat
            | FreeingCall::IoUringSetup,
            InspectedRemovals::All,
        ) => vec![vec![]],
    }
}

fn number(freeing_call: FreeingCall) -> i64 {
    match freeing_call {
        FreeingCall::Munmap => libc::SYS_munmap,
        FreeingCall::Mmap => libc::SYS_mmap,
        FreeingCall::Mremap => libc::SYS_mremap,
        FreeingCall::Brk => libc::SYS_brk,
        FreeingCall::Madvise => libc::SYS_madvise,
        FreeingCall::ProcessMadvise => libc::SYS_process_madvise,
        FreeingCall::Shmat => libc::SYS_shmat,
        FreeingCall::Shmdt => libc::SYS_shmdt,
        FreeingCall::RemapFilePages => libc::SYS_remap_file_pages,
        FreeingCall::Truncate => libc::SYS_truncate,
        FreeingCall::Ftruncate => libc::SYS_ftruncate,
        FreeingCall::Fallocate => libc::SYS_fallocate,
        FreeingCall::Execve => libc::SYS_execve,
        FreeingCall::Execveat => libc::SYS_execveat,
        FreeingCall::IoUringSetup => libc::SYS_io_uring_setup,
    }
}

/// What a stopped call is about to free, limited to `inspected_removals`. A pool page is included as a whole when the call
/// frees the program's last part of it.
pub fn of_call(
    paused: &Paused,
    space: &Space,
    tasks: &Tasks,
    rewriting: &Rewriting,
    inspected_removals: InspectedRemovals,
) -> io::Result<FreedRanges> {
    let mut freed = FreedRanges::default();
    let Some(rule) = RULES.iter().find(|rule| number(rule.freeing_call) == paused.number()) else { return Ok(freed) };
    let stops = watches(inspected_removals, &[]).iter().any(|watch| watch.stops(paused.number(), &paused.arguments()));
    match rule.watched {
        Watched::Sizes => freed.reduces_rss = stops,
        Watched::Image => freed.replaces_image = stops,
        Watched::Named => freed.unwatched = stops.then_some(Unwatched::IoUring),
        Watched::Ranges => {
            let removals = match rule.freeing_call {
                FreeingCall::Shmat if stops => removals_by_segment(paused, rewriting, &mut freed)?,
                FreeingCall::ProcessMadvise if stops => removals_by_advice(paused, tasks, rewriting)?,
                _ => removals(paused, space, rewriting, inspected_removals)?,
            };
            freed.ranges = removals.into_iter().flat_map(|removal| ranges_of(&removal, space, rewriting)).collect();
            let [_, _, advice, advice_of_process, ..] = paused.arguments();
            freed.reduces_rss = match rule.freeing_call {
                FreeingCall::Madvise => stops && RSS_REDUCING_ADVICE.contains(&advice),
                FreeingCall::ProcessMadvise => stops && RSS_REDUCING_ADVICE.contains(&advice_of_process),
                _ => false,
            };
        }
    }
    Ok(freed)
}

fn removals(
    paused: &Paused,
    space: &Space,
    rewriting: &Rewriting,
    inspected_removals: InspectedRemovals,
) -> io::Result<Vec<Removal>> {
    let Some(call) = call_of(paused.number(), paused.arguments()) else { return Ok(Vec::new()) };
    let removals = match call {
        Call::Brk { end } => removals_from_heap(paused.tid(), end, space, rewriting)?,
        _ => Removal::by(&call, rewriting.base).into_iter().collect(),
    };
    Ok(removals.into_iter().filter(|removal| inspected_removals.includes(removal, &call)).collect())
}

fn removals_by_segment(paused: &Paused, rewriting: &Rewriting, freed: &mut FreedRanges) -> io::Result<Vec<Removal>> {
    let [segment, address, ..] = paused.arguments();
    Ok(match segment::attached_range(paused.tid(), segment as i32, address, rewriting.base)? {
        AttachedRange::Range(start, end) => vec![Removal::Unmapped(start, end)],
        AttachedRange::Nowhere => Vec::new(),
        AttachedRange::Unknown => {
            freed.unwatched = Some(Unwatched::UnknownSegment);
            Vec::new()
        }
    })
}

fn removals_by_advice(paused: &Paused, tasks: &Tasks, rewriting: &Rewriting) -> io::Result<Vec<Removal>> {
    let [_, _, _, advice, ..] = paused.arguments();
    let parts = advised_ranges(paused, tasks)?.into_iter();
    let by = |(address, bytes)| Removal::by(&Call::Madvise { address, bytes, advice }, rewriting.base);
    Ok(parts.filter_map(by).collect())
}

/// The ranges that the heap loses if its end moves to `asked`. If the policy does not change brk calls, only the kernel knows
/// the heap.
fn removals_from_heap(tid: Tid, asked: u64, space: &Space, rewriting: &Rewriting) -> io::Result<Vec<Removal>> {
    let Some(from) = rewriting.base.align_up(asked).filter(|from| *from > 0) else { return Ok(Vec::new()) };
    if rewriting.hugetlb {
        return Ok(space.pool.heap_removal(asked, rewriting.base).into_iter().collect());
    }
    if space.policy.heap.is_known() {
        return Ok(space
            .policy
            .heap
            .unmapped_range(from)
            .map(|(from, to)| Removal::Unmapped(from, to))
            .into_iter()
            .collect());
    }
    let is_heap = |vma: &maps::Vma| vma.name == "[heap]";
    if !if_permitted(maps::at(tid, asked))?.is_some_and(|vma| is_heap(&vma)) {
        return Ok(Vec::new());
    }
    let above = if_permitted(maps::of_process(tid))?.into_iter().filter(|vma| is_heap(vma) && vma.end > from);
    Ok(above.map(|vma| Removal::Unmapped(vma.start.max(from), vma.end)).collect())
}

fn ranges_of(removal: &Removal, space: &Space, rewriting: &Rewriting) -> Vec<(u64, u64)> {
    match *removal {
        _ if rewriting.hugetlb => space.pool.given_back(removal, rewriting.large),
        Removal::Unmapped(start, end) | Removal::Dropped(start, end) | Removal::Freed(start, end) => vec![(start, end)],
    }
}

/// Whether a call may free pool pages under a hugetlb policy: it unmaps or drops them, or they must be replaced by smaller
/// pages.
pub fn may_shrink_pool(paused: &Paused) -> bool {
    let [asked, _, _, flags, ..] = paused.arguments();
    match paused.number() {
        libc::SYS_mmap => flags & libc::MAP_FIXED as u64 != 0,
        libc::SYS_brk => asked > 0,
        libc::SYS_munmap | libc::SYS_mremap | libc::SYS_madvise | libc::SYS_mprotect | libc::SYS_pkey_mprotect => true,
        number => number == libc::SYS_mbind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_stop_anyway_are_not_watched_twice() {
        let numbers = |inspected_removals, others: &[Watch]| {
            watches(inspected_removals, others).into_iter().map(|watch| watch.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(InspectedRemovals::Large, &[]), [libc::SYS_munmap, libc::SYS_madvise, libc::SYS_shmdt]);
        let others = [Watch::new(libc::SYS_munmap, []), Watch::new(libc::SYS_madvise, [Condition::Equals32(2, 14)])];
        assert_eq!(numbers(InspectedRemovals::Large, &others), [libc::SYS_madvise, libc::SYS_shmdt]);
        assert!(!numbers(InspectedRemovals::All, &others).contains(&libc::SYS_munmap));
    }

    #[test]
    fn every_call_of_the_rules_stops_for_extent_all() {
        let watched = watches(InspectedRemovals::All, &[]);
        for rule in &RULES {
            assert!(watched.iter().any(|watch| watch.number == number(rule.freeing_call)), "{}", rule.name);
        }
    }
}
