//! A small cache of runs that were recently added to a chunk, with their ids. It is in front of the dictionary and fits
//! in the caches nearest to the core.

use crate::run::Run;

/// Number of entries, a power of two.
const PLACES: usize = 1 << PLACES_SHIFT;
const PLACES_SHIFT: u32 = 12;
/// 2^64 divided by the golden ratio (Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A run as two words.
#[derive(Clone, Copy, Debug)]
struct PackedRun {
    page: u64,
    word: u64,
}

/// An empty entry: no run has this word.
const EMPTY: PackedRun = PackedRun { page: 0, word: 0 };

/// A direct-mapped cache of the ids of runs.
#[derive(Debug)]
pub struct RunCache {
    places: Box<[PackedRun; PLACES]>,
    ids: Box<[u16; PLACES]>,
}

impl Default for RunCache {
    fn default() -> RunCache {
        RunCache { places: Box::new([EMPTY; PLACES]), ids: Box::new([0; PLACES]) }
    }
}

impl RunCache {
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
    }

    /// Appends the ids of runs. Calls `id` for each run that is not in the cache, in order.
    #[inline(always)]
    pub fn ids(&mut self, runs: &[Run], ids: &mut Vec<u16>, mut id: impl FnMut(&Run) -> u16) {
        ids.extend(runs.iter().map(|run| {
            let (page, word) = (run.page, run.word());
            let place = place_of(page, word);
            let known = &mut self.places[place];
            if known.page != page || known.word != word {
                *known = PackedRun { page, word };
                self.ids[place] = id(run);
            }
            self.ids[place]
        }));
    }
}

#[inline(always)]
fn place_of(page: u64, word: u64) -> usize {
    let hash = (page ^ word.wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN);
    (hash >> (u64::BITS - PLACES_SHIFT)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Kind;

    /// Recurring runs, with more distinct ones than the cache has entries.
    fn runs(count: u64) -> Vec<Run> {
        let mut state = 1u64;
        let run = |number| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (state >> 50) % if number % 2 == 0 { 9000 } else { 9 };
            let kind = [Kind::FETCH, Kind::LOAD, Kind::STORE, Kind::MODIFY][(state >> 34) as usize % 4];
            Run { page, kind, accesses: 1 + (state >> 40) as u32 % 3 }
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn ids_are_those_of_the_runs() {
        let (runs, mut cache) = (runs(50_000), RunCache::default());
        // Twice: clearing must leave nothing behind.
        for _ in 0..2 {
            let (mut known, mut ids): (Vec<Run>, Vec<u16>) = (Vec::new(), Vec::new());
            cache.ids(&runs, &mut ids, |run| {
                let found = known.iter().position(|other| other == run);
                found.unwrap_or_else(|| {
                    known.push(*run);
                    known.len() - 1
                }) as u16
            });
            assert!(ids.iter().zip(&runs).all(|(id, run)| known[usize::from(*id)] == *run));
            cache.clear();
        }
    }
}
