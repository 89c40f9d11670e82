//! The runs of one block: a page dictionary, an id for each run, and the optional columns.
//!
//! The dictionary holds the distinct pages in the order of their first runs, as differences: what walks through memory
//! becomes small numbers, there and in the ids. Each column is compressed on its own, so that a reader that needs the
//! pages alone inflates nothing else.

use std::io;

use thiserror::Error;

use crate::header::Columns;
use crate::run::{Kind, Run};

/// Most distinct pages of one chunk, so that an id has two bytes.
pub const MAX_PAGES: usize = 1 << 16;
/// Most runs of one chunk.
pub const MAX_RUNS: usize = 1 << 20;
/// Most accesses of one chunk whose addresses are kept.
pub const MAX_ACCESSES: usize = 1 << 22;
/// zstd's level: more costs much time and gives little (TRACING: level 1 on ids of a dictionary).
const LEVEL: i32 = 1;

/// One access of a run, where addresses are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(u16);

impl Access {
    /// An access of `bytes` at `offset` in its page. Sizes that are no power of two up to 64 are told as unknown.
    pub fn new(offset: u16, bytes: u32, store: bool) -> Access {
        let size = if bytes.is_power_of_two() && bytes <= 64 { bytes.trailing_zeros() as u16 } else { 7 };
        Access(offset & 0xfff | size << 12 | u16::from(store) << 15)
    }

    /// Where in its page it begins.
    pub const fn offset(self) -> u16 {
        self.0 & 0xfff
    }

    /// How many bytes; `None` if that is not known.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 >> 12 & 7 {
            7 => None,
            size => Some(1 << size),
        }
    }

    /// Whether it is a store.
    pub const fn is_store(self) -> bool {
        self.0 >> 15 == 1
    }
}

/// The runs of one thread that stand in one block, column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The distinct pages.
    pub pages: Vec<u64>,
    /// For each run, which of them.
    pub ids: Vec<u16>,
    /// For each run what it does, if that was kept.
    pub kinds: Vec<u8>,
    /// For each run its number of accesses, if that was kept.
    pub accesses: Vec<u32>,
    /// Every access, one run after the other, if those were kept.
    pub addresses: Vec<Access>,
}

/// Bytes that are no chunk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// The bytes end within a column.
    #[error("the {0} column is cut off")]
    CutOff(&'static str),
    /// A column that does not inflate to what it says.
    #[error("the {0} column does not decompress")]
    Compression(&'static str),
    /// A column with another number of values than there are runs.
    #[error("the {column} column has {found} values; expected {expected}")]
    Count {
        /// Which.
        column: &'static str,
        /// Its values.
        found: usize,
        /// The values it should have.
        expected: usize,
    },
    /// An id without a page, or a kind that no run has.
    #[error("the {0} column has a value out of range")]
    Range(&'static str),
}

impl Chunk {
    /// How many runs.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The runs. Without its column a run is a load, of one access.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.ids.iter().enumerate().map(|(index, id)| Run {
            page: self.pages.get(usize::from(*id)).copied().unwrap_or_default(),
            kind: self.kinds.get(index).and_then(|bits| Kind::from_bits(*bits)).unwrap_or(Kind::LOAD),
            accesses: self.accesses.get(index).copied().unwrap_or(1),
        })
    }

    /// The chunk as bytes.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Encoder::new()?.encode(self, &mut bytes)?;
        Ok(bytes)
    }

    /// The chunk of `runs` runs that `bytes` hold.
    ///
    /// # Errors
    /// Bytes that are no such chunk; nothing is taken on trust.
    pub fn decode(bytes: &[u8], runs: usize, columns: Columns) -> Result<Chunk, ChunkError> {
        let mut rest = bytes;
        let most = runs.min(MAX_RUNS);
        let dictionary = take_column(&mut rest, "page", MAX_PAGES * 10)?;
        let pages = pages(&dictionary)?;
        let ids: Vec<u16> = words(&take_column(&mut rest, "id", most * 2)?);
        let kinds = take_column(&mut rest, "kind", most)?;
        let accesses = counts(&take_column(&mut rest, "accesses", most * 5)?)?;
        let addresses: Vec<u16> = words(&take_column(&mut rest, "address", MAX_ACCESSES * 2)?);
        expect("id", ids.len(), runs)?;
        expect("kind", kinds.len(), if columns.kinds { runs } else { 0 })?;
        expect("accesses", accesses.len(), if columns.accesses { runs } else { 0 })?;
        let all: u64 = accesses.iter().map(|count| u64::from(*count)).sum();
        expect("address", addresses.len(), if columns.addresses { all as usize } else { 0 })?;
        if ids.iter().any(|id| usize::from(*id) >= pages.len()) {
            return Err(ChunkError::Range("id"));
        }
        if kinds.iter().any(|bits| Kind::from_bits(*bits).is_none()) {
            return Err(ChunkError::Range("kind"));
        }
        if accesses.contains(&0) {
            return Err(ChunkError::Range("accesses"));
        }
        Ok(Chunk { pages, ids, kinds, accesses, addresses: addresses.into_iter().map(Access).collect() })
    }
}

