//! Memory that a call is about to give back, which is the last chance to inspect it: which calls stop for that, and
//! which addresses they name.

use std::io;

use host::maps;
use policy::call::{Call, madv};
pub use policy::looks::Extent;
use policy::looks::{LARGE_BYTES, LARGE_DROP_BYTES, Removal};
use policy::removal::{DROPS, LESSENS, REMOVING_MODES, RULES, SHM_REMAP, Taker, Unwatched, Watched};

use super::advised_ranges::advised_ranges;
use super::filter::{Condition, Watch};
use super::paused::Paused;
use super::permission::if_shown;
use super::ptrace::Tid;
use super::rewriting::Rewriting;
use super::segment::{self, Place};
use super::stopped::call_of;
use super::tasks::{Space, Tasks};

/// What a stopped call is about to take.
#[derive(Debug, Default)]
pub struct Taken {
    /// Ranges of private memory that the witness wants to see.
    pub ranges: Vec<(u64, u64)>,
    /// Whether it takes memory that is not private.
    pub is_lessened: bool,
    /// Whether it replaces the whole image.
    pub is_image: bool,
    /// How memory may go from now on, or goes now, without being seen.
    pub unwatched: Option<Unwatched>,
}

/// The calls that stop for a witness, except those that `others` stop unconditionally.
pub fn watches(extent: Extent, others: &[Watch]) -> Vec<Watch> {
    let stops = |number: i64| others.iter().any(|other| other.number == number && other.conditions.is_empty());
    let of_call = |taker: Taker| {
        conditions(taker, extent).into_iter().map(move |conditions| Watch::new(number(taker), conditions))
    };
    RULES.iter().flat_map(|rule| of_call(rule.taker)).filter(|watch| !stops(watch.number)).collect()
}

/// The conditions under which a call stops for a witness: any of these, each of which may have several parts.
fn conditions(taker: Taker, extent: Extent) -> Vec<Vec<Condition>> {
    let advised = |argument: u8, how: &u64| vec![Condition::Equals(argument, *how as u32)];
    let advice = || DROPS.iter().chain(&LESSENS);
    match (taker, extent) {
        // A segment is attached seldom, and its size is no argument.
        (Taker::Shmdt, _) => vec![vec![]],
        (Taker::Munmap, Extent::Large) => vec![vec![Condition::AtLeast(1, LARGE_BYTES)]],
        (Taker::Madvise, Extent::Large) => {
            let large = Condition::AtLeast(1, LARGE_DROP_BYTES);
            vec![vec![large, Condition::Equals(2, madv::DONTNEED as u32)]]
        }
        (_, Extent::Large) => vec![],
        (Taker::Mmap, Extent::All) => vec![vec![Condition::Has(3, libc::MAP_FIXED as u32)]],
        (Taker::Madvise, Extent::All) => advice().map(|how| advised(2, how)).collect(),
        (Taker::ProcessMadvise, Extent::All) => advice().map(|how| advised(3, how)).collect(),
        (Taker::Shmat, Extent::All) => vec![vec![Condition::Has(2, SHM_REMAP)]],
        (Taker::Fallocate, Extent::All) => REMOVING_MODES.map(|mode| vec![Condition::Has(1, mode)]).into(),
        (
            Taker::Munmap
            | Taker::Mremap
            | Taker::Brk
            | Taker::RemapFilePages
            | Taker::Truncate
            | Taker::Ftruncate
            | Taker::Execve
            | Taker::Execveat
            | Taker::IoUringSetup,
            Extent::All,
        ) => vec![vec![]],
    }
}

fn number(taker: Taker) -> i64 {
    match taker {
        Taker::Munmap => libc::SYS_munmap,
        Taker::Mmap => libc::SYS_mmap,
        Taker::Mremap => libc::SYS_mremap,
        Taker::Brk => libc::SYS_brk,
        Taker::Madvise => libc::SYS_madvise,
        Taker::ProcessMadvise => libc::SYS_process_madvise,
        Taker::Shmat => libc::SYS_shmat,
        Taker::Shmdt => libc::SYS_shmdt,
        Taker::RemapFilePages => libc::SYS_remap_file_pages,
        Taker::Truncate => libc::SYS_truncate,
        Taker::Ftruncate => libc::SYS_ftruncate,
        Taker::Fallocate => libc::SYS_fallocate,
        Taker::Execve => libc::SYS_execve,
        Taker::Execveat => libc::SYS_execveat,
        Taker::IoUringSetup => libc::SYS_io_uring_setup,
    }
}

