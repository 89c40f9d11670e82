//! Variants as arms of one block: compared with each other under each policy, and policies compared within each variant.

#[path = "../../study/tests/common/mod.rs"]
mod common;

use common::{Fake, Noise, comparison, controlled, machine};
use policy::Exit;
use policy::Policy;
use study::comparison::{Comparison, Design, Ended};
use study::control::Role;
use study::metric::names;
use study::runner::{EarlierParts, Gap, compare, resume};
use study::stats::Outcome;
use study::trial::{Answer, Arm, Stated};
use study::variant::Variant;
use study_files::definition::{Size, Wire};
use study_files::matrix::Filled;

/// Enough stops for a sham arm, in half a second.
const MANY: f64 = 2000.0;

fn variant(name: &str) -> Variant {
    Variant { name: name.to_owned(), command: vec![format!("./{name}")], ..Variant::default() }
}

/// Two builds under two policies, with their controls.
fn design() -> Design {
    let plain = common::design(&["default", "thp"], 5);
    let arm = |name: &str, arm: &Arm| Arm {
        label: format!("{name} under {}", arm.policy),
        variant: Some(variant(name)),
        ..arm.clone()
    };
    let arms = ["old", "new"].into_iter().flat_map(|name| plain.arms.iter().map(move |own| arm(name, own)));
    let mut design = Design { arms: arms.collect(), ..plain };
    (design.min_blocks, design.max_blocks) = (12, 12);
    design.with_controls(|policy| *policy != Policy::DEFAULT)
}

/// The new build takes `build` of the old one's time, and THP four fifths of either; stops add `stops` to the new one.
fn fake(design: &Design, build: f64, stops: f64) -> Fake {
    let mut fake = Fake::new(design, &vec![1.0; design.arms.len()], Noise::quiet(), 7);
    for (at, arm) in design.arms.iter().enumerate() {
        let is_new = arm.variant.as_ref().is_some_and(|variant| variant.name == "new");
        let own = if is_new { build } else { 1.0 };
        let cost = if is_new { stops } else { 1.0 };
        let is_stopped = arm.policy != Policy::DEFAULT || matches!(arm.role, Role::Sham { .. });
        let of_policy = if arm.policy == Policy::DEFAULT { 1.0 } else { 0.8 };
        fake.arms[at].ratio = own * of_policy * if is_stopped { cost } else { 1.0 };
        fake.arms[at].stops = match (&arm.role, is_stopped && is_new) {
            (Role::Bare, _) => None,
            (_, true) if stops > 1.0 => Some(MANY),
            (_, _) => Some(if is_stopped { 4.0 } else { 0.0 }),
        };
    }
    fake
}

fn measured(build: f64, stops: f64) -> Comparison {
    let design = design();
    let run = compare(&design, &mut fake(&design, build, stops), &mut |_| ());
    comparison(1, machine(0, 0), design, run)
}

fn ratio(comparison: &Comparison, label: &str) -> f64 {
    let arm = comparison.design.arms.iter().position(|arm| arm.label == label).unwrap();
    comparison.analysis.as_ref().unwrap().arms[arm].effects[names::WALL_S].ratio
}

fn outcome(comparison: &Comparison, label: &str) -> Outcome {
    let arm = comparison.design.arms.iter().position(|arm| arm.label == label).unwrap();
    comparison.analysis.as_ref().unwrap().arms[arm].outcome.clone()
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.01
}

#[test]
fn every_block_has_every_variant_under_every_policy() {
    let design = design();
    let labels: Vec<&str> = design.arms.iter().map(|arm| arm.label.as_str()).collect();
    let compared = ["old under default", "old under thp", "new under default", "new under thp"];
    assert_eq!(labels[..4], compared);
    assert_eq!(labels[4..], ["bare of old", "bare of new", "sham of old under thp", "sham of new under thp"]);
    let found = measured(0.9, 1.0);
    assert_eq!((found.ended.clone(), found.analysis.as_ref().unwrap().blocks), (Ended::Precise, 12));
    for block in 0..=12 {
        let mut arms: Vec<usize> =
            found.trials.iter().filter(|record| record.trial.block == block).map(|record| record.trial.arm).collect();
        arms.retain(|arm| *arm < 4);
        arms.sort_unstable();
        assert_eq!(arms, [0, 1, 2, 3], "block {block}");
    }
    assert!(near(ratio(&found, "new under thp"), 0.9 * 0.8), "against the baseline of all");
}