fn expect(column: &'static str, found: usize, expected: usize) -> Result<(), ChunkError> {
    if found == expected { Ok(()) } else { Err(ChunkError::Count { column, found, expected }) }
}

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn pages(dictionary: &[u8]) -> Result<Vec<u64>, ChunkError> {
    let mut rest = dictionary;
    let mut pages = Vec::new();
    let mut page = 0u64;
    while !rest.is_empty() {
        let difference = take_varint(&mut rest).ok_or(ChunkError::CutOff("page"))?;
        page = page.wrapping_add(unzigzag(difference) as u64);
        pages.push(page);
    }
    if pages.len() <= MAX_PAGES { Ok(pages) } else { Err(ChunkError::Range("page")) }
}

fn counts(bytes: &[u8]) -> Result<Vec<u32>, ChunkError> {
    let mut rest = bytes;
    let mut counts = Vec::with_capacity(bytes.len());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte < u8::MAX {
            counts.push(u32::from(*byte));
        } else {
            let (long, after) = rest.split_first_chunk().ok_or(ChunkError::CutOff("accesses"))?;
            counts.push(u32::from_le_bytes(*long));
            rest = after;
        }
    }
    Ok(counts)
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
}

/// Makes bytes of chunks. It is worth keeping: most of its memory is the compressor's.
pub struct Encoder {
    compressor: zstd::bulk::Compressor<'static>,
    column: Vec<u8>,
    packed: Vec<u8>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder.
    ///
    /// # Errors
    /// There is no memory for the compressor.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder { compressor: zstd::bulk::Compressor::new(LEVEL)?, column: Vec::new(), packed: Vec::new() })
    }

    /// Appends a chunk to `bytes`.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn encode(&mut self, chunk: &Chunk, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut column = std::mem::take(&mut self.column);
        let mut store = |column: &mut Vec<u8>| {
            let stored = self.column(column, bytes);
            column.clear();
            stored
        };
        push_pages(&mut column, &chunk.pages);
        store(&mut column)?;
        push_words(&mut column, chunk.ids.iter().copied());
        store(&mut column)?;
        column.extend(&chunk.kinds);
        store(&mut column)?;
        push_counts(&mut column, &chunk.accesses);
        store(&mut column)?;
        push_words(&mut column, chunk.addresses.iter().map(|access| access.0));
        store(&mut column)?;
        self.column = column;
        Ok(())
    }

    /// Appends a column of any bytes: bytes when inflated, bytes as stored, and those.
    pub(crate) fn column(&mut self, column: &[u8], bytes: &mut Vec<u8>) -> io::Result<()> {
        self.packed.clear();
        if !column.is_empty() {
            self.packed.reserve(zstd::zstd_safe::compress_bound(column.len()));
            self.compressor.compress_to_buffer(column, &mut self.packed)?;
        }
        bytes.extend((column.len() as u32).to_le_bytes());
        bytes.extend((self.packed.len() as u32).to_le_bytes());
        bytes.extend(&self.packed);
        Ok(())
    }
}

/// Pages as differences to the one before.
fn push_pages(bytes: &mut Vec<u8>, pages: &[u64]) {
    let mut before = 0u64;
    for page in pages {
        push_varint(bytes, zigzag(page.wrapping_sub(before) as i64));
        before = *page;
    }
}

