//! The result of a comparison in one sentence ([`conclude`]).

use policy::Policy;
use policy::verdict::Holding;
use study::comparison::{Comparison, Ended};
use study::metric::names;
use study::stats::{Effect, GainShare, Outcome};

use crate::figure::{self, Change};
use crate::rows::best;
use crate::rows::{self, Row, baseline_label};
use crate::text::{enumerate, printable};

/// One sentence that states the result.
///
/// If there is no result, the sentence says so: what is undecided and how many blocks would settle it, and which arms gave a wrong
/// answer. A policy that was not shown to be in force is called `asking for POLICY`.
pub fn conclude(comparison: &Comparison) -> String {
    Conclusion { comparison, rows: rows::rows(comparison), is_brief: false }.sentence()
}

/// Like [`conclude`], but without what the table of policies already shows: coverage, memory that hardly differs, and the changes of the
/// beaten policies.
pub fn headline(comparison: &Comparison) -> String {
    Conclusion { comparison, rows: rows::rows(comparison), is_brief: true }.sentence()
}

/// `wall time 13.7 % less (6.0 to 20.2 %)`: the change of the primary metric under a policy; `None` without one.
pub fn of_policy(comparison: &Comparison, policy: &Policy) -> Option<String> {
    let rows = rows::rows(comparison);
    let row = rows.iter().find(|row| row.index != comparison.design.baseline && row.arm.policy == *policy)?;
    let primary = rows::primary(comparison);
    let change = Change::of(row.effect(primary)?);
    let range = change.range_in_words().map(|range| format!(" ({range})")).unwrap_or_default();
    Some(format!("{} {}{range}", rows::title(comparison, primary), change.in_words()))
}

/// Splits a sentence into its claim, and the figures and reservations that follow.
pub fn claim_and_rest(sentence: &str) -> (&str, &str) {
    let end = [" (", ";"].into_iter().filter_map(|end| sentence.find(end)).min();
    sentence.split_at(end.unwrap_or(sentence.len()))
}

struct Conclusion<'a> {
    comparison: &'a Comparison,
    rows: Vec<Row<'a>>,
    is_brief: bool,
}

