//! Tests of `pagelab compare` on the running kernel, from the command line to the table, the exports and the store.

mod common;

use std::collections::BTreeMap;

use common::*;
use serde_json::Value;

#[test]
fn a_comparison_is_shown_exported_and_kept() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let (csv, html) = (bench.word("samples.csv"), bench.word("report.html"));
    let options = ["-p", "default,base,thp", "-p", "mthp-64k,hugetlb-2m", "--csv", &csv, "--html", &html];
    let ran = bench.compare(&[&options[..], &QUICK].concat(), &bench.touch()).ran();
    ran.assert_exit(0, &["report: "]).assert_stdout(&[
        "policy wall time change memory pages outcome",
        "held",
        "baseline",
        "undecided",
        "): pagelab show 1 --full --store",
    ]);

    let document = bench.stored(1);
    assert_eq!(document["schema"], "pagelab.compare/1");
    assert_eq!(document["ended"]["reason"], "blocks");
    assert_eq!(document["arms"].as_array().unwrap().len(), 5);
    assert_eq!(arm(&document, "default")["verdict"]["holding"], "not_asked");
    for label in ["base", "thp", "mthp-64k", "hugetlb-2m"] {
        let arm = arm(&document, label);
        assert_eq!(arm["verdict"]["holding"], "held", "{arm:#}");
        assert!(arm["verdict"]["coverage_ratio"].as_f64().unwrap() >= 0.9, "{arm:#}");
    }
    // According to the census, not only to the verdict, nearly all of 48 MiB is mapped as the policy asks.
    for (label, leaf_bytes, folio_bytes) in
        [("base", 4 << 10, 4 << 10), ("thp", 2 << 20, 2 << 20), ("mthp-64k", 4 << 10, 64 << 10)]
    {
        let bytes = census_bytes(arm(&document, label), leaf_bytes, folio_bytes);
        assert!(bytes >= 46 << 20, "{label}: {bytes} bytes in {document:#}");
    }

    let trials = document["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 15, "three blocks of five arms, the first one discarded");
    assert_eq!(trials.iter().filter(|trial| trial["counted"] == true).count(), 10);
    for trial in trials {
        for metric in ["wall_s", "cpu_s", "minor_faults", "peak_resident_bytes", "page_table_seen_bytes"] {
            assert!(observed(trial, metric).is_some_and(|value| value > 0.0), "{metric} in {trial:#}");
        }
        assert_eq!((&trial["answer"]["exit_code"], &trial["rejected"]), (&0.into(), &Value::Array(Vec::new())));
        assert!(!trial["state_before"]["free_blocks_by_order"].as_array().unwrap().is_empty());
    }

    let again = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(again.stdout, ran.stdout, "the stored comparison reads as the fresh one");
    let mail = bench.pagelab(&["show", "1", "--mail", "--store", &bench.store()]).ran();
    mail.assert_exit(0, &[]).assert_stdout(&[
        "Machine ",
        "Kernel ",
        "THP enabled ",
        "wall time default ",
        "* default: baseline; 2 runs",
    ]);
    assert!(mail.stdout.is_ascii() && mail.stdout.lines().all(|line| line.len() <= 72), "{mail}");
    let together = bench.pagelab(&["show", "1", "1", "--store", &bench.store()]).ran();
    together.assert_exit(2, &["comparison 1 was not made by compare --kernel", "give its number alone"]);
    bench.pagelab(&["show", "1", "--mail", "--json"]).ran().assert_exit(2, &["--mail", "--json"]);
    let listed = bench.listed();
    assert_eq!((listed.len(), &listed[0]["number"], &listed[0]["trials"]), (1, &1.into(), &15.into()));
    assert_eq!(listed[0]["ended"], "all blocks");

    let csv = std::fs::read_to_string(csv).unwrap();
    let controls = document["control_trials"].as_array().unwrap().len();
    assert_eq!(csv.lines().filter(|line| line.contains(",wall_s,")).count(), 15 + controls, "{csv}");
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!doctype html>") || html.starts_with("<!DOCTYPE html>"), "{}", &html[..100]);
    assert!(html.contains("<svg") && html.contains("mthp-64k") && !html.contains("<script"));
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"), "readable without network");
}

fn census_bytes(arm: &Value, leaf_bytes: u64, folio_bytes: u64) -> u64 {
    let rows = arm["census"].as_array().unwrap().iter();
    rows.filter(|row| row["backing"] == "anonymous" && row["folio"] == "whole")
        .filter(|row| row["leaf_bytes"] == leaf_bytes && row["folio_bytes"] == folio_bytes)
        .map(|row| row["bytes"].as_u64().unwrap())
        .sum()
}

