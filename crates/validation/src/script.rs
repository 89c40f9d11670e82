//! Random programs of system calls and memory accesses ([`Script`]), written as scripts for the interpreter
//! `crates/pagelab/tests/programs/script.c`.
//!
//! A script is a list of arbitrary operations. Its text contains only calls that the kernel lets succeed, and only accesses that
//! the protection of the memory allows. So a script still runs after operations were taken out of it, which shrinking relies on.

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The number of slots, each of which holds one mapping; the first is the heap.
pub(crate) const SLOTS: usize = 4;
const HEAP: usize = 0;
/// Bits of a slot's protection.
const LOADS: u8 = 1;
const STORES: u8 = 2;
const BOTH: u8 = LOADS | STORES;
/// Maximum nesting depth of forks.
const DEPTH: usize = 2;
/// Maximum length of a script's text in bytes: the size of the interpreter's buffer.
const TEXT_BYTES: usize = 30_000;

/// An operation. Offsets and lengths are in base pages. If an operation extends beyond its slot, the part outside is
/// left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields of one meaning in all of them")]
pub enum Op {
    /// Maps memory and assigns it to the slot.
    Map { slot: usize, pages: usize, protection: u8, kind: MappingKind },
    /// Maps memory over a part of the slot.
    MapOver { slot: usize, offset: usize, pages: usize, protection: u8, kind: MappingKind },
    /// Unmaps a part of the slot.
    Unmap { slot: usize, offset: usize, pages: usize },
    /// Resizes the whole slot with mremap.
    Remap { slot: usize, pages: usize },
    /// Changes the protection of a part of the slot.
    Protect { slot: usize, offset: usize, pages: usize, protection: u8 },
    /// Calls madvise on a part of the slot.
    Advise { slot: usize, offset: usize, pages: usize, advice: Advice },
    /// Moves the end of the heap with brk.
    Heap { pages: usize },
    /// Accesses every `step`-th page of a part of the slot.
    Touch { slot: usize, offset: usize, pages: usize, step: usize, touch: Touch },
    /// Forks. The child executes the operations up to the matching `End`, and the parent waits for it.
    Fork,
    /// Ends the forked process.
    End,
}

/// The kind of a mapping. The numbers are those of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "flags of mmap(2) by their names")]
pub enum MappingKind {
    Private = 0,
    Shared = 1,
    NoReserve = 2,
    Populate = 3,
    Stack = 4,
}

/// Advice for madvise. The numbers are those of `include/uapi/asm-generic/mman-common.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "values of madvise(2) by their names")]
pub enum Advice {
    DontNeed = 4,
    Free = 8,
    HugePage = 14,
    NoHugePage = 15,
    PopulateRead = 22,
    PopulateWrite = 23,
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Load,
    Store,
    /// One instruction that loads and stores.
    Add,
    /// A store that the kernel makes in a system call.
    Kernel,
}

/// A random program, as a list of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script(pub Vec<Op>);

/// The state of a slot: the protection of each page, or `None` if it is not mapped.
#[derive(Clone, Debug, Default)]
struct Slot {
    pages: Vec<Option<u8>>,
    shared: bool,
    /// Whether the slot is a single VMA after the operations so far.
    is_single_vma: bool,
}

impl Script {
    /// The script of this seed.
    pub fn random(seed: u64) -> Script {
        let random = &mut Pcg64::seed_from_u64(seed);
        let count = 4 + below(random, 22);
        let mut ops = Vec::new();
        for _ in 0..count {
            ops.push(op(random));
            // In half of the cases the new mapping is accessed immediately.
            if let Some(Op::Map { slot, pages, .. }) = ops.last().copied()
                && below(random, 2) == 0
            {
                ops.push(Op::Touch { slot, offset: offset(random), pages, step: step(random), touch: touch(random) });
            }
        }
        Script(ops)
    }

    /// The script in the syntax of the interpreter.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut slots = vec![Slot::default(); SLOTS];
        slots[HEAP].is_single_vma = true;
        let mut parents = Vec::new();
        for op in &self.0 {
            match op {
                Op::Fork if parents.len() < DEPTH => {
                    parents.push(slots.clone());
                    text.push_str("{\n");
                }
                Op::End if !parents.is_empty() => {
                    slots = parents.pop().unwrap_or_default();
                    text.push_str("}\n");
                }
                Op::Fork | Op::End => {}
                op => write(op, &mut slots, &mut text),
            }
            if text.len() > TEXT_BYTES {
                break;
            }
        }
        parents.iter().for_each(|_| text.push_str("}\n"));
        text
    }
}

