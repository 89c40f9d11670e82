//! Tests of variants: builds, arguments and environments as arms of one block, in a comparison and in a study.

mod common;

use std::process::Command;

use common::*;
use serde_json::Value;

/// The smallest number of blocks that gives a confidence interval.
const SIX: [&str; 4] = ["--blocks", "6", "--min-blocks", "6"];

/// Makes two builds of one program. It walks over 8M as often as its build says, and prints that number.
fn two_builds(bench: &Bench) -> bool {
    if !needs(&[program("gcc")]) {
        return false;
    }
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        int main(int count, char **words) {
            char *memory = malloc(8 << 20);
            for (int round = 0; round < ROUNDS; round++) memset(memory, round, 8 << 20);
            printf("%d words, %s\n", count - 1, getenv("ANSWER") ? getenv("ANSWER") : memory[1] >= 0 ? "right" : "");
            return 0;
        }"#;
    std::fs::write(bench.path("walk.c"), source).unwrap();
    for (name, rounds) in [("old", 10), ("new", 120)] {
        let define = format!("-DROUNDS={rounds}");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", &define, "-o"]).arg(bench.path(name)).arg(bench.path("walk.c"));
        assert!(gcc.status().unwrap().success());
    }
    true
}

fn labels(document: &Value) -> Vec<String> {
    document["arms"].as_array().unwrap().iter().map(|arm| arm["label"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn two_builds_are_arms_of_the_same_blocks() {
    let bench = Bench::new();
    if !two_builds(&bench) {
        return;
    }
    let (old, new) = (bench.word("old"), format!("new={} {{args}}", bench.word("new")));
    let options =
        ["-p", "default,base", "--variant", "old", "--variant", &new, "--expected", "1 words, right", "--json"];
    let document = bench.compare(&[&options[..], &SIX].concat(), &words_of(&[&old, "a"])).ran().json();
    assert_eq!(labels(&document), ["old under default", "old under base", "new under default", "new under base"]);
    for (arm, effect) in [(2, true), (3, true)] {
        let ratio = &document["arms"][arm]["effects"]["cpu_s"];
        assert!(!effect || ratio["low_ratio"].as_f64().unwrap() > 1.2, "many times the work: {ratio}");
    }
    let variants = document["design"]["variants"].as_array().unwrap();
    let hash = |at: usize| variants[at]["program_sha256"].as_str().unwrap();
    assert_eq!((variants.len(), hash(0).len()), (2, 64));
    assert_ne!(hash(0), hash(1), "which build an arm ran");
    assert_eq!(variants[1]["command"][1], "a");
    let parts: Vec<&str> =
        document["parts"].as_array().unwrap().iter().map(|part| part["of"].as_str().unwrap()).collect();
    assert_eq!(parts, ["variants under base", "policies within new"]);
    let under = &document["parts"][0]["arms"][0]["effects"]["cpu_s"];
    assert!(under["low_ratio"].as_f64().unwrap() > 1.2, "{under}");
    for block in 0..=6 {
        let of_block = document["trials"].as_array().unwrap().iter().filter(|trial| trial["block"] == block);
        assert_eq!(of_block.count(), 4, "block {block}");
    }
    assert!(document["trials"].as_array().unwrap().iter().all(|trial| trial["answer"]["stated"]["stated"] == "met"));
    let (html, csv) = (bench.word("a.html"), bench.word("a.csv"));
    let shown =
        bench.pagelab(&["show", "1", "--full", "--store", &bench.store(), "--html", &html, "--csv", &csv]).ran();
    shown.assert_stdout(&[
        "variants under base: new against old",
        "policies within new: base against default",
        "build ",
    ]);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("What ran") && page.contains(hash(1).get(..12).unwrap()));
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.lines().skip(1).all(|line| [",old", ",new"].iter().any(|end| line.ends_with(end))), "controls too");
}

#[test]
fn an_environment_is_a_variant_and_its_wrong_answer_is_named() {
    let bench = Bench::new();
    if !two_builds(&bench) {
        return;
    }
    let old = bench.word("old");
    let expected = ["--expected", "words, right", "--answer", "(words, .*)"];
    let variants = ["--variant", "plain", "--variant", "other=ANSWER=wrong {}"];
    let compare = |more: &[&str]| {
        let options = [&variants[..], &expected, &SIX, more].concat();
        bench.compare(&options, &words_of(&[&old])).ran()
    };
    let ran = compare(&[]);
    ran.assert_exit(
        1,
        &["no other arm gave the baseline's answer", "other: \"words, wrong\" instead of \"words, right\" in block 0"],
    );
    let document = compare(&["--expected-of", "other=words, wrong", "--json"]).json();
    assert_eq!(labels(&document), ["plain", "other"], "under one policy the variant alone is named");
    assert_eq!(document["parts"].as_array().unwrap().len(), 0);
    assert!(document["trials"].as_array().unwrap().iter().all(|trial| trial["answer"]["stated"]["stated"] == "met"));
    let only_baseline = ["--variant", "other=ANSWER=wrong {}", "--variant", "plain"];
    let ran = bench.compare(&[&only_baseline[..], &expected, &SIX].concat(), &words_of(&[&old])).ran();
    ran.assert_exit(1, &["the answer under the baseline other alone is not the expected one"]);
}

#[test]
fn variants_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    for (options, part) in [
        (&["--variant", "a"][..], "one variant alone"),
        (&["--variant", "a", "--variant", "a"], "duplicate name"),
        (&["--variant", "a", "--variant", "b"], "a and b run the same"),
        (&["--variant", "a", "--variant", "b=A=1"], "after the variables"),
        (&["--variant", "a", "--variant", "b=no-such-program"], "no-such-program"),
        (&["--variant", "a", "--variant", "b=true x", "--expected-of", "c=1"], "there are a, b"),
        (&["--variant", "a", "--variant", "b=true x", "--fragmented-of", "b=0%"], "1% to 100%"),
        (&["--expected-of", "a=1"], "--variant"),
    ] {
        let ran = bench.compare(options, &words_of(&["true"])).ran();
        assert!(ran.stderr.contains(part), "{part}: {ran}");
        assert!(!ran.stderr.contains("panicked"));
    }
}

