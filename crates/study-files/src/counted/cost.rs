//! Costs of events, and the times that follow from counts.

use serde::{Deserialize, Serialize};

use super::Counts;

/// An interval of possible values, bounds included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// The basis on which a cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Instructions were counted while the real code ran.
    Counted,
    /// Others have measured the cost and describe how.
    Published,
    /// Measured by pagelab.
    Measured,
    /// There is no source: the range covers the values that seem possible.
    Assumed,
}

/// The cost of an event: instructions, which take time, and additional time that is not spent on instructions (waiting
/// for memory or other processors).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    pub event: String,
    /// Instructions per event.
    pub instructions: Range,
    /// Additional time per event, in nanoseconds.
    pub ns: Range,
    /// The basis of both ranges.
    pub basis: Basis,
    /// Where the cost is documented: a kernel function, a manual, a message, a measurement.
    pub source: String,
}

/// The time per instruction, the same for all events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Nanoseconds per instruction.
    pub ns: Range,
    /// The basis of the range.
    pub basis: Basis,
    /// Where the pace is documented.
    pub source: String,
}

/// The costs of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// The time per instruction.
    pub instruction: Pace,
    /// The cost of each event.
    pub events: Vec<Cost>,
}

impl Basis {
    /// The basis as one word.
    pub fn word(self) -> &'static str {
        match self {
            Basis::Counted => "counted",
            Basis::Published => "published",
            Basis::Measured => "measured",
            Basis::Assumed => "assumed",
        }
    }
}

impl Range {
    /// A range with a single value.
    pub fn exactly(figure: f64) -> Range {
        Range { low: figure, high: figure }
    }

    /// Whether the range contains a value.
    pub fn holds(self, figure: f64) -> bool {
        self.low <= figure && figure <= self.high
    }

    /// The saving if the cost ratio is in this range: 1 minus the range.
    pub(super) fn saved(self) -> Range {
        Range { low: 1.0 - self.high, high: 1.0 - self.low }
    }

    /// The range of the mean, computed separately for each bound: no choice of costs gives a mean outside it. `None`
    /// for no ranges.
    pub fn mean(ranges: &[Range]) -> Option<Range> {
        let mean = |of: fn(&Range) -> f64| ranges.iter().map(of).sum::<f64>() / ranges.len() as f64;
        (!ranges.is_empty()).then(|| Range { low: mean(|range| range.low), high: mean(|range| range.high) })
    }
}

/// An event of two variants: its count in each, and its cost.
struct Term {
    of: f64,
    base: f64,
    cost: Range,
}

impl Costs {
    /// Seconds that these counts take.
    pub fn time_s(&self, counts: &Counts) -> Range {
        let at = |end: fn(&Range) -> f64| {
            let pace = end(&self.instruction.ns);
            let ns = |cost: &Cost| count(counts, cost) * (end(&cost.instructions) * pace + end(&cost.ns));
            self.events.iter().map(ns).sum::<f64>() * 1e-9
        };
        Range { low: at(|range| range.low), high: at(|range| range.high) }
    }

    /// Time of `of` divided by time of `base`, as a range over all choices of costs. `None` if `base` costs nothing.
    pub fn ratio(&self, of: &Counts, base: &Counts) -> Option<Range> {
        let Range { low, high } = self.instruction.ns;
        // With everything else fixed the ratio is monotonic in the pace, so its extremes are at the ends of the pace.
        let ends = [low, high].map(|pace| {
            self.terms(of, base, |cost| Range {
                low: cost.instructions.low * pace + cost.ns.low,
                high: cost.instructions.high * pace + cost.ns.high,
            })
        });
        let ranges = ends.iter().map(|terms| extremes(terms)).collect::<Option<Vec<Range>>>()?;
        let all = |pick: fn(f64, f64) -> f64, of: fn(&Range) -> f64| ranges.iter().map(of).reduce(pick);
        Some(Range { low: all(f64::min, |range| range.low)?, high: all(f64::max, |range| range.high)? })
    }

    /// Same as [`Costs::ratio`] for instructions only, as if nothing else took time.
    pub fn ratio_of_instructions(&self, of: &Counts, base: &Counts) -> Option<Range> {
        extremes(&self.terms(of, base, |cost| cost.instructions))
    }

    fn terms(&self, of: &Counts, base: &Counts, cost: impl Fn(&Cost) -> Range) -> Vec<Term> {
        let term = |one: &Cost| Term { of: count(of, one), base: count(base, one), cost: cost(one) };
        self.events.iter().map(term).collect()
    }
}

fn count(counts: &Counts, cost: &Cost) -> f64 {
    counts.get(&cost.event).copied().unwrap_or_default() as f64
}

fn extremes(terms: &[Term]) -> Option<Range> {
    Some(Range { low: extreme(terms, false)?, high: extreme(terms, true)? })
}