#[test]
fn a_part_has_the_policies_of_a_variant_or_the_variants_under_a_policy() {
    let found = measured(0.9, 1.0);
    let under = found.under(&"thp".parse().unwrap()).unwrap();
    assert_eq!(under.design.arms[under.design.baseline].label, "old");
    assert!(near(ratio(&under, "new"), 0.9));
    assert_eq!(outcome(&under, "new"), Outcome::Better { best: true });
    let within = found.within("new").unwrap();
    assert!(near(ratio(&within, "thp"), 0.8));
    let controls = |part: &Comparison| -> Vec<String> {
        part.design.arms[2..].iter().map(|arm| format!("{} {:?}", arm.label, arm.role)).collect()
    };
    let is_sham_of = |control: &str, label: &str, of: usize| control.starts_with(&format!("{label} Sham {{ of: {of},"));
    assert_eq!(controls(&within), ["bare of new Bare"], "a sham that stops as the baseline does is not run");
    let under = controls(&under);
    assert_eq!(under[..2], ["bare of old Bare", "bare of new Bare"]);
    assert!(
        is_sham_of(&under[2], "old under default", 0) && is_sham_of(&under[3], "new under default", 1),
        "{under:?}"
    );
    let stopped = measured(1.0, 1.1).within("new").unwrap();
    assert!(is_sham_of(&controls(&stopped)[1], "sham of new under thp", 1));
    assert!(found.within("newer").is_none() && found.under(&"base".parse().unwrap()).is_none());
}

#[test]
fn tracing_overhead_of_one_build_is_not_a_change_between_builds() {
    // Under THP the new build stops often, and seems to lose a tenth because of that.
    let found = measured(1.0, 1.1);
    let under = found.under(&"thp".parse().unwrap()).unwrap();
    assert!(near(ratio(&under, "new"), 1.1));
    assert_eq!(outcome(&under, "new"), Outcome::WithinTracerCost);
    let costs = &under.analysis.as_ref().unwrap().arms[1].tracer_cost[names::WALL_S];
    assert!(near(costs.bound.unwrap().ratio, 1.1) && near(costs.of_bare.ratio, 1.1), "{costs:?}");
    // A build that is slower without stops is still worse: its bare arm is as slow.
    let found = measured(1.1, 1.0);
    assert_eq!(outcome(&found.under(&"default".parse().unwrap()).unwrap(), "new"), Outcome::Worse);
}

#[test]
fn resumes_an_interrupted_comparison_of_variants() {
    let design = design();
    let whole = measured(0.9, 1.0);
    let half = EarlierParts { trials: whole.trials[..20].to_vec(), gap: Gap::Nothing };
    let mut platform = fake(&design, 0.9, 1.0);
    let run = resume(&design, half, None, &mut platform, &mut |_| ());
    assert_eq!((run.ended, run.trials.len()), (Ended::Precise, whole.trials.len()));
    assert_eq!(platform.runs as usize, whole.trials.len() - 20, "no trial is run again");
}

fn missed() -> Stated {
    Stated::Missed { expected: "42".into(), found: "43".into() }
}

#[test]
fn an_arm_that_misses_the_stated_answer_is_wrong_in_every_part() {
    let mut found = measured(0.9, 1.0);
    for record in &mut found.trials {
        record.answer.stated = if record.trial.arm == 2 { missed() } else { Stated::Met };
    }
    found.analysis = study::stats::analyse(&found.design, &found.trials, &found.admissions);
    let wrong = "\"43\" instead of \"42\" in block 0";
    let message = |comparison: &Comparison, label: &str| match outcome(comparison, label) {
        Outcome::WrongAnswer { message } => message,
        other => format!("{label}: {other:?}"),
    };
    assert_eq!(message(&found, "new under default"), wrong);
    assert_eq!(outcome(&found, "old under default"), Outcome::Baseline);
    assert_eq!(message(&found.under(&Policy::DEFAULT).unwrap(), "new"), wrong);
    // Its own policies have no right answer to be compared with.
    let within = found.within("new").unwrap();
    assert_eq!(message(&within, "default"), wrong);
    assert!(message(&within, "thp").contains("given by default, the baseline: \"43\""));
    assert!(within.analysis.unwrap().arms.iter().all(|arm| arm.effects.is_empty()));
    assert!(near(ratio(&found.within("old").unwrap(), "thp"), 0.8), "the other build is not affected");
}

