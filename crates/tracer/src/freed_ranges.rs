//! Memory that a call is about to give back, which is the last chance to inspect it: which calls stop for that, and
//! which addresses they name.

use std::io;

use host::maps;
use policy::call::{Call, madv};
pub use policy::looks::Extent;
use policy::looks::{DROPS, LARGE_BYTES, LARGE_DROP_BYTES, Removal};

use super::filter::{Condition, Watch};
use super::paused::Paused;
use super::permission::if_shown;
use super::ptrace::Tid;
use super::rewriting::Rewriting;
use super::stopped::call_of;
use super::tasks::Space;

/// The calls that stop for a witness, except those that `others` stop unconditionally.
pub fn watches(extent: Extent, others: &[Watch]) -> Vec<Watch> {
    let advised = |how: u64| Condition::Equals(2, how as u32);
    let wanted = match extent {
        Extent::Large => vec![
            Watch::new(libc::SYS_munmap, [Condition::AtLeast(1, LARGE_BYTES)]),
            Watch::new(libc::SYS_madvise, [Condition::AtLeast(1, LARGE_DROP_BYTES), advised(madv::DONTNEED)]),
        ],
        Extent::All => {
            let every = [libc::SYS_munmap, libc::SYS_mremap, libc::SYS_brk, libc::SYS_execve, libc::SYS_execveat];
            let drops = DROPS.map(|how| Watch::new(libc::SYS_madvise, [advised(how)]));
            let over = Watch::new(libc::SYS_mmap, [Condition::Has(3, libc::MAP_FIXED as u32)]);
            every.map(|number| Watch::new(number, [])).into_iter().chain(drops).chain([over]).collect()
        }
    };
    let stops = |number: i64| others.iter().any(|other| other.number == number && other.conditions.is_empty());
    wanted.into_iter().filter(|watch| !stops(watch.number)).collect()
}

/// The ranges that a stopped call is about to give back and that the witness wants to see. A pool page is included as a
/// whole when the call gives back the program's last part of it.
///
/// # Errors
/// The heap cannot be read.
pub fn ranges(paused: &Paused, space: &Space, rewriting: &Rewriting, extent: Extent) -> io::Result<Vec<(u64, u64)>> {
    let Some(call) = call_of(paused.number(), paused.arguments()) else { return Ok(Vec::new()) };
    let going = match call {
        Call::Brk { end } => of_heap(paused.tid(), end, space, rewriting)?,
        _ => Removal::by(&call, rewriting.base).into_iter().collect(),
    };
    let wanted = going.into_iter().filter(|going| extent.has(going, &call));
    Ok(wanted.flat_map(|going| given_back(&going, space, rewriting)).collect())
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
        assert_eq!(numbers(Extent::Large, &[]), [libc::SYS_munmap, libc::SYS_madvise]);
        let others = [Watch::new(libc::SYS_munmap, []), Watch::new(libc::SYS_madvise, [Condition::Equals(2, 14)])];
        assert_eq!(numbers(Extent::Large, &others), [libc::SYS_madvise]);
        assert!(!numbers(Extent::All, &others).contains(&libc::SYS_munmap));
        assert!(numbers(Extent::All, &[]).contains(&libc::SYS_execve));
    }
}
