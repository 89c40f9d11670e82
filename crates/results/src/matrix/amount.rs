//! A change of a metric in words, for the answer of a study.

use study::stats::Effect;

use crate::figure::Change;

/// From this ratio on, a change is a multiple: per cent are hard to read there.
const MULTIPLE: f64 = 3.0;
/// Below this ratio, a change is the share that is left.
const REST: f64 = 0.1;

/// A change of a metric: `12.3 % less wall time`, `41 times the walks`, `6 % of the walks`.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// `12.3 % less`, `41 times`, `6 %`
    pub change: String,
    /// The metric's name: `wall time`.
    pub noun: String,
    /// The interval in the same unit, in brackets: ` (-13.5 to -11.0 %)`; empty if there is none.
    pub range: String,
    /// The words between change and metric, and between metric and baseline.
    links: [&'static str; 2],
}

impl Amount {
    pub fn of(metric: &str, is_count: bool, effect: &Effect) -> Amount {
        let interval = effect.low.zip(effect.high);
        let (change, range, links) = match effect.ratio {
            ratio if ratio >= MULTIPLE => {
                let range = interval.map(|(low, high)| format!(" ({} to {} times)", times(low), times(high)));
                (format!("{} times", times(ratio)), range, [" the ", " of "])
            }
            ratio if ratio < REST => {
                let percent = |ratio: f64| format!("{:.1}", 100.0 * ratio);
                let range = interval.map(|(low, high)| format!(" ({} to {} %)", percent(low), percent(high)));
                (format!("{} %", percent(ratio)), range, [" of the ", " of "])
            }
            _ => {
                let change = Change::of(effect);
                let words = change.in_words();
                let words = if is_count { words.replace("less", "fewer") } else { words };
                (words, change.range().map(|range| format!(" ({range} %)")), [" ", " than "])
            }
        };
        Amount { change, noun: metric.to_owned(), range: range.unwrap_or_default(), links }
    }

    /// `12.3 % less wall time than base`, `41 times the walks of base`
    pub fn against(&self, baseline: &str) -> String {
        let [to_noun, to_baseline] = self.links;
        format!("{}{to_noun}{}{to_baseline}{baseline}", self.change, self.noun)
    }
}

/// `41`, `3.2`
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ratio: f64, interval: Option<(f64, f64)>) -> String {
        let (low, high) = interval.unzip();
        let amount = Amount::of("walks", true, &Effect { blocks: 0, ratio, low, high, p_adjusted: None });
        amount.against("base") + &amount.range
    }

    #[test]
    fn large_changes_are_multiples() {
        assert_eq!(words(0.877, Some((0.86, 0.89))), "12.3 % fewer walks than base (-14.0 to -11.0 %)");
        assert_eq!(words(1.5, None), "50.0 % more walks than base");
        assert_eq!(words(40.783, Some((38.2, 44.0))), "41 times the walks of base (38 to 44 times)");
        assert_eq!(words(3.21, None), "3.2 times the walks of base");
        assert_eq!(words(0.059, Some((0.05, 0.07))), "5.9 % of the walks of base (5.0 to 7.0 %)");
    }
}