/// A random number below `end`, which must not be zero.
fn below(random: &mut Pcg64, end: u64) -> u64 {
    random.random_range(0..end)
}

/// A random operation.
fn op(random: &mut Pcg64) -> Op {
    let slot = below(random, SLOTS as u64) as usize;
    let (offset, pages) = (offset(random), pages(random));
    match below(random, 40) {
        0..=8 => Op::Map { slot: slot.max(1), pages, protection: protection(random), kind: kind(random) },
        9..=10 => Op::MapOver { slot, offset, pages, protection: protection(random), kind: kind(random) },
        11..=12 => Op::Unmap { slot, offset, pages },
        13..=14 => Op::Remap { slot: slot.max(1), pages },
        15..=18 => Op::Protect { slot, offset, pages, protection: protection(random) },
        19..=21 => Op::Advise { slot, offset, pages, advice: advice(random) },
        22..=23 => Op::Heap { pages },
        24..=26 => Op::Fork,
        27..=28 => Op::End,
        _ => Op::Touch { slot, offset, pages, step: step(random), touch: touch(random) },
    }
}

/// A length near one at which the kernel behaves differently: a page, a 64K folio, the range of a page table.
fn pages(random: &mut Pcg64) -> usize {
    let pages = match below(random, 10) {
        0..=1 => 1 + below(random, 8),
        2..=3 => 9 + below(random, 40),
        4..=5 => 100 + below(random, 600),
        6 => 16 * (1 + below(random, 40)),
        7..=8 => 512 * (1 + below(random, 5)),
        _ => 1000 + below(random, 1600),
    };
    pages as usize
}

fn offset(random: &mut Pcg64) -> usize {
    let offset = match below(random, 8) {
        0..=3 => 0,
        4 => below(random, 16),
        5 => 16 * below(random, 40),
        6 => 512 * below(random, 4),
        _ => below(random, 1500),
    };
    offset as usize
}

fn step(random: &mut Pcg64) -> usize {
    [1, 1, 1, 2, 3, 16, 17, 100, 512][below(random, 9) as usize]
}

fn protection(random: &mut Pcg64) -> u8 {
    [BOTH, BOTH, BOTH, BOTH, LOADS, 0][below(random, 6) as usize]
}

fn kind(random: &mut Pcg64) -> MappingKind {
    let kinds = [
        MappingKind::Private,
        MappingKind::Private,
        MappingKind::Private,
        MappingKind::Private,
        MappingKind::NoReserve,
        MappingKind::Populate,
    ];
    [&kinds[..], &[MappingKind::Stack, MappingKind::Shared]].concat()[below(random, 8) as usize]
}

fn advice(random: &mut Pcg64) -> Advice {
    let often = [Advice::DontNeed, Advice::DontNeed, Advice::Free, Advice::HugePage];
    let rarely = [Advice::NoHugePage, Advice::PopulateRead, Advice::PopulateWrite];
    [&often[..], &rarely[..]].concat()[below(random, 7) as usize]
}

fn touch(random: &mut Pcg64) -> Touch {
    [Touch::Load, Touch::Store, Touch::Store, Touch::Store, Touch::Add, Touch::Kernel][below(random, 6) as usize]
}

