//! The comparison as one JSON document, schema `pagelab.compare/1`.
//!
//! `docs/reference/formats/compare.md` describes it. Its layout is independent of `study`'s types; the words for
//! outcomes, causes and warnings are those of `study`. Unknown values are `null`; a metric that was not observed is
//! absent.

use policy::Admission;
use policy::Exit;
use policy::cause::CauseShare;
use policy::census::{Census, Folio};
use policy::machine::{Machine, State};
use policy::verdict::{AnsweredCall, Peak, Verdict};
use serde::Serialize;
use serde_json::{Map, Value, json};
use study::advice::Advice;
use study::comparison::{Comparison, Contention, Design, Fragmented};
use study::control::Role;
use study::metric::Metric;
use study::stats::{ArmAnalysis, Effect, GainShare, TracerCost};
use study::trial::TrialRecord;
use study::variant::Variant;

use crate::collapses::Collapses;
use crate::explained::document as explained;
use crate::rows::{self, Row, best};
use crate::shares::document as shares;
use crate::{sentence, variants};

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.compare/1";

pub fn document(comparison: &Comparison) -> Value {
    let rows = rows::rows(comparison);
    let mut settings = Settings::default();
    let counted = |record: &TrialRecord| {
        rows.get(record.trial.arm).is_some_and(|row| row.counted.iter().any(|one| std::ptr::eq(*one, record)))
    };
    let (mut trials, mut control_trials) = (Vec::new(), Vec::new());
    for record in &comparison.trials {
        let of = if comparison.design.is_compared(record.trial.arm) { &mut trials } else { &mut control_trials };
        of.push(trial(comparison, record, counted(record), &mut settings));
    }
    json!({
        "schema": SCHEMA,
        "id": comparison.id,
        "started_unix_s": comparison.started_unix_s,
        "ended": plain(&comparison.ended),
        "invocation": {
            "command": comparison.invocation.command,
            "client": comparison.invocation.client,
            "prepare": comparison.invocation.prepare,
            "pagelab": comparison.invocation.pagelab,
            "version": comparison.invocation.version,
        },
        "design": design(&comparison.design),
        "machine": machine(&comparison.machine),
        "result": {
            "sentence": sentence::conclude(comparison),
            "best": best(comparison),
            "primary": rows::primary(comparison),
            "blocks": comparison.analysis.as_ref().map(|analysis| analysis.blocks),
        },
        "advice": comparison.advice.as_ref().map(advice),
        "controls": controls(comparison),
        "arms": rows.iter().map(|row| of_row(comparison, row)).collect::<Vec<_>>(),
        "parts": variants::parts(comparison).iter().map(part).collect::<Vec<_>>(),
        "warnings": warnings(comparison),
        "settings": settings.distinct.iter().map(plain).collect::<Vec<_>>(),
        "trials": trials,
        "control_trials": control_trials,
    })
}

/// The advice: its text as a whole, and the text of each setting.
fn advice(advice: &Advice) -> Value {
    let mut value = plain(advice);
    if let Advice::Tried(tried) = advice {
        for (at, attempt) in tried.attempts.iter().enumerate() {
            value["attempts"][at]["text"] = attempt.instruction().into();
            value["attempts"][at]["holds"] = tried.holds(&attempt.outcome).into();
        }
    }
    value
}

fn design(design: &Design) -> Value {
    json!({
        "baseline": design.baseline,
        "primary": design.primary,
        "metrics": design.metrics.iter().map(metric).collect::<Vec<_>>(),
        "min_blocks": design.min_blocks,
        "max_blocks": design.max_blocks,
        "max_time_s": design.max_time_s,
        "trial_time_s": design.trial_time_s,
        "precision_ratio": design.precision_ratio,
        "band_ratio": design.band_ratio,
        "confidence_ratio": design.confidence,
        // As text, because readers that store all numbers as floating-point cannot represent 64-bit integers.
        "seed": design.seed.to_string(),
        "prove_all": design.prove_all,
        "khugepaged": plain(&design.khugepaged),
        "fragmented": fragmented(design.fragmented),
        "own_session": plain(&design.own_session),
        "contention": design.contention.as_ref().map(contention),
        "variants": design.variants().into_iter().map(variant).collect::<Vec<_>>(),
    })
}

