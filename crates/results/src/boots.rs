//! A comparison merged over boots ([`Merged`]): as tables, a sentence, and a JSON document.

pub mod csv;

use policy::verdict::Holding;
use serde::Serialize;
use serde_json::{Value, json};
use study::stats::boots::{Boot, BootArm, Merged, count_of_boots, sentences};
use study::stats::{Effect, Outcome};

use crate::figure::{self, Change, MAX_BLOCKS};
use crate::grid::last_folded;
use crate::rows::WITHIN_TRACER_COST;
use crate::text::{fold, printable};

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.compare-boots/1";

/// A table before it is laid out.
pub(crate) struct Grid<const N: usize> {
    pub header: [String; N],
    pub rows: Vec<[String; N]>,
}

impl<const N: usize> Grid<N> {
    fn render(self, width: usize) -> String {
        last_folded(self.header.each_ref().map(String::as_str), self.rows, width)
    }
}

/// The document for the terminal: the arms, then the boots of each host, then what cannot be concluded.
pub fn render(merged: &Merged, width: usize) -> String {
    let mut text = format!("{}\n", outcomes(merged).render(width));
    for host in hosts(merged) {
        let table = of_host(merged, host).render(width);
        text.push_str(&format!("\n{}\n{table}\n", fold(&format!("boots of {}", printable(host)), width, 4)));
    }
    let notes = notes(merged);
    if !notes.is_empty() {
        text.push_str("\nWhat cannot be concluded:\n");
    }
    for note in notes {
        text.push_str(&format!("{}\n", fold(&format!("  - {}", printable(&note)), width, 4)));
    }
    text.push_str(&format!("\n{}", conclude(merged)));
    text
}

/// The distinct hosts, in order of occurrence.
fn hosts(merged: &Merged) -> Vec<&str> {
    let mut hosts: Vec<&str> = Vec::new();
    for boot in &merged.boots {
        if !hosts.contains(&boot.host.as_str()) {
            hosts.push(&boot.host);
        }
    }
    hosts
}

/// Sentences about what cannot be concluded.
pub(crate) fn notes(merged: &Merged) -> Vec<String> {
    let arms = merged.design.arms.iter().zip(&merged.arms);
    let wrong = arms.filter_map(|(arm, of_boots)| match &of_boots.outcome {
        Outcome::WrongAnswer { message } => Some(format!("{} gave a wrong answer: {message}", arm.label)),
        Outcome::TooSlow { message } => Some(format!("{} {message}", arm.label)),
        _ => None,
    });
    wrong.chain(sentences(&merged.limits, &merged.design.arms)).collect()
}

/// The results over boots for the primary metric, with the outcomes, one row per arm.
pub(crate) fn outcomes(merged: &Merged) -> Grid<7> {
    let Grid { header: [policy, boots, hosts, median, change, range], rows } = arms(merged, &merged.design.primary);
    let words = merged.arms.iter().enumerate().map(|(arm, of_boots)| word(merged, arm, &of_boots.outcome));
    let rows = rows.into_iter().zip(words).map(|([policy, boots, hosts, median, change, range], word)| {
        [policy, boots, hosts, median, change, range, word]
    });
    Grid { rows: rows.collect(), header: [policy, boots, hosts, median, change, range, "outcome".into()] }
}

/// The results over boots for a metric, one row per arm.
pub(crate) fn arms(merged: &Merged, metric: &str) -> Grid<6> {
    let metric = figure::metric(&merged.design.metrics, metric);
    let confidence = format!("{} interval", figure::confidence(merged.design.confidence));
    let header = ["policy", "boots", "hosts", metric.name.as_str(), "change", confidence.as_str()];
    let rows = merged.design.arms.iter().zip(&merged.arms).map(|(arm, of_boots)| {
        let effect = of_boots.effects.get(&metric.name).map(Change::of);
        [
            arm.label.clone(),
            of_boots.boots.to_string(),
            of_boots.hosts.to_string(),
            of_boots.medians.get(&metric.name).map(|value| figure::short(*value, metric.unit)).unwrap_or_default(),
            effect.map(|change| change.estimate()).unwrap_or_default(),
            effect.and_then(|change| change.range()).unwrap_or_default(),
        ]
    });
    Grid { rows: rows.collect(), header: header.map(String::from) }
}

