//! The sentence of a comparison in which arms are undecided.

use study::metric::names;
use study::stats::Outcome;

use super::{Conclusion, asked, labels};
use crate::figure::MAX_BLOCKS;
use crate::rows::{self, Row, baseline_label};

impl Conclusion<'_> {
    /// The sentence: first the policies that were shown to be worse, then what is undecided.
    pub(super) fn undecided(&self, rows: &[&Row<'_>]) -> String {
        let detail = match (rows, self.farthest(rows)) {
            ([one], _) => self.change(one).map(|change| format!(": {change}")),
            (_, Some(far)) => self.change(far).map(|change| {
                // The number of blocks for the largest difference only. Deciding all policies takes as many blocks as
                // the smallest difference needs.
                let needed = far.blocks_needed().filter(|blocks| *blocks <= MAX_BLOCKS);
                let needed = needed.map(|blocks| format!(", which about {blocks} blocks in all would settle"));
                let (needed, several) = (needed.unwrap_or_default(), self.multiple_comparison_note(far));
                format!("; the largest difference: {}, {change}{several}{needed}", asked(far))
            }),
            _ => None,
        };
        let which = match rows.len() {
            1 | 2 => labels(rows),
            several => format!("{several} {}", self.noun()),
        };
        format!(
            "{}undecided: the noise hides whether {which} {} from {}{}; {}{}",
            self.shown_worse(),
            if rows.len() == 1 { "differs" } else { "differ" },
            baseline_label(self.comparison),
            detail.unwrap_or_default(),
            self.what_would_settle(rows),
            self.steadier_metric()
        )
    }

    /// Advice to use CPU time if it is steadier on this host than wall time, which decides here; else empty.
    fn steadier_metric(&self) -> &'static str {
        let design = &self.comparison.design;
        let is_steadier = design.contention.as_ref().is_some_and(|load| {
            rows::primary(self.comparison) == names::WALL_S && load.steadier_metric() == names::CPU_S
        });
        if is_steadier { "; the processors were shared, so CPU time is steadier (--primary cpu)" } else { "" }
    }

    /// Why a policy is undecided although its own interval excludes no change: several policies were compared.
    fn multiple_comparison_note(&self, row: &Row<'_>) -> String {
        let compared = self.policies() - 1;
        let interval = row.effect(rows::primary(self.comparison)).and_then(|effect| effect.low.zip(effect.high));
        let is_clear = interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        if is_clear && compared > 1 {
            format!(", which is not enough where {compared} policies are compared at once")
        } else {
            String::new()
        }
    }

    /// `thp is worse than default (CPU time 24.8 % more than default (...)); `, or empty.
    fn shown_worse(&self) -> String {
        let worse = self.with(|outcome| *outcome == Outcome::Worse);
        let baseline = baseline_label(self.comparison);
        match worse.as_slice() {
            [] => String::new(),
            [one] => {
                let change = self.change(one).map(|change| format!(": {change}")).unwrap_or_default();
                format!("{} is worse than {baseline}{change}; ", asked(one))
            }
            several => format!("{} are worse than {baseline}; ", labels(several)),
        }
    }
}
