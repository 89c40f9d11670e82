//! Which options would let a comparison run for a given number of blocks.

use study::comparison::{Comparison, Ended};
use study::plan::interval_blocks;

use super::Conclusion;
use crate::figure::{self, MAX_BLOCKS};
use crate::rows::{self, Row};

/// Margin on an estimated time, because trials vary.
const MARGIN: f64 = 1.1;

impl Conclusion<'_> {
    /// What would decide these undecided rows: a change of the limit that ended the comparison.
    pub(super) fn what_would_settle(&self, rows: &[&Row<'_>]) -> String {
        let needed: Option<Vec<u32>> = rows.iter().map(|row| row.blocks_needed()).collect();
        let Some(blocks) = needed.and_then(|needed| needed.into_iter().max()) else {
            let primary = rows::primary(self.comparison);
            let has_interval = rows.iter().any(|row| row.effect(primary).is_some_and(|effect| effect.low.is_some()));
            return of_unknown(self.comparison, has_interval);
        };
        let what = if rows.len() == 1 { "it" } else { "all of them" };
        if blocks > MAX_BLOCKS {
            let difference = if rows.len() == 1 { "" } else { "smallest " };
            return format!(
                "to settle {what} would take more than {MAX_BLOCKS} blocks: the noise is too large for the {difference}difference"
            );
        }
        let precisions = rows.iter().filter_map(|row| row.precision_needed());
        let Some(precision) = precisions.min_by(f64::total_cmp) else {
            return of_blocks(self.comparison, blocks, what);
        };
        let design = &self.comparison.design;
        let limit = if blocks > design.max_blocks { format!(" --blocks {blocks}") } else { String::new() };
        format!(
            "it ended because it was as precise as asked (--precision {}); a smaller one would settle {what}: --precision {}{limit}",
            figure::precision(design.precision_ratio),
            figure::precision(precision)
        )
    }
}

/// The message if it is unknown how many blocks would decide: as long as there is no interval, what gives one.
fn of_unknown(comparison: &Comparison, has_interval: bool) -> String {
    let blocks = interval_blocks(&comparison.design);
    let (what, verb, option) = match comparison.ended {
        Ended::Time => {
            let time = time_s(comparison, blocks).filter(|_| !has_interval).map(rounded_up);
            ("time", "give it", time.map_or_else(|| "--max-time".to_owned(), |time| format!("--max-time {time}")))
        }
        _ if comparison.design.max_blocks < blocks => ("blocks", "run", format!("--blocks {blocks}")),
        _ => ("blocks", "run", "--blocks".to_owned()),
    };
    if has_interval {
        format!("too few blocks to say how many would settle it: {verb} more {what} ({option})")
    } else {
        format!("an interval takes more {what}: {option}")
    }
}

/// How many blocks would decide `what` ("it", or "all of them"), with the options to raise:
/// `about 40 blocks would settle it: --blocks 40`.
fn of_blocks(comparison: &Comparison, blocks: u32, what: &str) -> String {
    let design = &comparison.design;
    let number = (blocks > design.max_blocks).then(|| format!("--blocks {blocks}"));
    let time = time_s(comparison, blocks).map(|time_s| format!("--max-time {}", rounded_up(time_s)));
    let options: Vec<String> = number.into_iter().chain(time).collect();
    if options.is_empty() {
        format!("about {blocks} blocks would settle {what}, which its limits allow: let it run to its end")
    } else {
        format!("about {blocks} blocks would settle {what}: {}", options.join(" "))
    }
}

