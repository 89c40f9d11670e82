//! What is undecided, in words.

use study::metric::names;
use study::stats::Outcome;

use super::{Conclusion, asked, labels};
use crate::figure::MAX_BLOCKS;
use crate::rows::{self, Row, baseline_label};

impl Conclusion<'_> {
    /// What is undecided, after the policies that were shown to be worse.
    pub(super) fn undecided(&self, rows: &[&Row<'_>]) -> String {
        let detail = match (rows, self.farthest(rows)) {
            ([one], _) => self.change(one).map(|change| format!(": {change}")),
            (_, Some(far)) => self.change(far).map(|change| {
                // The blocks that settle all of them are those of the smallest difference.
                let needed = far.blocks_needed().filter(|blocks| *blocks <= MAX_BLOCKS);
                let needed = needed.map(|blocks| format!(", which about {blocks} blocks in all would settle"));
                let (needed, several) = (needed.unwrap_or_default(), self.not_for_several(far));
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

    /// Another metric that varies less on this host than the one that decides, or nothing.
    fn steadier_metric(&self) -> &'static str {
        let design = &self.comparison.design;
        let is_steadier = design.contention.as_ref().is_some_and(|load| {
            rows::primary(self.comparison) == names::WALL_S && load.steadier_metric() == names::CPU_S
        });
        if is_steadier { "; the processors were shared, so CPU time is steadier (--primary cpu)" } else { "" }
    }

    /// Why a policy is undecided although its interval excludes no change: several policies were compared.
    fn not_for_several(&self, row: &Row<'_>) -> String {
        let compared = self.policies() - 1;
        let interval = row.effect(rows::primary(self.comparison)).and_then(|effect| effect.low.zip(effect.high));
        let is_clear = interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        if is_clear && compared > 1 {
            format!(", which is not enough where {compared} policies are compared at once")
        } else {
            String::new()
        }
    }

    /// `thp is worse than default (CPU time 24.8 % more than default (...)); `, or nothing.
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
