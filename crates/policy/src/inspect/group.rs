//! [`group`]: which neighbouring mappings are one allocation. [`cuts`]: where an allocation is cut.
//!
//! The kernel merges neighbouring mappings with equal attributes, so neighbours that it keeps apart differ in some attribute;
//! that difference is the cut. Whether one mmap call made them is not recorded anywhere. Anonymous neighbours are treated as one
//! allocation unless there is evidence against it: a thread's stack ends where its guard begins, and a glibc arena ends where the
//! next one begins.

use std::ops::Range;

use super::vma::{VmaFacts, VmaPart};
use crate::census::VmaKind;
use crate::cut::{Cut, CutBy};

/// Inaccessible ranges of at least this length are a reservation to grow into, not a guard.
pub const RESERVE_BYTES: u64 = 1 << 20;

/// The longest inaccessible range that counts as a guard page: the largest base page of any architecture.
const GUARD_BYTES: u64 = 64 << 10;

/// Arenas of glibc's threads begin at multiples of this (`HEAP_MAX_SIZE`, malloc/arena.c, on 64-bit systems).
pub const GLIBC_ARENA_BYTES: u64 = 64 << 20;

/// Groups mappings, in address order, into allocations. `stacks` are the stack pointers of the threads, sorted.
pub fn group(vmas: &[VmaFacts], stacks: &[u64]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, vma) in vmas.iter().enumerate() {
        let joins = groups.last().is_some_and(|group| {
            let left = &vmas[at - 1];
            group.end == at && can_be_one_allocation(left, vma) && !begins_allocation(vmas, group, at, stacks)
        });
        match groups.last_mut().filter(|_| joins) {
            Some(group) => group.end = at + 1,
            None => groups.push(at..at + 1),
        }
    }
    groups
}

/// Whether two neighbours can be parts of one allocation.
fn can_be_one_allocation(left: &VmaFacts, right: &VmaFacts) -> bool {
    if left.end != right.start || left.shared != right.shared {
        return false;
    }
    match (left.kind, right.kind) {
        (VmaKind::Anonymous, VmaKind::Anonymous) => (left.name == "[heap]") == (right.name == "[heap]"),
        (VmaKind::PrivateFile, VmaKind::PrivateFile) | (VmaKind::Shared, VmaKind::Shared) => {
            let same_file = (left.device, left.inode) == (right.device, right.inode);
            let follows = left.offset.checked_add(left.length_bytes()) == Some(right.offset);
            let same_part = left.is_executable() == right.is_executable()
                && (left.kind == VmaKind::Shared || left.is_writable() == right.is_writable());
            same_file && follows && same_part
        }
        _ => false,
    }
}

/// Whether a mapping that could belong to the preceding group begins a new allocation.
fn begins_allocation(vmas: &[VmaFacts], group: &Range<usize>, at: usize, stacks: &[u64]) -> bool {
    let (left, vma) = (&vmas[at - 1], &vmas[at]);
    let is_arena = |vma: &VmaFacts| vma.is_writable() && vma.start.is_multiple_of(GLIBC_ARENA_BYTES);
    is_stack(vmas, at + 1, stacks)
        || is_stack(vmas, at - 1, stacks)
        || is_arena(vma) && left.is_inaccessible() && left.length_bytes() >= RESERVE_BYTES
        || is_arena(&vmas[group.start]) && is_full_arena(&vmas[group.start], left)
}

/// Whether a mapping is the stack of a thread: a guard is directly below it, and it contains a stack pointer.
fn is_stack(vmas: &[VmaFacts], at: usize, stacks: &[u64]) -> bool {
    let Some((guard, vma)) = at.checked_sub(1).and_then(|below| Some((&vmas[below], vmas.get(at)?))) else {
        return false;
    };
    let first = stacks.partition_point(|stack| *stack < vma.start);
    guard.end == vma.start
        && guard.is_inaccessible()
        && guard.length_bytes() < RESERVE_BYTES
        && stacks.get(first).is_some_and(|stack| *stack < vma.end)
}

/// Whether `last` ends the glibc arena that begins with `first` at its full length, rather than somewhere inside a reservation.
fn is_full_arena(first: &VmaFacts, last: &VmaFacts) -> bool {
    last.is_inaccessible() && last.end == first.start + GLIBC_ARENA_BYTES
}

/// The cuts in a group of neighbours. A guard is a cut with a length; the difference between the mappings on its two sides is not
/// reported again.
pub fn cuts(vmas: &[VmaFacts]) -> impl Iterator<Item = Cut> + '_ {
    let is_guard = |vma: &VmaFacts| vma.is_inaccessible() && vma.length_bytes() <= GUARD_BYTES;
    (0..vmas.len()).filter_map(move |at| {
        let vma = &vmas[at];
        if vma.part == VmaPart::Guard {
            return Some(Cut { start: vma.start, end: vma.end, by: CutBy::LightGuard });
        }
        if is_guard(vma) {
            return Some(Cut { start: vma.start, end: vma.end, by: CutBy::Guard });
        }
        let left = at.checked_sub(1).map(|left| &vmas[left]).filter(|left| !is_guard(left))?;
        Some(Cut { start: vma.start, end: vma.start, by: difference(left, vma) })
    })
}