#[test]
fn json_on_standard_output_is_the_stored_document() {
    let bench = Bench::new();
    let ran = bench.compare(&[&["-p", "default,base", "--json"][..], &QUICK].concat(), &bench.touch()).ran();
    ran.assert_exit(0, &[]);
    assert_eq!(ran.json(), bench.stored(1));
}

#[test]
fn without_policies_those_that_make_sense_are_compared() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let document = bench.compare(&["--blocks", "1", "--json"], &bench.touch()).ran().json();
    let labels: Vec<&str> =
        document["arms"].as_array().unwrap().iter().map(|arm| arm["label"].as_str().unwrap()).collect();
    assert_eq!(labels[0], "default");
    assert!(labels.contains(&"base") && labels.contains(&"thp"), "{labels:?}");
    assert!(labels.iter().any(|label| label.starts_with("hugetlb-")), "{labels:?}");
}

#[test]
fn the_baseline_against_itself_is_an_arm() {
    let bench = Bench::new();
    let document =
        bench.compare(&[&["-p", "base", "--aa", "--json"][..], &QUICK].concat(), &bench.touch()).ran().json();
    let again = arm(&document, "base (again)");
    assert_eq!(again["policy"], "base");
    assert!(again["effects"]["wall_s"]["ratio"].as_f64().is_some(), "{again:#}");
}

#[test]
fn another_metric_can_decide() {
    let bench = Bench::new();
    let options = [&["-p", "default,base", "--primary", "cpu", "--json"][..], &QUICK].concat();
    let document = bench.compare(&options, &bench.touch()).ran().json();
    assert_eq!(document["design"]["primary"], "cpu_s");
    let effects = &arm(&document, "base")["effects"];
    assert!(effects["cpu_s"]["ratio"].is_f64() && effects["wall_s"]["ratio"].is_f64(), "{effects}");
}

#[test]
fn figures_are_read_off_the_output() {
    let bench = Bench::new();
    let metric = ["--metric", "apples:higher=apples: ([0-9.,]+)", "--primary", "apples"];
    let options = [&["-p", "default,base", "--json"][..], &metric, &QUICK].concat();
    let document = bench.compare(&options, &shell("echo apples: 1,000.5")).ran().json();
    assert_eq!(document["design"]["primary"], "apples");
    assert_eq!(arm(&document, "base")["medians"]["apples"], 1000.5);
}

#[test]
fn the_first_iteration_has_its_own_metric() {
    let bench = Bench::new();
    let options = [&["-p", "default,base", "--repeat-inside", "took ([0-9.]+) s", "--json"][..], &QUICK].concat();
    let command = shell("for s in 9 1 3 2; do echo took $s s; done");
    let document = bench.compare(&options, &command).ran().json();
    let medians = &arm(&document, "base")["medians"];
    assert_eq!((&medians["first_iteration_s"], &medians["iteration_s"]), (&9.0.into(), &2.0.into()));
}

#[test]
fn every_trial_reads_the_input_from_its_start() {
    let bench = Bench::new();
    let input = bench.word("input");
    std::fs::write(&input, "42 pages\n").unwrap();
    let metric = ["--metric", "pages:lower=([0-9]+) pages"];
    let options = [&["-p", "default,base,thp", "--input", &input, "--json"][..], &metric, &QUICK].concat();
    let document = bench.compare(&options, &words_of(&["cat"])).ran().json();
    assert_eq!(document["ended"]["reason"], "blocks", "{:#}", document["ended"]);
    for trial in document["trials"].as_array().unwrap() {
        assert_eq!(observed(trial, "pages"), Some(42.0));
    }
}

#[test]
fn the_command_runs_as_another_user() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let metric = ["--metric", "uid:lower=uid=([0-9]+)"];
    let options = [&["-p", "default,base,thp", "--user", "nobody", "--json"][..], &metric, &QUICK].concat();
    let document = bench.compare(&options, &shell("echo uid=$(id -u)")).ran().json();
    assert_eq!(arm(&document, "base")["medians"]["uid"], 65534.0, "{:#}", document["ended"]);
}

/// A setting with a changed value, which is restored when this is dropped.
struct Changed {
    path: &'static str,
    before: String,
}

impl Changed {
    fn to(value: &str, path: &'static str) -> Changed {
        let text = std::fs::read_to_string(path).unwrap();
        let chosen = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0.to_string()));
        std::fs::write(path, value).unwrap();
        Changed { path, before: chosen.unwrap_or_else(|| text.trim().to_string()) }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        std::fs::write(self.path, &self.before).unwrap();
    }
}

