//! Tests of the result of `pagelab sim` as a sentence, and of the kernel's cycles next to those of translation.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::fs;

use serde_json::Value;
use traced::Traced;

/// The sentence contains the share of the time that translation takes, the best policy, its memory and the basis of the result.
/// It is in the text, in JSON and on the page.
#[test]
fn the_end_is_a_sentence_for_each_machine() {
    let traced = Traced::new();
    let page = traced.bench.path("page.html").display().to_string();
    let arguments = ["-m", "cascade-lake,neoverse-n1", "-p", "base,thp,base-64k", "--run-time", "10ms"];
    let text = traced.sim(&[&arguments[..], &["--html", &page]].concat()).stdout;
    let document = traced.json(&arguments);
    let answers = document["traces"][0]["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 2);
    let cascade = &answers[0];
    assert_eq!((&cascade["machine"], &cascade["provenance"]), (&"cascade-lake".into(), &"modelled".into()));
    assert_eq!((&cascade["best"], &cascade["reference"]), (&serde_json::json!(["thp"]), &"base".into()));
    let cell = |at: usize| &document["traces"][0]["simulations"][at];
    let lost = |at: usize| cell(at)["max_lost_cycles"].as_f64().unwrap();
    assert_eq!(cascade["lost_cycles_ratio"].as_f64().unwrap(), lost(1) / lost(0));
    let sentence = cascade["sentence"].as_str().unwrap();
    for part in [
        "translation is at most 0.2 % of this program's time on cascade-lake; with faults, zeroing and copying, whose cost is \
         assumed, thp takes up to 5.0 % less time than base; memory stays the same under thp. ",
        "The time is 10.00 ms of CPU time, which was given (--run-time); cycles are those of 2.5 GHz, which is assumed.",
        "Not compared: base-64k (unsupported: ",
        "figures of the machine (TLBs ",
    ] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    assert!(text.trim_end().ends_with("notes and more figures: --full; every count: --json"), "{text}");
    let unfolded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(answers.iter().all(|answer| unfolded.contains(answer["sentence"].as_str().unwrap())), "{text}");
    assert!(fs::read_to_string(&page).unwrap().contains("<strong>translation is at most"));
}

#[test]
fn the_time_of_the_program_decides_whether_page_size_matters() {
    let traced = Traced::new();
    let of =
        |time: &[&str]| traced.json(&[&["-m", "cascade-lake", "-p", "base,thp"], time].concat())["traces"][0].clone();
    let answer = |trace: &Value| trace["answers"][0].clone();
    let (long, assumed) = (of(&["--run-time", "2s"]), of(&[]));
    let sentence = answer(&long)["sentence"].as_str().unwrap().to_owned();
    let expected = "translation is at most 0.1 % of this program's time on cascade-lake, so page size does not matter there; \
                    memory stays the same under thp. The time is 2.000 s of CPU time";
    assert!(sentence.starts_with(expected), "{sentence}");
    assert_eq!((&answer(&long)["page_size_matters"], &long["run_time"]["source"]), (&false.into(), &"given".into()));
    assert_eq!((&assumed["run_time"]["source"], &assumed["run_time"]["cpu_s"]), (&"assumed".into(), &Value::Null));
    let sentence = answer(&assumed)["sentence"].as_str().unwrap().to_owned();
    let expected = "The time is assumed, a cycle for each of 2,048 instructions, plus translation and the kernel's work at \
                    faults: the trace has no CPU time of a native run. ";
    assert!(sentence.contains(expected), "{sentence}");
    for (wrong, parts) in [
        (&["--run-time", "3"][..], &["--run-time", "3"][..]),
        (&["--run-time", "0s"], &["--run-time"]),
        (&["--run-time=-1s"], &["--run-time"]),
        (&[&traced.file, "--run-time", "1s"], &["--run-time", "expected one trace, whose CPU time it is, found 2"]),
    ] {
        traced.sim(wrong).assert_exit(2, parts);
    }
}

/// 1025 faults that fill a 4K page each are compared with two faults of 2M and one for the code.
#[test]
fn faults_and_zeroing_have_cycles_with_their_ground() {
    let traced = Traced::new();
    let document = traced.json(&["-m", "zen-3", "-p", "base,thp"]);
    let cell = |at: usize| &document["traces"][0]["simulations"][at];
    let figures = document["machines"][0]["figures"].as_array().unwrap();
    let figure = |key: &str| {
        let found = figures.iter().find(|figure| figure["key"] == key).unwrap();
        assert!(found["assumed"].is_string(), "{found}");
        found["is"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let fault = figure("kernel_costs.fault_cycles");
    let zeroing = [0, 1].map(|at| figure(&format!("kernel_costs.zeroing[{at}].cycles")));
    for (at, faults, zeroed) in [(0, 1025, 1025 * zeroing[0]), (1, 3, 2 * zeroing[1] + zeroing[0])] {
        let cycles = &cell(at)["kernel_cycles"];
        assert_eq!(cell(at)["faults"], faults);
        assert_eq!((&cycles["fault_cycles"], &cycles["zeroing_cycles"]), (&(faults * fault).into(), &zeroed.into()));
        assert_eq!(cycles["copying_cycles"], 0);
    }
    assert_eq!(cell(1)["zeroed_folios"], serde_json::json!([{ "folio_bytes": 2 << 20, "bytes": 4 << 20 }]));
    let text = traced.sim(&["-m", "zen-3", "-p", "base,thp", "--full"]).stdout;
    assert!(text.contains("zeroing") && text.contains("together"), "{text}");
    let without = traced.bench.path("without.toml").display().to_string();
    fs::write(&without, include_str!("../../../fixtures/machine.toml")).unwrap();
    let document = traced.json(&["-m", &without, "-p", "base,thp"]);
    assert_eq!(document["traces"][0]["simulations"][0]["kernel_cycles"], Value::Null);
    let answer = document["traces"][0]["answers"][0]["sentence"].as_str().unwrap();
    assert!(answer.contains("is not known: the machine file has no [kernel_costs]"), "{answer}");
}