/// The time of this number of blocks in seconds, if it exceeds the comparison's time limit.
fn time_s(comparison: &Comparison, blocks: u32) -> Option<f64> {
    let limit_s = comparison.design.max_time_s?;
    // Block 0, which the analysis does not count, takes time as well.
    let done = f64::from(comparison.analysis.as_ref()?.blocks) + 1.0;
    let all = f64::from(blocks) + 1.0;
    let (first, last) = (comparison.trials.first()?, comparison.trials.last()?);
    let others = (comparison.trials.len() - 1).max(1) as f64;
    let done_s = (last.started_s - first.started_s) * (1.0 + 1.0 / others);
    let done_s = if comparison.ended == Ended::Time { done_s.max(limit_s) } else { done_s };
    let needed_s = done_s * all / done * MARGIN;
    (needed_s > limit_s).then_some(needed_s)
}

/// A time in the syntax of `--max-time`, rounded up to ten seconds, whole minutes or whole hours.
pub fn rounded_up(time_s: f64) -> String {
    match time_s {
        short if short <= 120.0 => format!("{}s", (short / 10.0).ceil() * 10.0),
        middle if middle <= 7200.0 => format!("{}m", (middle / 60.0).ceil()),
        long => format!("{}h", (long / 3600.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// The sample, with 15 blocks that took `time_s` in total.
    fn ended(ended: Ended, time_s: f64) -> Comparison {
        let mut comparison = sample::comparison();
        let trials = comparison.trials.len() as f64;
        let starts = comparison.trials.iter_mut().enumerate();
        starts.for_each(|(at, record)| record.started_s = 3.0 + time_s * at as f64 / trials);
        comparison.ended = ended;
        comparison.design.max_time_s = Some(time_s);
        comparison
    }

    #[test]
    fn a_comparison_that_ended_by_time_needs_time() {
        let mut comparison = ended(Ended::Time, 60.0);
        comparison.design.max_blocks = 60;
        assert_eq!(of_blocks(&comparison, 31, "it"), "about 31 blocks would settle it: --max-time 3m");
        assert_eq!(of_blocks(&comparison, 16, "it"), "about 16 blocks would settle it: --max-time 80s");
        assert_eq!(of_blocks(&comparison, 100, "it"), "about 100 blocks would settle it: --blocks 100 --max-time 7m");
        assert_eq!(
            of_blocks(&comparison, 9000, "it"),
            "about 9000 blocks would settle it: --blocks 9000 --max-time 11h"
        );
        assert!(of_unknown(&comparison, true).ends_with("how many would settle it: give it more time (--max-time)"));
        comparison.analysis.as_mut().unwrap().blocks = 2;
        assert_eq!(of_unknown(&comparison, false), "an interval takes more time: --max-time 3m");
        comparison.analysis.as_mut().unwrap().blocks = 15;
        // Even if its trials were so short that they started at the same time.
        comparison.trials.iter_mut().for_each(|record| record.started_s = 0.0);
        assert_eq!(of_blocks(&comparison, 16, "it"), "about 16 blocks would settle it: --max-time 80s");
    }

    #[test]
    fn a_comparison_that_ended_by_blocks_needs_blocks_and_perhaps_time() {
        let mut comparison = ended(Ended::Blocks, 60.0);
        assert_eq!(of_blocks(&comparison, 20, "it"), "about 20 blocks would settle it: --blocks 20 --max-time 90s");
        comparison.design.max_time_s = Some(600.0);
        assert_eq!(of_blocks(&comparison, 20, "it"), "about 20 blocks would settle it: --blocks 20");
        comparison.design.max_time_s = None;
        assert_eq!(of_blocks(&comparison, 20, "it"), "about 20 blocks would settle it: --blocks 20");
        assert!(of_unknown(&comparison, true).ends_with("how many would settle it: run more blocks (--blocks)"));
        comparison.design.max_blocks = 3;
        assert_eq!(of_unknown(&comparison, false), "an interval takes more blocks: --blocks 6");
    }

    #[test]
    fn an_interrupted_comparison_may_need_neither() {
        let mut comparison = ended(Ended::Interrupted, 60.0);
        (comparison.design.max_blocks, comparison.design.max_time_s) = (60, Some(600.0));
        assert!(of_blocks(&comparison, 20, "it").ends_with("which its limits allow: let it run to its end"));
    }
}
