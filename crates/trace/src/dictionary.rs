//! The dictionary of a chunk: it maps each distinct run to its id.

use crate::run::Run;

/// The maximum number of distinct runs in a chunk, so that an id fits in two bytes. This also bounds the distinct pages.
pub const MAX_PAGES: usize = 1 << 16;

/// Looks up the ids of distinct runs by open addressing. The number of slots is a power of two.
#[derive(Debug)]
pub struct Slots(Vec<Slot>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u64,
    /// The run's [`Run::word`], and the id plus one from bit [`NUMBER_SHIFT`] on; 0 in an empty slot.
    word: u64,
}

const NUMBER_SHIFT: u32 = 40;
const EMPTY: Slot = Slot { page: 0, word: 0 };
/// The slots of a new chunk: few, so that they stay in a cache.
const FIRST_SLOTS: usize = 1 << 10;
/// Minimum slots per distinct run: many while the table fits in a second-level cache, so that most lookups hit at once, and
/// few in a larger table.
const SLOTS_PER_RUN: usize = 8;
const MIN_SLOTS_PER_RUN: usize = 2;
/// The number of slots at which the table no longer fits in a second-level cache.
const MANY_SLOTS: usize = 1 << 15;
/// 2^64 divided by the golden ratio: multiplying by it mixes the high bits well (Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Slots {
    fn default() -> Slots {
        Slots(vec![EMPTY; FIRST_SLOTS])
    }
}

impl Slot {
    /// The slot of a run, without an id.
    #[inline]
    fn of(run: &Run) -> Slot {
        Slot { page: run.page, word: run.word() }
    }

    /// The id, if the slot holds the same run as `run`, which has no id yet. An empty slot matches no run because each run
    /// has a kind.
    #[inline]
    fn id_of(&self, run: Slot) -> Option<u16> {
        let number = self.word ^ run.word;
        let is_same = self.page == run.page && number & ((1 << NUMBER_SHIFT) - 1) == 0;
        is_same.then(|| ((number >> NUMBER_SHIFT) - 1) as u16)
    }

    /// The index among `slots` slots where the search starts.
    #[inline]
    fn place(&self, slots: usize) -> usize {
        let hash = (self.page ^ self.word.wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN) >> NUMBER_SHIFT;
        hash as usize & (slots - 1)
    }
}

impl Slots {
    /// The id of a run. A new run is added to `distinct`.
    #[inline]
    pub fn id(&mut self, run: Run, distinct: &mut Vec<Run>) -> u16 {
        let slot = Slot::of(&run);
        let place = slot.place(self.0.len());
        self.0[place].id_of(slot).unwrap_or_else(|| self.continue_search(run, place, distinct))
    }

    /// Continues the search at a slot that is empty or holds another run.
    #[inline(never)]
    fn continue_search(&mut self, run: Run, mut place: usize, distinct: &mut Vec<Run>) -> u16 {
        let slot = Slot::of(&run);
        while self.0[place].word != 0 {
            if let Some(id) = self.0[place].id_of(slot) {
                return id;
            }
            place = (place + 1) % self.0.len();
        }
        distinct.push(run);
        self.0[place] = Slot { word: slot.word | (distinct.len() as u64) << NUMBER_SHIFT, ..slot };
        let min_slots_per_run = if self.0.len() < MANY_SLOTS { SLOTS_PER_RUN } else { MIN_SLOTS_PER_RUN };
        if distinct.len() * min_slots_per_run > self.0.len() {
            self.grow(distinct);
        }
        (distinct.len() - 1) as u16
    }

    fn grow(&mut self, distinct: &[Run]) {
        self.0 = vec![EMPTY; self.0.len() * 2];
        for (run, number) in distinct.iter().zip(1..) {
            let slot = Slot::of(run);
            let mut place = slot.place(self.0.len());
            while self.0[place].word != 0 {
                place = (place + 1) % self.0.len();
            }
            self.0[place] = Slot { word: slot.word | number << NUMBER_SHIFT, ..slot };
        }
    }

    /// Removes all runs.
    pub fn clear(&mut self) {
        self.0.fill(EMPTY);
    }
}