#[test]
fn answers_that_are_stated_for_each_variant_may_differ() {
    let answer = |hash: &str, stated| Answer {
        exit: Exit::Code(0),
        stdout_sha256: Some(hash.to_owned()),
        too_slow: false,
        stated,
    };
    let (one, other) = (answer("a", Stated::Met), answer("b", Stated::Met));
    assert!(other.agrees_with(&one));
    assert!(!answer("b", Stated::Nothing).agrees_with(&answer("a", Stated::Nothing)));
    assert!(!Answer { exit: Exit::Code(1), ..other }.agrees_with(&one));
}

#[test]
fn the_failure_tells_whether_only_the_baseline_misses_the_stated_answer() {
    let design = controlled(&["default", "base"], 1);
    for (wrong, scope) in [(vec![0], "under the baseline default alone"), (vec![0, 1, 2], "in every arm")] {
        let mut platform = Wrong { fake: Fake::new(&design, &[1.0; 3], Noise::quiet(), 1), wrong };
        let run = compare(&design, &mut platform, &mut |_| ());
        let message = format!("the answer {scope} is not the expected one: \"43\" instead of \"42\" in block 0");
        assert_eq!(run.ended, Ended::Failed { message });
    }
}

/// A fake machine on which some arms miss the stated answer.
struct Wrong {
    fake: Fake,
    wrong: Vec<usize>,
}

impl study::runner::Platform for Wrong {
    type Error = String;

    fn admit(&mut self, arm: &Arm) -> policy::Admission {
        self.fake.admit(arm)
    }

    fn run(&mut self, arm: &Arm, trial: study::trial::Trial) -> Result<study::trial::TrialRecord, String> {
        let mut record = self.fake.run(arm, trial)?;
        record.answer.stated = if self.wrong.contains(&trial.arm) { missed() } else { Stated::Met };
        Ok(record)
    }

    fn elapsed_s(&self) -> f64 {
        self.fake.elapsed_s()
    }

    fn interrupted(&self) -> bool {
        self.fake.interrupted()
    }
}

fn wire(more: serde_json::Value, workload: serde_json::Value) -> Wire {
    let mut document = serde_json::json!({
        "schema": "pagelab.study/1", "name": "builds", "question": "?", "policies": ["default"],
        "sizes": { "standard": { "parameters": { "n": 3 } } }, "workload": [workload],
    });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    serde_json::from_value(document).unwrap()
}

#[test]
fn variants_of_a_file_override_command_environment_and_answer() {
    let wire = wire(
        serde_json::json!({ "published": [{
            "what": "new", "workload": "sort", "variant": "new", "policy": "default", "change": "-3%", "source": "s",
        }] }),
        serde_json::json!({
            "name": "sort", "command": ["{sort}", "-n{n}"], "env": { "LANG": "C" }, "expected": "42",
            "variants": {
                "new": { "values": { "sort": "./new" }, "env": { "ARENAS": "{n}" }, "expected": "43" },
                "old": { "baseline": true, "values": { "sort": "./old" } },
                "wrapped": { "command": ["nice", "./old"], "fragmented": "80%" },
            },
        }),
    );
    let study = wire.of_size(Size::Standard).unwrap();
    let sort = &study.workloads[0];
    assert_eq!((&sort.command[..], sort.expected.as_deref()), (&["./old".to_owned(), "-n3".into()][..], Some("42")));
    let names: Vec<&str> = sort.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["old", "new", "wrapped"], "the baseline first");
    assert_eq!(sort.variants[1].command, ["./new", "-n3"]);
    assert_eq!((sort.variants[1].env["ARENAS"].as_str(), sort.variants[1].env["LANG"].as_str()), ("3", "C"));
    assert_eq!(sort.variants[1].expected.as_deref(), Some("43"));
    assert_eq!(sort.row_names(), ["sort, old", "sort, new", "sort, wrapped"]);
    let apart = sort.variants_as_workloads();
    assert_eq!((apart[1].name.as_str(), apart[1].command[0].as_str()), ("sort, new", "./new"));
    assert_eq!(apart[2].missing.as_deref(), Some("free memory of a model machine is never fragmented"));
}

