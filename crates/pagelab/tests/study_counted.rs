//! Tests of studies that count and weigh events, from end to end: counted once, stored, and weighed again with other
//! costs.

mod common;

use std::fs;

use common::*;
use serde_json::Value;

/// The built-in study with little memory, and without the parts that must be measured.
fn tiny(visit: &str) -> String {
    let built_in = include_str!("../../../studies/stage2-split.toml");
    let (_, counted) = built_in.split_once("\n[counted]\n").unwrap();
    let head = r#"
schema = "pagelab.study/1"
name = "tiny-split"
question = "What does a walk save?"
policies = ["base", "thp"]

[sizes.standard]
parameters = { slot = "1G" }

[[workload]]
name = "nothing"
missing = "nothing is measured here"

[counted]
"#;
    format!("{head}{counted}").replace("instructions = [49, 51.1]", visit)
}

fn study(bench: &Bench, verb: &str, file: &str, options: &[&str]) -> std::process::Command {
    let store = bench.store();
    bench.pagelab(&[&["study", verb, file, "--store", &store], options].concat())
}

fn average<'a>(report: &'a Value, phase: &str, backing: &str, variant: &str) -> &'a Value {
    let averages = report["counted"]["averages"].as_array().unwrap();
    let own = |one: &&Value| one["phase"] == phase && one["backing"] == backing && one["variant"] == variant;
    &averages.iter().find(own).unwrap()["saving"]
}

#[test]
fn walks_are_counted_once_and_weighed_as_often_as_asked() {
    let bench = Bench::new();
    let file = bench.word("tiny.toml");
    fs::write(bench.path("tiny.toml"), tiny("instructions = [49, 51.1]")).unwrap();
    let before = study(&bench, "report", &file, &["--json"]).ran().json();
    assert!(before["answer"][1].as_str().unwrap().contains("stage2-split has not been counted yet"));
    assert!(before["missing"][0].as_str().unwrap().contains("granules 4K, 16K, 64K not counted yet"));
    let first = study(&bench, "run", &file, &[]).ran();
    assert_eq!(first.stderr.matches("counting stage2-split with pages of").count(), 3, "{}", first.stderr);
    let report = study(&bench, "report", &file, &["--json"]).ran().json();
    let rows = report["counted"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 3 * 3 * 3, "phases, backings, granules and variants");
    let visits = |at: usize| rows[at]["visits"].as_u64().unwrap();
    // For 4K pages, when logging is enabled: two walks of 262,657 entries, or one of the two walks reads only the
    // tables.
    assert_eq!((visits(0), visits(1)), (262_657 * 2, 262_657 + 513));
    let pages = &average(&report, "enable", "pages", "skip-level3")["instructions"];
    let thp = &average(&report, "enable", "thp", "skip-level3")["instructions"];
    let within =
        |range: &Value, low: f64, high: f64| range["low"].as_f64() > Some(low) && range["high"].as_f64() < Some(high);
    assert!(within(pages, 0.41, 0.45) && within(thp, 0.16, 0.19), "{pages} {thp}");
    // The counts are stored, so other costs need no new counts.
    fs::write(bench.path("tiny.toml"), tiny("instructions = [490, 511]")).unwrap();
    let again = study(&bench, "run", &file, &[]).ran();
    assert!(!again.stderr.contains("counting"), "{}", again.stderr);
    let report = study(&bench, "report", &file, &["--json"]).ran().json();
    let dearer = &average(&report, "enable", "thp", "skip-level3")["instructions"];
    assert!(dearer["low"].as_f64() > thp["high"].as_f64(), "{dearer} {thp}");
    assert_eq!(report["claim"], "confirmed in its direction only");
    for (form, part) in [("--markdown", "by instructions"), ("--mail", "AmpereOne, 29 May")] {
        let text = study(&bench, "report", &file, &[form]).ran().stdout;
        assert!(text.contains(part) && text.contains("modelled"), "{text}");
    }
}

#[test]
fn refuses_events_that_cannot_be_counted_by_name() {
    let bench = Bench::new();
    let file = bench.word("tiny.toml");
    let whole = tiny("instructions = [49, 51.1]");
    let cases = [
        (
            "what = \"stage2-split\"",
            "what = \"stage3-split\"",
            "counted.what: there is no \"stage3-split\"; there are stage2-split",
        ),
        ("granules = [\"4K\"", "granules = [\"8K\"", "counted.granules: there is no \"8K\"; there are 4K, 16K, 64K"),
        ("event = \"top_up\"", "event = \"topup\"", "counted.cost.event: there is no \"topup\""),
        (
            "\"skip-level3\", \"skip-children\"]",
            "\"skip-level3\", \"skip-children\", \"skip-all\"]",
            "counted.variants: there is no \"skip-all\"",
        ),
        ("slot = \"1G\"", "slot = \"1\"", "counted: 4K: "),
        ("slot = \"1G\"", "slot = \"4T\"", "counted: 4K: "),
        ("phase = \"clear\"", "phase = \"clean\"", "published.counted.phase: there is no \"clean\""),
        ("ns = [0, 20]", "nss = [0, 20]", "the nearest is `ns`"),
    ];
    for (of, to, expected) in cases {
        assert!(whole.contains(of), "{of}");
        fs::write(bench.path("tiny.toml"), whole.replace(of, to)).unwrap();
        study(&bench, "run", &file, &[]).ran().assert_exit(2, &[expected]);
    }
}