/// How much processor time other work left, and whether that makes wall times unsteady.
fn contention(contention: &Contention) -> Value {
    let mut value = plain(contention);
    value["is_high"] = contention.is_high().into();
    value
}

fn fragmented(request: Option<Fragmented>) -> Value {
    request.map_or(Value::Null, |request| json!({ "percent": request.percent, "block_bytes": request.block.bytes() }))
}

/// One variant of the design, by its name.
fn variant(variant: &Variant) -> Value {
    json!({
        "variant": variant.name,
        "command": variant.command,
        "variables": variant.variables,
        "program_sha256": variant.sha256,
        "fragmented": fragmented(variant.fragmented),
    })
}

/// Changes between arms other than the baseline.
fn part(part: &variants::Part) -> Value {
    let arm = |row: Row<'_>| {
        json!({
            "label": row.arm.label,
            "outcome": row.analysis.map(|analysis| plain(&analysis.outcome)),
            "effects": row.analysis.map(effects),
        })
    };
    json!({
        "of": part.of,
        "against": rows::baseline_label(&part.slice),
        "arms": part.rows().map(arm).collect::<Vec<_>>(),
    })
}

fn metric(metric: &Metric) -> Value {
    json!({ "name": metric.name, "unit": plain(&metric.unit), "direction": plain(&metric.direction) })
}

fn machine(machine: &Machine) -> Value {
    let bytes = |sizes: &[policy::size::PageSize]| sizes.iter().map(|size| size.bytes()).collect::<Vec<_>>();
    json!({
        "name": machine.name,
        "arch": machine.arch,
        "kernel": machine.kernel,
        "kernel_command_line": machine.kernel_command_line,
        "boot_id": machine.boot_id,
        "host_id": machine.host_id,
        "cpu_model": machine.cpu_model,
        "cpus": machine.cpus,
        "memory_bytes": machine.memory_bytes,
        "hypervisor": machine.hypervisor,
        "base_page_bytes": machine.page_sizes.base.bytes(),
        "thp_bytes": machine.page_sizes.pmd.map(|size| size.bytes()),
        "mthp_bytes": bytes(&machine.page_sizes.mthp),
        "hugetlb_bytes": bytes(&machine.page_sizes.hugetlb),
        "direct_map": machine.direct_map.map(|map| json!({
            "leaf_bytes": map.leaf.map(|leaf| leaf.bytes()),
            "demoted_to_bytes": map.demoted_to.map(|leaf| leaf.bytes()),
        })),
    })
}

fn arm(row: &Row<'_>) -> Value {
    let admission = match row.admission {
        Some(Admission::Admitted { mechanism }) => json!({ "supported": true, "mechanism": mechanism }),
        Some(Admission::Unsupported(why)) => {
            json!({ "supported": false, "reason": why.reason, "remedy": why.remedy })
        }
        None => Value::Null,
    };
    json!({
        "arm": row.index,
        "label": row.arm.label,
        "policy": row.arm.policy.to_string(),
        "variant": row.arm.variant.as_ref().map(|variant| &variant.name),
        "admission": admission,
        "outcome": row.analysis.map(|analysis| plain(&analysis.outcome)),
        "tied": row.analysis.map(|analysis| &analysis.tied),
        "gain_share": row.analysis.and_then(|analysis| analysis.gain_share).map(gain_share),
        "medians": row.analysis.map(|analysis| &analysis.medians),
        "effects": row.analysis.map(effects),
        "tracer_cost": row.analysis.map(tracer_cost),
        "verdict": {
            "holding": row.holding().map(|holding| plain(&holding)),
            "coverage_ratio": row.coverage_ratio(),
            "mean_coverage_ratio": row.mean_coverage_ratio(),
            "peak": row.peak().map(peak),
            "causes": row.causes().iter().map(cause).collect::<Vec<_>>(),
            "answered_calls": answered(&row.answered()),
        },
        "khugepaged": row.collapses().map(collapses),
        "host": row.scarcity().map(|scarcity| plain(&scarcity)),
        "census": census(&row.census()),
    })
}

