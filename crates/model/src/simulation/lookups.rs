//! Performs TLB lookups in blocks.
//!
//! A *run* is consecutive accesses of one thread to one page. A *lane* is a kind of access: 0 for fetches, 1 for loads, 2 for
//! stores. Stores use lane 1 if no TLB distinguishes them from loads. For each lane and page, a *slot* stores the place of the
//! page in the first-level TLBs. In the lane of a lookup, the bit [`READ_ONLY`] marks a store. Such a lookup cannot use a slot
//! with the same bit, and must go through [`Simulation::resolve`], as with an unknown slot.
//!
//! No TLB level depends on the content of a later one. So all lookups of a block pass one level before any of them passes the
//! next level, and the host can read the memory for several lookups at the same time.

use super::core::Core;
use super::lookup::{BLOCK, Lookup, Lookups, loads_first, stores};
use super::slot::{FURTHER_LEVELS, FurtherSlot, LANES, MissData, NONE, READ_ONLY, Slot, Slots};
use super::state::Simulation;
use crate::machine::Machine;
use crate::space::SpaceError;
use crate::walk::Walk;
use trace::{Kind, PAGE_SHIFT};

/// Number of runs in a block while misses are rare.
const SMALL_BLOCK: usize = 8;
/// Misses are frequent if the block had more than one first-level miss for this number of runs.
const FREQUENT_MISSES: usize = 6;

impl Simulation {
    /// Looks up runs of a thread. `ids` are the indexes of their pages in `numbers`, and `kinds` the bits of their kinds. If
    /// `kinds` is empty, all runs are loads.
    pub(super) fn look_up(
        &mut self,
        thread: usize,
        ids: &[u16],
        kinds: &[u8],
        numbers: &[u32],
    ) -> Result<(), SpaceError> {
        let loads = [Kind::LOAD.bits(); BLOCK];
        let mut from = 0;
        while from < ids.len() {
            if self.setup.store_lane == 1 && !self.lookups.has_frequent_misses && !kinds.is_empty() {
                from += self.look_up_singly(thread, &ids[from..], &kinds[from..], numbers)?;
            }
            // After single lookups, `from` is at a run whose slot is unknown, behind a run that missed, or at the end.
            let count = (ids.len() - from).min(if self.lookups.has_frequent_misses { BLOCK } else { SMALL_BLOCK });
            let ids = &ids[from..from + count];
            let kinds = kinds.get(from..from + count).unwrap_or(&loads[..count]);
            self.lookups.lookups.clear();
            let run_kinds = if self.setup.store_lane == 2 {
                self.split_lookups(ids, kinds, numbers);
                &[]
            } else {
                self.fill_lookups(ids, kinds, numbers);
                kinds
            };
            let misses = self.pass(thread, run_kinds)?;
            self.lookups.has_frequent_misses = misses * FREQUENT_MISSES > count;
            from += count;
        }
        Ok(())
    }

    /// Looks up runs one by one. Stops after the first run that misses, or before the first run whose slot is unknown. Returns
    /// the number of runs that were looked up.
    fn look_up_singly(
        &mut self,
        thread: usize,
        ids: &[u16],
        kinds: &[u8],
        numbers: &[u32],
    ) -> Result<usize, SpaceError> {
        let [code, data, _] = &self.processes.running.slots;
        match self.hardware.cores[thread].leading_hits([&code.first, &data.first], ids, kinds, numbers) {
            (count, None) => Ok(count),
            (count, Some(missed)) => {
                (self.lookups.missed[0], self.lookups.misses) = (missed, 1);
                self.look_up_missed(thread)?;
                Ok(count + 1)
            }
        }
    }

    /// Adds one lookup for each run. For machines on which loads and stores use the same TLBs.
    fn fill_lookups(&mut self, ids: &[u16], kinds: &[u8], numbers: &[u32]) {
        for (id, kind) in ids.iter().zip(kinds) {
            let lane = u32::from(kind & Kind::FETCH.bits() == 0);
            self.lookups.push(&self.processes.running.slots, numbers[usize::from(*id)], lane | stores(*kind));
        }
    }