/// A study of two builds, one of which gives a wrong answer, under the policies of a fake platform.
const BUILDS: &str = r#"
schema = "pagelab.study/1"
name = "builds"
question = "Is the new build faster?"
policies = ["default", "thp"]

[sizes.standard]
blocks = 8
min_blocks = 8

[[workload]]
name = "sort"
command = ["true"]

[workload.variants.old]
baseline = true

[workload.variants.new]
command = ["true", "--new"]

[[published]]
what = "the author's"
workload = "sort"
policy = "thp"
variant = "new"
metric = "wall_s"
change = "-10%"
source = "a list"
"#;

#[test]
fn a_study_compares_variants_under_each_policy_and_policies_within_each() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions))]) {
        return;
    }
    let bench = Bench::new();
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/host/x86_64-6.18");
    let arm = |label: &str, scale: f64| {
        let walls: Vec<f64> = [1.0, 1.01, 0.99, 1.004, 0.996].iter().map(|wall_s| wall_s * scale).collect();
        format!("[arm.\"{label}\"]\nwall_s = {walls:?}\nholding = \"held\"\nmapped = {{ \"2M\" = \"24M\" }}\n")
    };
    let arms = [
        ("old under default", 1.0),
        ("old under thp", 0.8),
        ("new under default", 1.0),
        ("new under thp", 0.7),
        ("default", 1.0),
    ];
    let arms: String = arms.iter().map(|(label, scale)| arm(label, *scale)).collect();
    let (platform, file) = (bench.word("platform.toml"), bench.word("builds.toml"));
    std::fs::write(&platform, format!("host = {host:?}\n{arms}")).unwrap();
    std::fs::write(&file, BUILDS).unwrap();
    let store = bench.store();
    let study =
        |verb: &str, more: &[&str]| bench.pagelab(&[&["study", verb, &file, "--store", &store], more].concat()).ran();
    study("run", &["--fake-platform", &platform]).assert_exit(0, &[]);
    assert_eq!(study("status", &["--json"]).json()["rows"][0]["state"], "done", "one comparison has all variants");
    let html = bench.word("report.html");
    let document = study("report", &["--json", "--html", &html]).json();
    let rows: Vec<&str> =
        document["rows"].as_array().unwrap().iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(rows, ["sort, old", "sort, new"]);
    let ratio = |row: &Value, cell: usize| row["cells"][cell]["effects"]["wall_s"]["ratio"].as_f64().unwrap();
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found} {expected}");
    near(ratio(&document["rows"][0], 1), 0.8);
    near(ratio(&document["rows"][1], 1), 0.7);
    let variants = &document["over_variants"][0];
    assert_eq!((&variants["variants"][0], &variants["baseline"]), (&Value::from("old"), &Value::from("old")));
    assert_eq!(variants["rows"][1]["workload"], "sort under thp");
    near(ratio(&variants["rows"][1], 1), 0.7 / 0.8);
    assert!(variants["rows"][1]["cells"][1]["coverage_ratio"].as_f64() == Some(1.0), "the proof of each arm");
    // The published figure is shown next to the variant's change. Figures of a fake platform confirm no published
    // figure.
    let published = &document["published"][0];
    near(published["ratio"].as_f64().unwrap(), 0.7 / 0.8);
    assert!(published["says"].as_str().unwrap().starts_with("not judged: a model"), "{published}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Variants compared") && page.contains("id=\"variants0-row1\""));
    for form in ["--markdown", "--mail"] {
        study("report", &[form]).assert_stdout(&["sort under thp", "sort, new"]);
    }
    let samples = bench.word("samples.csv");
    study("export", &["-o", &samples]).assert_exit(0, &[]);
    let samples = std::fs::read_to_string(samples).unwrap();
    assert!(samples.lines().any(|line| line.contains("new under thp") && line.ends_with("held,thp,new")));
}
