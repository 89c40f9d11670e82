//! The result in one sentence, and how to adopt it.

use study::comparison::{Adoption, Comparison, Ended};
use study::metric::names;
use study::stats::{Effect, Outcome};
use study::verdict::Holding;

use crate::figure::{self, Change};
use crate::rows::{self, Row, baseline_label, is_aa};
use crate::text::{enumerate, printable};

/// One sentence that states the result.
///
/// An outcome that is not a result is said as such: what is undecided and how many blocks would settle
/// it, what was not held, who gave a wrong answer.
pub fn conclude(comparison: &Comparison) -> String {
    let page = Page { comparison, rows: rows::rows(comparison) };
    let mut sentence = page.main_clause();
    for clause in page.reservations() {
        sentence.push_str("; ");
        sentence.push_str(&clause);
    }
    sentence.push('.');
    sentence
}

/// How to have the best policy permanently, ready to be printed and copied; empty where no arm is best
/// or nothing needs to be done. Of policies that are tied best it is the one with the greatest gain.
///
/// It is one way, the least intrusive; with `all` the others too. Where the program itself stands against the policy
/// that is said instead.
pub fn adoption(comparison: &Comparison, all: bool) -> String {
    let Some(arm) = best(comparison).first().copied() else { return String::new() };
    let label = comparison.design.arms.get(arm).map_or_else(String::new, |arm| printable(&arm.label));
    let Adopting { obstacle, recommended, others } = Adopting::of(comparison, arm);
    let mut text = String::new();
    if let Some(obstacle) = &obstacle {
        text.push_str(&format!("To adopt {label}: {}.\n", printable(obstacle)));
    }
    let shown = recommended.into_iter().chain(if all { others } else { &[] });
    let once = if obstacle.is_some() { ", once the program no longer does that" } else { "" };
    for adoption in shown {
        text.push_str(&format!("To adopt {label}{once}, {}:\n", printable(&adoption.scope)));
        for line in adoption.commands.iter().flat_map(|command| command.lines()) {
            text.push_str(&format!("    {}\n", printable(line)));
        }
    }
    if !all && !others.is_empty() {
        let (count, more) = (others.len(), if recommended.is_some() { "other " } else { "" });
        let ways = if count == 1 { "way" } else { "ways" };
        let stored = if comparison.id > 0 { format!("pagelab show {} ", comparison.id) } else { String::new() };
        text.push_str(&format!("{count} {more}{ways}: {stored}--adopt all\n"));
    }
    text
}

/// How a policy that was in force can be had for good.
pub(crate) struct Adopting<'a> {
    /// What the program itself does against it.
    pub obstacle: Option<String>,
    /// The least intrusive way; none where there is an obstacle.
    pub recommended: Option<&'a Adoption>,
    /// The others, the less intrusive first.
    pub others: &'a [Adoption],
}

impl Adopting<'_> {
    /// That of an arm; nothing for one that was not shown to be in force.
    pub fn of(comparison: &Comparison, arm: usize) -> Adopting<'_> {
        let rows = rows::rows(comparison);
        let row = rows.get(arm).filter(|row| row.holding() == Some(Holding::Held));
        let ways = comparison.adoptions.get(arm).map_or(&[][..], Vec::as_slice);
        let Some(row) = row else { return Adopting { obstacle: None, recommended: None, others: &[] } };
        let command = &comparison.invocation.command;
        match (study::adoption::obstacle(command, &row.arm.policy, &row.answered()), ways) {
            (None, [first, others @ ..]) => Adopting { obstacle: None, recommended: Some(first), others },
            (obstacle, ways) => Adopting { obstacle, recommended: None, others: ways },
        }
    }
}

/// The arms that may be called best, the greatest gain first.
pub(crate) fn best(comparison: &Comparison) -> Vec<usize> {
    let Some(analysis) = &comparison.analysis else { return Vec::new() };
    let mut best = analysis.best();
    let gain = |arm: &usize| {
        let effect = analysis.arms[*arm].effects.get(&analysis.primary);
        effect.map_or(0.0, |effect| effect.ratio.ln().abs())
    };
    best.sort_by(|one, two| gain(two).total_cmp(&gain(one)));
    best
}

struct Page<'a> {
    comparison: &'a Comparison,
    rows: Vec<Row<'a>>,
}