    /// Adds two lookups for each run with loads and stores, in the order of its first load and store, and one for each other run.
    /// For machines with a TLB that serves only one of the two.
    fn split_lookups(&mut self, ids: &[u16], kinds: &[u8], numbers: &[u32]) {
        for (id, bits) in ids.iter().zip(kinds) {
            let number = numbers[usize::from(*id)];
            let has = |kind: Kind| bits & kind.bits() == kind.bits();
            let lanes = if has(Kind::FETCH) {
                [Some(0), None]
            } else if has(Kind::LOAD) && has(Kind::STORE_FIRST) {
                [Some(2 | READ_ONLY), Some(1)]
            } else if has(Kind::LOAD) && has(Kind::STORE) {
                [Some(1), Some(2 | READ_ONLY)]
            } else if has(Kind::STORE) {
                [Some(2 | READ_ONLY), None]
            } else {
                [Some(1), None]
            };
            lanes.into_iter().flatten().for_each(|lane| self.lookups.push(&self.processes.running.slots, number, lane));
        }
    }

    /// Sends the lookups of a block through all levels. Returns the number of first-level misses, not counting lookups whose
    /// slot was unknown. If there is one lookup for each run ([`Simulation::fill_lookups`]), `run_kinds` has the kinds of the
    /// runs. Otherwise it is empty.
    fn pass(&mut self, thread: usize, run_kinds: &[u8]) -> Result<usize, SpaceError> {
        let (mut from, mut misses) = (0, 0);
        loop {
            let done = from + self.hardware.cores[thread].first_level(&mut self.lookups, from);
            self.look_up_missed(thread)?;
            misses += self.lookups.misses;
            let Some(lookup) = self.lookups.lookups.get(done).copied() else { return Ok(misses) };
            let loads_first = run_kinds.get(done).is_some_and(|kind| loads_first(*kind));
            self.resolve(thread, lookup.lane(), lookup.number, lookup.lane & READ_ONLY, loads_first)?;
            from = done + 1;
            // Resolving may have set or reset the slots of later lookups.
            for lookup in &mut self.lookups.lookups[from..] {
                lookup.slot = self.processes.running.slots[lookup.lane()].first[lookup.number as usize];
            }
        }
    }

    /// Sends the lookups that missed in the first level through the later levels, and walks the page tables for those that missed
    /// in all levels.
    pub(super) fn look_up_missed(&mut self, thread: usize) -> Result<(), SpaceError> {
        let tag = self.processes.tag;
        let core = &mut self.hardware.cores[thread];
        let Lookups { missed, misses, miss_data, .. } = &mut self.lookups;
        let (missed, miss_data) = (&mut missed[..*misses], &mut miss_data[..*misses]);
        for (lookup, data) in missed.iter().zip(&mut *miss_data) {
            *data = self.processes.running.slots[lookup.lane()].miss_data[lookup.number as usize];
        }
        let mut walks = 0;
        for index in 0..missed.len() {
            let (lane, data) = (missed[index].lane(), miss_data[index]);
            core.counts.first_misses[lane][usize::from(data.size)] += 1;
            let mut found = false;
            if data.second != NONE {
                let second = usize::from(data.second);
                found = core.tlbs[second].touch(u32::from(data.second_index), data.second_key);
                core.counts.second_hit_cycles +=
                    if found { u64::from(self.setup.machine.tlbs[second].hit_cycles) } else { 0 };
            }
            // Branchless: writes the lookup even on a hit, but advances only on a miss.
            (missed[walks], miss_data[walks]) = (missed[index], data);
            walks += usize::from(!found);
        }
        if self.setup.has_further_levels {
            walks = core.further_levels(&self.setup.machine, &self.processes.running.slots, missed, miss_data, walks);
        }
        let (missed, miss_data) = (&missed[..walks], &miss_data[..walks]);
        for (lookup, data) in missed.iter().zip(miss_data) {
            core.counts.walked[lookup.lane()][usize::from(data.size)] += 1;
        }
        let va = |at: usize| miss_data[at].page << PAGE_SHIFT;
        let walk =
            |at: usize| Walk { va: va(at) ^ tag, leaf: miss_data[at].entry, path: self.paths.path(miss_data[at].path) };
        Ok(core.walker.walk(walks, walk, |at| self.space.physical(va(at)))?)
    }

