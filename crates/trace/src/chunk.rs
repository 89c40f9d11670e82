//! [`Chunk`]: the runs of one block.
//!
//! A block has a dictionary of distinct runs, and an id for each run. Programs repeat themselves: they do the same to a
//! page in each iteration. So a run is one small number, and a loop is a recurring sequence of them. Each column is
//! compressed on its own.

use thiserror::Error;

use crate::access::Access;
use crate::column::{ColumnError, Decoder, counts, differences, words};
use crate::dictionary::{MAX_PAGES, Slots};
use crate::header::Columns;
use crate::run::{Kind, PAGE_SHIFT, Run};

/// The maximum number of runs in a chunk.
pub const MAX_RUNS: usize = 1 << 20;
/// The maximum number of accesses in a chunk that keeps addresses.
pub const MAX_ACCESSES: usize = 1 << 22;

/// The runs of one thread in one block, column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The distinct pages, as page numbers.
    pub pages: Vec<u64>,
    /// For each run, the index of its page in `pages`.
    pub ids: Vec<u16>,
    /// For each run, the bits of its [`Kind`]; empty if they were not kept.
    pub kinds: Vec<u8>,
    /// For each run, its number of accesses; empty if that was not kept.
    pub accesses: Vec<u32>,
    /// Every access, one run after the other; empty if they were not kept.
    pub addresses: Vec<Access>,
}

/// Numbers of accesses, each in one of three classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Loads and stores of the program.
    pub data: u64,
    /// Instruction fetches of the program.
    pub fetches: u64,
    /// Accesses by the kernel for the program.
    pub kernel: u64,
}

/// Why bytes are not a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// A column cannot be read.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The number of values in a column differs from the number of runs.
    #[error("the {column} column has {found} values; expected {expected}")]
    Count {
        /// The column's name.
        column: &'static str,
        /// The number of values in it.
        found: usize,
        /// The number of values it should have.
        expected: usize,
    },
    /// A page, kind or count is invalid, or an id is not in the dictionary.
    #[error("the {0} column has a value out of range")]
    Range(&'static str),
}

impl Chunk {
    /// The number of runs.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The runs. Without the column of kinds every run is a load; without the column of accesses every run has one access.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.ids.iter().enumerate().map(|(index, id)| Run {
            page: self.pages.get(usize::from(*id)).copied().unwrap_or_default(),
            kind: self.kinds.get(index).and_then(|bits| Kind::from_bits(*bits)).unwrap_or(Kind::LOAD),
            accesses: self.accesses.get(index).copied().unwrap_or(1),
        })
    }

    /// Sums of the accesses of all runs.
    pub fn access_counts(&self) -> AccessCounts {
        let mut sum = AccessCounts::default();
        for run in self.runs() {
            let accesses = u64::from(run.accesses);
            if run.kind.has(Kind::KERNEL) {
                sum.kernel += accesses;
            } else if run.kind.has(Kind::FETCH) {
                sum.fetches += accesses;
            } else {
                sum.data += accesses;
            }
        }
        sum
    }

    /// Decodes a chunk of `runs` runs.
    ///
    /// # Errors
    /// The bytes are not a chunk of `runs` runs with these columns. Everything is validated.
    pub fn decode(bytes: &[u8], runs: usize, columns: Columns) -> Result<Chunk, ChunkError> {
        Chunk::decode_with(&mut Decoder::default(), bytes, runs, columns)
    }

    /// As [`Chunk::decode`], reusing the memory of `decoder`.
    pub(crate) fn decode_with(
        decoder: &mut Decoder,
        bytes: &[u8],
        runs: usize,
        columns: Columns,
    ) -> Result<Chunk, ChunkError> {
        let mut rest = bytes;
        let max_runs = runs.min(MAX_RUNS);
        let distinct = Distinct::decode(decoder, &mut rest, columns)?;
        let ids =
            decoder.column(&mut rest, "id", max_runs * 2)?.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word));
        expect("id", ids.len(), runs)?;
        if ids.clone().max().is_some_and(|id| usize::from(id) >= distinct.pages.len()) {
            return Err(ChunkError::Range("id"));
        }
        let mut chunk = distinct.chunk(ids);
        let addresses: Vec<u16> = words(decoder.column(&mut rest, "address", MAX_ACCESSES * 2)?);
        let all: u64 = if columns.addresses { chunk.runs().map(|run| u64::from(run.accesses)).sum() } else { 0 };
        expect("address", addresses.len(), all as usize)?;
        chunk.addresses = addresses.into_iter().map(Access::from_word).collect();
        Ok(chunk)
    }

    /// Builds a chunk from a dictionary and the index in it for each run.
    pub(crate) fn of(distinct: &[Run], ids: &[u16], columns: Columns) -> Chunk {
        let kinds = if columns.kinds { distinct } else { &[] };
        let accesses = if columns.accesses { distinct } else { &[] };
        let distinct = Distinct {
            pages: distinct.iter().map(|run| run.page).collect(),
            kinds: kinds.iter().map(|run| run.kind.bits()).collect(),
            accesses: accesses.iter().map(|run| run.accesses).collect(),
        };
        distinct.chunk(ids.iter().copied())
    }
}