impl Conclusion<'_> {
    fn sentence(&self) -> String {
        let clauses = [vec![self.main_clause()], self.reservations()].concat();
        clauses.join("; ") + "."
    }

    fn main_clause(&self) -> String {
        if let Ended::Failed { message } = &self.comparison.ended {
            return format!("the comparison failed: {}", printable(message));
        }
        if self.others().all(|row| row.unsupported().is_some()) {
            return self.baseline_only();
        }
        if self.comparison.analysis.is_none() {
            return self.too_early();
        }
        if self.others().all(|row| row.unsupported().is_some() || self.comparison.design.is_aa(row.index)) {
            return self.only_aa();
        }
        match best(self.comparison).first().and_then(|best| self.rows.get(*best)) {
            Some(best) => self.best(best),
            None => self.no_best(),
        }
    }

    /// The sentence if no arm is best. It is about the undecided arms if there are any, else about the decided ones;
    /// failing these, it says why no figure counts.
    fn no_best(&self) -> String {
        if !self.with(|outcome| matches!(outcome, Outcome::Better { .. })).is_empty() {
            return self.better_without_best();
        }
        let undecided = self.with(|outcome| matches!(outcome, Outcome::Undecided { .. }));
        if !undecided.is_empty() {
            return self.undecided(&undecided);
        }
        let equivalent = self.with(|outcome| *outcome == Outcome::Equivalent);
        let worse = self.with(|outcome| *outcome == Outcome::Worse);
        match (self.nearest(&equivalent), self.nearest(&worse)) {
            (Some(nearest), None) => self.equivalent(&equivalent, nearest),
            (Some(nearest), Some(_)) => {
                format!("{}, and the others are worse", self.equivalent(&equivalent, nearest))
            }
            (None, Some(nearest)) => self.worse(&worse, nearest),
            (None, None) => self
                .within_cost()
                .unwrap_or_else(|| "no result: no policy but the baseline gave figures that count".to_owned()),
        }
    }

    fn best(&self, row: &Row<'_>) -> String {
        let rivals = row.analysis.into_iter().flat_map(|analysis| &analysis.tied).filter_map(|arm| self.rows.get(*arm));
        let is_better = |row: &Row<'_>| row.analysis.is_some_and(|one| matches!(one.outcome, Outcome::Better { .. }));
        // A tied arm without a change that is shown may be too noisy to be compared with anything.
        let (tied, open): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rivals.partition(|row| is_better(row));
        let names = |rows: &[&Row<'_>]| enumerate(&rows.iter().map(|row| row.label()).collect::<Vec<_>>());
        let place = match (tied.is_empty(), open.is_empty()) {
            (true, true) => format!("the best of {}", self.counted()),
            (false, true) => format!("tied best with {}", names(&tied)),
            (true, false) => format!("tied best with {} (undecided)", names(&open)),
            (false, false) => format!("tied best with {}, and with {} (undecided)", names(&tied), names(&open)),
        };
        let change = self.gain(row).or_else(|| self.change(row));
        let change = change.map(|change| format!(": {change}")).unwrap_or_default();
        let held = if self.is_brief { String::new() } else { held(row) };
        format!("{} is {place}{change}{}{held}", asked(row), self.memory(row))
    }

    /// `, for 1.2 times the peak memory`
    fn memory(&self, row: &Row<'_>) -> String {
        let Some(effect) = row.effect(names::PEAK_RESIDENT_BYTES) else { return String::new() };
        match effect.ratio {
            ratio if (0.95..1.05).contains(&ratio) && self.is_brief => String::new(),
            ratio if (0.95..1.05).contains(&ratio) => ", for about the same peak memory".to_string(),
            ratio if ratio < 10.0 => format!(", for {ratio:.1} times the peak memory"),
            ratio => format!(", for {ratio:.0} times the peak memory"),
        }
    }

    /// The sentence if the baseline's own policy was not in force, so that no arm may be called best.
    fn better_without_best(&self) -> String {
        let better = self.with(|outcome| matches!(outcome, Outcome::Better { .. }));
        let changes = better.iter().filter_map(|row| Some(format!("{} ({})", asked(row), self.change(row)?)));
        format!(
            "no policy is called best, because {} itself was not shown to be in force; better than what ran in its place: {}",
            baseline_label(self.comparison),
            enumerate(&changes.collect::<Vec<_>>())
        )
    }

    fn equivalent(&self, rows: &[&Row<'_>], nearest: &Row<'_>) -> String {
        let which = if rows.len() == 1 { String::new() } else { format!("{}: ", asked(nearest)) };
        let names = labels(rows);
        format!(
            "nothing gained: {names} {} the {} of {} by no more than {} % in either direction{}",
            if rows.len() == 1 || names.starts_with("asking for ") { "changes" } else { "change" },
            rows::title(self.comparison, rows::primary(self.comparison)),
            baseline_label(self.comparison),
            figure::plain(self.comparison.design.band_ratio * 100.0),
            self.change(nearest).map(|change| format!("; {which}{change}")).unwrap_or_default()
        )
    }

    fn worse(&self, rows: &[&Row<'_>], nearest: &Row<'_>) -> String {
        format!(
            "{} is the best of {}: {}{} has {}",
            baseline_label(self.comparison),
            self.counted(),
            if rows.len() == 1 { "" } else { "even " },
            asked(nearest),
            self.change(nearest).unwrap_or_default()
        )
    }

    /// The sentence if all changes could be caused by the tracer itself.
    fn within_cost(&self) -> Option<String> {
        let rows = self.with(|outcome| *outcome == Outcome::WithinTracerCost);
        let far = self.farthest(&rows)?;
        let which = if rows.len() == 1 { String::new() } else { format!("{}: ", far.label()) };
        let change = self.change(far).map(|change| format!("; {which}{change}")).unwrap_or_default();
        Some(format!(
            "nothing is claimed of {}: tracing overhead could explain the difference{change}{}",
            labels(&rows),
            self.cost(far)
        ))
    }

    /// `; tracing overhead +3.1 % (+2.2 to +4.0)`
    fn cost(&self, row: &Row<'_>) -> String {
        let Some(cost) = row.cost(&self.comparison.design.primary) else { return String::new() };
        let range = cost.range().map(|range| format!(" ({range})")).unwrap_or_default();
        format!("; tracing overhead {}{range}", cost.estimate())
    }

    fn only_aa(&self) -> String {
        let baseline = baseline_label(self.comparison);
        let Some((row, change)) = self.others().find_map(|row| Some((row, self.change(row)?))) else {
            return format!("A/A: {baseline} was run against itself, and there are too few blocks to say more");
        };
        let conclusion = match row.analysis.map(|analysis| &analysis.outcome) {
            Some(Outcome::Better { .. } | Outcome::Worse) => {
                "more than chance explains, so differences of this size mean nothing here".to_string()
            }
            Some(Outcome::Undecided { .. }) => {
                format!("and the noise hides smaller ones; {}", self.what_would_settle(&[row]))
            }
            _ => format!("as it should be, within {} %", figure::plain(self.comparison.design.band_ratio * 100.0)),
        };
        format!("A/A: {baseline} against itself has {change}, {conclusion}")
    }

    fn baseline_only(&self) -> String {
        let baseline = &self.rows.get(self.comparison.design.baseline);
        let label = baseline_label(self.comparison);
        let figure = baseline
            .and_then(|row| row.median(rows::primary(self.comparison)))
            .map(|median| {
                let metric = figure::metric(&self.comparison.design.metrics, rows::primary(self.comparison));
                format!(" ({} {})", rows::title(self.comparison, &metric.name), figure::short(median, metric.unit))
            })
            .unwrap_or_default();
        if baseline.is_some_and(|row| row.unsupported().is_some()) {
            return format!("nothing was measured: the baseline {label} is not supported here");
        }
        match self.others().count() {
            0 => format!("only the baseline {label} was asked for{figure}: there is nothing to compare it with"),
            1 => format!("nothing to compare {label}{figure} with: the other policy is not supported here"),
            others => {
                format!(
                    "nothing to compare {label}{figure} with: none of the {others} other policies is supported here"
                )
            }
        }
    }

    fn too_early(&self) -> String {
        let why = match &self.comparison.ended {
            Ended::NotEnded => "it is still running, or was killed",
            Ended::Interrupted => "it was interrupted",
            Ended::Time => "the time was up (--max-time)",
            Ended::TooSlow { message } => return format!("no result: {}", printable(message)),
            _ => "it ended",
        };
        format!("no result: {why} before the first block that counts was complete")
    }

    /// Reservations that accompany any result.
    fn reservations(&self) -> Vec<String> {
        let mut clauses: Vec<String> = self.gain_shares().filter(|_| !self.is_brief).into_iter().collect();
        clauses.extend(self.claimed().into_iter().filter_map(|row| not_held(row, self.is_brief)));
        if self.comparison.analysis.is_some() {
            match &self.comparison.ended {
                Ended::NotEnded => clauses.push("the comparison has not ended".to_string()),
                Ended::Interrupted => clauses.push("it was interrupted".to_string()),
                Ended::TooSlow { message } => clauses.push(format!("it ended because {}", printable(message))),
                _ => {}
            }
        }
        // If the comparison failed because of a wrong or late answer, its end already names that arm.
        if matches!(self.comparison.ended, Ended::Failed { .. } | Ended::TooSlow { .. }) {
            return clauses;
        }
        for row in &self.rows {
            if let Some(Outcome::WrongAnswer { message }) = row.analysis.map(|analysis| &analysis.outcome) {
                clauses.push(format!("{} gave a wrong answer ({})", row.label(), printable(message)));
            }
            if let Some(message) = &row.too_slow {
                clauses.push(format!("{} {message}", row.label()));
            }
        }
        clauses
    }

    /// `of that gain, mthp-64k brings 62 % (48 to 79 %)`: the share of the best gain that each other better policy reaches,
    /// if the best beats it.
    fn gain_shares(&self) -> Option<String> {
        let beaten = self.with(|outcome| *outcome == Outcome::Better { best: false });
        let mut shares: Vec<_> = beaten.iter().filter_map(|row| Some((row, row.analysis?.gain_share?))).collect();
        shares.sort_by(|one, other| other.1.ratio.total_cmp(&one.1.ratio));
        let share = |(row, share): &(&&Row<'_>, GainShare)| {
            format!("{} brings {}", asked(row), figure::gain_share((share.ratio, share.low, share.high)))
        };
        (!shares.is_empty())
            .then(|| format!("of that gain, {}", enumerate(&shares.iter().map(share).collect::<Vec<_>>())))
    }

    /// The policies about which the main clause makes a statement: the best one; without a best, all policies with a figure
    /// that counts.
    fn claimed(&self) -> Vec<&Row<'_>> {
        let best: Vec<&Row<'_>> = best(self.comparison).into_iter().filter_map(|arm| self.rows.get(arm)).collect();
        if !best.is_empty() {
            return best;
        }
        let has_figure = |outcome: &Outcome| {
            matches!(outcome, Outcome::Better { .. } | Outcome::Worse | Outcome::Equivalent | Outcome::Undecided { .. })
        };
        self.with(has_figure).into_iter().filter(|row| row.unsupported().is_none()).collect()
    }

    fn others(&self) -> impl Iterator<Item = &Row<'_>> {
        self.rows.iter().filter(|row| row.index != self.comparison.design.baseline)
    }

    fn with(&self, condition: impl Fn(&Outcome) -> bool) -> Vec<&Row<'_>> {
        self.others()
            .filter(|row| !self.comparison.design.is_aa(row.index))
            .filter(|row| row.analysis.is_some_and(|analysis| condition(&analysis.outcome)))
            .collect()
    }

    fn nearest<'r>(&self, rows: &[&'r Row<'r>]) -> Option<&'r Row<'r>> {
        rows.iter().copied().min_by(|one, two| self.distance(one).total_cmp(&self.distance(two)))
    }

    fn farthest<'r>(&self, rows: &[&'r Row<'r>]) -> Option<&'r Row<'r>> {
        rows.iter().copied().max_by(|one, two| self.distance(one).total_cmp(&self.distance(two)))
    }

    fn distance(&self, row: &Row<'_>) -> f64 {
        row.effect(rows::primary(self.comparison)).map_or(0.0, |effect: &Effect| effect.ratio.ln().abs())
    }

    /// `4 policies`, or with variants `4 arms`: those with valid figures.
    fn counted(&self) -> String {
        format!("{} {}", self.policies(), self.noun())
    }

    fn noun(&self) -> &'static str {
        if self.comparison.design.variants().is_empty() { "policies" } else { "arms" }
    }

    /// Number of policies with valid figures, including the baseline and excluding the A/A arm.
    fn policies(&self) -> usize {
        let void = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Unsupported
                    | Outcome::WrongAnswer { .. }
                    | Outcome::TooSlow { .. }
                    | Outcome::NotMeasured
                    | Outcome::WithinTracerCost
                    | Outcome::Control
            )
        };
        1 + self.with(|outcome| !void(outcome)).len()
    }
}

