//! Which neighbouring mappings are one allocation, and what cuts it.
//!
//! The kernel joins neighbours that are alike, so neighbours that it keeps apart differ in something: that is the cut. Whether
//! they were one call of mmap is nowhere written. Anonymous neighbours are taken for one allocation, except where something says
//! that they are not: a thread's stack ends where its guard begins, an arena of glibc where the next one does.

use std::ops::Range;

use super::vma::{VmaFacts, VmaPart};
use crate::census::VmaKind;
use crate::cut::{Cut, CutBy};

/// From this length on addresses without access are a reserve to grow into, and no guard.
pub const RESERVE_BYTES: u64 = 1 << 20;

/// Arenas of glibc's threads begin at multiples of this (`HEAP_MAX_SIZE`, malloc/arena.c, on 64-bit systems).
pub const GLIBC_ARENA_BYTES: u64 = 64 << 20;

/// Divides mappings, in the order of addresses, into those that are one allocation. `stacks` are stack pointers of threads, in
/// order.
pub fn group(vmas: &[VmaFacts], stacks: &[u64]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, vma) in vmas.iter().enumerate() {
        let joins = groups.last().is_some_and(|group| {
            let left = &vmas[at - 1];
            group.end == at && are_one(left, vma) && !begins_anew(vmas, group, at, stacks)
        });
        match groups.last_mut().filter(|_| joins) {
            Some(group) => group.end = at + 1,
            None => groups.push(at..at + 1),
        }
    }
    groups
}

/// Whether two neighbours can be parts of one allocation.
fn are_one(left: &VmaFacts, right: &VmaFacts) -> bool {
    if left.end != right.start || left.shared != right.shared {
        return false;
    }
    match (left.kind, right.kind) {
        (VmaKind::Anonymous, VmaKind::Anonymous) => (left.name == "[heap]") == (right.name == "[heap]"),
        (VmaKind::PrivateFile, VmaKind::PrivateFile) | (VmaKind::Shared, VmaKind::Shared) => {
            let same_file = (left.device, left.inode) == (right.device, right.inode);
            let follows = left.offset + left.length_bytes() == right.offset;
            let same_part = left.is_executable() == right.is_executable()
                && (left.kind == VmaKind::Shared || left.is_writable() == right.is_writable());
            same_file && follows && same_part
        }
        _ => false,
    }
}

/// Whether a mapping that could belong to those before it begins an allocation of its own.
fn begins_anew(vmas: &[VmaFacts], group: &Range<usize>, at: usize, stacks: &[u64]) -> bool {
    let (left, vma) = (&vmas[at - 1], &vmas[at]);
    let is_arena = |vma: &VmaFacts| vma.is_writable() && vma.start.is_multiple_of(GLIBC_ARENA_BYTES);
    is_stack(vmas, at + 1, stacks)
        || is_stack(vmas, at - 1, stacks)
        || is_arena(vma) && left.is_inaccessible() && left.length_bytes() >= RESERVE_BYTES
        || is_arena(&vmas[group.start]) && is_full_arena(&vmas[group.start], left)
}

/// Whether a mapping is the stack of a thread: a guard lies below it, and the stack pointer in it.
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

/// Whether an arena of glibc that begins with `first` ends with `last`: as a whole, and not by chance in the middle of a reserve.
fn is_full_arena(first: &VmaFacts, last: &VmaFacts) -> bool {
    last.is_inaccessible() && last.end == first.start + GLIBC_ARENA_BYTES
}

/// What cuts a group of neighbours. A guard is a cut with a length, and what differs on both sides of it is not told again.
pub fn cuts(vmas: &[VmaFacts]) -> impl Iterator<Item = Cut> + '_ {
    let is_guard = |vma: &VmaFacts| vma.is_inaccessible() && vma.length_bytes() < RESERVE_BYTES;
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

/// What keeps two neighbours apart.
fn difference(left: &VmaFacts, right: &VmaFacts) -> CutBy {
    if left.protection != right.protection {
        return CutBy::Protection;
    }
    let flags = left.told.zip(right.told).map(|(left, right)| left.flags.difference(right.flags));
    match flags {
        Some(flags) if !flags.is_empty() => CutBy::Flags,
        _ if left.name != right.name => CutBy::Name,
        _ => CutBy::Unseen,
    }
}
