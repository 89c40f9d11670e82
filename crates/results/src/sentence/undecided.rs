//! The sentence of a comparison in which arms are undecided.

use study::metric::names;
use study::stats::{Effect, Outcome};

use super::{Conclusion, asked, labels};
use crate::figure::{Change, MAX_BLOCKS};
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
                let needed = needed.map(|blocks| format!("; about {blocks} blocks would settle that one"));
                let (needed, several) = (needed.unwrap_or_default(), self.multiple_comparison_note(far));
                format!("; the largest difference: {}, {change}{several}{needed}", asked(far))
            }),
            _ => None,
        };
        let parts = self.farthest(rows).and_then(|far| self.opposite_parts(far)).unwrap_or_default();
        let has_interval =
            |row: &&Row<'_>| row.effect(rows::primary(self.comparison)).is_some_and(|one| one.low.is_some());
        let why =
            if rows.iter().any(has_interval) { "the noise hides whether" } else { "too few blocks to tell whether" };
        let which = match rows.len() {
            1 | 2 => labels(rows),
            several => format!("{several} {}", self.noun()),
        };
        format!(
            "{}undecided: {why} {which} {} from {}{}{parts}; {}{}",
            self.shown_worse(),
            if rows.len() == 1 { "differs" } else { "differ" },
            baseline_label(self.comparison),
            detail.unwrap_or_default(),
            self.what_would_settle(rows),
            self.steadier_metric()
        )
    }

    /// `; its user time is 17.6 % less (24.0 to 9.4) and its system time 41 % more (21 to 75)`: a policy saves misses and costs work of the
    /// kernel, and the sum hides both.
    fn opposite_parts(&self, row: &Row<'_>) -> Option<String> {
        if ![names::WALL_S, names::CPU_S].contains(&rows::primary(self.comparison)) {
            return None;
        }
        let [user, system] = [names::USER_S, names::SYSTEM_S].map(|name| row.effect(name));
        let (user, system) = (user?, system?);
        let is_less = |effect: &Effect| effect.high.is_some_and(|high| high < 1.0);
        let is_more = |effect: &Effect| effect.low.is_some_and(|low| low > 1.0);
        let are_opposite = (is_less(user) && is_more(system)) || (is_more(user) && is_less(system));
        let in_words = |effect| {
            let change = Change::of(effect);
            let range = change.range_in_words().map(|range| format!(" ({range})")).unwrap_or_default();
            format!("{}{range}", change.in_words())
        };
        are_opposite.then(|| format!("; its user time is {}, and its system time {}", in_words(user), in_words(system)))
    }

    /// Advice to use CPU time if it is steadier on this host than wall time, which decides here; else empty.
    fn steadier_metric(&self) -> &'static str {
        let design = &self.comparison.design;
        let is_steadier = design.contention.as_ref().is_some_and(|load| {
            rows::primary(self.comparison) == names::WALL_S && load.steadier_metric() == names::CPU_S
        });
        let has_client = self.comparison.invocation.client.is_some();
        if is_steadier && has_client {
            return "; other programs shared the processors, with which the client's wall time varies";
        }
        if is_steadier { "; the processors were shared, so CPU time is steadier (--primary cpu)" } else { "" }
    }

    /// Why a policy is undecided although its own interval excludes no change: several policies were compared.
    fn multiple_comparison_note(&self, row: &Row<'_>) -> String {
        let compared = self.policies() - 1;
        let interval = row.effect(rows::primary(self.comparison)).and_then(|effect| effect.low.zip(effect.high));
        let is_clear = interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        if is_clear && compared > 1 { format!(", not enough among {compared} policies") } else { String::new() }
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