#[test]
fn requirements_of_the_memory_of_policies_decide_the_exit_code() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let options = ["-p", "thp", "--require", "large>=60%", "--require", "1G>=1%"];
    let ran = bench.compare(&[&options[..], &QUICK].concat(), &bench.touch()).ran();
    ran.assert_exit(5, &["not met: 1G>=1% of thp"]);
    ran.assert_stdout(&[
        "required large>=60% of thp: met (",
        "in the worst of 2 trials)",
        "required 1G>=1% of thp: not met (0.0 %",
    ]);
    let show = |requirement: &str, form: &str| {
        bench.pagelab(&["show", "1", "--store", &bench.store(), "--require", requirement, form]).ran()
    };
    let met = show("thp:2M>=16M", "--json");
    let judged = &met.json()["requirements"][0];
    assert_eq!((met.code, &judged["arm"], &judged["is_met"]), (Some(0), &"thp".into(), &true.into()), "{judged:#}");
    show("default:1G>=1%", "--full").assert_exit(5, &["not met: 1G>=1% of default"]);
    show("guest:large>=1%", "--full").assert_exit(2, &["pagelab inspect --require"]);
    show("host:large>=1%", "--full").assert_exit(2, &["it begins with no arm and no scope; the arms are default, thp"]);
}

/// Even if a size is enabled for all programs, `base` is proven for a program that may not use that size.
#[test]
fn base_is_proven_without_root_where_other_sizes_are_on() {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    let has_size = ("Linux 6.8 with folios of 64K", std::path::Path::new(SETTING).exists());
    if !needs(&[root(), has_size, program("setpriv"), program("unshare")]) {
        return;
    }
    // The lease is the bench's own, so that no other pagelab takes this value for the one to restore.
    let leased = Bench::with_own_lease();
    let _on = Changed::to("always", SETTING);
    let options = [&["-p", "default,base"][..], &QUICK].concat();
    let bench = Bench::new();
    let ran = bench.compare(&[&options[..], &["--full"]].concat(), &bench.touch()).as_nobody().ran();
    ran.assert_exit(0, &[]).assert_stdout(&["THP_enabled: 0"]);
    let document = bench.stored(1);
    let verdict = &arm(&document, "base")["verdict"];
    assert_eq!((&verdict["holding"], &verdict["coverage_ratio"]), (&"held".into(), &1.0.into()), "{verdict:#}");
    assert_eq!(verdict["causes"][0]["code"], "proven_by_thp_disable", "{verdict:#}");

    // The same with root: the size was available, and the program under `base` used none of it.
    let document = leased.compare(&[&options[..], &["--json"]].concat(), &leased.touch()).ran().json();
    // How much memory gets the size without a policy depends on the free memory of the host.
    assert!(census_bytes(arm(&document, "default"), 4096, 65536) > 1 << 20, "{document:#}");
    let rows = arm(&document, "base")["census"].as_array().unwrap().iter();
    let anonymous = rows.filter(|row| row["backing"] == "anonymous");
    assert!(anonymous.clone().count() > 0);
    anonymous.for_each(|row| assert_eq!((&row["folio_bytes"], &row["leaf_bytes"]), (&4096.into(), &4096.into())));
}

#[test]
fn a_setting_changed_under_a_trial_rejects_it_and_it_is_repeated() {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = std::fs::read_to_string(SETTING).unwrap().trim().to_string();
    // The measured command itself writes the setting, in one run only.
    let (other, mark) = (before.parse::<u64>().unwrap() + 1, bench.word("mark"));
    let command = shell(&format!("if mkdir {mark} 2>/dev/null; then echo {other} > {SETTING}; fi; true"));
    let ran = bench.compare(&[&["-p", "default,base", "--full"][..], &QUICK].concat(), &command).ran();
    // Now the command writes the setting in every run. That is not treated as the command's fault.
    let always = shell(&format!("read now < {SETTING}; echo $((now + 1)) > {SETTING}"));
    let given_up = bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &always).ran();
    std::fs::write(SETTING, &before).unwrap();
    given_up.assert_exit(2, &["was rejected 5 times", "scan_sleep_millisecs", "stop it and start again"]);
    ran.assert_exit(0, &[]).assert_stdout(&["rejected", "scan_sleep_millisecs"]);
    let document = bench.stored(1);
    // The rejected trial may have been a trial of the bare arm.
    let of = |key: &str| document[key].as_array().unwrap().clone();
    let (trials, controls) = (of("trials"), of("control_trials"));
    let kind = if controls.len() == 4 { controls.as_slice() } else { trials.as_slice() };
    let at = kind.iter().position(|trial| !trial["rejected"].as_array().unwrap().is_empty()).expect("a rejected trial");
    let rejected = &kind[at];
    assert_eq!((trials.len() + controls.len(), &rejected["counted"]), (10, &false.into()), "{document:#}");
    let change = &rejected["rejected"][0];
    assert!(change["path"].as_str().unwrap().ends_with("scan_sleep_millisecs"), "{change}");
    assert_eq!((change["before"].as_str(), change["after"].as_str()), (Some(&*before), Some(&*other.to_string())));
    assert_eq!((&kind[at + 1]["attempt"], &kind[at + 1]["arm"]), (&1.into(), &rejected["arm"]));
    assert!(document["warnings"].to_string().contains("rejected"), "{:#}", document["warnings"]);
}