/// One row per boot and arm.
pub(crate) fn boots(merged: &Merged) -> Grid<7> {
    let primary = figure::metric(&merged.design.metrics, &merged.design.primary);
    let rows = merged.boots.iter().map(|boot| {
        let label = merged.design.arms.get(boot.arm).map_or("?", |arm| arm.label.as_str());
        [
            boot.host.clone(),
            boot.boot_id.chars().take(8).collect(),
            label.to_string(),
            boot.trials.to_string(),
            boot.medians.get(&primary.name).map(|value| figure::short(*value, primary.unit)).unwrap_or_default(),
            boot.holding.unwrap_or(Holding::Unknown).to_string(),
            direct_map(boot),
        ]
    });
    let header = ["host", "boot", "policy", "trials", &primary.name, "pages", "direct map"];
    Grid { rows: rows.collect(), header: header.map(String::from) }
}

/// The sizes that map the direct map in a boot, and whether pagelab changed them.
fn direct_map(boot: &Boot) -> String {
    let shares = boot.direct_map();
    let shares = if shares.is_empty() { shares } else { format!(": {shares}") };
    boot.demoted_to.map_or(format!("as booted{shares}"), |leaf| format!("demoted to {leaf}{shares}"))
}

/// The boots of one host; the column with the host is left out.
fn of_host(merged: &Merged, host: &str) -> Grid<6> {
    let Grid { header: [_, header @ ..], rows } = boots(merged);
    let rows = rows.into_iter().filter(|row| row[0] == host).map(|[_, row @ ..]| row);
    Grid { header, rows: rows.collect() }
}

/// The outcome, marked if a policy was not fully in force: `better (held partly)`.
fn word(merged: &Merged, arm: usize, outcome: &Outcome) -> String {
    let is_compared =
        matches!(outcome, Outcome::Better { .. } | Outcome::Worse | Outcome::Equivalent | Outcome::Undecided { .. });
    match not_held(merged, arm).filter(|_| is_compared) {
        Some(held) => format!("{} ({held})", outcome_word(outcome)),
        None => outcome_word(outcome),
    }
}

/// The outcome in one or two words.
fn outcome_word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Baseline => "baseline".into(),
        Outcome::Better { best: true } => "best".into(),
        Outcome::Better { best: false } => "better".into(),
        Outcome::Worse => "worse".into(),
        Outcome::Equivalent => "equivalent".into(),
        Outcome::Undecided { blocks_needed: Some(boots) } if *boots > MAX_BLOCKS => {
            format!("undecided (>{MAX_BLOCKS} boots each)")
        }
        Outcome::Undecided { blocks_needed: Some(boots) } => format!("undecided (~{boots} boots each)"),
        Outcome::Undecided { blocks_needed: None } => "undecided".into(),
        Outcome::Unsupported => "unsupported".into(),
        Outcome::WrongAnswer { .. } => "wrong answer".into(),
        Outcome::TooSlow { .. } => "too slow".into(),
        Outcome::WithinTracerCost => WITHIN_TRACER_COST.into(),
        Outcome::NotMeasured | Outcome::Control => "not measured".into(),
    }
}

/// The worst holding of the arm's policy over its boots, or that the baseline's policy did not hold; `None` if both held.
fn not_held(merged: &Merged, arm: usize) -> Option<&'static str> {
    let of_arm = merged.boots.iter().filter(|boot| boot.arm == arm);
    let holdings: Vec<Holding> = of_arm.map(|boot| boot.holding.unwrap_or(Holding::Unknown)).collect();
    let words = [(Holding::NotHeld, "not held"), (Holding::Partly, "held partly"), (Holding::Unknown, "unproven")];
    let worst = words.into_iter().find(|(holding, _)| holdings.contains(holding));
    let of_baseline = || (!merged.arms[merged.design.baseline].is_held).then_some("baseline not held");
    worst.map(|(_, word)| word).or_else(of_baseline)
}

