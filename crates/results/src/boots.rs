//! Arms over boots: the joined comparison as tables, a sentence, and a JSON document.

pub mod csv;

use serde::Serialize;
use serde_json::{Value, json};
use study::stats::boots::{Boot, BootArm, Merged};
use study::stats::{Effect, Outcome};
use study::verdict::Holding;

use crate::figure::{self, Change};
use crate::grid::plain;
use crate::text::{fold, printable};

/// The name and version of the document.
pub const SCHEMA: &str = "pagelab.compare-boots/1";

/// A table before it is drawn.
pub(crate) struct Grid<const N: usize> {
    pub header: [String; N],
    pub rows: Vec<[String; N]>,
}

impl<const N: usize> Grid<N> {
    fn render(self, width: usize) -> String {
        plain(self.header.each_ref().map(String::as_str), self.rows, width)
    }
}

/// The arms, then the boots, then what cannot be concluded.
pub fn render(merged: &Merged, width: usize) -> String {
    let arms = outcomes(merged).render(width);
    let mut text = format!("{arms}\n\n{}\n", boots(merged).render(width));
    for limit in &merged.limits {
        let sentence = printable(&limit.describe(&merged.design.arms));
        text.push_str(&format!("\n{}", fold(&format!("not concluded: {sentence}"), width, 4)));
    }
    text.push_str(&format!("\n\n{}", conclude(merged)));
    text
}

/// What boots say of the metric that decides, and what follows, one row an arm.
pub(crate) fn outcomes(merged: &Merged) -> Grid<7> {
    let Grid { header: [policy, boots, hosts, median, change, range], rows } = arms(merged, &merged.design.primary);
    let rows = rows.into_iter().zip(&merged.arms).map(|([policy, boots, hosts, median, change, range], of_boots)| {
        [policy, boots, hosts, median, change, range, word(&of_boots.outcome)]
    });
    Grid { rows: rows.collect(), header: [policy, boots, hosts, median, change, range, "outcome".into()] }
}

/// What boots say of a metric, one row an arm.
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

/// One row a boot and arm.
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
            boot.demoted_to.map_or("as booted".to_string(), |leaf| format!("demoted to {leaf}")),
        ]
    });
    let header = ["host", "boot", "policy", "trials", "median", "verdict", "direct map"];
    Grid { header: header.map(String::from), rows: rows.collect() }
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Baseline => "baseline".into(),
        Outcome::Better { best: true } => "best".into(),
        Outcome::Better { best: false } => "better".into(),
        Outcome::Worse => "worse".into(),
        Outcome::Equivalent => "equivalent".into(),
        Outcome::Undecided { blocks_needed: Some(boots) } => format!("undecided (about {boots} boots needed)"),
        Outcome::Undecided { blocks_needed: None } => "undecided".into(),
        Outcome::NotHeld => "not held".into(),
        Outcome::Unsupported => "unsupported".into(),
        Outcome::WrongAnswer { message } => format!("wrong answer: {message}"),
        Outcome::NotMeasured => "not measured".into(),
    }
}

/// One sentence that states the result.
pub fn conclude(merged: &Merged) -> String {
    let baseline = merged.design.arms.get(merged.design.baseline).map_or("?", |arm| arm.label.as_str());
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
            Some(format!("{} {verb} ({})", printable(&arm.label), change.estimate()))
        })
        .collect();
    let boots: u32 = merged.arms.iter().map(|arm| arm.boots).sum();
    match claims.is_empty() {
        true => format!("Undecided: {boots} boots do not tell an arm from {}.", printable(baseline)),
        false => format!("Against {}, over {boots} boots: {}.", printable(baseline), claims.join("; ")),
    }
}

/// The document; `design`, `invocation` and `boots` can be read back and merged with others.
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

/// A host whose name is an attack.
#[cfg(test)]
pub(crate) fn sample() -> Merged {
    use study::stats::boots::{Part, merge};
    let mut comparison = crate::sample::comparison();
    comparison.machine.host_id = Some("\u{1b}[31m<script>host".into());
    merge(&[Part::of(&comparison).unwrap()]).unwrap()
}

#[cfg(test)]
mod tests {
    use study::stats::boots::{Part, merge};

    use super::*;

    #[test]
    fn every_arm_boot_and_limit_is_shown_and_nothing_raw() {
        let merged = sample();
        let text = render(&merged, 120);
        for arm in &merged.design.arms {
            assert!(text.contains(&arm.label), "{}: {text}", arm.label);
        }
        assert!(merged.limits.len() >= merged.design.arms.len() - 1, "one boot each: {:?}", merged.limits);
        assert_eq!(text.matches("not concluded: ").count(), merged.limits.len());
        assert!(text.contains("0f6c1c7e") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with('.') && text.contains("Undecided: "), "{text}");
    }

    #[test]
    fn the_document_can_be_read_back() {
        let merged = sample();
        let document = document(&merged);
        let part: Part = serde_json::from_value(document).unwrap();
        assert_eq!(merge(&[part]).unwrap(), merged);
    }
}