/// For this process tree, `+no-huge` and `base` need no stops by the tracer.
#[test]
fn a_tree_of_subshells_stops_no_more_under_policies_that_need_no_stops() {
    let bench = Bench::new();
    let tree = "i=0; while [ $i -lt 90 ]; do (x=$((i * 2)); :); i=$((i + 1)); done";
    let options = ["-p", "default,default+no-huge,base", "--blocks", "8", "--min-blocks", "8", "--json"];
    let document = bench.compare(&options, &shell(tree)).ran().json();
    let controls = document["controls"].as_array().unwrap();
    assert_eq!((controls.len(), &controls[0]["label"]), (1, &"bare".into()), "they stop as default does: {controls:?}");
    // Another test may change a setting during a trial, which is then rejected and repeated.
    let is_accepted = |trial: &&Value| trial["rejected"] == Value::Array(Vec::new());
    let bare: Vec<&Value> = document["control_trials"].as_array().unwrap().iter().filter(is_accepted).collect();
    assert_eq!(bare.len(), 8, "block 7 has none");
    for trial in bare {
        assert!(observed(trial, "wall_s") > Some(0.0) && observed(trial, "cpu_s") > Some(0.0), "{trial:#}");
        assert_eq!((observed(trial, "tracer_stops"), &trial["counted"]), (None, &false.into()), "{trial:#}");
    }
    let stops = |label: &str| -> Vec<f64> {
        let trials = document["trials"].as_array().unwrap().iter().filter(is_accepted);
        let trials = trials.filter(|trial| trial["label"] == label);
        trials.map(|trial| observed(trial, "tracer_stops").unwrap()).collect()
    };
    assert_eq!(stops("default+no-huge"), stops("default"), "prctl needs no stops");
    let cost = &arm(&document, "default")["tracer_cost"]["wall_s"]["of_bare"];
    assert!(cost["low_ratio"].as_f64() <= cost["ratio"].as_f64() && cost["blocks"] == 7, "{cost}");
}

/// The tracer stops every mprotect of this program, although the policy has nothing to do. Simulated comparisons with a
/// seed (`study`, tracer_cost) show that a change caused by such stops is not attributed to the policy.
#[test]
fn stops_that_do_nothing_have_a_sham_and_a_cost() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let (source, toggles) = (bench.word("toggles.c"), bench.word("toggles"));
    std::fs::write(&source, include_str!("programs/toggles.c")).unwrap();
    assert!(std::process::Command::new("gcc").args(["-O1", "-o", &toggles, &source]).status().unwrap().success());
    let options = ["-p", "default,default+no-guards", "--blocks", "8", "--min-blocks", "8", "--full"];
    let ran = bench.compare(&options, &words_of(&[&toggles, "4000"])).ran();
    let document = bench.stored(1);
    let arm = arm(&document, "default+no-guards");
    let bound = &arm["tracer_cost"]["wall_s"]["bound"];
    // Block 7 still has a sham trial, unless the change exceeds the cost of the stops after six blocks. By chance that
    // happens once in a thousand times.
    let blocks = bound["blocks"].as_u64().unwrap();
    assert!(bound["ratio"].as_f64().is_some() && (7..=8).contains(&blocks), "{bound}");
    ran.assert_exit(0, &[]).assert_stdout(&[
        "tracing",
        "by runs with the same stops (sham)",
        "A change that this could explain is not claimed",
    ]);
    let stops = |label: &str| -> BTreeMap<u64, f64> {
        let all = ["trials", "control_trials"].into_iter().flat_map(|key| document[key].as_array().unwrap());
        let of_label = all.filter(|trial| trial["label"] == label && trial["block"] != 0);
        of_label.map(|trial| (trial["block"].as_u64().unwrap(), observed(trial, "tracer_stops").unwrap())).collect()
    };
    let (sham, policy) = (stops("sham of default+no-guards"), stops("default+no-guards"));
    assert!(sham.len() >= 6 && sham.iter().all(|(block, stops)| policy[block] == *stops), "{sham:?} {policy:?}");
}