impl Page<'_> {
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
        if self.others().all(|row| row.unsupported().is_some() || is_aa(self.comparison, row.index)) {
            return self.only_aa();
        }
        match best(self.comparison).first().and_then(|best| self.rows.get(*best)) {
            Some(best) => self.best(best),
            None => self.no_best(),
        }
    }

    /// Nobody is best: what is open comes before what is known, and what is known before what is void.
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
            (None, None) => self.within_cost().unwrap_or_else(|| self.nothing_held()),
        }
    }

    fn best(&self, row: &Row<'_>) -> String {
        let tied: Vec<String> = row
            .analysis
            .into_iter()
            .flat_map(|analysis| &analysis.tied)
            .filter_map(|arm| self.rows.get(*arm).map(Row::label))
            .collect();
        let tie = if tied.is_empty() { String::new() } else { format!(", tied with {}", enumerate(&tied)) };
        let change = self.change(row).map(|change| format!(": {change}")).unwrap_or_default();
        let label = row.label();
        format!("{label} is the best of {} policies{tie}{change}{}{}", self.policies(), cost(row), held(row))
    }

    /// The baseline's own policy was not in force, so that nobody is called best.
    fn better_without_best(&self) -> String {
        let better = self.with(|outcome| matches!(outcome, Outcome::Better { .. }));
        let changes = better.iter().filter_map(|row| Some(format!("{} ({})", row.label(), self.change(row)?)));
        format!(
            "no policy is called best, because {} itself was not shown to be in force; better than what ran in its place: {}",
            baseline_label(self.comparison),
            enumerate(&changes.collect::<Vec<_>>())
        )
    }

    fn undecided(&self, rows: &[&Row<'_>]) -> String {
        let detail = match (rows, self.farthest(rows)) {
            ([one], _) => self.change(one).map(|change| format!(" ({change})")),
            (_, Some(far)) => {
                self.change(far).map(|change| format!(" (the largest difference: {}, {change})", far.label()))
            }
            _ => None,
        };
        format!(
            "undecided: the noise does not show whether {} {} better or worse than {}{}; {}",
            labels(rows),
            if rows.len() == 1 { "is" } else { "are" },
            baseline_label(self.comparison),
            detail.unwrap_or_default(),
            self.what_would_settle(rows)
        )
    }

    fn equivalent(&self, rows: &[&Row<'_>], nearest: &Row<'_>) -> String {
        let which = if rows.len() == 1 { String::new() } else { format!("{}: ", nearest.label()) };
        format!(
            "nothing gained: {} {} equivalent to {}, within {} %{}",
            labels(rows),
            if rows.len() == 1 { "is" } else { "are" },
            baseline_label(self.comparison),
            figure::plain(self.comparison.design.band_ratio * 100.0),
            self.change(nearest).map(|change| format!(" ({which}{change})")).unwrap_or_default()
        )
    }

    fn worse(&self, rows: &[&Row<'_>], nearest: &Row<'_>) -> String {
        format!(
            "{} is the best of {} policies: {}{} has {}",
            baseline_label(self.comparison),
            self.policies(),
            if rows.len() == 1 { "" } else { "even " },
            nearest.label(),
            self.change(nearest).unwrap_or_default()
        )
    }

    /// What there is to see could be the tracer's own doing.
    fn within_cost(&self) -> Option<String> {
        let rows = self.with(|outcome| *outcome == Outcome::WithinTracerCost);
        let far = self.farthest(&rows)?;
        let which = if rows.len() == 1 { String::new() } else { format!("{}: ", far.label()) };
        let change = self.change(far).map(|change| format!(" ({which}{change})")).unwrap_or_default();
        Some(format!(
            "nothing is claimed of {}: the tracer's own stops could have made what differs{change}{}",
            labels(&rows),
            self.cost(far)
        ))
    }

    /// `; the stops alone make +3.1 % (+2.2 to +4.0)`
    fn cost(&self, row: &Row<'_>) -> String {
        let Some(cost) = row.cost(&self.comparison.design.primary) else { return String::new() };
        let range = cost.range().map(|range| format!(" ({range})")).unwrap_or_default();
        format!("; the stops alone make {}{range}", cost.estimate())
    }

    fn nothing_held(&self) -> String {
        let void = self.with(|outcome| *outcome == Outcome::NotHeld);
        if void.is_empty() {
            return "no result: no policy but the baseline gave figures that count".to_string();
        }
        let cause = void.iter().flat_map(|row| row.causes()).next();
        let why = cause.map(|share| format!(" ({})", printable(&share.cause.describe()))).unwrap_or_default();
        let (was, it) = if void.len() == 1 { ("was", "it") } else { ("were", "them") };
        format!(
            "no result: {} {was} not shown to be in force{why}, so the figures say nothing about {it}",
            labels(&void)
        )
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
                format!(" ({} {})", figure::title(&metric.name), figure::short(median, metric.unit))
            })
            .unwrap_or_default();
        if baseline.is_some_and(|row| row.unsupported().is_some()) {
            return format!("nothing was measured: the baseline {label} cannot be had here");
        }
        match self.others().count() {
            0 => format!("only the baseline {label} was asked for{figure}: there is nothing to compare it with"),
            1 => format!("nothing to compare {label}{figure} with: the other policy cannot be had here"),
            others => {
                format!("nothing to compare {label}{figure} with: none of the {others} other policies can be had here")
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

    /// What must be said beside any result.
    fn reservations(&self) -> Vec<String> {
        let mut clauses = Vec::new();
        if self.comparison.analysis.is_some() {
            match &self.comparison.ended {
                Ended::NotEnded => clauses.push("the comparison has not ended".to_string()),
                Ended::Interrupted => clauses.push("it was interrupted".to_string()),
                Ended::TooSlow { message } => clauses.push(format!("it ended because {}", printable(message))),
                _ => {}
            }
        }
        // Why it failed says whose answer was wrong or late, where that is why.
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

    /// `wall time 12.3 % less than default (95 % interval 11.0 to 13.5 %, 14 blocks)`
    fn change(&self, row: &Row<'_>) -> Option<String> {
        let primary = rows::primary(self.comparison);
        let effect = row.effect(primary)?;
        let change = Change::of(effect);
        let blocks = if effect.blocks == 1 { "1 block".to_string() } else { format!("{} blocks", effect.blocks) };
        let interval = match change.range_in_words() {
            Some(range) => {
                format!("{} interval {range}, {blocks}", figure::confidence(self.comparison.design.confidence))
            }
            None => format!("{blocks}, too few for an interval"),
        };
        Some(format!(
            "{} {} than {} ({interval})",
            figure::title(primary),
            change.in_words(),
            baseline_label(self.comparison)
        ))
    }

    /// How these undecided rows would be decided. What ended the comparison is what must change.
    fn what_would_settle(&self, rows: &[&Row<'_>]) -> String {
        let needed: Option<Vec<u32>> = rows.iter().map(|row| row.blocks_needed()).collect();
        let Some(blocks) = needed.and_then(|needed| needed.into_iter().max()) else {
            return "how many blocks would settle it is not known yet: let more run (--blocks)".to_string();
        };
        if blocks > MOST_BLOCKS {
            return format!("it would take more than {MOST_BLOCKS} blocks: the noise is too large for the difference");
        }
        let precisions = rows.iter().filter_map(|row| row.precision_needed());
        let Some(precision) = precisions.min_by(f64::total_cmp) else {
            return format!("about {blocks} blocks would settle it: --blocks {blocks}");
        };
        let design = &self.comparison.design;
        let limit = if blocks > design.max_blocks { format!(" --blocks {blocks}") } else { String::new() };
        format!(
            "it ended because it was as precise as asked (--precision {}); a smaller one would settle it: --precision {}{limit}",
            figure::precision(design.precision_ratio),
            figure::precision(precision)
        )
    }

    fn others(&self) -> impl Iterator<Item = &Row<'_>> {
        self.rows.iter().filter(|row| row.index != self.comparison.design.baseline)
    }

    fn with(&self, condition: impl Fn(&Outcome) -> bool) -> Vec<&Row<'_>> {
        self.others()
            .filter(|row| !is_aa(self.comparison, row.index))
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

    /// Policies with figures of their own, the baseline among them, the A/A arm not.
    fn policies(&self) -> usize {
        let void = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::NotHeld
                    | Outcome::Unsupported
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
    enumerate(&rows.iter().map(|row| row.label()).collect::<Vec<_>>())
}

/// Nobody runs more blocks than this.
pub(crate) const MOST_BLOCKS: u32 = 1000;

/// `, for 1.2 times the peak memory`
fn cost(row: &Row<'_>) -> String {
    let Some(effect) = row.effect(names::PEAK_RESIDENT_BYTES) else { return String::new() };
    match effect.ratio {
        ratio if (0.95..1.05).contains(&ratio) => ", for about the same peak memory".to_string(),
        ratio if ratio < 10.0 => format!(", for {ratio:.1} times the peak memory"),
        ratio => format!(", for {ratio:.0} times the peak memory"),
    }
}

/// `; held on 97 % of the memory`
fn held(row: &Row<'_>) -> String {
    match (row.holding(), row.coverage_ratio()) {
        (Some(Holding::NotAsked) | None, _) | (_, None) => String::new(),
        (_, Some(ratio)) => format!("; held on {} of the memory", figure::share(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use study::comparison::{Admission, Unsupported};
    use study::stats::Effect;

    use super::*;
    use crate::sample;

    /// The sample with this outcome and wall-time effect for `thp`, and nothing of the other arms.
    fn concluded(outcome: Outcome, ratio: f64, low: f64, high: f64) -> Comparison {
        let mut comparison = sample::comparison();
        let analysis = comparison.analysis.as_mut().unwrap();
        let effect = Effect { blocks: 14, ratio, low: Some(low), high: Some(high), p_adjusted: Some(0.01) };
        for arm in 1..analysis.arms.len() {
            analysis.arms[arm].outcome = if arm == 3 { outcome.clone() } else { Outcome::Unsupported };
            analysis.arms[arm].tied.clear();
        }
        analysis.arms[3].effects.insert(names::WALL_S.to_string(), effect);
        comparison
    }

    #[test]
    fn the_sample_has_a_winner() {
        let sentence = conclude(&sample::comparison());
        let start = "thp is the best of 3 policies: wall time 11.";
        let end = "%, 15 blocks), for 1.2 times the peak memory; held on 97 % of the memory.";
        assert!(sentence.starts_with(start) && sentence.ends_with(end), "{sentence}");
        assert!(sentence.contains(" % less than default (95 % interval 11."), "{sentence}");
        assert!(adoption(&sample::comparison(), false).starts_with("To adopt thp, for this program"));
    }

    #[test]
    fn every_outcome_has_its_words() {
        let undecided = |blocks_needed| Outcome::Undecided { blocks_needed };
        for (outcome, (ratio, low, high), words) in [
            (
                undecided(Some(40)),
                (0.994, 0.979, 1.009),
                "undecided: the noise does not show whether thp is better or worse than default (wall time 0.6 % less than default (95 % interval -2.1 to +0.9 %, 14 blocks)); about 40 blocks would settle it: --blocks 40.",
            ),
            (undecided(None), (0.994, 0.979, 1.009), "is not known yet: let more run (--blocks)."),
            (
                Outcome::Equivalent,
                (1.001, 0.995, 1.006),
                "nothing gained: thp is equivalent to default, within 1 % (wall time 0.1 % more than default (95 % interval -0.5 to +0.6 %, 14 blocks)).",
            ),
            (
                Outcome::Worse,
                (1.041, 1.03, 1.05),
                "default is the best of 2 policies: thp has wall time 4.1 % more than default (95 % interval 3.0 to 5.0 %, 14 blocks).",
            ),
            (
                Outcome::NotHeld,
                (0.5, 0.4, 0.6),
                "no result: thp was not shown to be in force (no aligned slot of that size inside the mapping), so the figures say nothing about it.",
            ),
            (
                Outcome::WrongAnswer { message: "exit status 1 instead of exit status 0 in block 2".into() },
                (0.5, 0.4, 0.6),
                "no result: no policy but the baseline gave figures that count; thp gave a wrong answer (exit status 1 instead of exit status 0 in block 2).",
            ),
        ] {
            let sentence = conclude(&concluded(outcome, ratio, low, high));
            assert!(sentence.ends_with(words), "{sentence}");
            assert_eq!(adoption(&concluded(Outcome::Worse, ratio, low, high), true), "");
        }
    }

    /// Blocks would not help: it ended before the blocks did.
    #[test]
    fn what_ended_for_its_precision_needs_a_smaller_one() {
        let mut comparison = concluded(Outcome::Undecided { blocks_needed: Some(15) }, 0.994, 0.979, 1.009);
        comparison.ended = Ended::Precise;
        let sentence = conclude(&comparison);
        assert!(
            sentence.ends_with(
                "it ended because it was as precise as asked (--precision 1%); a smaller one would settle it: --precision 1.4%."
            ),
            "{sentence}"
        );
        let table = crate::table::render(&comparison, 120);
        assert!(table.contains("to 1.4%") && !table.contains("~15 blocks"), "{table}");
        comparison.design.max_blocks = 14;
        assert!(conclude(&comparison).ends_with("--precision 1.4% --blocks 15."), "{}", conclude(&comparison));
    }

    #[test]
    fn one_way_is_recommended_and_the_others_are_asked_for() {
        let mut comparison = sample::comparison();
        comparison.adoptions[3].push(study::comparison::Adoption {
            scope: "at boot".into(),
            commands: vec!["transparent_hugepage=always".into()],
        });
        for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == 3) {
            let call = "prctl(PR_SET_THP_DISABLE, 1)".to_string();
            record.verdict.answered = vec![study::verdict::AnsweredCall { call, times: 1 }];
        }
        let obstacle = adoption(&comparison, false);
        assert!(
            obstacle.contains("cannot be had without changing the program") && !obstacle.contains("GLIBC"),
            "{obstacle}"
        );
        for record in &mut comparison.trials {
            record.verdict.answered.clear();
        }
        let one = adoption(&comparison, false);
        assert_eq!(one.matches("To adopt ").count(), 1, "{one}");
        assert!(one.ends_with("2 other ways: --adopt all\n") && one.contains("GLIBC_TUNABLES"), "{one}");
        let all = adoption(&comparison, true);
        assert!(all.matches("To adopt ").count() == 3 && !all.contains("--adopt"), "{all}");
        for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == 3) {
            record.verdict.holding = Holding::Partly;
        }
        assert!(Adopting::of(&comparison, 3).recommended.is_none(), "not held");
    }

    #[test]
    fn ties_are_named() {
        let mut comparison = concluded(Outcome::Better { best: true }, 0.9, 0.88, 0.92);
        comparison.analysis.as_mut().unwrap().arms[3].tied = vec![4];
        assert!(
            conclude(&comparison)
                .starts_with("thp is the best of 2 policies, tied with mthp-64k: wall time 10.0 % less")
        );
    }

    #[test]
    fn without_others_there_is_nothing_to_conclude() {
        let mut comparison = sample::comparison();
        let unsupported = || Admission::Unsupported(Unsupported { reason: "no".into(), remedy: "none".into() });
        comparison.admissions[1..].fill_with(unsupported);
        let sentence = conclude(&comparison);
        assert!(sentence.starts_with("nothing to compare default (wall time 3."), "{sentence}");
        assert!(sentence.ends_with("none of the 5 other policies can be had here."), "{sentence}");
        comparison.admissions[0] = unsupported();
        assert_eq!(conclude(&comparison), "nothing was measured: the baseline default cannot be had here.");
        comparison.design.arms.truncate(1);
        comparison.admissions = sample::comparison().admissions;
        assert!(conclude(&comparison).contains("only the baseline default was asked for"));
    }

    #[test]
    fn the_baseline_against_itself_is_no_policy() {
        let mut comparison = sample::comparison();
        let keep = |arm: usize| [0, 5].contains(&arm);
        comparison.design.arms = vec![comparison.design.arms[0].clone(), comparison.design.arms[5].clone()];
        comparison.admissions.truncate(2);
        comparison.admissions[1] = comparison.admissions[0].clone();
        comparison.trials.retain(|record| keep(record.trial.arm));
        comparison.trials.iter_mut().for_each(|record| record.trial.arm = record.trial.arm.min(1));
        sample::analyse(&mut comparison);
        let sentence = conclude(&comparison);
        assert!(sentence.starts_with("A/A: default against itself has wall time 0."), "{sentence}");
        assert!(sentence.ends_with("as it should be, within 1 %."), "{sentence}");
        comparison.analysis.as_mut().unwrap().arms[1].outcome = Outcome::Worse;
        assert!(conclude(&comparison).contains("differences of this size mean nothing here"));
    }

    #[test]
    fn nothing_is_claimed_that_the_tracers_stops_could_have_made() {
        let comparison = sample::with_controls();
        let mut only = comparison.clone();
        for (arm, analysis) in only.analysis.as_mut().unwrap().arms.iter_mut().enumerate() {
            if ![0, 3].contains(&arm) {
                analysis.outcome = Outcome::Unsupported;
            }
        }
        let sentence = conclude(&only);
        let claim = "nothing is claimed of thp: the tracer's own stops could have made what differs (wall time 30.";
        assert!(sentence.starts_with(claim), "{sentence}");
        assert!(sentence.contains("; the stops alone make +31."), "{sentence}");
        assert!(!conclude(&comparison).contains("thp is"), "{}", conclude(&comparison));
        assert_eq!(adoption(&comparison, false), "");
    }

    #[test]
    fn an_end_before_its_time_is_said() {
        let mut comparison = sample::comparison();
        comparison.ended = Ended::Interrupted;
        assert!(conclude(&comparison).ends_with("; it was interrupted."));
        comparison.analysis = None;
        assert!(conclude(&comparison).starts_with("no result: it was interrupted before the first block"));
        comparison.ended = Ended::Failed { message: "no space\x1b[2J".into() };
        assert_eq!(conclude(&comparison), "the comparison failed: no space\\x1b[2J.");
    }
}