/// What a stopped call is about to take, as far as the witness wants to see it. A pool page is included as a whole when the call
/// gives back the program's last part of it.
///
/// # Errors
/// The heap, or what the call names, cannot be read.
pub fn taken(
    paused: &Paused,
    space: &Space,
    tasks: &Tasks,
    rewriting: &Rewriting,
    extent: Extent,
) -> io::Result<Taken> {
    let mut taken = Taken::default();
    let Some(rule) = RULES.iter().find(|rule| number(rule.taker) == paused.number()) else { return Ok(taken) };
    let stops = watches(extent, &[]).iter().any(|watch| watch.stops(paused.number(), &paused.arguments()));
    match rule.watched {
        Watched::Sizes => taken.is_lessened = stops,
        Watched::Image => taken.is_image = stops,
        Watched::Named => taken.unwatched = stops.then_some(Unwatched::IoUring),
        Watched::Ranges => {
            let going = match rule.taker {
                Taker::Shmat if stops => replaced_by_segment(paused, rewriting, &mut taken)?,
                Taker::ProcessMadvise if stops => of_advised(paused, tasks, rewriting)?,
                _ => going(paused, space, rewriting, extent)?,
            };
            taken.ranges = going.into_iter().flat_map(|going| given_back(&going, space, rewriting)).collect();
            let [_, _, advice, advice_of_process, ..] = paused.arguments();
            taken.is_lessened = match rule.taker {
                Taker::Madvise => stops && LESSENS.contains(&advice),
                Taker::ProcessMadvise => stops && LESSENS.contains(&advice_of_process),
                _ => false,
            };
        }
    }
    Ok(taken)
}

fn going(paused: &Paused, space: &Space, rewriting: &Rewriting, extent: Extent) -> io::Result<Vec<Removal>> {
    let Some(call) = call_of(paused.number(), paused.arguments()) else { return Ok(Vec::new()) };
    let going = match call {
        Call::Brk { end } => of_heap(paused.tid(), end, space, rewriting)?,
        _ => Removal::by(&call, rewriting.base).into_iter().collect(),
    };
    Ok(going.into_iter().filter(|going| extent.has(going, &call)).collect())
}

fn replaced_by_segment(paused: &Paused, rewriting: &Rewriting, taken: &mut Taken) -> io::Result<Vec<Removal>> {
    let [segment, address, ..] = paused.arguments();
    Ok(match segment::place(paused.tid(), segment as i32, address, rewriting.base)? {
        Place::Range(start, end) => vec![Removal::Unmapped(start, end)],
        Place::Nowhere => Vec::new(),
        Place::Unknown => {
            taken.unwatched = Some(Unwatched::UnknownSegment);
            Vec::new()
        }
    })
}

fn of_advised(paused: &Paused, tasks: &Tasks, rewriting: &Rewriting) -> io::Result<Vec<Removal>> {
    let [_, _, _, advice, ..] = paused.arguments();
    let parts = advised_ranges(paused, tasks)?.into_iter();
    let by = |(address, bytes)| Removal::by(&Call::Madvise { address, bytes, advice }, rewriting.base);
    Ok(parts.filter_map(by).collect())
}

/// The ranges that the heap loses if its end moves to `asked`. If the policy changes no brk, only the kernel knows the heap.
fn of_heap(tid: Tid, asked: u64, space: &Space, rewriting: &Rewriting) -> io::Result<Vec<Removal>> {
    let Some(from) = rewriting.base.align_up(asked).filter(|from| *from > 0) else { return Ok(Vec::new()) };
    if rewriting.hugetlb {
        return Ok(space.pool.heap_loses(asked, rewriting.base).into_iter().collect());
    }
    if space.policy.heap.is_known() {
        return Ok(space.policy.heap.cut_at(from).map(|(from, to)| Removal::Unmapped(from, to)).into_iter().collect());
    }
    let is_heap = |vma: &maps::Vma| vma.name == "[heap]";
    if !if_shown(maps::at(tid, asked))?.is_some_and(|vma| is_heap(&vma)) {
        return Ok(Vec::new());
    }
    let above = if_shown(maps::of_process(tid))?.into_iter().filter(|vma| is_heap(vma) && vma.end > from);
    Ok(above.map(|vma| Removal::Unmapped(vma.start.max(from), vma.end)).collect())
}

fn given_back(going: &Removal, space: &Space, rewriting: &Rewriting) -> Vec<(u64, u64)> {
    match *going {
        _ if rewriting.hugetlb => space.pool.given_back(going, rewriting.large),
        Removal::Unmapped(start, end) | Removal::Dropped(start, end) | Removal::Freed(start, end) => vec![(start, end)],
    }
}

/// Whether a call may give back pool pages under a hugetlb policy, because they are unmapped or dropped, or must be
/// replaced by smaller pages.
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
        let numbers = |extent, others: &[Watch]| {
            watches(extent, others).into_iter().map(|watch| watch.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(Extent::Large, &[]), [libc::SYS_munmap, libc::SYS_madvise, libc::SYS_shmdt]);
        let others = [Watch::new(libc::SYS_munmap, []), Watch::new(libc::SYS_madvise, [Condition::Equals(2, 14)])];
        assert_eq!(numbers(Extent::Large, &others), [libc::SYS_madvise, libc::SYS_shmdt]);
        assert!(!numbers(Extent::All, &others).contains(&libc::SYS_munmap));
    }

    #[test]
    fn every_call_of_the_rules_stops_where_all_is_to_be_seen() {
        let watched = watches(Extent::All, &[]);
        for rule in &RULES {
            assert!(watched.iter().any(|watch| watch.number == number(rule.taker)), "{}", rule.name);
        }
    }
}