/// Writes the part of an operation that the state of the slots allows, and updates that state.
fn write(op: &Op, slots: &mut [Slot], text: &mut String) {
    match *op {
        Op::Map { slot, pages, protection, kind } => {
            let _ = writeln!(text, "m {slot} {pages} {protection} {}", kind as u8);
            let shared = kind == MappingKind::Shared;
            slots[slot] = Slot { pages: vec![Some(protection); pages], shared, is_single_vma: true };
        }
        Op::MapOver { slot, offset, pages, protection, kind } => {
            // Shared memory over a part of a slot of private memory would give the slot two kinds of memory.
            let kind = if kind == MappingKind::Shared { MappingKind::Private } else { kind };
            if slots[slot].shared {
                return;
            }
            for (offset, pages) in slots[slot].runs(offset, pages, |_| true) {
                let _ = writeln!(text, "f {slot} {offset} {pages} {protection} {}", kind as u8);
                slots[slot].set(offset, pages, Some(protection));
            }
        }
        Op::Unmap { slot, offset, pages } => {
            for (offset, pages) in slots[slot].runs(offset, pages, |_| true) {
                let _ = writeln!(text, "u {slot} {offset} {pages}");
                slots[slot].set(offset, pages, None);
            }
        }
        Op::Remap { slot, pages } => {
            let before = slots[slot].pages.len();
            let protection = slots[slot].pages.first().copied().flatten();
            if let (true, false, Some(protection)) = (slots[slot].is_single_vma, slots[slot].shared, protection) {
                let _ = writeln!(text, "r {slot} {before} {pages}");
                slots[slot].pages.resize(pages, Some(protection));
            }
        }
        Op::Protect { slot, offset, pages, protection } => {
            for (offset, pages) in slots[slot].runs(offset, pages, |_| true) {
                let _ = writeln!(text, "p {slot} {offset} {pages} {protection}");
                slots[slot].set(offset, pages, Some(protection));
            }
        }
        Op::Advise { slot, offset, pages, advice } => {
            let allows = |protection: u8| match advice {
                Advice::PopulateRead => protection & LOADS != 0,
                Advice::PopulateWrite => protection & STORES != 0,
                _ => true,
            };
            if slots[slot].shared && advice == Advice::Free {
                return;
            }
            for (offset, pages) in slots[slot].runs(offset, pages, allows) {
                let _ = writeln!(text, "a {slot} {offset} {pages} {}", advice as u8);
                let changes = matches!(advice, Advice::HugePage | Advice::NoHugePage);
                slots[slot].is_single_vma &= !changes || pages == slots[slot].pages.len();
            }
        }
        Op::Heap { pages } => {
            let heap = &mut slots[HEAP];
            // If parts were mapped over or unmapped, mappings other than the heap's are in the way of brk.
            if heap.is_single_vma {
                let _ = writeln!(text, "b {pages}");
                heap.pages.resize(pages, Some(BOTH));
            }
        }
        Op::Touch { slot, offset, pages, step, touch } => {
            let (letter, needed) = match touch {
                Touch::Load => ('l', LOADS),
                Touch::Store => ('s', STORES),
                Touch::Add => ('x', BOTH),
                Touch::Kernel => ('k', STORES),
            };
            for (offset, pages) in slots[slot].runs(offset, pages, |protection| protection & needed == needed) {
                let _ = match touch {
                    Touch::Kernel => writeln!(text, "k {slot} {offset} {pages}"),
                    _ => writeln!(text, "{letter} {slot} {offset} {pages} {step}"),
                };
            }
        }
        Op::Fork | Op::End => {}
    }
}

impl Slot {
    /// The runs of mapped pages in a range whose protection satisfies `allows`, as offsets and lengths.
    fn runs(&self, offset: usize, pages: usize, allows: impl Fn(u8) -> bool) -> Vec<(usize, usize)> {
        let end = (offset + pages).min(self.pages.len());
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (offset..end).filter(|at| self.pages[*at].is_some_and(&allows)) {
            match runs.last_mut().filter(|(from, length)| from + length == at) {
                Some((_, length)) => *length += 1,
                None => runs.push((at, 1)),
            }
        }
        runs
    }

    /// Sets the protection of pages. If only a part of the slot changes, the slot is no longer a single VMA.
    fn set(&mut self, offset: usize, pages: usize, protection: Option<u8>) {
        self.is_single_vma &= pages == self.pages.len() && protection.is_some();
        self.pages[offset..offset + pages].fill(protection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(pages: usize) -> Op {
        Op::Touch { slot: 1, offset: 0, pages, step: 1, touch: Touch::Store }
    }

    fn map(pages: usize) -> Op {
        Op::Map { slot: 1, pages, protection: BOTH, kind: MappingKind::Private }
    }

    #[test]
    fn touches_only_accessible_pages() {
        let hole = Op::Unmap { slot: 1, offset: 2, pages: 1 };
        let closed = Op::Protect { slot: 1, offset: 5, pages: 9, protection: LOADS };
        let script = Script(vec![touch(3), map(8), hole, closed, touch(20), Op::Remap { slot: 1, pages: 3 }]);
        assert_eq!(script.text(), "m 1 8 3 0\nu 1 2 1\np 1 5 3 1\ns 1 0 2 1\ns 1 3 2 1\n");
    }

    #[test]
    fn a_forked_process_does_not_change_its_parents_memory() {
        let script =
            Script(vec![map(4), Op::Fork, Op::Unmap { slot: 1, offset: 0, pages: 4 }, Op::End, touch(4), Op::Fork]);
        assert_eq!(script.text(), "m 1 4 3 0\n{\nu 1 0 4\n}\ns 1 0 4 1\n{\n}\n");
    }

    #[test]
    fn a_seed_makes_one_script() {
        let script = |seed| Script::random(seed).text();
        assert_eq!(script(1), script(1));
        assert_ne!(script(1), script(2));
    }
}
