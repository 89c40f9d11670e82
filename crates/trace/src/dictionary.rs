//! The dictionary of a chunk: which distinct run has which id.

use crate::run::Run;

/// Most distinct runs of one chunk, so that an id has two bytes; so it has no more distinct pages.
pub const MAX_PAGES: usize = 1 << 16;

/// Finds the ids of distinct runs: open addressing. Their number is a power of two.
#[derive(Debug)]
pub struct Slots(Vec<Slot>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u64,
    /// That of the run ([`Run::word`]), and from [`NUMBER_SHIFT`] on one more than the id; 0 where the slot is empty.
    word: u64,
}

const NUMBER_SHIFT: u32 = 40;
const EMPTY: Slot = Slot { page: 0, word: 0 };
/// Slots for a chunk that begins: few, so that they stay in a cache.
const FIRST_SLOTS: usize = 1 << 10;
/// Slots for each run, so that most are found at once, while all slots stay in a second-level cache, and beyond.
const SLOTS_OF_A_RUN: usize = 8;
const LEAST_SLOTS_OF_A_RUN: usize = 2;
/// Slots that such a cache has no room for.
const MANY_SLOTS: usize = 1 << 15;
/// 2^64 divided by the golden ratio: a product with it has good high bits (Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Slots {
    fn default() -> Slots {
        Slots(vec![EMPTY; FIRST_SLOTS])
    }
}

impl Slot {
    /// The slot of a run without its number.
    #[inline]
    fn of(run: &Run) -> Slot {
        Slot { page: run.page, word: run.word() }
    }

    /// The id, if the slot holds the same run as one without a number. An empty slot holds no run: those have a kind.
    #[inline]
    fn id_of(&self, run: Slot) -> Option<u16> {
        let number = self.word ^ run.word;
        let is_same = self.page == run.page && number & ((1 << NUMBER_SHIFT) - 1) == 0;
        is_same.then(|| ((number >> NUMBER_SHIFT) - 1) as u16)
    }

    /// Where among `slots` the search for it begins.
    #[inline]
    fn place(&self, slots: usize) -> usize {
        let hash = (self.page ^ self.word.wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN) >> NUMBER_SHIFT;
        hash as usize & (slots - 1)
    }
}

impl Slots {
    /// The id of a run, which is added to `distinct` where it is new.
    #[inline]
    pub fn id(&mut self, run: Run, distinct: &mut Vec<Run>) -> u16 {
        let slot = Slot::of(&run);
        let place = slot.place(self.0.len());
        self.0[place].id_of(slot).unwrap_or_else(|| self.look_on(run, place, distinct))
    }

    /// Goes on with the search at a slot that is empty or has another run.
    #[inline(never)]
    fn look_on(&mut self, run: Run, mut place: usize, distinct: &mut Vec<Run>) -> u16 {
        let slot = Slot::of(&run);
        while self.0[place].word != 0 {
            if let Some(id) = self.0[place].id_of(slot) {
                return id;
            }
            place = (place + 1) % self.0.len();
        }
        distinct.push(run);
        self.0[place] = Slot { word: slot.word | (distinct.len() as u64) << NUMBER_SHIFT, ..slot };
        let least = if self.0.len() < MANY_SLOTS { SLOTS_OF_A_RUN } else { LEAST_SLOTS_OF_A_RUN };
        if distinct.len() * least > self.0.len() {
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

    /// Forgets all runs.
    pub fn clear(&mut self) {
        self.0.fill(EMPTY);
    }
}
