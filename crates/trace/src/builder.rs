//! [`Builder`] builds chunks from runs.

use std::io;

use crate::access::Access;
use crate::chunk::{Chunk, MAX_ACCESSES, MAX_RUNS};
use crate::column::{Encoder, push_counts, push_differences, push_words};
use crate::dictionary::{MAX_PAGES, Slots};
use crate::header::Columns;
use crate::run::{Kind, Run};
use crate::run_cache::RunCache;

/// If each distinct run occurs fewer times than this on average, the dictionary is a notable part of the chunk. It is then
/// sorted by page, which makes it small. Otherwise it keeps the order of first use, which gives recurring runs small ids.
const MIN_REPEATS: usize = 64;

/// Collects runs and builds chunks of them.
#[derive(Debug)]
pub struct Builder {
    columns: Columns,
    distinct: Vec<Run>,
    /// For each run, its index in `distinct`.
    ids: Vec<u16>,
    addresses: Vec<Access>,
    slots: Slots,
    cache: RunCache,
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
            cache: RunCache::default(),
        }
    }

    /// The number of runs since the last chunk was taken.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no runs since the last chunk was taken.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether one more run with `accesses` accesses may not fit in this chunk.
    pub fn is_full(&self, accesses: usize) -> bool {
        !self.has_room(1, accesses)
    }

    /// Whether `runs` runs with `accesses` accesses in total fit in this chunk, whatever their pages are.
    pub fn has_room(&self, runs: usize, accesses: usize) -> bool {
        let addresses = if self.columns.addresses { self.addresses.len() + accesses } else { 0 };
        self.ids.len() + runs <= MAX_RUNS && self.distinct.len() + runs <= MAX_PAGES && addresses <= MAX_ACCESSES
    }

    /// Adds a run, and its accesses if addresses are kept. The chunk must not be full.
    #[inline]
    pub fn push(&mut self, run: Run, accesses: &[Access]) {
        self.extend(&[run]);
        self.keep(accesses);
    }

    /// Adds runs without their accesses. The caller ensures that there is room for them.
    #[inline]
    pub fn extend(&mut self, runs: &[Run]) {
        let (cache, slots, distinct) = (&mut self.cache, &mut self.slots, &mut self.distinct);
        // The kept columns do not change within a chunk. This check is outside the loop because every recorded run passes it.
        match self.columns {
            Columns { kinds: true, accesses: true, .. } => {
                cache.ids(runs, &mut self.ids, |run| slots.id(*run, distinct))
            }
            columns => self.ids.extend(runs.iter().map(|run| {
                let kind = if columns.kinds { run.kind } else { Kind::LOAD };
                let accesses = if columns.accesses { run.accesses } else { 1 };
                slots.id(Run { page: run.page, kind, accesses }, distinct)
            })),
        }
    }

    /// Adds accesses of runs if addresses are kept.
    pub fn keep(&mut self, accesses: &[Access]) {
        if self.columns.addresses {
            self.addresses.extend_from_slice(accesses);
        }
    }

    /// Takes the chunk. The next run starts a new one.
    pub fn take(&mut self) -> Chunk {
        let addresses = std::mem::take(&mut self.addresses);
        let chunk = Chunk { addresses, ..Chunk::of(&self.distinct, &self.ids, self.columns) };
        self.clear();
        chunk
    }

    /// Appends the encoded chunk to `bytes` and clears the builder, keeping its memory. Returns the number of runs.
    ///
    /// # Errors
    /// The compressor is out of memory.
    pub fn encode(&mut self, encoder: &mut Encoder, bytes: &mut Vec<u8>) -> io::Result<usize> {
        if self.distinct.len() * MIN_REPEATS > self.ids.len() {
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

    /// Drops all runs but keeps the memory.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.cache.clear();
        self.distinct.clear();
        self.ids.clear();
        self.addresses.clear();
    }
}

impl Chunk {
    /// Encodes the chunk.
    ///
    /// # Errors
    /// The compressor is out of memory, or the chunk has more distinct runs than allowed. The latter cannot happen for
    /// a chunk that was built or decoded.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let columns = Columns {
            kinds: !self.kinds.is_empty(),
            accesses: !self.accesses.is_empty(),
            addresses: !self.addresses.is_empty(),
        };
        let mut builder = Builder::new(columns);
        for run in self.runs() {
            if builder.is_full(0) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many different runs for one chunk"));
            }
            builder.extend(&[run]);
        }
        builder.keep(&self.addresses);
        let mut bytes = Vec::new();
        builder.encode(&mut Encoder::new()?, &mut bytes)?;
        Ok(bytes)
    }
}