fn labels(rows: &[&Row<'_>]) -> String {
    enumerate(&rows.iter().map(|row| asked(row)).collect::<Vec<_>>())
}

/// The policy; `asking for POLICY` if it was not shown to be in force.
fn asked(row: &Row<'_>) -> String {
    if row.is_held() { row.label() } else { format!("asking for {}", row.label()) }
}

/// `; held on 97 % of the memory`
fn held(row: &Row<'_>) -> String {
    match row.coverage_ratio() {
        Some(ratio) if row.is_held() => format!("; held on {} of the memory", figure::share(ratio)),
        _ => String::new(),
    }
}

/// How much of the memory got a policy's pages if the policy was not shown to be in force: `thp was in force on 63 % of the memory`.
/// Notes below the sentence of the screen give the share too, with its cause, so a brief sentence names only a share of 0.
fn not_held(row: &Row<'_>, is_brief: bool) -> Option<String> {
    if row.is_held() {
        return None;
    }
    let label = row.label();
    let known = row.holding() != Some(Holding::Unknown);
    let ratio = row.mean_coverage_ratio().filter(|_| known);
    if is_brief && ratio != Some(0.0) {
        return None;
    }
    Some(match ratio {
        None => format!("it is not known on how much of the memory {label} was in force"),
        Some(0.0) => format!("{label} was in force on none of the memory, so its pages have no part in its change"),
        Some(ratio) => format!("{label} was in force on {} of the memory", figure::share(ratio)),
    })
}

mod change;
mod settling;
mod undecided;
pub use settling::rounded_up;
#[cfg(test)]
mod tests;