fn collapses(collapses: Collapses) -> Value {
    let Collapses { of_trials, trials, least, most } = collapses;
    json!({ "of_trials": of_trials, "trials": trials, "least_collapses": least, "most_collapses": most })
}

fn effects(analysis: &ArmAnalysis) -> Map<String, Value> {
    let effect = |effect: &Effect| with(interval(effect), [("p_adjusted", effect.p_adjusted.into())]);
    analysis.effects.iter().map(|(metric, one)| (metric.clone(), effect(one))).collect()
}

/// The cost of the tracer's stops for an arm: against the bare arm, and against the baseline.
fn tracer_cost(analysis: &ArmAnalysis) -> Map<String, Value> {
    let cost =
        |cost: &TracerCost| json!({ "of_bare": interval(&cost.of_bare), "bound": cost.bound.as_ref().map(interval) });
    analysis.tracer_cost.iter().map(|(metric, one)| (metric.clone(), cost(one))).collect()
}

fn gain_share(share: GainShare) -> Value {
    json!({ "of_arm": share.of, "ratio": share.ratio, "low_ratio": share.low, "high_ratio": share.high })
}

fn interval(effect: &Effect) -> Value {
    json!({ "ratio": effect.ratio, "low_ratio": effect.low, "high_ratio": effect.high, "blocks": effect.blocks })
}

fn of_row(comparison: &Comparison, row: &Row<'_>) -> Value {
    shares::of_arm(comparison, row.index, explained::of_arm(comparison, row.index, arm(row)))
}

/// The control arms.
fn controls(comparison: &Comparison) -> Vec<Value> {
    let arms = comparison.design.arms.iter().enumerate().filter(|(_, arm)| arm.role != Role::Policy);
    let medians = |arm: usize| Some(&comparison.analysis.as_ref()?.arms.get(arm)?.medians);
    arms.map(|(index, arm)| {
        let of = match &arm.role {
            Role::Sham { of, .. } => Some(*of),
            Role::Policy | Role::Bare | Role::Frames { .. } | Role::Share { .. } => None,
        };
        let control =
            json!({ "arm": index, "label": arm.label, "policy": arm.policy.to_string(), "sham_of": of, "medians": medians(index) });
        shares::of_control(comparison, index, explained::of_control(comparison, index, control))
    })
    .collect()
}

fn warnings(comparison: &Comparison) -> Vec<Value> {
    let warnings = comparison.analysis.iter().flat_map(|analysis| &analysis.warnings);
    warnings
        .map(|warning| {
            with(
                plain(warning),
                [("text", warning.describe(&comparison.design.arms).into()), ("remedy", warning.remedy().into())],
            )
        })
        .collect()
}

fn trial<'a>(comparison: &'a Comparison, record: &'a TrialRecord, counted: bool, settings: &mut Settings<'a>) -> Value {
    let label = comparison.design.arms.get(record.trial.arm).map(|arm| &arm.label);
    let (code, signal) = match record.answer.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let observations: Vec<Value> = record
        .observations
        .iter()
        .map(|one| json!({ "metric": one.metric, "value": one.value, "provenance": plain(&one.provenance) }))
        .collect();
    json!({
        "arm": record.trial.arm,
        "label": label,
        "block": record.trial.block,
        "position": record.trial.position,
        "attempt": record.trial.attempt,
        "counted": counted,
        "started_s": record.started_s,
        "observations": observations,
        "census": census(&record.census),
        "verdict": {
            "holding": plain(&record.verdict.holding),
            "concerned_bytes": record.verdict.concerned_bytes,
            "covered_bytes": record.verdict.covered_bytes,
            "peak": record.verdict.peak.map(peak),
            "causes": record.verdict.causes.iter().map(cause).collect::<Vec<_>>(),
            "answered_calls": answered(&record.verdict.answered),
        },
        "answer": {
            "exit_code": code,
            "exit_signal": signal,
            "stdout_sha256": record.answer.stdout_sha256,
            "too_slow": record.answer.too_slow,
            "stated": Some(&record.answer.stated).filter(|stated| !stated.is_nothing()).map(plain),
        },
        "state_before": settings.state(&record.state_before),
        "state_after": settings.state(&record.state_after),
        "rejected": record.rejected.iter().map(plain).collect::<Vec<_>>(),
    })
}

