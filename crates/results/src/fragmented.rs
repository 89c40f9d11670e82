//! The fragmentation of free memory (`--fragmented`), and its effects on huge-page allocations.

use policy::size::PageSize;
use serde::Serialize;
use study::comparison::{Comparison, Fragmented};
use study::metric::names;
use study::trial::{Arm, TrialRecord};
use study::variant::Variant;

use crate::figure;
use crate::text::printable;

/// If the fragmentation is more than this lower than requested, in percentage points, a warning explains how to reach it.
/// Smaller differences occur because other programs allocate and free memory meanwhile.
const SHORTFALL_PERCENT: f64 = 5.0;

/// How scarce PMD-sized pages were on the host: kernel counters, averaged over the counted trials of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Scarcity {
    /// Faults that got smaller pages because no PMD-sized page was free (`thp_fault_fallback`).
    pub mean_fault_fallbacks: f64,
    /// Allocations that waited for direct compaction (`compact_stall`).
    pub mean_compaction_stalls: f64,
    /// Allocations that got a page after such a wait (`compact_success`).
    pub mean_compaction_successes: f64,
}

impl Scarcity {
    /// The averages over trials; `None` if no trial has the counters.
    pub fn of(records: &[&TrialRecord]) -> Option<Scarcity> {
        let mean = |metric| {
            let values: Vec<f64> = records.iter().filter_map(|record| record.value(metric)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Some(Scarcity {
            mean_fault_fallbacks: mean(names::HOST_FALLBACKS)?,
            mean_compaction_stalls: mean(names::HOST_COMPACTIONS)?,
            mean_compaction_successes: mean(names::HOST_COMPACTED).unwrap_or(0.0),
        })
    }

    /// For example `on average per trial, 12.5 faults found no PMD-sized page ...`. `None` if there were neither fallbacks nor
    /// waits.
    pub fn describe(&self) -> Option<String> {
        let Scarcity {
            mean_fault_fallbacks: fallbacks,
            mean_compaction_stalls: stalls,
            mean_compaction_successes: successes,
        } = *self;
        let was_scarce = fallbacks > 0.0 || stalls > 0.0;
        was_scarce.then(|| format!(
            "on average per trial, {} faults found no PMD-sized page (thp_fault_fallback), and {} allocations waited for compaction, \
             {} of them with success (counters of the host)",
            figure::plain(rounded(fallbacks)),
            figure::plain(rounded(stalls)),
            figure::plain(rounded(successes)),
        ))
    }
}

/// Rounds to a tenth.
fn rounded(count: f64) -> f64 {
    (count * 10.0).round() / 10.0
}

/// The requested fragmentation in words.
pub(crate) fn request(request: Option<Fragmented>) -> String {
    match request {
        Some(Fragmented { percent, block }) => {
            format!("fragmented, {percent} % of it in blocks below {block} (--fragmented)")
        }
        None => "as it was".to_owned(),
    }
}

/// Notes and warnings about the requested and the reached fragmentation, one for all arms. If any variant requests a
/// fragmentation of its own, one for each variant. Empty if no fragmentation was requested.
pub(crate) fn notes(comparison: &Comparison) -> Vec<String> {
    let design = &comparison.design;
    let first_of_variants = design.variants().into_iter().find_map(|variant| variant.fragmented);
    let Some(block) = first_of_variants.or(design.fragmented).map(|requested| requested.block) else {
        return Vec::new();
    };
    let in_words = |(least, most): (f64, f64), block: PageSize| {
        format!("{least:.0} to {most:.0} % of it was in blocks below {block} when trials began")
    };
    if first_of_variants.is_none() {
        let percent = design.fragmented.map(|requested| requested.percent).unwrap_or_default();
        let Some(reached) = reached(comparison, block, &|_| true) else { return Vec::new() };
        let note = format!("free memory was fragmented: {} (--fragmented {percent}%)", in_words(reached, block));
        return std::iter::once(note).chain(shortfall(reached.0, percent)).collect();
    }
    let of_variant = |variant: &Variant| {
        let requested = variant.fragmented.or(design.fragmented);
        // For a variant without a request, the share is that of the block size in the first request.
        let block = requested.map_or(block, |requested| requested.block);
        let has_variant = |arm: &Arm| arm.variant.as_ref().is_some_and(|one| one.name == variant.name);
        Some((printable(&variant.name), requested, block, reached(comparison, block, &has_variant)?))
    };
    let all: Vec<_> = design.variants().into_iter().filter_map(of_variant).collect();
    let note = |(name, requested, block, reached): &(String, Option<Fragmented>, PageSize, (f64, f64))| {
        let wanted = requested.map_or("as it was".to_owned(), |requested| format!("{}% wanted", requested.percent));
        format!("free memory of {name}, {wanted}: {}", in_words(*reached, *block))
    };
    let mut notes: Vec<String> = all.iter().map(note).collect();
    notes.extend(
        all.iter().filter_map(|(_, requested, _, (least, _))| shortfall(*least, (*requested)?.percent)).take(1),
    );
    let least_requested = all
        .iter()
        .filter(|(_, requested, ..)| requested.is_some())
        .map(|(.., (least_percent, _))| *least_percent)
        .reduce(f64::min);
    let unexpectedly_fragmented = all.iter().filter(|(_, requested, _, (_, most_percent))| {
        requested.is_none() && least_requested.is_some_and(|least_percent| *most_percent >= least_percent)
    });
    notes.extend(unexpectedly_fragmented.map(|(name, ..)| {
        format!(
            "warning: in some trials of {name}, free memory was as fragmented as for the variants that request it: between \
             trials other programs took some of the freed pages; measure it while nothing else runs"
        )
    }));
    notes
}

/// A warning that says how to reach the requested percentage, if the reached one is much lower.
fn shortfall(least_percent: f64, percent: u32) -> Option<String> {
    (least_percent + SHORTFALL_PERCENT < f64::from(percent)).then(|| {
        "warning: less of the free memory was fragmented than requested: pagelab does not touch a reserve, and with a large page cache \
         only that reserve may be free; drop the cache first (as root: echo 1 > /proc/sys/vm/drop_caches)"
            .to_owned()
    })
}

/// The share of free memory in blocks smaller than `block` when trials started: minimum and maximum over all trials of the
/// selected arms, in percent.
fn reached(comparison: &Comparison, block: PageSize, is_selected: &dyn Fn(&Arm) -> bool) -> Option<(f64, f64)> {
    let base = comparison.machine.page_sizes.base;
    let of_selected = |record: &&TrialRecord| comparison.design.arms.get(record.trial.arm).is_some_and(is_selected);
    let records = comparison.trials.iter().filter(of_selected);
    let ratios = records.filter_map(|record| ratio(&record.state_before.free_blocks_by_order, base, block));
    let percents: Vec<f64> = ratios.map(|ratio| ratio * 100.0).collect();
    percents.iter().copied().reduce(f64::min).zip(percents.iter().copied().reduce(f64::max))
}

/// The share of free memory in blocks smaller than `block`, computed from the number of free blocks of each buddy order.
/// `None` if no memory is free.
fn ratio(free_blocks_by_order: &[u64], base: PageSize, block: PageSize) -> Option<f64> {
    let bytes = |(order, count): (usize, &u64)| *count as f64 * (base.bytes() << order) as f64;
    let all: f64 = free_blocks_by_order.iter().enumerate().map(bytes).sum();
    let small: f64 = free_blocks_by_order.iter().enumerate().take(block.order(base) as usize).map(bytes).sum();
    (all > 0.0).then(|| small / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_below_a_size_are_fragments() {
        let blocks = [4, 0, 0, 0, 0, 0, 0, 0, 2, 3, 1];
        let small = (2 << 20) + 4 * 4096;
        let all = small + ((3 * 2 + 4) << 20);
        let found = ratio(&blocks, PageSize::K4, PageSize::M2).unwrap();
        assert!((found - f64::from(small) / f64::from(all)).abs() < 1e-12);
        assert_eq!(ratio(&[], PageSize::K4, PageSize::M2), None);
    }

    #[test]
    fn a_request_that_was_missed_by_far_has_a_remedy() {
        assert_eq!(shortfall(76.0, 80), None, "others freed memory meanwhile");
        assert!(shortfall(45.2, 80).unwrap().contains("drop_caches"));
    }
}
