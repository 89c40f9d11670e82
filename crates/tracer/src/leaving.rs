//! Memory that a call is about to give back, and so must be looked at now or never: which calls stop for it, and which
//! addresses they name.

use host::maps;
use policy::call::madv;
pub use policy::looks::Extent;
use policy::looks::{LARGE_BYTES, LARGE_DROP_BYTES};

use super::filter::{Condition, Watch};
use super::paused::Paused;
use super::ptrace::Tid;
use super::rewriting::Rewriting;
use super::tasks::Space;

/// Advice after which content may be gone. MADV_FREE leaves it until the kernel needs the memory.
const DROPS: [u64; 4] = [madv::DONTNEED, madv::DONTNEED_LOCKED, madv::FREE, madv::GUARD_INSTALL];

/// The calls that stop for the sake of a witness. Calls that `others` stop in any case are not repeated.
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

/// What a call does to the memory that it names.
enum Going {
    /// The addresses go, with what is there.
    Unmapped(u64, u64),
    /// The content goes.
    Dropped(u64, u64),
    /// The kernel may take the content; pages of a pool stay.
    Freed(u64, u64),
}

/// The ranges whose memory a stopped call is about to give back, as far as they are to be witnessed. Pages of a pool go whole,
/// with the last part that the program has of them.
pub fn ranges(paused: &Paused, space: &Space, rewriting: &Rewriting, extent: Extent) -> Vec<(u64, u64)> {
    let going = going(paused, space, rewriting);
    let advice = paused.arguments()[2];
    let is_wanted = |going: &Going| match (going, paused.number()) {
        (Going::Unmapped(start, end), libc::SYS_munmap) => extent.has_unmap(end - start),
        (Going::Dropped(start, end), libc::SYS_madvise) => extent.has_drop(end - start, advice),
        _ => extent.has_others(),
    };
    let wanted = going.into_iter().filter(is_wanted);
    wanted.flat_map(|going| given_back(&going, space, rewriting)).collect()
}

fn going(paused: &Paused, space: &Space, rewriting: &Rewriting) -> Vec<Going> {
    let [start, bytes, third, flags, target, _] = paused.arguments();
    let range = |start: u64, bytes: u64| {
        let end = start.checked_add(bytes).and_then(|end| rewriting.base.align_up(end))?;
        (start < end).then_some((start, end))
    };
    let unmapped = |start, bytes| range(start, bytes).map(|(start, end)| Going::Unmapped(start, end));
    let going = match paused.number() {
        libc::SYS_munmap => unmapped(start, bytes),
        libc::SYS_mmap if flags & libc::MAP_FIXED as u64 != 0 => unmapped(start, bytes),
        libc::SYS_mremap if flags & libc::MREMAP_FIXED as u64 != 0 => unmapped(target, third),
        libc::SYS_mremap => bytes.checked_sub(third).and_then(|rest| unmapped(start.checked_add(third)?, rest)),
        libc::SYS_madvise if third == madv::FREE => range(start, bytes).map(|(start, end)| Going::Freed(start, end)),
        libc::SYS_madvise if DROPS.contains(&third) => {
            range(start, bytes).map(|(start, end)| Going::Dropped(start, end))
        }
        libc::SYS_brk => return of_heap(paused.tid(), start, space, rewriting),
        _ => None,
    };
    going.into_iter().collect()
}

/// What the heap loses when it is to end at `asked`. Where the policy changes no brk, only the kernel knows the heap.
fn of_heap(tid: Tid, asked: u64, space: &Space, rewriting: &Rewriting) -> Vec<Going> {
    let Some(from) = rewriting.base.align_up(asked).filter(|from| *from > 0) else { return Vec::new() };
    if rewriting.hugetlb {
        let heap = space.pool.heap;
        let shrinks = heap.start > 0 && asked >= heap.start && from < heap.program_end;
        return shrinks.then_some(Going::Dropped(from, heap.program_end)).into_iter().collect();
    }
    if space.policy.heap.is_known() {
        return space.policy.heap.cut_at(from).map(|(from, to)| Going::Unmapped(from, to)).into_iter().collect();
    }
    let is_heap = |vma: &maps::Vma| vma.name == "[heap]";
    if !maps::at(tid, asked).is_some_and(|vma| is_heap(&vma)) {
        return Vec::new();
    }
    let above = maps::of_process(tid).into_iter().filter(|vma| is_heap(vma) && vma.end > from);
    above.map(|vma| Going::Unmapped(vma.start.max(from), vma.end)).collect()
}

fn given_back(going: &Going, space: &Space, rewriting: &Rewriting) -> Vec<(u64, u64)> {
    match *going {
        Going::Unmapped(start, end) if rewriting.hugetlb => space.pool.unmapped_with(start, end, rewriting.large),
        Going::Dropped(start, end) if rewriting.hugetlb => {
            [space.pool.drop_content(start, end, rewriting.large).whole, space.pool.ordinary(start, end)].concat()
        }
        Going::Freed(start, end) if rewriting.hugetlb => space.pool.ordinary(start, end),
        Going::Unmapped(start, end) | Going::Dropped(start, end) | Going::Freed(start, end) => vec![(start, end)],
    }
}

/// Whether a call may give back pages of a pool under a policy of such pages: those that are unmapped or dropped, and those that
/// must be replaced by smaller ones.
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