fn push_words(bytes: &mut Vec<u8>, words: impl ExactSizeIterator<Item = u16>) {
    bytes.resize(words.len() * 2, 0);
    for (place, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// Counts that are looked at together, because most are short.
const COUNTS: usize = 64;

/// Counts in a byte each; those of 255 and more have four bytes behind the byte 255.
fn push_counts(bytes: &mut Vec<u8>, accesses: &[u32]) {
    bytes.reserve(accesses.len());
    for counts in accesses.chunks(COUNTS) {
        if counts.iter().all(|count| *count < u32::from(u8::MAX)) {
            bytes.extend(counts.iter().map(|count| *count as u8));
            continue;
        }
        for count in counts {
            bytes.push((*count).min(u32::from(u8::MAX)) as u8);
            if *count >= u32::from(u8::MAX) {
                bytes.extend(count.to_le_bytes());
            }
        }
    }
}

pub(crate) fn take_column(rest: &mut &[u8], name: &'static str, most: usize) -> Result<Vec<u8>, ChunkError> {
    let mut number = || {
        let (number, after) = rest.split_first_chunk().ok_or(ChunkError::CutOff(name))?;
        *rest = after;
        Ok(u32::from_le_bytes(*number) as usize)
    };
    let (inflated, stored) = (number()?, number()?);
    if stored > rest.len() {
        return Err(ChunkError::CutOff(name));
    }
    let (column, after) = rest.split_at(stored);
    *rest = after;
    if inflated > most {
        return Err(ChunkError::Range(name));
    }
    if inflated == 0 {
        return Ok(Vec::new());
    }
    let found = zstd::bulk::decompress(column, inflated).map_err(|_| ChunkError::Compression(name))?;
    if found.len() == inflated { Ok(found) } else { Err(ChunkError::Compression(name)) }
}

/// Makes chunks of runs.
#[derive(Debug)]
pub struct Builder {
    columns: Columns,
    chunk: Chunk,
    slots: Slots,
}

impl Builder {
    /// A builder of chunks with these columns.
    pub fn new(columns: Columns) -> Builder {
        Builder { columns, chunk: Chunk::default(), slots: Slots::default() }
    }

    /// The runs that no chunk was made of yet.
    pub fn len(&self) -> usize {
        self.chunk.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.chunk.is_empty()
    }

    /// Whether a run of `accesses` more may not fit in this chunk.
    pub fn is_full(&self, accesses: usize) -> bool {
        let addresses = if self.columns.addresses { self.chunk.addresses.len() + accesses } else { 0 };
        self.chunk.len() == MAX_RUNS || self.chunk.pages.len() == MAX_PAGES || addresses > MAX_ACCESSES
    }

    /// Whether `runs` runs with `accesses` accesses fit in this chunk, whatever their pages are.
    pub fn has_room(&self, runs: usize, accesses: usize) -> bool {
        let addresses = if self.columns.addresses { self.chunk.addresses.len() + accesses } else { 0 };
        self.chunk.len() + runs <= MAX_RUNS && self.chunk.pages.len() + runs <= MAX_PAGES && addresses <= MAX_ACCESSES
    }

    /// Adds a run, and its accesses where addresses are kept. The chunk must not be full.
    #[inline]
    pub fn push(&mut self, run: Run, accesses: &[Access]) {
        self.extend(&[run]);
        if self.columns.addresses {
            self.chunk.addresses.extend_from_slice(accesses);
        }
    }

    /// Adds runs without their accesses. There must be room for them.
    #[inline]
    pub fn extend(&mut self, runs: &[Run]) {
        let (slots, pages) = (&mut self.slots, &mut self.chunk.pages);
        self.chunk.ids.extend(runs.iter().map(|run| slots.id(run.page, pages)));
        if self.columns.kinds {
            self.chunk.kinds.extend(runs.iter().map(|run| run.kind.bits()));
        }
        if self.columns.accesses {
            self.chunk.accesses.extend(runs.iter().map(|run| run.accesses));
        }
    }

    /// Takes the chunk; the next run begins a new one.
    pub fn take(&mut self) -> Chunk {
        self.slots.clear();
        std::mem::take(&mut self.chunk)
    }

    /// Appends the chunk to `bytes`, and forgets it but for its memory. Gives how many runs it has.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn encode(&mut self, encoder: &mut Encoder, bytes: &mut Vec<u8>) -> io::Result<usize> {
        encoder.encode(&self.chunk, bytes)?;
        let runs = self.chunk.len();
        self.clear();
        Ok(runs)
    }

    /// Forgets all runs, but keeps the memory for more.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.chunk.pages.clear();
        self.chunk.ids.clear();
        self.chunk.kinds.clear();
        self.chunk.accesses.clear();
        self.chunk.addresses.clear();
    }
}

/// Finds the ids of pages: open addressing, at least twice as many slots as pages, a power of two.
#[derive(Debug)]
struct Slots(Vec<Slot>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u64,
    /// One more than its id; 0 where the slot is empty.
    number: u32,
}

const EMPTY: Slot = Slot { page: 0, number: 0 };
/// Slots for a chunk that begins: few, so that they stay in a cache.
const FIRST_SLOTS: usize = 1 << 10;

