//! Searches for the smallest memory limit under which a program still ends as it should ([`smallest_limit`]).
//!
//! A program can have enough memory under one limit and too little under a larger one: large pages fill a limit in steps of their
//! size, and what remains may be too little for the rest. So limits above a sufficient one are tried too.

use std::collections::BTreeMap;

/// The smallest step between two limits, in bytes.
const MIN_STEP_BYTES: u64 = 256 << 10;
/// How often the limit is raised if it does not suffice. The last raise leads to several times the first limit.
const MAX_RAISES: u32 = 10;
/// How often the limits above the answer are tried again after one of them did not suffice.
const MAX_SCANS: u32 = 10;
/// Number of runs in which a limit must suffice to be the answer.
pub const CONFIRMED_RUNS: u32 = 3;
/// Limits are multiples of this many bytes, which every kernel's base page divides.
const UNIT_BYTES: u64 = 64 << 10;
/// Number of steps, in equal ratios, between the answer and the peak. The limits at these steps are tried.
const PROBES: u32 = 6;
/// If there are large pages, the limits up to this distance above the answer are tried in the smallest steps.
const DENSE_BYTES: u64 = 2 << 20;

/// What is known before the first limit is tried, from a run without a limit.
#[derive(Clone, Copy, Debug)]
pub struct SearchStart {
    /// The largest amount of memory that was charged, in bytes.
    pub peak_bytes: u64,
    /// The part of it that the kernel cannot take back, in bytes.
    pub kept_bytes: u64,
    /// Whether some of it was in large pages, or the policy asks for them.
    pub has_large_pages: bool,
    /// The largest ratio of the step between two limits to the limit.
    pub precision_ratio: f64,
}

/// The smallest limit that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// Under this limit the program ended as it should in [`CONFIRMED_RUNS`] runs, and it did so under each larger limit that was
    /// tried.
    pub limit_bytes: u64,
    /// The largest limit under which the program did not end as it should; `None` if every limit sufficed.
    pub too_small_bytes: Option<u64>,
    /// The smallest limit under which the program ended as it should in at least one run.
    pub smallest_enough_bytes: u64,
    /// Number of runs under a limit.
    pub runs: u32,
}

impl SearchResult {
    /// Whether a limit sufficed and the same or a larger limit did not.
    fn is_unsteady(&self) -> bool {
        self.too_small_bytes.is_some_and(|bytes| self.smallest_enough_bytes <= bytes)
    }

    /// The range of limits in which it depends on chance, or on the exact size, whether a limit suffices; `None` if that range is a
    /// few steps at most.
    pub fn range_of_chance(&self) -> Option<(u64, u64)> {
        let width_bytes = self.limit_bytes - self.smallest_enough_bytes.min(self.limit_bytes);
        let is_wide = width_bytes > (4 * MIN_STEP_BYTES).max(self.limit_bytes / 16);
        (self.is_unsteady() && is_wide).then_some((self.smallest_enough_bytes, self.limit_bytes))
    }
}

