//! The comparison as one JSON document, schema `pagelab.compare/1`.
//!
//! `docs/reference/formats/compare.md` describes it. Its layout is its own and does not follow that of `study`'s types; the words
//! for outcomes, causes and warnings are theirs. Values that are not known are `null`; a metric that was
//! not observed is absent.

use policy::cause::CauseShare;
use policy::census::{Census, Folio};
use policy::verdict::{AnsweredCall, Peak, Verdict};
use serde::Serialize;
use serde_json::{Map, Value, json};
use study::comparison::{Admission, Comparison, Design};
use study::control::Role;
use study::machine::{Machine, State};
use study::metric::Metric;
use study::stats::{ArmAnalysis, Effect, TracerCost};
use study::trial::{Exit, TrialRecord};

use crate::adopting::{Adopting, best};
use crate::collapses::Collapses;
use crate::rows::{self, Row};
use crate::sentence;

/// The name and version of the document.
pub const SCHEMA: &str = "pagelab.compare/1";

/// The document.
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
        "controls": controls(comparison),
        "arms": rows.iter().map(|row| arm(comparison, row)).collect::<Vec<_>>(),
        "warnings": warnings(comparison),
        "settings": settings.distinct.iter().map(plain).collect::<Vec<_>>(),
        "trials": trials,
        "control_trials": control_trials,
    })
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
        // Readers whose numbers are all floating-point cannot hold 64 bits.
        "seed": design.seed.to_string(),
        "prove_all": design.prove_all,
        "khugepaged": plain(&design.khugepaged),
        "fragmented": design.fragmented.map(|wish| json!({ "percent": wish.percent, "block_bytes": wish.block.bytes() })),
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
    })
}

fn arm(comparison: &Comparison, row: &Row<'_>) -> Value {
    let admission = match row.admission {
        Some(Admission::Admitted { mechanism }) => json!({ "supported": true, "mechanism": mechanism }),
        Some(Admission::Unsupported(why)) => {
            json!({ "supported": false, "reason": why.reason, "remedy": why.remedy })
        }
        None => Value::Null,
    };
    let Adopting { obstacle, recommended, others } = Adopting::of(comparison, row.index);
    json!({
        "arm": row.index,
        "label": row.arm.label,
        "policy": row.arm.policy.to_string(),
        "admission": admission,
        "outcome": row.analysis.map(|analysis| plain(&analysis.outcome)),
        "tied": row.analysis.map(|analysis| &analysis.tied),
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
        "adoption_obstacle": obstacle,
        "adoptions": recommended
            .into_iter()
            .chain(others)
            .map(|adoption| json!({ "scope": adoption.scope, "commands": adoption.commands }))
            .collect::<Vec<_>>(),
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

/// What the tracer's stops cost an arm: against the bare arm, and against the baseline's.
fn tracer_cost(analysis: &ArmAnalysis) -> Map<String, Value> {
    let cost =
        |cost: &TracerCost| json!({ "of_bare": interval(&cost.of_bare), "bound": cost.bound.as_ref().map(interval) });
    analysis.tracer_cost.iter().map(|(metric, one)| (metric.clone(), cost(one))).collect()
}

fn interval(effect: &Effect) -> Value {
    json!({ "ratio": effect.ratio, "low_ratio": effect.low, "high_ratio": effect.high, "blocks": effect.blocks })
}

/// The arms that are no policies.
fn controls(comparison: &Comparison) -> Vec<Value> {
    let arms = comparison.design.arms.iter().enumerate().filter(|(_, arm)| arm.role != Role::Policy);
    let medians = |arm: usize| Some(&comparison.analysis.as_ref()?.arms.get(arm)?.medians);
    arms.map(|(index, arm)| {
        let of = match &arm.role {
            Role::Sham { of, .. } => Some(*of),
            Role::Policy | Role::Bare => None,
        };
        json!({ "arm": index, "label": arm.label, "policy": arm.policy.to_string(), "sham_of": of, "medians": medians(index) })
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
        },
        "state_before": settings.state(&record.state_before),
        "state_after": settings.state(&record.state_after),
        "rejected": record.rejected.iter().map(plain).collect::<Vec<_>>(),
    })
}

/// A row for every way in which memory is mapped.
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

/// A verdict alone, as documents have it that are not of comparisons.
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
            ("remedy", share.cause.remedy().into()),
        ],
    )
}