#[test]
fn fresh_and_fragmented_memory_are_variants() {
    let sort = || serde_json::json!({ "name": "sort", "command": ["sort"] });
    let of = |fragmented: serde_json::Value| {
        wire(serde_json::json!({ "fragmented": fragmented }), sort()).of_size(Size::Standard)
    };
    let axis = of(serde_json::json!(["0%", "80%", "90%@64K"])).unwrap();
    let variants = &axis.workloads[0].variants;
    let names: Vec<(&str, Option<&str>)> =
        variants.iter().map(|variant| (variant.name.as_str(), variant.fragmented.as_deref())).collect();
    let expected = [("fresh", None), ("80% fragmented", Some("80%")), ("90%@64K fragmented", Some("90%@64K"))];
    assert_eq!((names, axis.fragmented), (expected.to_vec(), None));
    let error = of(serde_json::json!("80%")).unwrap_err().to_string();
    assert!(error.contains("policies: expected two or more"), "a single value makes no variants: {error}");
    let both = wire(serde_json::json!({ "fragmented": "80%", "policies": ["default", "thp"] }), sort());
    assert_eq!(both.of_size(Size::Standard).unwrap().fragmented.as_deref(), Some("80%"));
}

#[test]
fn invalid_variants_are_refused() {
    let of = |more: serde_json::Value, variants: serde_json::Value| {
        let sort = serde_json::json!({ "name": "sort", "command": ["sort"], "variants": variants });
        wire(more, sort).of_size(Size::Standard).unwrap_err().to_string()
    };
    let none = || serde_json::json!({});
    let new = || serde_json::json!({ "command": ["new"] });
    let old = || serde_json::json!({ "baseline": true });
    for (more, variants, part) in [
        (none(), serde_json::json!({ "old": old() }), "one variant alone"),
        (none(), serde_json::json!({ "new": new(), "newer": {} }), "none is the baseline"),
        (none(), serde_json::json!({ "old": old(), "new": old() }), "several are the baseline"),
        (none(), serde_json::json!({ "old": old(), "new": {} }), "\"old\" and \"new\" are the same"),
        (
            serde_json::json!({ "fragmented": ["0%", "80%"] }),
            serde_json::json!({ "old": old(), "new": new() }),
            "set `fragmented` in each of them",
        ),
        (
            serde_json::json!({ "published": [{ "what": "x", "variant": "newer", "change": "-3%", "source": "s" }] }),
            serde_json::json!({ "old": old(), "new": new() }),
            "published.variant: there is no \"newer\"; there are old, new",
        ),
    ] {
        let error = of(more, variants);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn rows_of_a_form_that_are_variants_of_one_workload_are_compared_block_by_block() {
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "builds", "question": "?", "policies": ["default", "thp"],
        "sizes": { "standard": {} },
        "workload": [{
            "name": "sort", "command": ["{build}"],
            "variants": {
                "old": { "baseline": true, "values": { "build": "./old" } }, "new": { "values": { "build": "./new" } },
            },
        }],
        "form": { "source": "a list", "row": [
            { "name": "old", "workload": "sort, old", "policy": "default", "place": 2 },
            { "name": "new, thp", "workload": "sort, new", "policy": "thp", "place": 1 },
        ] },
    });
    let definition = serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard).unwrap();
    let whole = measured(0.5, 1.0);
    let slices = ["old", "new"].map(|name| (format!("sort, {name}"), whole.within(name).unwrap()));
    let of_name = |name: &str| slices.iter().find(|(known, _)| known == name).map(|(_, slice)| slice);
    let filled = Filled::of(definition.form.as_ref().unwrap(), "a host", &of_name).unwrap();
    let effect = filled.rows[1].effect.unwrap();
    assert!(filled.rows[1].is_interleaved && near(effect.ratio, 0.4), "{effect:?}");
    assert_eq!((effect.blocks, filled.order.shown), (12, 1));
}
