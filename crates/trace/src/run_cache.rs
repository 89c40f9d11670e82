//! Runs that were added to a chunk lately, and their ids: a small cache in front of the dictionary.
//!
//! It knows runs as a log has them, a page and a difference of counters, so that nothing is made of what recurs but a
//! number. It stays in the caches of a core that are nearest.

use crate::log::RawRun;
use crate::run::Run;

/// Places of the cache: a power of two.
const PLACES: usize = 1 << PLACES_SHIFT;
const PLACES_SHIFT: u32 = 12;
/// 2^64 divided by the golden ratio (Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A run and its id.
#[derive(Clone, Copy, Debug)]
struct Place {
    page: u64,
    difference: u64,
}

/// No run has no accesses.
const EMPTY: Place = Place { page: 0, difference: 0 };

/// The cache.
#[derive(Debug)]
pub struct Recent {
    places: Box<[Place; PLACES]>,
    ids: Box<[u16; PLACES]>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { places: Box::new([EMPTY; PLACES]), ids: Box::new([0; PLACES]) }
    }
}

impl Recent {
    /// Forgets all ids.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
    }

    /// Appends the ids of runs of a log, which end where the counters of their streams stand in `ends`. `id` is asked for
    /// those that are not known, the last first.
    #[inline(always)]
    pub fn ids(&mut self, raws: &[RawRun], mut ends: [u64; 2], ids: &mut Vec<u16>, mut id: impl FnMut(Run) -> u16) {
        let before = ids.len();
        ids.resize(before + raws.len(), 0);
        for (raw, to) in raws.iter().zip(&mut ids[before..]).rev() {
            let difference = raw.difference(&mut ends);
            let place = place_of(raw.page, difference);
            let known = &mut self.places[place];
            *to = if known.page == raw.page && known.difference == difference {
                self.ids[place]
            } else {
                *known = Place { page: raw.page, difference };
                self.ids[place] = id(raw.run(difference));
                self.ids[place]
            };
        }
    }
}

#[inline(always)]
fn place_of(page: u64, difference: u64) -> usize {
    let hash = (page ^ difference.wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN);
    (hash >> (u64::BITS - PLACES_SHIFT)) as usize
}

#[cfg(test)]
mod tests {
    use crate::log::{FETCH, RawRun, STORES_FIRST_SHIFT, STORES_SHIFT};
    use crate::{Builder, Columns, Run};

    /// Runs of a log that recur, among more different ones than the cache has places; and the counters where they end.
    fn log(runs: u64) -> (Vec<RawRun>, [u64; 2]) {
        let (mut ends, mut state) = ([u64::MAX - 7, 0], 1u64);
        let raws = (0..runs).map(|number| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (page, accesses) = ((state >> 50) % if number % 2 == 0 { 9000 } else { 9 }, 1 + (state >> 40) % 3);
            let stores = if number % 3 == 0 { (state >> 34) % (accesses + 1) } else { 0 };
            let fetch = u64::from(number % 5 == 0) * FETCH;
            let raw = RawRun { page: page << 12 | fetch, begin: ends[fetch as usize] };
            let first = u64::from(stores > 0) << STORES_FIRST_SHIFT;
            let counted = if fetch == 0 { accesses + (stores << STORES_SHIFT) + first } else { accesses };
            ends[fetch as usize] = ends[fetch as usize].wrapping_add(counted);
            raw
        });
        (raws.collect(), ends)
    }

    #[test]
    fn ids_are_those_of_the_runs() {
        for columns in [(true, true), (true, false), (false, true)] {
            let columns = Columns { kinds: columns.0, accesses: columns.1, addresses: false };
            let (raws, ends) = log(50_000);
            let mut expected: Vec<Run> = Vec::new();
            let mut before = ends;
            expected.extend(raws.iter().rev().map(|raw| raw.of_any(&mut before)));
            expected.reverse();
            let (mut fast, mut slow) = (Builder::new(columns), Builder::new(columns));
            // Twice: a chunk that is taken leaves nothing behind.
            for _ in 0..2 {
                fast.extend_raw(&raws, ends);
                slow.extend(&expected);
                let (fast, slow) = (fast.take(), slow.take());
                assert_eq!(fast.len(), expected.len());
                assert!(fast.runs().eq(slow.runs()));
            }
        }
    }
}