fn answered(calls: &[AnsweredCall]) -> Vec<Value> {
    calls.iter().map(|answered| json!({ "call": answered.call, "times": answered.times })).collect()
}

/// The distinct settings, to which states refer by their index: they are many and seldom change.
#[derive(Default)]
struct Settings<'a> {
    distinct: Vec<&'a std::collections::BTreeMap<String, String>>,
}

impl<'a> Settings<'a> {
    fn state(&mut self, state: &'a State) -> Value {
        let known = self.distinct.iter().rposition(|settings| **settings == state.settings);
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

/// The words and plain fields of `study`'s small types, which keep their names in JSON.
fn plain(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("words, numbers and maps with text keys")
}

fn with<const N: usize>(mut object: Value, fields: [(&str, Value); N]) -> Value {
    fields.into_iter().for_each(|(name, value)| object[name] = value);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_document_has_what_was_measured_and_what_follows() {
        let comparison = sample::comparison();
        let document = document(&comparison);
        assert_eq!(document["schema"], "pagelab.compare/1");
        assert_eq!(document["result"]["best"], json!([3]));
        assert_eq!(document["arms"][3]["outcome"], json!({ "outcome": "better", "best": true }));
        let effect = &document["arms"][3]["effects"]["wall_s"];
        assert!(effect["low_ratio"].as_f64() < effect["ratio"].as_f64());
        assert_eq!(document["arms"][1]["admission"]["supported"], false);
        assert_eq!(document["arms"][2]["verdict"]["holding"], "not_held");
        let peak = &document["arms"][2]["verdict"]["peak"];
        assert!(
            peak["seen_bytes"] == peak["least_bytes"] && peak["most_bytes"].as_u64() > peak["least_bytes"].as_u64()
        );
        assert_eq!(document["arms"][2]["verdict"]["causes"][0]["code"], "not_advised");
        let trials = document["trials"].as_array().unwrap();
        assert_eq!(trials.len(), comparison.trials.len());
        let counted = trials.iter().filter(|trial| trial["counted"] == true).count();
        assert_eq!(counted, 75, "15 blocks of 5 arms; the first block and the rejected trial do not count");
        for (trial, record) in trials.iter().zip(&comparison.trials) {
            assert_eq!(trial["observations"][0]["value"].as_f64(), record.value("wall_s"));
        }
        assert_eq!(document["settings"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_tracers_cost_of_each_arm_is_there_with_its_interval() {
        let document = document(&sample::with_controls());
        assert_eq!(document["controls"].as_array().unwrap().len(), 5);
        assert_eq!(document["controls"][0]["label"], "bare");
        assert_eq!(document["controls"][3]["sham_of"], 3);
        assert_eq!(document["arms"].as_array().unwrap().len(), 6, "controls are no arms");
        let thp = &document["arms"][3];
        assert_eq!(thp["outcome"], json!({ "outcome": "within_tracer_cost" }));
        let bound = &thp["tracer_cost"]["wall_s"]["bound"];
        assert!(bound["low_ratio"].as_f64() <= bound["ratio"].as_f64() && bound["ratio"].as_f64().unwrap() > 1.3);
        assert!(bound["ratio"].as_f64() < thp["tracer_cost"]["wall_s"]["of_bare"]["ratio"].as_f64());
        assert_eq!(document["arms"][0]["tracer_cost"]["wall_s"]["bound"], Value::Null);
        let counted = document["trials"].as_array().unwrap().iter().filter(|trial| trial["counted"] == true).count();
        assert_eq!((counted, document["control_trials"].as_array().unwrap().len()), (75, 32));
    }

    /// Units stand in the names, and names are in snake case.
    #[test]
    fn names_are_in_snake_case() {
        fn check(value: &Value) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                    let snake = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                    assert!(snake || name.starts_with('/') || ["4K", "2M", "1G"].contains(&name.as_str()), "{name}");
                    check(value);
                }),
                Value::Array(values) => values.iter().for_each(check),
                _ => {}
            }
        }
        check(&document(&sample::comparison()));
    }

    #[test]
    fn any_comparison_has_a_document() {
        for comparison in [sample::empty(), sample::hostile()] {
            let text = document(&comparison).to_string();
            let back: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(back, document(&comparison));
        }
    }
}
