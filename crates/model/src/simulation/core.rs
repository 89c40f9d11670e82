//! One hardware thread: its TLBs, its walker, and their counts.

use super::slot::{FURTHER_LEVELS, LANES, Slot};
use crate::machine::{Machine, TlbShape};
use crate::tlb::{Key, Tlb};
use crate::walk::Walker;

/// The TLBs and the walker of one hardware thread.
pub struct Core {
    pub tlbs: Vec<Tlb>,
    /// For each set of the first level, the key that was looked up last, which is therefore in the set; 0 for none.
    /// Looking it up again changes no set, whatever the replacement policy.
    fronts: Vec<Key>,
    pub walker: Walker,
    pub counts: Counts,
}

/// Counts of misses, by kind of access and log2 of the bytes that are mapped together.
#[derive(Clone, Debug)]
pub struct Counts {
    pub first_misses: [[u64; 64]; LANES],
    /// Hits in the levels after the second, by level.
    pub further_hits: [[[u64; 64]; LANES]; FURTHER_LEVELS],
    /// Misses in all levels.
    pub walked: [[u64; 64]; LANES],
    /// Cycles of hits in the levels after the first.
    pub second_hit_cycles: u64,
}

impl Counts {
    /// Misses in all levels up to `level`, which is at least the second: hits in later levels, and walks.
    pub fn missed_up_to(&self, level: u8) -> [[u64; 64]; LANES] {
        let mut missed = self.walked;
        self.further_hits.iter().skip(usize::from(level) - 2).for_each(|hits| add(&mut missed, hits));
        missed
    }
}

/// Adds counts element by element.
pub fn add(all: &mut [[u64; 64]; LANES], more: &[[u64; 64]; LANES]) {
    all.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(all, more)| *all += more);
}

impl Core {
    pub fn new(machine: &Machine, seed: u64, walker: Walker) -> Core {
        let tlb = |(index, tlb): (usize, &TlbShape)| Tlb::new(tlb.sets, tlb.ways, tlb.replacement, seed ^ index as u64);
        Core {
            tlbs: machine.tlbs.iter().enumerate().map(tlb).collect(),
            fronts: vec![0; Fronts::of_machine(machine).count],
            walker,
            counts: Counts {
                first_misses: [[0; 64]; LANES],
                further_hits: [[[0; 64]; LANES]; FURTHER_LEVELS],
                walked: [[0; 64]; LANES],
                second_hit_cycles: 0,
            },
        }
    }

    /// Looks up a page in the first level, and fills it in. Returns whether it was there.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) -> bool {
        self.is_in_front(slot) || self.touch_set(slot)
    }

    /// Whether the page was the last one looked up in its set.
    #[inline(always)]
    pub fn is_in_front(&self, slot: Slot) -> bool {
        self.fronts[slot.front() as usize] == slot.key
    }

    /// As [`Core::touch`], for pages that are not the last one of their set.
    #[inline(always)]
    pub fn touch_set(&mut self, slot: Slot) -> bool {
        self.fronts[slot.front() as usize] = slot.key;
        self.tlbs[slot.tlb()].touch(slot.front(), slot.key)
    }

    /// Drops the entries for which `gone` returns `true` from all TLBs.
    pub fn forget(&mut self, gone: impl Fn(Key) -> bool) {
        self.fronts.iter_mut().filter(|front| gone(**front)).for_each(|front| *front = 0);
        for tlb in &mut self.tlbs {
            tlb.forget(&gone);
        }
    }

    /// Drops the entry of one stored page, whose number at its size is `page`, from all TLBs.
    pub fn forget_one(&mut self, key: Key, page: u64) {
        self.fronts.iter_mut().filter(|front| **front == key).for_each(|front| *front = 0);
        self.tlbs.iter_mut().for_each(|tlb| tlb.forget_one(page as u32, key));
    }
}

/// The positions of the sets of each first-level TLB among all first-level sets.
#[derive(Clone, Debug)]
pub struct Fronts {
    /// For each TLB the index of its first set, a multiple of their number, and the number of its sets.
    tlbs: Vec<(u32, u32)>,
    count: usize,
}

impl Fronts {
    pub fn of_machine(machine: &Machine) -> Fronts {
        let mut end = 0u32;
        let mut tlbs = Vec::new();
        for tlb in &machine.tlbs {
            let begin = end.next_multiple_of(tlb.sets);
            tlbs.push((begin, tlb.sets));
            if tlb.level == 1 {
                end = begin + tlb.sets;
            }
        }
        Fronts { tlbs, count: end as usize }
    }

    /// The index of the set for a page in a TLB.
    pub fn of(&self, tlb: u8, page: u64) -> u32 {
        let (begin, sets) = self.tlbs[usize::from(tlb)];
        begin + (page & u64::from(sets - 1)) as u32
    }
}