/// The distinct runs of a chunk, at most [`MAX_PAGES`], column by column; columns that are not kept are empty.
struct Distinct {
    pages: Vec<u64>,
    kinds: Vec<u8>,
    accesses: Vec<u32>,
}

impl Distinct {
    fn decode(decoder: &mut Decoder, rest: &mut &[u8], columns: Columns) -> Result<Distinct, ChunkError> {
        let column = decoder.column(rest, "page", MAX_PAGES * 10)?;
        let pages = differences(column).ok_or(ColumnError::CutOff("page"))?;
        let kinds = decoder.column(rest, "kind", MAX_PAGES)?.to_vec();
        let column = decoder.column(rest, "accesses", MAX_PAGES * 5)?;
        let accesses = counts(column).ok_or(ColumnError::CutOff("accesses"))?;
        // Every byte of a page must have an address of 64 bits.
        if pages.len() > MAX_PAGES || pages.iter().any(|page| *page > u64::MAX >> PAGE_SHIFT) {
            return Err(ChunkError::Range("page"));
        }
        expect("kind", kinds.len(), if columns.kinds { pages.len() } else { 0 })?;
        expect("accesses", accesses.len(), if columns.accesses { pages.len() } else { 0 })?;
        let mut present = [false; 1 << u8::BITS];
        kinds.iter().for_each(|bits| present[usize::from(*bits)] = true);
        if (0..=u8::MAX).any(|bits| present[usize::from(bits)] && Kind::from_bits(bits).is_none()) {
            return Err(ChunkError::Range("kind"));
        }
        if accesses.contains(&0) {
            return Err(ChunkError::Range("accesses"));
        }
        Ok(Distinct { pages, kinds, accesses })
    }

    fn chunk(self, ids: impl Iterator<Item = u16> + Clone) -> Chunk {
        let (pages, page_ids) = pages(self.pages);
        Chunk {
            pages,
            ids: look_up(page_ids, ids.clone()),
            kinds: if self.kinds.is_empty() { Vec::new() } else { look_up(self.kinds, ids.clone()) },
            accesses: if self.accesses.is_empty() { Vec::new() } else { look_up(self.accesses, ids) },
            addresses: Vec::new(),
        }
    }
}

/// The distinct pages in the order of their first runs, and for each run the index of its page.
fn pages(mut distinct: Vec<u64>) -> (Vec<u64>, Vec<u16>) {
    if !distinct.is_sorted() {
        let (mut runs, mut slots) = (Vec::new(), Slots::default());
        let of = |page: &u64| slots.id(Run { page: *page, kind: Kind::LOAD, accesses: 1 }, &mut runs);
        let ids = distinct.iter().map(of).collect();
        return (runs.iter().map(|run| run.page).collect(), ids);
    }
    // If the dictionary is sorted, runs of one page are adjacent.
    let (mut last, mut id) = (distinct.first().copied(), 0);
    let of = |page: &u64| {
        id += u16::from(last.replace(*page) != Some(*page));
        id
    };
    let ids = distinct.iter().map(of).collect();
    distinct.dedup();
    (distinct, ids)
}

