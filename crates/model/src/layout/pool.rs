//! Memory that comes from a pool of huge pages: `pagelab compare` makes whole pages of it, and the program does not notice.
//!
//! What it does to a program's calls (`tracer::hugetlb`) is done here to recorded ones: private anonymous mappings of at
//! least a page, and the heap, begin and end at pages of the pool. A page goes when the program has unmapped all of it.

use std::collections::BTreeMap;

use ::policy::call::map;

/// A range of addresses: where it begins and ends.
type Span = (u64, u64);

/// A mapping: where its last page ends, and what of it the program has still.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    pages_end: u64,
    own: Vec<Span>,
}

/// The mappings of a process that are of whole pages, by where their first page begins.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    page_bytes: u64,
    mappings: BTreeMap<u64, Mapping>,
    /// Where the heap ends, with its last page.
    heap_end: u64,
}

impl Pool {
    pub fn new(page_bytes: u64) -> Pool {
        Pool { page_bytes, mappings: BTreeMap::new(), heap_end: 0 }
    }

    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The bytes of whole pages.
    pub fn whole(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.page_bytes).unwrap_or(bytes)
    }

    /// Whether a new mapping comes from the pool. One without access is a reservation, of which parts may later.
    pub fn serves(&self, bytes: u64, protection: u64, flags: u64) -> bool {
        map::can_be_of_pool(flags) && protection != 0 && bytes >= self.page_bytes
    }

    /// Notes a mapping whose pages begin with it. Gives where they end.
    pub fn back(&mut self, begin: u64, bytes: u64) -> u64 {
        let pages_end = begin + self.whole(bytes);
        self.mappings.insert(begin, Mapping { pages_end, own: vec![(begin, begin + bytes)] });
        pages_end
    }

    /// Forgets a mapping of which the program has everything; where its pages end.
    pub fn take(&mut self, begin: u64, bytes: u64) -> Option<u64> {
        let mapping = self.mappings.get(&begin).filter(|mapping| mapping.own == [(begin, begin + bytes)])?;
        let pages_end = mapping.pages_end;
        self.mappings.remove(&begin);
        Some(pages_end)
    }

    /// The program unmaps a range: what goes, that is pages of which nothing is left to it, and what does not come from the
    /// pool.
    pub fn unmap(&mut self, begin: u64, end: u64) -> Vec<Span> {
        let first = self.mappings.range(..begin).next_back().map_or(begin, |(at, _)| *at);
        let page_bytes = self.page_bytes;
        let (mut gone, mut other) = (Vec::new(), vec![(begin, end)]);
        for (pages_begin, mapping) in self.mappings.range_mut(first..end) {
            let before = pages(&mapping.own, page_bytes);
            mapping.own = without(&mapping.own, (begin, end));
            let after = pages(&mapping.own, page_bytes);
            gone.extend(after.iter().fold(before, |left, kept| without(&left, *kept)));
            other = without(&other, (*pages_begin, mapping.pages_end));
        }
        self.mappings.retain(|_, mapping| !mapping.own.is_empty());
        gone.extend(other);
        gone.sort_unstable();
        gone
    }

    /// Where the heap begins that the kernel would begin at an address.
    pub fn begin_heap(&mut self, address: u64) -> u64 {
        self.heap_end = self.whole(address);
        self.heap_end
    }

    /// The end of the heap's last page when the program has moved its end: pages stay.
    pub fn move_heap(&mut self, end: u64) -> u64 {
        self.heap_end = self.heap_end.max(self.whole(end));
        self.heap_end
    }
}

/// The whole pages that ranges are in, each once.
fn pages(spans: &[Span], page_bytes: u64) -> Vec<Span> {
    let mut pages: Vec<Span> = Vec::new();
    for (begin, end) in spans {
        let (begin, end) = (begin - begin % page_bytes, end.next_multiple_of(page_bytes));
        match pages.last_mut() {
            Some(last) if begin <= last.1 => last.1 = end,
            _ => pages.push((begin, end)),
        }
    }
    pages
}

/// What is left of ranges without one.
fn without(spans: &[Span], (begin, end): Span) -> Vec<Span> {
    let parts = spans.iter().flat_map(|span| [(span.0, span.1.min(begin)), (span.0.max(end), span.1)]);
    parts.filter(|(begin, end)| begin < end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;

    #[test]
    fn private_anonymous_memory_of_a_page_comes_from_the_pool() {
        let pool = Pool::new(M2);
        assert!(pool.serves(M2, 3, 0x22) && pool.serves(M2 + 4096, 1, 0x4022));
        for (bytes, protection, flags) in
            [(M2 - 4096, 3, 0x22), (M2, 0, 0x22), (M2, 3, 0x21), (M2, 3, 0x2), (M2, 3, 0x2_0022), (M2, 3, 0x62)]
        {
            assert!(!pool.serves(bytes, protection, flags), "{bytes} {protection} {flags:#x}");
        }
    }

    #[test]
    fn a_page_goes_with_the_last_part_that_the_program_has_of_it() {
        // All orders in which four parts of a mapping can go: in the end all pages have, each once.
        let (begin, bytes) = (100 * M2, 5 * M2 / 2);
        let cuts = [begin, begin + 4096, begin + M2, begin + M2 + 4096, begin + bytes];
        let parts: Vec<(u64, u64)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for seed in 0..24 {
            let (mut left, mut order, mut number) = (parts.clone(), Vec::new(), seed);
            while !left.is_empty() {
                order.push(left.remove(number % left.len()));
                number /= 2;
            }
            let mut pool = Pool::new(M2);
            assert_eq!(pool.back(begin, bytes), begin + 3 * M2);
            let mut gone: Vec<(u64, u64)> = order.iter().flat_map(|(begin, end)| pool.unmap(*begin, *end)).collect();
            gone.sort_unstable();
            assert!(gone.iter().all(|(begin, end)| begin % M2 == 0 && end % M2 == 0), "{order:?}: {gone:?}");
            assert_eq!(gone.iter().map(|(begin, end)| end - begin).sum::<u64>(), 3 * M2, "{order:?}: {gone:?}");
            assert!(gone.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{order:?}: {gone:?}");
        }
    }

    #[test]
    fn what_is_not_of_the_pool_goes_as_it_is() {
        let mut pool = Pool::new(M2);
        assert_eq!(pool.unmap(4096, 8192), [(4096, 8192)]);
        pool.back(10 * M2, M2);
        let gone = pool.unmap(10 * M2 - 4096, 11 * M2 + 4096);
        assert_eq!(gone, [(10 * M2 - 4096, 10 * M2), (10 * M2, 11 * M2), (11 * M2, 11 * M2 + 4096)]);
        assert_eq!(pool.unmap(10 * M2, 11 * M2), [(10 * M2, 11 * M2)], "forgotten");
    }

    #[test]
    fn a_heap_grows_by_whole_pages_and_keeps_them() {
        let mut pool = Pool::new(M2);
        let begin = pool.begin_heap(3 * M2 + 4096);
        assert_eq!(begin, 4 * M2);
        assert_eq!([begin + 1, begin + M2 + 1, begin].map(|end| pool.move_heap(end)), [5 * M2, 6 * M2, 6 * M2]);
    }
}