/// The result in one sentence.
pub fn conclude(merged: &Merged) -> String {
    let baseline = printable(merged.design.arms.get(merged.design.baseline).map_or("?", |arm| arm.label.as_str()));
    let boots_of_baseline = merged.arms.get(merged.design.baseline).map_or(0, |arm| arm.boots);
    let boots: u32 = merged.arms.iter().map(|arm| arm.boots).sum();
    let claims = claims(merged);
    let is_open = |arm: &BootArm| matches!(arm.outcome, Outcome::Undecided { .. });
    let counted = count_of_boots(boots);
    if !claims.is_empty() {
        format!("Against {baseline}, over {counted}: {}.", claims.join("; "))
    } else if boots_of_baseline == 0 {
        format!("Undecided: the baseline, {baseline}, was measured in no boot.")
    } else if boots == boots_of_baseline {
        format!("Undecided: only the baseline, {baseline}, was measured ({counted}).")
    } else if merged.arms.iter().any(is_open) {
        format!("Undecided: {counted} do not distinguish any arm from {baseline}.")
    } else {
        format!("Undecided: no arm of {counted} can be compared with {baseline}; the column `outcome` shows why.")
    }
}

/// The conclusions; if there are any, they end with what remains undecided.
fn claims(merged: &Merged) -> Vec<String> {
    let claims: Vec<String> = merged
        .design
        .arms
        .iter()
        .zip(&merged.arms)
        .filter_map(|(arm, of_boots)| {
            let change = of_boots.effects.get(&merged.design.primary).map(Change::of)?;
            let verb = match of_boots.outcome {
                Outcome::Better { best: true } => "is best",
                Outcome::Better { best: false } => "is better",
                Outcome::Worse => "is worse",
                Outcome::Equivalent => "is equivalent",
                _ => return None,
            };
            let asked = if of_boots.is_held { "" } else { "asking for " };
            Some(format!("{asked}{} {verb} ({})", printable(&arm.label), change.estimate()))
        })
        .collect();
    if claims.is_empty() {
        return claims;
    }
    let arms = merged.design.arms.iter().zip(&merged.arms);
    let open = arms.filter(|(_, of_boots)| matches!(of_boots.outcome, Outcome::Undecided { .. }));
    let open = open.map(|(arm, _)| format!("{} is undecided", printable(&arm.label)));
    claims.into_iter().chain(open).collect()
}

/// The JSON document. Its `design`, `invocation` and `boots` can be parsed again and merged with others.
pub fn document(merged: &Merged) -> Value {
    let arms = merged.design.arms.iter().zip(&merged.arms).enumerate();
    let limits = merged.limits.iter().map(|limit| {
        let mut object = as_value(limit);
        object["text"] = limit.describe(&merged.design.arms).into();
        object
    });
    json!({
        "schema": SCHEMA,
        "sentence": conclude(merged),
        "design": as_value(&merged.design),
        "invocation": as_value(&merged.invocation),
        "arms": arms.map(|(index, (arm, of_boots))| arm_document(index, &arm.label, of_boots)).collect::<Vec<_>>(),
        "boots": merged.boots.iter().map(|boot: &Boot| as_value(boot)).collect::<Vec<_>>(),
        "limits": limits.collect::<Vec<_>>(),
    })
}

fn arm_document(index: usize, label: &str, arm: &BootArm) -> Value {
    let effect = |effect: &Effect| {
        json!({
            "ratio": effect.ratio,
            "low_ratio": effect.low,
            "high_ratio": effect.high,
            "p_adjusted": effect.p_adjusted,
            "boots": effect.blocks,
        })
    };
    let effects: serde_json::Map<String, Value> =
        arm.effects.iter().map(|(metric, one)| (metric.clone(), effect(one))).collect();
    json!({
        "arm": index,
        "label": label,
        "boots": arm.boots,
        "hosts": arm.hosts,
        "medians": arm.medians,
        "effects": effects,
        "outcome": as_value(&arm.outcome),
    })
}