    /// Looks up a page whose slot was just set, in all levels.
    pub(super) fn look_up_page(&mut self, thread: usize, lane: usize, number: u32) -> Result<(), SpaceError> {
        let slot = self.processes.running.slots[lane].first[number as usize];
        self.lookups.missed[0] = Lookup { slot, number, lane: lane as u32 };
        self.lookups.misses = usize::from(!self.hardware.cores[thread].touch(slot));
        self.look_up_missed(thread)
    }
}

impl Core {
    /// Looks up runs in the first level until one misses or has an unknown slot. Returns the number of runs before that one, and
    /// its lookup if it missed. `slots` has the slots of lane 0 (fetches) and of lane 1 (loads and stores).
    #[inline(never)]
    fn leading_hits(
        &mut self,
        slots: [&[Slot]; 2],
        ids: &[u16],
        kinds: &[u8],
        numbers: &[u32],
    ) -> (usize, Option<Lookup>) {
        for (count, (id, kind)) in ids.iter().zip(kinds).enumerate() {
            let (lane, number) = (u32::from(kind & Kind::FETCH.bits() == 0), numbers[usize::from(*id)]);
            let slot = slots[lane as usize][number as usize];
            if slot.is_unknown(stores(*kind)) {
                return (count, None);
            }
            if !self.touch(slot) {
                return (count, Some(Lookup { slot, number, lane }));
            }
        }
        (ids.len(), None)
    }

    /// Sends the first `count` lookups of `missed`, which missed in the second level, through the levels after it. Moves those
    /// that miss in all levels, with their data, to the front and returns their number.
    #[cold]
    fn further_levels(
        &mut self,
        machine: &Machine,
        slots: &[Slots; LANES],
        missed: &mut [Lookup],
        miss_data: &mut [MissData],
        mut count: usize,
    ) -> usize {
        for level in 0..FURTHER_LEVELS {
            let mut remaining = 0;
            for index in 0..count {
                let (lookup, data) = (missed[index], miss_data[index]);
                let FurtherSlot { key, index, tlb } = slots[lookup.lane()].further[lookup.number as usize][level];
                if tlb != NONE && self.tlbs[usize::from(tlb)].touch(u32::from(index), key) {
                    self.counts.further_hits[level][lookup.lane()][usize::from(data.size)] += 1;
                    self.counts.second_hit_cycles += u64::from(machine.tlbs[usize::from(tlb)].hit_cycles);
                } else {
                    (missed[remaining], miss_data[remaining]) = (lookup, data);
                    remaining += 1;
                }
            }
            count = remaining;
        }
        count
    }

    /// Performs the first-level lookups of a block from index `from` on, and stops before the first lookup whose slot is unknown.
    /// Stores the lookups that missed in `lookups.missed`. Returns the number of lookups performed.
    #[inline(never)]
    fn first_level(&mut self, lookups: &mut Lookups, from: usize) -> usize {
        let Lookups { lookups, missed, misses, .. } = lookups;
        let lookups = &lookups[from..];
        let mut missed_count = 0;
        let mut done = 0;
        for lookup in lookups {
            if lookup.slot.is_unknown(lookup.lane & READ_ONLY) {
                break;
            }
            done += 1;
            if self.was_last_in_set(lookup.slot) {
                continue;
            }
            let found = self.touch_set(lookup.slot);
            // Branchless: writes the lookup even on a hit, but advances only on a miss.
            missed[missed_count] = *lookup;
            missed_count += usize::from(!found);
        }
        *misses = missed_count;
        done
    }
}