/// The largest (or the smallest) ratio of two sums over all choices of costs, by Dinkelbach's iteration: each cost is
/// set to the end of its range that moves the ratio beyond the best one so far. The iteration terminates, because each
/// step is one of finitely many choices and none occurs twice.
fn extreme(terms: &[Term], is_largest: bool) -> Option<f64> {
    let ratio = |at: f64| {
        let cost = |term: &Term| {
            let raises = term.of - at * term.base > 0.0;
            if raises == is_largest { term.cost.high } else { term.cost.low }
        };
        let sum = |count: fn(&Term) -> f64| terms.iter().map(|term| count(term) * cost(term)).sum::<f64>();
        let base = sum(|term| term.base);
        (base > 0.0).then(|| sum(|term| term.of) / base)
    };
    let mut best = ratio(1.0)?;
    for _ in 0..=terms.len() + 64 {
        let next = ratio(best)?;
        if (next - best).abs() <= 1e-12 * best.abs() {
            return Some(next);
        }
        best = next;
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = Range> {
        (0.0..10.0f64, 0.0..10.0f64).prop_map(|(low, more)| Range { low, high: low + more })
    }

    fn costs(ranges: &[(Range, Range)], pace: Range) -> Costs {
        let cost = |(at, (instructions, ns)): (usize, &(Range, Range))| Cost {
            event: at.to_string(),
            instructions: *instructions,
            ns: *ns,
            basis: Basis::Assumed,
            source: "a test".to_owned(),
        };
        Costs {
            instruction: Pace { ns: pace, basis: Basis::Assumed, source: "a test".to_owned() },
            events: ranges.iter().enumerate().map(cost).collect(),
        }
    }

    fn counts(of: &[u64]) -> Counts {
        of.iter().enumerate().map(|(at, count)| (at.to_string(), *count)).collect()
    }

    /// Tries every combination of range ends.
    fn slow(ranges: &[(Range, Range)], pace: Range, of: &[u64], base: &[u64]) -> Option<Range> {
        let ends = |range: Range| [range.low, range.high];
        let mut all: Option<Range> = None;
        for choice in 0..1u32 << (2 * ranges.len() + 1) {
            let pick = |range: Range, bit: usize| ends(range)[(choice >> bit & 1) as usize];
            let pace = pick(pace, 2 * ranges.len());
            let cost = |at: usize| pick(ranges[at].0, 2 * at) * pace + pick(ranges[at].1, 2 * at + 1);
            let sum = |counts: &[u64]| counts.iter().enumerate().map(|(at, n)| *n as f64 * cost(at)).sum::<f64>();
            if sum(base) <= 0.0 {
                return None;
            }
            let ratio = sum(of) / sum(base);
            let so_far = all.unwrap_or(Range::exactly(ratio));
            all = Some(Range { low: so_far.low.min(ratio), high: so_far.high.max(ratio) });
        }
        all
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn a_ratio_has_the_ends_that_every_choice_has(
            ranges in prop::collection::vec((range(), range()), 1..5),
            pace in range(),
            of in prop::collection::vec(0..1000u64, 5),
            base in prop::collection::vec(1..1000u64, 5),
        ) {
            let (of, base) = (&of[..ranges.len()], &base[..ranges.len()]);
            let found = costs(&ranges, pace).ratio(&counts(of), &counts(base));
            match (found, slow(&ranges, pace, of, base)) {
                (Some(found), Some(slow)) => {
                    prop_assert!((found.low - slow.low).abs() < 1e-9 * slow.high.max(1.0), "{found:?} {slow:?}");
                    prop_assert!((found.high - slow.high).abs() < 1e-9 * slow.high.max(1.0), "{found:?} {slow:?}");
                }
                (None, None) => {}
                (found, slow) => prop_assert!(false, "{found:?} {slow:?}"),
            }
        }
    }

    #[test]
    fn the_saving_is_exact_if_both_have_only_the_same_event() {
        let costs = costs(&[(Range::exactly(50.0), Range::default())], Range { low: 0.1, high: 0.4 });
        let (of, base) = (counts(&[1]), counts(&[4]));
        assert_eq!(costs.ratio(&of, &base), Some(Range::exactly(0.25)));
        let time = costs.time_s(&base);
        assert!((time.low - 20e-9).abs() < 1e-15 && (time.high - 80e-9).abs() < 1e-15);
    }

    #[test]
    fn there_is_no_ratio_to_a_baseline_without_cost() {
        let costs = costs(&[(Range::exactly(1.0), Range::default())], Range::exactly(1.0));
        assert_eq!(costs.ratio(&counts(&[1]), &counts(&[0])), None);
        assert_eq!(Range::mean(&[]), None);
    }
}
