//! One hardware thread: its TLBs, its walker, and its counts of misses.

use super::slot::{FURTHER_LEVELS, LANES, Slot};
use crate::machine::{Machine, TlbShape};
use crate::tlb::{Key, Tlb};
use crate::walk::Walker;

/// The TLBs and the walker of one hardware thread.
pub struct Core {
    pub tlbs: Vec<Tlb>,
    /// For each first-level set, the key that was looked up last; 0 for none. That key is in the set, and under every
    /// replacement policy, a repeated lookup of it changes nothing.
    last_keys: Vec<Key>,
    pub walker: Walker,
    pub counts: Counts,
}

/// Counts of misses by lane and by log2 of the bytes that are mapped together.
#[derive(Clone, Debug)]
pub struct Counts {
    pub first_misses: [[u64; 64]; LANES],
    /// Hits in each level after the second.
    pub further_hits: [[[u64; 64]; LANES]; FURTHER_LEVELS],
    /// Misses in all levels.
    pub walked: [[u64; 64]; LANES],
    /// Cycles of hits in the levels after the first.
    pub second_hit_cycles: u64,
}

impl Counts {
    /// Misses in all levels up to `level`, which must be at least 2: walks, and hits in later levels.
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
            last_keys: vec![0; FirstLevelSets::of_machine(machine).count],
            walker,
            counts: Counts {
                first_misses: [[0; 64]; LANES],
                further_hits: [[[0; 64]; LANES]; FURTHER_LEVELS],
                walked: [[0; 64]; LANES],
                second_hit_cycles: 0,
            },
        }
    }

    /// Looks up a page in the first level, and inserts it on a miss. Returns whether it was a hit.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) -> bool {
        self.was_last_in_set(slot) || self.touch_set(slot)
    }

    /// Whether the page was looked up last in its set.
    #[inline(always)]
    pub fn was_last_in_set(&self, slot: Slot) -> bool {
        self.last_keys[slot.set() as usize] == slot.key
    }

    /// As [`Core::touch`], for a page that was not looked up last in its set.
    #[inline(always)]
    pub fn touch_set(&mut self, slot: Slot) -> bool {
        self.last_keys[slot.set() as usize] = slot.key;
        self.tlbs[slot.tlb()].touch(slot.set(), slot.key)
    }

    /// Drops the entries for which `is_stale` returns `true` from all TLBs.
    pub fn invalidate(&mut self, is_stale: impl Fn(Key) -> bool) {
        self.last_keys.iter_mut().filter(|last| is_stale(**last)).for_each(|last| *last = 0);
        for tlb in &mut self.tlbs {
            tlb.invalidate(&is_stale);
        }
    }

    /// Drops the entry of one stored page from all TLBs; `page` is its page number in its size.
    pub fn invalidate_one(&mut self, key: Key, page: u64) {
        self.last_keys.iter_mut().filter(|last| **last == key).for_each(|last| *last = 0);
        self.tlbs.iter_mut().for_each(|tlb| tlb.invalidate_one(page as u32, key));
    }
}

/// The indexes of the sets of each first-level TLB among all first-level sets.
#[derive(Clone, Debug)]
pub struct FirstLevelSets {
    /// For each TLB, the index of its first set and the number of its sets. The index is a multiple of that number, so its low bits
    /// do not affect the set index in the TLB.
    tlbs: Vec<(u32, u32)>,
    count: usize,
}

impl FirstLevelSets {
    pub fn of_machine(machine: &Machine) -> FirstLevelSets {
        let mut end = 0u32;
        let mut tlbs = Vec::new();
        for tlb in &machine.tlbs {
            let begin = end.next_multiple_of(tlb.sets);
            tlbs.push((begin, tlb.sets));
            if tlb.level == 1 {
                end = begin + tlb.sets;
            }
        }
        FirstLevelSets { tlbs, count: end as usize }
    }

    /// The index of the set of a page in a TLB; `page` is its page number in its stored size.
    pub fn of(&self, tlb: u8, page: u64) -> u32 {
        let (begin, sets) = self.tlbs[usize::from(tlb)];
        begin + (page & u64::from(sets - 1)) as u32
    }
}
