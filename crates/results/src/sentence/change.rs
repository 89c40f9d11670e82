//! The change of the primary metric in words.

use study::metric::Unit;
use study::stats::Effect;

use super::Conclusion;
use crate::figure::{self, Change};
use crate::rows::{self, Row, baseline_label};

impl Conclusion<'_> {
    /// `wall time 12.3 % less than default (95 % interval 11.0 to 13.5 %, 14 blocks)`
    pub(super) fn change(&self, row: &Row<'_>) -> Option<String> {
        let primary = rows::primary(self.comparison);
        let effect = row.effect(primary)?;
        Some(format!(
            "{} {} than {} ({})",
            rows::title(self.comparison, primary),
            Change::of(effect).in_words(),
            baseline_label(self.comparison),
            self.interval(effect)
        ))
    }

    /// `1.14 times as fast as default (wall time 12.3 % less, 95 % interval 11.0 to 13.5 %, 14 blocks)`; `None` if the metric is not a
    /// time, or did not decrease.
    pub(super) fn gain(&self, row: &Row<'_>) -> Option<String> {
        let metric = figure::metric(&self.comparison.design.metrics, rows::primary(self.comparison));
        let effect = row.effect(&metric.name)?;
        let is_gain = metric.unit == Unit::Seconds && effect.ratio > 0.0 && effect.ratio < 1.0;
        is_gain.then(|| {
            format!(
                "{} times as fast as {} ({} {}, {})",
                figure::significant(1.0 / effect.ratio, 3),
                baseline_label(self.comparison),
                rows::title(self.comparison, &metric.name),
                Change::of(effect).in_words(),
                self.interval(effect)
            )
        })
    }

    /// `95 % interval 11.0 to 13.5 %, 14 blocks`; without the confidence next to the table of policies, whose heading
    /// has it.
    fn interval(&self, effect: &Effect) -> String {
        let blocks = if effect.blocks == 1 { "1 block".to_string() } else { format!("{} blocks", effect.blocks) };
        match Change::of(effect).range_in_words() {
            Some(range) if self.is_brief => format!("{range} in {blocks}"),
            Some(range) => {
                format!("{} interval {range}, {blocks}", figure::confidence(self.comparison.design.confidence))
            }
            None => format!("{blocks}, too few for an interval"),
        }
    }
}