/// Searches by bisection, and then upwards. `suffices` runs the program with a limit and returns whether it ended as it should. `None` if
/// no limit was found from which on the program always ended as it should.
///
/// # Errors
/// The error of `suffices`.
pub fn smallest_limit<E>(
    start: SearchStart,
    suffices: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<SearchResult>, E> {
    let mut trials = Trials { suffices, runs: 0, enough: BTreeMap::new(), largest_too_small: None };
    let step = |limit_bytes: u64| rounded((limit_bytes as f64 * start.precision_ratio) as u64).max(MIN_STEP_BYTES);
    let Some(first) = trials.first_from(rounded(start.peak_bytes), step(start.peak_bytes))? else { return Ok(None) };
    let mut limit_bytes = trials.bisect(first, rounded(start.kept_bytes).min(first), step)?;
    for scan in 0..MAX_SCANS {
        let Some(failed) = trials.first_failure_from(limit_bytes, &start)? else {
            let Trials { runs, enough, largest_too_small, .. } = trials;
            let smallest_enough_bytes = enough.first_key_value().map_or(limit_bytes, |(bytes, _)| *bytes);
            return Ok(Some(SearchResult {
                limit_bytes,
                too_small_bytes: largest_too_small,
                smallest_enough_bytes,
                runs,
            }));
        };
        // The more limits above fail, the further the next one is.
        let raise_bytes = step(failed) << scan;
        let Some(raised) = trials.first_from(failed + raise_bytes, raise_bytes)? else { return Ok(None) };
        limit_bytes = trials.bisect(raised, raised, step)?;
    }
    Ok(None)
}

/// The runs so far.
struct Trials<F> {
    suffices: F,
    runs: u32,
    /// The limits that sufficed, with the number of runs.
    enough: BTreeMap<u64, u32>,
    largest_too_small: Option<u64>,
}

impl<E, F: FnMut(u64) -> Result<bool, E>> Trials<F> {
    fn suffice(&mut self, limit_bytes: u64) -> Result<bool, E> {
        self.runs += 1;
        let suffices = (self.suffices)(limit_bytes)?;
        if suffices {
            *self.enough.entry(limit_bytes).or_default() += 1;
        } else {
            self.largest_too_small = self.largest_too_small.max(Some(limit_bytes));
        }
        Ok(suffices)
    }

    /// Tries limits from this one upwards, in growing steps. Returns the first limit that suffices; `None` if none does.
    fn first_from(&mut self, mut limit_bytes: u64, mut step_bytes: u64) -> Result<Option<u64>, E> {
        for _ in 0..=MAX_RAISES {
            if self.suffice(limit_bytes)? {
                return Ok(Some(limit_bytes));
            }
            limit_bytes += rounded(step_bytes);
            step_bytes *= 2;
        }
        Ok(None)
    }

    /// Bisects below `enough` until a limit suffices and the limit one step below does not. The first guess is one step below
    /// `kept`.
    fn bisect(&mut self, mut enough: u64, kept: u64, step: impl Fn(u64) -> u64) -> Result<u64, E> {
        let mut too_small = self.largest_too_small;
        let mut below = kept.saturating_sub(step(enough)).max(UNIT_BYTES);
        while too_small.is_none() && below >= UNIT_BYTES && below < enough {
            if self.suffice(below)? {
                enough = below;
                below = rounded(below / 2 + 1).min(below.saturating_sub(UNIT_BYTES));
            } else {
                too_small = Some(below);
            }
        }
        while let Some(lower) = too_small.filter(|lower| enough.saturating_sub(*lower) > step(enough)) {
            let middle = rounded(lower + (enough - lower) / 2).min(enough - UNIT_BYTES);
            if self.suffice(middle)? {
                enough = middle;
            } else {
                too_small = Some(middle);
            }
        }
        Ok(enough)
    }

    /// Confirms a limit, and tries limits above it. Returns the limit itself if it fails once, or the largest of the limits
    /// above that fails; `None` if none fails.
    fn first_failure_from(&mut self, limit_bytes: u64, start: &SearchStart) -> Result<Option<u64>, E> {
        while self.enough.get(&limit_bytes).is_none_or(|runs| *runs < CONFIRMED_RUNS) {
            if !self.suffice(limit_bytes)? {
                return Ok(Some(limit_bytes));
            }
        }
        let mut failed = None;
        for probe in probes(limit_bytes, start) {
            if !self.suffice(probe)? {
                failed = Some(probe);
            }
        }
        Ok(failed)
    }
}

/// Limits above the answer, ascending. Without large pages this is a single limit, because only large pages make a larger limit
/// worse.
fn probes(limit_bytes: u64, start: &SearchStart) -> Vec<u64> {
    if !start.has_large_pages {
        return vec![limit_bytes + MIN_STEP_BYTES];
    }
    let dense = (1..=DENSE_BYTES / MIN_STEP_BYTES).map(|steps| limit_bytes + steps * MIN_STEP_BYTES);
    let ratio = (start.peak_bytes as f64 / limit_bytes as f64).max(1.0);
    let between = (1..PROBES).map(|at| (limit_bytes as f64 * ratio.powf(f64::from(at) / f64::from(PROBES))) as u64);
    let between = between.map(rounded).filter(|probe| *probe > limit_bytes + DENSE_BYTES && *probe < start.peak_bytes);
    dense.chain(between).collect()
}

/// Rounds up to a multiple of the unit.
fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES) * UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const M: u64 = 1 << 20;

    fn found(start: SearchStart, suffices: impl Fn(u64) -> bool) -> Option<SearchResult> {
        smallest_limit(start, |limit_bytes| Ok::<_, ()>(suffices(limit_bytes))).unwrap()
    }

    fn start(peak_bytes: u64, kept_bytes: u64) -> SearchStart {
        SearchStart { peak_bytes, kept_bytes, has_large_pages: false, precision_ratio: 0.02 }
    }

    #[test]
    fn a_program_that_needs_its_peak_takes_few_runs() {
        let found = found(start(100 * M, 100 * M), |limit| limit >= 100 * M).unwrap();
        assert_eq!((found.limit_bytes, found.too_small_bytes, found.runs), (100 * M, Some(98 * M), 5));
        assert!(!found.is_unsteady());
    }

    #[test]
    fn a_program_that_needs_more_than_it_had_without_a_limit_gets_more() {
        let more = found(start(100 * M, 100 * M), |limit| limit >= 120 * M).unwrap();
        assert!(more.limit_bytes >= 120 * M && more.limit_bytes < 124 * M, "{more:?}");
        assert_eq!(found(start(M, M), |limit| limit >= 1 << 50), None);
    }

    #[test]
    fn a_limit_that_suffices_now_and_then_is_no_answer() {
        let mut runs = 0;
        let found = smallest_limit(start(100 * M, 10 * M), |limit_bytes| {
            runs += 1;
            // Below 80M the program ends as it should in every other run.
            Ok::<_, ()>(limit_bytes >= 80 * M || runs % 2 == 0)
        });
        let found = found.unwrap();
        assert!(found.is_none_or(|found| found.is_unsteady() && found.limit_bytes >= 80 * M), "{found:?}");
    }

    /// Large pages of 2M fill the limit. The remaining 1M must fit next to them, unless the whole program fits in small pages.
    #[test]
    fn a_larger_limit_that_does_not_suffice_raises_the_answer() {
        let suffices =
            |limit: u64| (8 * M..9 * M).contains(&limit) || limit >= 104 * M || limit % (2 * M) >= M && limit > 9 * M;
        let large = SearchStart { has_large_pages: true, ..start(104 * M, 104 * M) };
        let found = found(large, suffices).unwrap();
        assert!(found.is_unsteady() && found.smallest_enough_bytes < 104 * M, "{found:?}");
        assert!(found.limit_bytes > found.too_small_bytes.unwrap(), "{found:?}");
        let above = (found.limit_bytes..found.limit_bytes + 2 * M).step_by(256 << 10);
        assert!(above.clone().all(suffices), "{found:?}");
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn the_answer_is_within_the_step_above_what_is_needed(
            peak in 1u64..4096, kept_percent in 0u64..=100, needed_percent in 1u64..=100, has_large_pages: bool,
        ) {
            let peak_bytes = peak << 20;
            let (kept_bytes, needed_bytes) = (peak_bytes * kept_percent / 100, peak_bytes * needed_percent / 100);
            let start = SearchStart { has_large_pages, ..start(peak_bytes, kept_bytes) };
            let found = found(start, |limit| limit >= needed_bytes).unwrap();
            let step = (found.limit_bytes / 50 + UNIT_BYTES).max(MIN_STEP_BYTES);
            prop_assert!(found.limit_bytes >= needed_bytes, "{found:?}");
            prop_assert!(found.too_small_bytes.is_none_or(|bytes| bytes < needed_bytes), "{found:?}");
            prop_assert!(found.limit_bytes - found.too_small_bytes.unwrap_or(0) <= step, "{found:?}");
            prop_assert!(found.runs <= 40 && !found.is_unsteady(), "{found:?}");
        }
    }
}