impl Default for Slots {
    fn default() -> Slots {
        Slots(vec![EMPTY; FIRST_SLOTS])
    }
}

impl Slots {
    /// The id of a page, which is added to `pages` where it is new.
    #[inline]
    fn id(&mut self, page: u64, pages: &mut Vec<u64>) -> u16 {
        let place = self.place(page);
        let slot = self.0[place];
        if slot.page == page && slot.number != 0 { (slot.number - 1) as u16 } else { self.look_on(page, place, pages) }
    }

    /// Goes on with the search at a slot that has no page or another one.
    #[inline(never)]
    fn look_on(&mut self, page: u64, mut place: usize, pages: &mut Vec<u64>) -> u16 {
        while self.0[place].number != 0 {
            if self.0[place].page == page {
                return (self.0[place].number - 1) as u16;
            }
            place = (place + 1) % self.0.len();
        }
        pages.push(page);
        self.0[place] = Slot { page, number: pages.len() as u32 };
        if pages.len() * 2 > self.0.len() {
            self.grow(pages);
        }
        (pages.len() - 1) as u16
    }

    /// Where the search for a page begins.
    #[inline]
    fn place(&self, page: u64) -> usize {
        // Fibonacci hashing: the high bits of a product with 2^64 divided by the golden ratio.
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        // Below the length, which is a power of two and no more than 2^18.
        hash as usize & (self.0.len() - 1)
    }

    fn grow(&mut self, pages: &[u64]) {
        self.0 = vec![EMPTY; self.0.len() * 4];
        for (page, number) in pages.iter().zip(1..) {
            let mut place = self.place(*page);
            while self.0[place].number != 0 {
                place = (place + 1) % self.0.len();
            }
            self.0[place] = Slot { page: *page, number };
        }
    }

    fn clear(&mut self) {
        self.0.fill(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Columns = Columns { kinds: true, accesses: true, addresses: false };

    fn runs() -> impl Strategy<Value = Vec<Run>> {
        let page = prop_oneof![3 => 0x7f00u64..0x7f40, 1 => any::<u64>().prop_map(|page| page >> 12)];
        let accesses = prop_oneof![8 => 1u32..300, 1 => 1u32..];
        let kind = prop::sample::select(vec![1u8, 2, 4, 6, 14]);
        let run = (page, kind, accesses);
        let run = run.prop_map(|(page, kind, accesses)| Run { page, kind: Kind::from_bits(kind).unwrap(), accesses });
        proptest::collection::vec(run, 0..500)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(runs in runs()) {
            let mut builder = Builder::new(ALL);
            runs.iter().for_each(|run| builder.push(*run, &[]));
            let chunk = builder.take();
            let decoded = Chunk::decode(&chunk.encode().unwrap(), runs.len(), ALL).unwrap();
            prop_assert_eq!(&decoded, &chunk);
            prop_assert_eq!(decoded.runs().collect::<Vec<Run>>(), runs);
        }

        #[test]
        fn any_bytes_are_refused_or_a_chunk(bytes in proptest::collection::vec(any::<u8>(), 0..200), runs in 0usize..9) {
            if let Ok(chunk) = Chunk::decode(&bytes, runs, ALL) {
                prop_assert_eq!(chunk.len(), runs);
            }
        }

        #[test]
        fn a_changed_byte_is_no_panic(runs in runs(), at in any::<prop::sample::Index>(), bits in 1u8..) {
            let mut builder = Builder::new(ALL);
            runs.iter().for_each(|run| builder.push(*run, &[]));
            let mut bytes = builder.take().encode().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            let _ = Chunk::decode(&bytes, runs.len(), ALL);
        }
    }

    #[test]
    fn a_chunk_is_full_before_an_id_needs_three_bytes() {
        let mut builder = Builder::new(Columns { kinds: false, accesses: false, addresses: false });
        for page in 0..MAX_PAGES as u64 {
            assert!(!builder.is_full(1));
            builder.push(Run { page: page << 9, kind: Kind::LOAD, accesses: 1 }, &[]);
        }
        assert!(builder.is_full(1));
        let chunk = builder.take();
        assert_eq!((chunk.pages.len(), chunk.ids.last()), (MAX_PAGES, Some(&u16::MAX)));
        assert!(builder.is_empty());
    }

    #[test]
    fn an_access_has_two_bytes() {
        let access = Access::new(0xff8, 8, true);
        assert_eq!((access.offset(), access.bytes(), access.is_store()), (0xff8, Some(8), true));
        assert_eq!(Access::new(0, 24, false).bytes(), None);
    }
}
