//! Tests of studies over boots of one host: with different memory sizes, and with different leaves in the direct map.

mod common;

use std::fs;
use std::process::Command;

use common::*;
use serde_json::Value;

/// A fake platform with figures of three policies (fixtures/platform).
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/three-policies.toml");

/// A study over these boots that measures one command.
fn written(bench: &Bench, boots: &str) -> String {
    let text = format!(
        "schema = \"pagelab.study/1\"\nname = \"boots\"\nquestion = \"?\"\npolicies = [\"default\", \"thp\"]\n[sizes.standard]\n\
         blocks = 6\nmin_blocks = 6\n[[workload]]\nname = \"true\"\ncommand = [\"true\"]\n{boots}"
    );
    fs::write(bench.path("boots.toml"), text).unwrap();
    bench.word("boots.toml")
}

fn study(bench: &Bench, words: &[&str]) -> Ran {
    bench.pagelab(&[&["study"], words, &["--store", &bench.store()]].concat()).ran()
}

/// Makes two boots: a measured one, and a copy of it as another boot in which everything took twice the time. `first` and `other`
/// are the arguments of `json_set` that change the machine of each boot.
fn two_boots(bench: &Bench, file: &str, first: &str, other: &str) {
    study(bench, &["run", file, "--fake-platform", THREE]);
    let copy = bench.word("other.sqlite");
    fs::copy(bench.store(), &copy).unwrap();
    let twice = "UPDATE observations SET value = value * 2 WHERE metric = 'wall_s';";
    for (store, hash, machine, more) in [(&bench.store(), "first", first, ""), (&copy, "other", other, twice)] {
        let statement = format!(
            "PRAGMA foreign_keys = OFF; \
             UPDATE machines SET hash = '{hash}', machine = json_set(machine, '$.boot_id', '{hash}', {machine}); \
             UPDATE comparisons SET machine = '{hash}'; {more}"
        );
        assert!(Command::new("sqlite3").args([store, &statement]).status().unwrap().success());
    }
    study(bench, &["merge", &copy]).assert_exit(0, &[]);
}

/// The rows over boots in a report.
fn rows(bench: &Bench, file: &str) -> Vec<Value> {
    let report = study(bench, &["report", file, "--json"]).json();
    report["over_boots"]["rows"].as_array().cloned().unwrap_or_default()
}

fn can_run() -> bool {
    needs(&[("a build with debug assertions", cfg!(debug_assertions)), program("sqlite3")])
}

#[test]
fn boots_with_other_memory_are_arms_where_that_is_asked_and_never_pooled_otherwise() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let sizes = "[boots.all]\nmemory = \"512G\"\nbaseline = true\n[boots.half]\nmemory = \"256G\"\n";
    let file = written(&bench, sizes);
    two_boots(&bench, &file, "'$.memory_bytes', 540000000000", "'$.memory_bytes', 270000000000");
    let asked = rows(&bench, &file);
    let row = asked.iter().find(|row| row["workload"] == "true under thp").unwrap();
    let ratio = row["cells"][1]["effects"]["wall_s"]["ratio"].as_f64().unwrap();
    assert!((ratio - 2.0).abs() < 1e-6, "{row}");
    assert!(!row["machine"].as_str().unwrap().contains("12G"), "the host is one, whatever its memory: {row}");
    // The study names two boots of different kernels, with different memory. Each comparison has a row of its own, and no row
    // has figures of both arms.
    let kernels = "[boots.new]\nkernel = \"6.18\"\nbaseline = true\n[boots.old]\nkernel = \"6.1\"\n";
    let apart = rows(&bench, &written(&bench, kernels));
    let of_thp: Vec<&Value> = apart.iter().filter(|row| row["workload"] == "true under thp").collect();
    let machines: Vec<&str> = of_thp.iter().map(|row| row["machine"].as_str().unwrap()).collect();
    assert!(
        machines.iter().any(|name| name.ends_with("512G")) && machines.iter().any(|name| name.ends_with("256G")),
        "{machines:?}"
    );
}

#[test]
fn refuses_a_boot_without_memory_next_to_one_with() {
    let bench = Bench::new();
    let file = written(&bench, "[boots.all]\nkernel = \"6\"\n[boots.half]\nwith = [\"mem=256G\"]\n");
    let expected = ["boots.all: expected a memory size", "because boots.half has one"];
    study(&bench, &["run", &file, "--dry-run"]).assert_exit(2, &expected);
}

#[test]
fn distinguishes_a_boot_with_split_leaves_from_one_that_booted_so() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let boots = "[boots.booted]\nleaves = \"2M\"\nbaseline = true\n[boots.split]\nleaves = \"2M\"\ndemoted = true\n";
    let file = written(&bench, boots);
    let map = |demoted: &str| format!("'$.direct_map', json('{{\"leaf\": 2097152{demoted}}}')");
    two_boots(&bench, &file, &map(""), &map(", \"demoted_to\": 2097152"));
    let rows = rows(&bench, &file);
    let row = rows.iter().find(|row| row["workload"] == "true under thp").unwrap();
    assert!((row["cells"][1]["effects"]["wall_s"]["ratio"].as_f64().unwrap() - 2.0).abs() < 1e-6, "{row}");
    let file = written(&bench, "[boots.large]\nleaves = \"1G\"\n[boots.booted]\nleaves = \"2M\"\n");
    let missing = study(&bench, &["report", &file, "--json"]).json()["missing"].to_string();
    assert!(missing.contains("the boot large (a direct map with leaves of 1G)"), "{missing}");
    assert!(missing.contains("matches no boot of the study"), "the one that was split: {missing}");
}

#[test]
fn shows_a_published_figure_with_boots_and_policies_and_counts_it_once() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let published = |more: &str| {
        format!(
            "[[published]]\nwhat = \"w\"\nworkload = \"true\"\nchange = \"+100%\"\nsource = \"s\"\npolicy = \"thp\"\n{more}"
        )
    };
    let boots = "[boots.new]\nkernel = \"6.18\"\n[boots.old]\nkernel = \"6.1\"\nbaseline = true\n";
    // Figures of a fake platform count as modelled. A published figure is shown next to them only if it has the same
    // metric.
    let of_policy = published("metric = \"wall_s\"\n");
    let text = format!("{boots}{of_policy}{}", published("boot = \"new\"\n"));
    let file = written(&bench, &text);
    two_boots(&bench, &file, "'$.kernel', '6.1.90 #1'", "'$.kernel', '6.18.1 #1'");
    let report = study(&bench, &["report", &file, "--json"]).json();
    let sets = report["published"].as_array().unwrap();
    let of_boot = sets.iter().find(|set| set["policy"] == "new").unwrap();
    assert!((of_boot["ratio"].as_f64().unwrap() - 2.0).abs() < 1e-6, "{of_boot}");
    assert!(sets.iter().any(|set| set["policy"] == "thp"), "{sets:?}");
    assert!(report["answer"].to_string().contains("its one published figure"), "{}", report["answer"]);
    // The table's heading names the columns.
    let text = study(&bench, &["report", &file, "--markdown"]);
    text.assert_stdout(&["| boot | geometric mean |"]);
}