/// One row per kind of mapping.
pub(crate) fn census(census: &Census) -> Vec<Value> {
    let row = |mapping: &policy::census::Mapping, bytes| {
        let (folio, folio_bytes) = match mapping.folio {
            Folio::Unknown => ("unknown", None),
            Folio::Whole(size) => ("whole", Some(size.bytes())),
            Folio::Part(size) => ("part", Some(size.bytes())),
        };
        json!({
            "backing": plain(&mapping.backing),
            "leaf_bytes": mapping.leaf.bytes(),
            "folio": folio,
            "folio_bytes": folio_bytes,
            "bytes": bytes,
        })
    };
    census.rows().map(|(mapping, bytes)| row(mapping, bytes)).collect()
}

/// A verdict as used in documents other than comparisons.
pub fn verdict(verdict: &Verdict) -> Value {
    json!({
        "holding": plain(&verdict.holding),
        "coverage_ratio": verdict.coverage_ratio(),
        "concerned_bytes": verdict.concerned_bytes,
        "covered_bytes": verdict.covered_bytes,
        "causes": verdict.causes.iter().map(cause).collect::<Vec<_>>(),
        "answered_calls": answered(&verdict.answered),
    })
}

fn peak(peak: Peak) -> Value {
    json!({ "seen_bytes": peak.seen_bytes, "least_bytes": peak.least_bytes, "most_bytes": peak.most_bytes })
}

fn cause(share: &CauseShare) -> Value {
    with(
        plain(&share.cause),
        [
            ("bytes", share.bytes.into()),
            ("text", share.cause.describe().into()),
            ("remedy", policy::remedy::of_cause(&share.cause).into()),
        ],
    )
}

fn answered(calls: &[AnsweredCall]) -> Vec<Value> {
    calls.iter().map(|answered| json!({ "call": answered.call, "times": answered.times })).collect()
}

/// The distinct settings of all trials. A state refers to its settings by index, because settings are long and rarely
/// change.
#[derive(Default)]
struct Settings<'a> {
    distinct: Vec<&'a std::collections::BTreeMap<String, String>>,
}

impl<'a> Settings<'a> {
    fn state(&mut self, state: &'a State) -> Value {
        let known = self.distinct.iter().rposition(|settings| *settings == state.settings.as_ref());
        let index = known.unwrap_or_else(|| {
            self.distinct.push(&state.settings);
            self.distinct.len() - 1
        });
        json!({
            "settings": index,
            "free_blocks_by_order": state.free_blocks_by_order,
            "direct_map_bytes": state.direct_map_bytes,
            "direct_map_demoted_to_bytes": state.demoted_to.map(|leaf| leaf.bytes()),
            "reported_block_bytes": state.reported_block.map(|block| block.bytes()),
            "available_bytes": state.available_bytes,
            "load_1min": state.load_1min,
        })
    }
}

/// Serializes `study`'s small types, which keep their names in JSON.
fn plain(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("words, numbers and maps with text keys")
}

fn with<const N: usize>(mut object: Value, fields: [(&str, Value); N]) -> Value {
    fields.into_iter().for_each(|(name, value)| object[name] = value);
    object
}

#[cfg(test)]
mod tests;
