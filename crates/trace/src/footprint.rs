//! The amount of memory that runs touch, by page size.

use std::collections::HashSet;

use crate::chunk::Chunk;
use crate::run::{Kind, PAGE_SHIFT};

/// log2 of the page sizes counted: 4K, 16K, 64K, 2M, 32M, 512M and 1G.
pub const SHIFTS: [u32; 7] = [12, 14, 16, 21, 25, 29, 30];

/// Counts distinct pages.
///
/// ```
/// use trace::{Builder, Footprint, Header, Kind, Run};
///
/// let mut builder = Builder::new(Header::of("an example").columns);
/// builder.extend(&[0x100, 0x101, 0x300].map(|page| Run { page, kind: Kind::LOAD, accesses: 1 }));
/// let mut footprint = Footprint::default();
/// footprint.add(&builder.take());
/// assert_eq!(footprint.bytes(12), (3 * 4096, 0));
/// assert_eq!(footprint.bytes(21), (2 << 21, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    data: HashSet<u64>,
    fetched: HashSet<u64>,
}

impl Footprint {
    /// Adds the pages of a chunk.
    pub fn add(&mut self, chunk: &Chunk) {
        if chunk.kinds.is_empty() {
            self.data.extend(&chunk.pages);
            return;
        }
        // Collects the accesses to each page of the dictionary first, so that each page costs one hash lookup.
        let mut done = vec![0u8; chunk.pages.len()];
        for (id, kind) in chunk.ids.iter().zip(&chunk.kinds) {
            if let Some(bits) = done.get_mut(usize::from(*id)) {
                *bits |= kind;
            }
        }
        let fetch = Kind::FETCH.bits();
        for (page, bits) in chunk.pages.iter().zip(done) {
            if bits & fetch != 0 {
                self.fetched.insert(*page);
            }
            if bits & !fetch != 0 {
                self.data.insert(*page);
            }
        }
    }

    /// Total size in bytes of the pages of `1 << shift` bytes that are touched: by data accesses, and by fetches.
    pub fn bytes(&self, shift: u32) -> (u64, u64) {
        let count = |pages: &HashSet<u64>| {
            let pages: HashSet<u64> = pages.iter().map(|page| page >> (shift - PAGE_SHIFT)).collect();
            (pages.len() as u64) << shift
        };
        (count(&self.data), count(&self.fetched))
    }
}
