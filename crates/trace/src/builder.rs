//! From runs to a chunk.

use std::io;

use crate::chunk::{Access, Chunk, MAX_ACCESSES, MAX_PAGES, MAX_RUNS};
use crate::column::{Encoder, push_counts, push_differences, push_words};
use crate::header::Columns;
use crate::log::RawRun;
use crate::run_cache::Recent;
use crate::run::{Kind, Run};

/// Where fewer runs than this share a distinct one, the dictionary is sorted: it is a part of the chunk that counts, and small
/// then. Elsewhere its order is that of the first runs, in which what recurs has small ids that recur.
const RUNS_OF_A_DISTINCT: usize = 64;

/// Makes chunks of runs.
#[derive(Debug)]
pub struct Builder {
    columns: Columns,
    distinct: Vec<Run>,
    /// Which of them each run is.
    ids: Vec<u16>,
    addresses: Vec<Access>,
    slots: Slots,
    recent: Recent,
}

impl Builder {
    /// A builder of chunks with these columns.
    pub fn new(columns: Columns) -> Builder {
        Builder {
            columns,
            distinct: Vec::new(),
            ids: Vec::new(),
            addresses: Vec::new(),
            slots: Slots::default(),
            recent: Recent::default(),
        }
    }

    /// The runs that no chunk was made of yet.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether a run of `accesses` more may not fit in this chunk.
    pub fn is_full(&self, accesses: usize) -> bool {
        !self.has_room(1, accesses)
    }

    /// Whether `runs` runs with `accesses` accesses fit in this chunk, whatever they are.
    pub fn has_room(&self, runs: usize, accesses: usize) -> bool {
        let addresses = if self.columns.addresses { self.addresses.len() + accesses } else { 0 };
        self.ids.len() + runs <= MAX_RUNS && self.distinct.len() + runs <= MAX_PAGES && addresses <= MAX_ACCESSES
    }

    /// Adds a run, and its accesses where addresses are kept. The chunk must not be full.
    #[inline]
    pub fn push(&mut self, run: Run, accesses: &[Access]) {
        self.extend(&[run]);
        self.keep(accesses);
    }

    /// Adds runs without their accesses. There must be room for them.
    #[inline]
    pub fn extend(&mut self, runs: &[Run]) {
        let (slots, distinct) = (&mut self.slots, &mut self.distinct);
        // What is kept does not change within a chunk: asked outside of the loop, which each recorded run goes through.
        match self.columns {
            Columns { kinds: true, accesses: true, .. } => {
                self.ids.extend(runs.iter().map(|run| slots.id(*run, distinct)));
            }
            columns => self.ids.extend(runs.iter().map(|run| {
                let kind = if columns.kinds { run.kind } else { Kind::LOAD };
                let accesses = if columns.accesses { run.accesses } else { 1 };
                slots.id(Run { page: run.page, kind, accesses }, distinct)
            })),
        }
    }

    /// Adds runs of a log, which end where the counters of their streams stand in `ends` (of data, of
    /// fetches). There must be room for them, and none may be of the kernel.
    pub fn extend_raw(&mut self, raws: &[RawRun], mut ends: [u64; 2]) {
        if !(self.columns.kinds && self.columns.accesses) {
            let mut runs: Vec<Run> = raws.iter().rev().map(|raw| raw.of_any(&mut ends)).collect();
            runs.reverse();
            return self.extend(&runs);
        }
        let (slots, distinct) = (&mut self.slots, &mut self.distinct);
        self.recent.ids(raws, ends, &mut self.ids, |run| slots.id(run, distinct));
    }

    /// Adds accesses of runs, where addresses are kept.
    pub(crate) fn keep(&mut self, accesses: &[Access]) {
        if self.columns.addresses {
            self.addresses.extend_from_slice(accesses);
        }
    }

    /// Takes the chunk; the next run begins a new one.
    pub fn take(&mut self) -> Chunk {
        let addresses = std::mem::take(&mut self.addresses);
        let chunk = Chunk { addresses, ..Chunk::of(&self.distinct, &self.ids, self.columns) };
        self.clear();
        chunk
    }

    /// Appends the chunk to `bytes`, and forgets it but for its memory. Gives how many runs it has.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn encode(&mut self, encoder: &mut Encoder, bytes: &mut Vec<u8>) -> io::Result<usize> {
        if self.distinct.len() * RUNS_OF_A_DISTINCT > self.ids.len() {
            self.sort();
        }
        let (distinct, columns) = (&self.distinct, self.columns);
        encoder.filled(bytes, |column| push_differences(column, distinct.iter().map(|run| run.page)))?;
        let kinds = if columns.kinds { &distinct[..] } else { &[] };
        encoder.filled(bytes, |column| column.extend(kinds.iter().map(|run| run.kind.bits())))?;
        let accesses = if columns.accesses { &distinct[..] } else { &[] };
        encoder.filled(bytes, |column| push_counts(column, accesses.iter().map(|run| run.accesses)))?;
        encoder.filled(bytes, |column| push_words(column, self.ids.iter().copied()))?;
        encoder.filled(bytes, |column| push_words(column, self.addresses.iter().map(|access| access.to_word())))?;
        let runs = self.ids.len();
        self.clear();
        Ok(runs)
    }

    /// Sorts the dictionary by page.
    fn sort(&mut self) {
        let mut order: Vec<(u64, u16)> =
            self.distinct.iter().zip(0..=u16::MAX).map(|(run, id)| (run.page, id)).collect();
        order.sort_unstable();
        let mut ids = vec![0; order.len()];
        for ((_, before), now) in order.iter().zip(0..=u16::MAX) {
            ids[usize::from(*before)] = now;
        }
        self.distinct = order.iter().map(|(_, before)| self.distinct[usize::from(*before)]).collect();
        self.ids.iter_mut().for_each(|id| *id = ids[usize::from(*id)]);
    }

    /// Forgets all runs, but keeps the memory for more.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.recent.clear();
        self.distinct.clear();
        self.ids.clear();
        self.addresses.clear();
    }
}

/// Finds the ids of distinct runs: open addressing. Their number is a power of two.
#[derive(Debug)]
pub(crate) struct Slots(Vec<Slot>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u64,
    /// Accesses, kind, and from [`NUMBER_SHIFT`] on one more than the id; 0 where the slot is empty.
    word: u64,
}

const KIND_SHIFT: u32 = 32;
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
        Slot { page: run.page, word: u64::from(run.accesses) | u64::from(run.kind.bits()) << KIND_SHIFT }
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
    pub(crate) fn id(&mut self, run: Run, distinct: &mut Vec<Run>) -> u16 {
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

    fn clear(&mut self) {
        self.0.fill(EMPTY);
    }
}