fn as_value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("words, numbers and maps with text keys")
}

/// A merged comparison whose host has a malicious name.
#[cfg(test)]
pub(crate) fn sample() -> Merged {
    use study::stats::boots::{MeasuredBoots, merge};
    let mut comparison = crate::sample::comparison();
    comparison.machine.host_id = Some("\u{1b}[31m<script>host".into());
    merge(&[MeasuredBoots::of(&comparison).unwrap()]).unwrap()
}

#[cfg(test)]
mod tests {
    use study::stats::boots::{MeasuredBoots, merge};

    use super::*;

    #[test]
    fn every_arm_boot_and_limit_is_shown_and_nothing_raw() {
        let merged = sample();
        let text = render(&merged, 120);
        for arm in &merged.design.arms {
            assert!(text.contains(&arm.label), "{}: {text}", arm.label);
        }
        assert!(merged.limits.len() >= merged.design.arms.len() - 1, "one boot each: {:?}", merged.limits);
        assert_eq!(text.matches("\n  - ").count(), notes(&merged).len());
        assert!(text.contains("0f6c1c7e") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with('.') && text.contains("Undecided: "), "{text}");
    }

    /// A host without an ID is named after its processor, which can have a long name.
    #[test]
    fn a_long_name_of_a_host_breaks_no_column() {
        let mut merged = sample();
        let host = "QEMU Virtual CPU version 2.5+ of a very long name, 128 on line, 1024G";
        merged.boots.iter_mut().for_each(|boot| boot.host = host.into());
        let text = render(&merged, 80);
        let (tables, _) = text.split_once("Undecided: ").unwrap();
        assert!(tables.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("boots of QEMU Virtual CPU"), "{text}");
        let arm = &merged.design.arms[merged.boots[0].arm].label;
        assert!(text.lines().any(|line| line.contains("0f6c1c7e") && line.contains(arm.as_str())), "{text}");
    }

    #[test]
    fn the_sentence_counts_boots_and_names_what_is_undecided() {
        let mut merged = sample();
        let baseline = merged.design.baseline;
        merged.arms.iter_mut().for_each(|arm| (arm.boots, arm.outcome) = (0, Outcome::NotMeasured));
        assert!(conclude(&merged).contains("was measured in no boot"));
        (merged.arms[baseline].boots, merged.arms[baseline].outcome) = (1, Outcome::Baseline);
        assert!(conclude(&merged).ends_with("was measured (1 boot)."), "{}", conclude(&merged));
        let other = merged.boots.iter().map(|boot| boot.arm).find(|arm| *arm != baseline).unwrap();
        (merged.arms[other].boots, merged.arms[other].outcome) = (1, Outcome::Undecided { blocks_needed: Some(7) });
        assert!(conclude(&merged).starts_with("Undecided: 2 boots do not distinguish any arm from "));
        assert_eq!(outcomes(&merged).rows[other][6], "undecided (~7 boots each)");
        merged.arms[other].outcome = Outcome::WrongAnswer { message: "its answer".into() };
        assert!(
            conclude(&merged).contains("can be compared") && notes(&merged)[0].ends_with("wrong answer: its answer")
        );
        merged.arms[other].outcome = Outcome::Worse;
        merged.arms[baseline].is_held = false;
        let held = |merged: &mut Merged, how| merged.boots.iter_mut().for_each(|boot| boot.holding = Some(how));
        for (how, word) in [(Holding::Partly, "worse (held partly)"), (Holding::Held, "worse (baseline not held)")] {
            held(&mut merged, how);
            assert_eq!(outcomes(&merged).rows[other][6], word);
        }
    }

    #[test]
    fn the_document_can_be_read_back() {
        let merged = sample();
        let document = document(&merged);
        let part: MeasuredBoots = serde_json::from_value(document).unwrap();
        assert_eq!(merge(&[part]).unwrap(), merged);
    }
}