/// The attribute in which two neighbours differ.
fn difference(left: &VmaFacts, right: &VmaFacts) -> CutBy {
    if left.protection != right.protection {
        return CutBy::Protection;
    }
    let flags = left.smaps_info.zip(right.smaps_info).map(|(left, right)| left.flags.difference(right.flags));
    match flags {
        Some(flags) if !flags.is_empty() => CutBy::Flags,
        _ if left.name != right.name => CutBy::Name,
        _ => CutBy::Unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::prot;
    use crate::inspect::{Allocator, Kind, Neighbours, SmapsInfo, Surroundings, VmFlags, VmaPart, recognise};

    const M: u64 = 1 << 20;
    const RW: u64 = prot::READ | prot::WRITE;

    fn vma(start: u64, end: u64, protection: u64) -> VmaFacts {
        VmaFacts {
            start,
            end,
            kind: VmaKind::Anonymous,
            protection,
            shared: false,
            device: (0, 0),
            inode: 0,
            offset: 0,
            name: String::new(),
            is_shmem: false,
            file_system: None,
            part: VmaPart::First,
            smaps_info: None,
        }
    }

    fn kinds(vmas: &[VmaFacts], stacks: &[u64]) -> Vec<(usize, Kind)> {
        let around = Surroundings::of(vmas, stacks.to_vec(), false, false);
        group(vmas, stacks)
            .into_iter()
            .map(|group| (group.len(), recognise(&vmas[group], Neighbours::default(), &around).0))
            .collect()
    }

    #[test]
    fn a_guard_belongs_to_its_allocation_and_a_gap_ends_it() {
        let vmas =
            [vma(0, 2 * M, RW), vma(2 * M, 2 * M + 4096, 0), vma(2 * M + 4096, 8 * M, RW), vma(9 * M, 10 * M, RW)];
        assert_eq!(group(&vmas, &[]), [0..3, 3..4]);
        let found: Vec<Cut> = cuts(&vmas[..3]).collect();
        assert_eq!(found, [Cut { start: 2 * M, end: 2 * M + 4096, by: CutBy::Guard }]);
    }

    #[test]
    fn stacks_of_threads_are_regions_of_their_own_though_they_touch() {
        let stack = |at: u64| [vma(at, at + 4096, 0), vma(at + 4096, at + 8 * M, RW)];
        let vmas = [stack(0), stack(8 * M), stack(16 * M)].concat();
        let found = kinds(&vmas, &[6 * M, 15 * M, 23 * M]);
        assert_eq!(found, vec![(2, Kind::ThreadStack); 3]);
    }

    #[test]
    fn arenas_of_glibc_end_at_their_64m() {
        let arena = |at: u64| [vma(at, at + 3 * M, RW), vma(at + 3 * M, at + 64 * M, 0)];
        let vmas = [arena(64 * M), arena(128 * M)].concat();
        assert_eq!(kinds(&vmas, &[]), vec![(2, Kind::Arena(Allocator::Glibc)); 2]);
    }

    #[test]
    fn a_goroutine_with_a_reserve_below_is_no_stack_of_a_thread() {
        let vmas = [vma(128 * M, 172 * M, 0), vma(172 * M, 300 * M, RW)];
        let around = Surroundings::of(&vmas, vec![200 * M], false, true);
        assert_eq!(recognise(&vmas, Neighbours::default(), &around).0, Kind::GoHeap);
    }

    #[test]
    fn names_why_neighbours_are_not_merged() {
        let with = |flags: &str, name: &str, at: u64| VmaFacts {
            smaps_info: Some(SmapsInfo { flags: VmFlags::of(flags), ..SmapsInfo::default() }),
            name: name.into(),
            ..vma(at * M, (at + 1) * M, RW)
        };
        let by = |left: VmaFacts, right: VmaFacts| cuts(&[left, right]).next().map(|cut| cut.by);
        assert_eq!(by(with("hg", "", 0), with("hg lo", "", 1)), Some(CutBy::Flags));
        assert_eq!(by(with("hg", "", 0), with("hg", "[anon:x]", 1)), Some(CutBy::Name));
        assert_eq!(by(with("hg gu", "", 0), with("hg", "", 1)), Some(CutBy::Unseen));
        assert_eq!(by(vma(0, M, RW), vma(M, 2 * M, prot::READ)), Some(CutBy::Protection));
    }

    #[test]
    fn guards_inside_cut_a_mapping_into_parts() {
        let parts = vma(0, 8 * M, RW).cut_at(&[(0, 4096), (4 * M, 4 * M + 8192)]);
        let shape: Vec<(u64, VmaPart)> = parts.iter().map(|part| (part.end, part.part)).collect();
        let expected = [
            (4096, VmaPart::Guard),
            (4 * M, VmaPart::Further),
            (4 * M + 8192, VmaPart::Guard),
            (8 * M, VmaPart::Further),
        ];
        assert_eq!(shape, expected);
        assert_eq!(group(&parts, &[]).len(), 1);
        assert_eq!(cuts(&parts).filter(|cut| cut.by == CutBy::LightGuard).count(), 2);
    }
}
