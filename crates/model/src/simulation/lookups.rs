//! Performs TLB lookups in blocks.
//!
//! No level depends on the content of the next one. So a whole block passes one level before the next, and the memory that a level
//! needs is read for all lookups together instead of one by one.

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
/// Misses are frequent if more than one in this number of runs misses.
const FREQUENT_MISSES: usize = 6;

impl Simulation {
    /// Looks up runs of a thread. Without `kinds`, all are loads.
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
            // The next block begins with a run whose slot is unknown, or after a run that missed.
            let count = (ids.len() - from).min(if self.lookups.has_frequent_misses { BLOCK } else { SMALL_BLOCK });
            let ids = &ids[from..from + count];
            let kinds = kinds.get(from..from + count).unwrap_or(&loads[..count]);
            self.lookups.lookups.clear();
            let whole = if self.setup.store_lane == 2 {
                self.split_lookups(ids, kinds, numbers);
                &[]
            } else {
                self.fill_lookups(ids, kinds, numbers);
                kinds
            };
            let misses = self.pass(thread, whole)?;
            self.lookups.has_frequent_misses = misses * FREQUENT_MISSES > count;
            from += count;
        }
        Ok(())
    }

    /// Looks up runs one by one, up to and including the first that misses, or before the first whose slot is unknown. Returns how
    /// many.
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
                self.second_level(thread)?;
                Ok(count + 1)
            }
        }
    }

    /// Adds the lookups of runs if loads and stores use the same TLBs: one for each run.
    fn fill_lookups(&mut self, ids: &[u16], kinds: &[u8], numbers: &[u32]) {
        for (id, kind) in ids.iter().zip(kinds) {
            let lane = u32::from(kind & Kind::FETCH.bits() == 0);
            self.lookups.push(&self.processes.running.slots, numbers[usize::from(*id)], lane | stores(*kind));
        }
    }

    /// Adds the lookups of runs if stores have separate TLBs: two for a run with loads and stores.
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

    /// Sends the lookups of a block through all levels. Returns the number of first-level misses. If each lookup is a whole run, in
    /// which stores may follow loads, `whole` has the kinds of the runs.
    fn pass(&mut self, thread: usize, whole: &[u8]) -> Result<usize, SpaceError> {
        let (mut from, mut misses) = (0, 0);
        loop {
            let done = from + self.hardware.cores[thread].first_level(&mut self.lookups, from);
            self.second_level(thread)?;
            misses += self.lookups.misses;
            let Some(lookup) = self.lookups.lookups.get(done).copied() else { return Ok(misses) };
            let loads_first = whole.get(done).is_some_and(|kind| loads_first(*kind));
            self.resolve(thread, lookup.lane(), lookup.number, lookup.lane & READ_ONLY, loads_first)?;
            from = done + 1;
            // Slots of later lookups may have changed.
            for lookup in &mut self.lookups.lookups[from..] {
                lookup.slot = self.processes.running.slots[lookup.lane()].first[lookup.number as usize];
            }
        }
    }

    /// Sends the lookups that missed in the first level through the other levels, and walks for those that missed in all.
    pub(super) fn second_level(&mut self, thread: usize) -> Result<(), SpaceError> {
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

    /// Looks up a page whose slot was just set.
    pub(super) fn look_up_page(&mut self, thread: usize, lane: usize, number: u32) -> Result<(), SpaceError> {
        let slot = self.processes.running.slots[lane].first[number as usize];
        self.lookups.missed[0] = Lookup { slot, number, lane: lane as u32 };
        self.lookups.misses = usize::from(!self.hardware.cores[thread].touch(slot));
        self.second_level(thread)
    }
}

impl Core {
    /// Looks up runs until one misses in the first level or has an unknown slot. Returns how many precede that run, and its lookup
    /// if it missed. `slots` are those of fetches and of data.
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

    /// Sends the first `lookups` lookups, which missed in the second level, through the levels after it. Moves those that miss in
    /// all levels to the front and returns their number.
    #[cold]
    fn further_levels(
        &mut self,
        machine: &Machine,
        slots: &[Slots; LANES],
        missed: &mut [Lookup],
        miss_data: &mut [MissData],
        lookups: usize,
    ) -> usize {
        let mut left = lookups;
        for level in 0..FURTHER_LEVELS {
            let mut missing = 0;
            for index in 0..left {
                let (lookup, data) = (missed[index], miss_data[index]);
                let FurtherSlot { key, index, tlb } = slots[lookup.lane()].further[lookup.number as usize][level];
                if tlb != NONE && self.tlbs[usize::from(tlb)].touch(u32::from(index), key) {
                    self.counts.further_hits[level][lookup.lane()][usize::from(data.size)] += 1;
                    self.counts.second_hit_cycles += u64::from(machine.tlbs[usize::from(tlb)].hit_cycles);
                } else {
                    (missed[missing], miss_data[missing]) = (lookup, data);
                    missing += 1;
                }
            }
            left = missing;
        }
        left
    }

    /// Performs first-level lookups from index `from` on, until a slot is unknown. Stores those that missed. Returns how many it
    /// performed.
    #[inline(never)]
    fn first_level(&mut self, lookups: &mut Lookups, from: usize) -> usize {
        let Lookups { lookups, missed, misses, .. } = lookups;
        let lookups = &lookups[from..];
        let mut count = 0;
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
            missed[count] = *lookup;
            count += usize::from(!found);
        }
        *misses = count;
        done
    }
}
