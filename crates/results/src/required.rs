//! Whether memory meets requirements (`--require`), as text and as a part of JSON documents.

mod arms;

use policy::requirement::Judgement;
use policy::size::format_bytes;
use serde_json::{Value, json};

use crate::inspection::{cause, cause_clause};
use crate::text::{fold, printable};

pub use arms::{ArmJudgement, ArmRequirement, UnanswerableRequirement};

/// Maximum number of causes in the text; JSON has all.
const MAX_CAUSES: usize = 3;

/// A line for each requirement. If it is not met, lines with the causes follow.
pub fn text(judgements: &[Judgement], width: usize) -> String {
    folded(judgements.iter().flat_map(|one| lines(one, one.requirement.to_string(), "")), width)
}

/// Like [`text`], but for the arms of a comparison.
pub fn text_of_arms(judgements: &[ArmJudgement], width: usize) -> String {
    let lines = judgements.iter().flat_map(|ArmJudgement { arm, trials, judgement }| {
        let of_trials = if *trials > 1 { format!(" in the worst of {trials} trials") } else { String::new() };
        lines(judgement, format!("{} of {arm}", judgement.requirement), &of_trials)
    });
    folded(lines, width)
}

fn folded(lines: impl Iterator<Item = (String, usize)>, width: usize) -> String {
    lines.map(|(line, indent)| fold(&printable(&line), width, indent)).collect::<Vec<_>>().join("\n")
}

/// Lines of text, each with the indentation of its continuation lines.
fn lines(judgement: &Judgement, required: String, of_trials: &str) -> Vec<(String, usize)> {
    let Judgement { bytes, of_bytes, off_by_bytes, .. } = judgement;
    let (bytes, of) = (format_bytes(*bytes), format_bytes(*of_bytes));
    let figure = match share(judgement) {
        Some(share) => format!("{:.1} %, {bytes} of {of}{of_trials}", share * 100.0),
        None => format!("{bytes} of {of}{of_trials}"),
    };
    if let Some(why) = &judgement.why_unknown {
        return vec![(format!("required {required}: not known, because {why}"), 2)];
    }
    if judgement.is_met == Some(true) {
        return vec![(format!("required {required}: met ({figure})"), 2)];
    }
    let off = format_bytes(*off_by_bytes);
    let mut lines = vec![(format!("required {required}: not met ({figure}), by {off}"), 2)];
    for (cause, bytes) in judgement.causes.iter().take(MAX_CAUSES) {
        lines.push((format!("  {}", cause_clause(cause, *bytes)), 4));
    }
    lines
}

fn share(judgement: &Judgement) -> Option<f64> {
    (judgement.of_bytes > 0).then(|| judgement.bytes as f64 / judgement.of_bytes as f64)
}

/// The judgements as a part of a JSON document.
pub fn document(judgements: &[Judgement]) -> Value {
    judgements.iter().map(one).collect()
}

/// The judgements of the arms of a comparison as a part of a JSON document.
pub fn document_of_arms(judgements: &[ArmJudgement]) -> Value {
    let with_arm = |ArmJudgement { arm, trials, judgement }: &ArmJudgement| {
        let mut value = one(judgement);
        (value["arm"], value["trials"]) = (arm.as_str().into(), (*trials).into());
        value
    };
    judgements.iter().map(with_arm).collect()
}

fn one(judgement: &Judgement) -> Value {
    let causes = judgement.causes.iter().map(|(one, bytes)| json!({ "cause": cause(one), "bytes": bytes }));
    json!({
        "requirement": judgement.requirement.to_string(),
        "is_met": judgement.is_met,
        "bytes": judgement.bytes,
        "of_bytes": judgement.of_bytes,
        "ratio": share(judgement),
        "off_by_bytes": judgement.off_by_bytes,
        "causes": causes.collect::<Vec<_>>(),
        "why_unknown": judgement.why_unknown,
    })
}
