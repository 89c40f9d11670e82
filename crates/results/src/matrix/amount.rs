//! A change of a metric in words, for the answer of a study.

use study::stats::Effect;

use crate::figure::Change;

/// From this ratio on, a sentence has a multiple: per cent are hard to read there. Columns of figures have per cent up to ten times.
const MULTIPLE: f64 = 3.0;
/// Below this ratio, a sentence has the share that is left.
const REST: f64 = 0.1;

/// A change of a metric: `12.3 % less wall time`, `41 times the walks`, `6 % of the walks`.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// `12.3 % less`, `41 times`, `6 %`
    pub change: String,
    noun: String,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Percent,
    Multiple,
    Rest,
}

impl Amount {
    pub fn of(metric: &str, is_count: bool, effect: &Effect) -> Amount {
        let (change, form) = match effect.ratio {
            ratio if ratio >= MULTIPLE => (format!("{} times", times(ratio)), Form::Multiple),
            ratio if ratio < REST => (format!("{} %", share(ratio)), Form::Rest),
            _ => {
                let words = Change::of(effect).in_words();
                (if is_count { words.replace("less", "fewer") } else { words }, Form::Percent)
            }
        };
        Amount { change, noun: metric.to_owned(), form }
    }

    /// `12.3 % less wall time than base`, `41 times the walks of base`
    pub fn against(&self, baseline: &str) -> String {
        let link = if self.form == Form::Percent { "than" } else { "of" };
        format!("{} {link} {baseline}", self.of_noun())
    }

    /// `12.3 % less wall time`, `41 times the walks`
    pub fn of_noun(&self) -> String {
        let link = match self.form {
            Form::Percent => "",
            Form::Multiple => "the ",
            Form::Rest => "of the ",
        };
        format!("{} {link}{}", self.change, self.noun)
    }

    /// The interval of an effect in the unit of this change: `-13.5 to -11.0 %`, `38 to 44 times`.
    pub fn range(&self, effect: &Effect) -> Option<String> {
        let (low, high) = effect.low.zip(effect.high)?;
        match self.form {
            Form::Percent => Change::of(effect).range().map(|range| format!("{range} %")),
            Form::Multiple => Some(format!("{} to {} times", times(low), times(high))),
            Form::Rest => Some(format!("{} to {} %", share(low), share(high))),
        }
    }

    /// Whether both are changes of the same metric in the same unit.
    pub fn is_alike(&self, other: &Amount) -> bool {
        (&self.noun, self.form) == (&other.noun, other.form)
    }
}

/// `41`, `3.2`
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

/// A small share in per cent, which is never zero.
fn share(ratio: f64) -> String {
    if ratio < 0.0005 { "<0.1".to_owned() } else { format!("{:.1}", 100.0 * ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ratio: f64, interval: Option<(f64, f64)>) -> String {
        let (low, high) = interval.unzip();
        let effect = Effect { blocks: 0, ratio, low, high, p_adjusted: None };
        let amount = Amount::of("walks", true, &effect);
        amount.against("base") + &amount.range(&effect).map(|range| format!(" ({range})")).unwrap_or_default()
    }

    #[test]
    fn large_changes_are_multiples_with_their_intervals() {
        assert_eq!(words(0.877, Some((0.86, 0.89))), "12.3 % fewer walks than base (-14.0 to -11.0 %)");
        assert_eq!(words(1.5, None), "50.0 % more walks than base");
        assert_eq!(words(40.783, Some((38.2, 44.0))), "41 times the walks of base (38 to 44 times)");
        assert_eq!(words(3.21, None), "3.2 times the walks of base");
        assert_eq!(words(0.059, Some((0.05, 0.07))), "5.9 % of the walks of base (5.0 to 7.0 %)");
        assert_eq!(words(0.0004, None), "<0.1 % of the walks of base");
    }
}