/// Replaces each id by its value in `table`.
fn look_up<T: Copy + Default>(mut table: Vec<T>, ids: impl Iterator<Item = u16>) -> Vec<T> {
    // A table with an entry for every possible id needs no bounds check.
    table.resize(MAX_PAGES, T::default());
    match <&[T; MAX_PAGES]>::try_from(&table[..]) {
        Ok(table) => ids.map(|id| table[usize::from(id)]).collect(),
        Err(_) => unreachable!("the table was resized to MAX_PAGES"),
    }
}

fn expect(column: &'static str, found: usize, expected: usize) -> Result<(), ChunkError> {
    if found == expected { Ok(()) } else { Err(ChunkError::Count { column, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::column::Encoder;
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

    #[test]
    fn runs_do_not_depend_on_the_order_of_the_dictionary() {
        let run = |page, accesses| Run { page, kind: Kind::LOAD, accesses };
        let sorted = [run(3, 1), run(3, 2), run(4, 1), run(9, 1), run(9, 7)];
        let mixed = [run(9, 1), run(3, 1), run(9, 7), run(4, 1), run(3, 2)];
        for distinct in [sorted, mixed] {
            let ids = [4, 0, 2, 1, 3, 3, 0];
            let chunk = Chunk::of(&distinct, &ids, Columns { kinds: true, accesses: true, addresses: false });
            assert_eq!(chunk.pages.len(), 3, "each page once");
            let expected: Vec<Run> = ids.iter().map(|id| distinct[usize::from(*id)]).collect();
            assert_eq!(chunk.runs().collect::<Vec<_>>(), expected);
        }
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn decodes_what_was_encoded(runs in runs()) {
            let mut builder = Builder::new(ALL);
            runs.iter().for_each(|run| builder.push(*run, &[]));
            let chunk = builder.take();
            let decoded = Chunk::decode(&chunk.encode().unwrap(), runs.len(), ALL).unwrap();
            prop_assert_eq!(chunk.runs().collect::<Vec<Run>>(), runs.clone());
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
        assert!(chunk.encode().is_ok());
    }

    #[test]
    fn random_pages_need_little_more_than_an_id() {
        let mut builder = Builder::new(ALL);
        let mut state = 1u64;
        for _ in 0..60_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            builder.push(Run { page: 0x7f_0000 + (state >> 46), kind: Kind::LOAD, accesses: 1 }, &[]);
        }
        let chunk = builder.take();
        let (runs, bytes): (Vec<Run>, _) = (chunk.runs().collect(), chunk.encode().unwrap());
        assert!(bytes.len() < 60_000 * 5 / 2, "{}", bytes.len());
        assert_eq!(Chunk::decode(&bytes, runs.len(), ALL).unwrap().runs().collect::<Vec<Run>>(), runs);
    }

    #[test]
    fn many_accesses_to_random_pages_take_two_bytes_each() {
        for pages in [1 << 15, 1 << 16] {
            let (mut builder, mut state) = (Builder::new(ALL), 1u64);
            while builder.has_room(1, 1) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                builder.push(Run { page: 0x7f_0000 + (state >> 33) % pages, kind: Kind::LOAD, accesses: 1 }, &[]);
            }
            let mut bytes = Vec::new();
            let runs = builder.encode(&mut Encoder::new().unwrap(), &mut bytes).unwrap();
            assert!(bytes.len() * 100 < runs * 201, "{} bytes for {runs} runs in {pages} pages", bytes.len());
        }
    }

    #[test]
    fn refuses_runs_that_differ_too_much() {
        let pages = vec![7, 8];
        let accesses: Vec<u32> = (1..=MAX_RUNS as u32).collect();
        let chunk = Chunk { pages, ids: vec![1; MAX_RUNS], kinds: vec![2; MAX_RUNS], accesses, addresses: Vec::new() };
        assert!(chunk.encode().unwrap_err().to_string().contains("different runs"));
    }
}
