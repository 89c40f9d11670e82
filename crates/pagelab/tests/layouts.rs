//! Tests of `pagelab sim --layouts N`: its output, and that its figures have the same spread as those of programs with randomised
//! addresses.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::path::Path;
use std::process::Command;

use common::{Bench, Runs, arm, needs, observed, program, recording, root, words_of};
use serde_json::Value;
use traced::Traced;

/// The number of measured runs on the kernel, and of simulated layouts.
const MEASURED: &str = "20";
const LAYOUTS: &str = "48";

/// Compiles and records the program of `layouts.c` in the bench, and returns its path.
fn recorded(bench: &Bench) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/layouts.c");
    let path = bench.word("layouts");
    assert!(Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&path).status().unwrap().success());
    record(bench, &path, "trace");
    path
}

fn record(bench: &Bench, path: &str, trace: &str) {
    let mut record = bench.pagelab(&["record", "-o", &bench.word(trace), "--", path]);
    record.env("PAGELAB_QEMU_PLUGIN", testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))));
    record.ran().assert_exit(0, &[]);
}

fn can_record() -> bool {
    needs(&[recording("qemu-x86_64"), program("gcc")])
}

/// The spread of a figure under a policy over the layouts of a document.
fn spread<'a>(document: &'a Value, policy: &str, figure: &str) -> &'a Value {
    let spreads = document["traces"][0]["layouts"]["spreads"].as_array().unwrap();
    let spread = spreads.iter().find(|spread| spread["policy"] == policy).unwrap();
    spread["figures"].as_array().unwrap().iter().find(|of| of["figure"] == figure).unwrap()
}

#[test]
fn figures_spread_over_layouts_and_the_seed_decides() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    recorded(&bench);
    let page = bench.word("page.html");
    let sim = |options: &[&str]| {
        let common = ["sim", "trace", "-m", "cascade-lake,sifive-u74", "-p", "base,thp,hugetlb-2m"];
        bench.pagelab(&[&common[..], options].concat()).ran()
    };
    let json = |options: &[&str]| sim(&[options, &["--json"]].concat()).json();
    let plain = json(&[]);
    assert_eq!((&plain["settings"]["layouts"], &plain["traces"][0]["layouts"]), (&Value::Null, &Value::Null));
    assert!(plain["traces"][0]["notes"].to_string().contains("one address layout, without randomisation"));
    let ten = json(&["--layouts", "10", "--seed", "3", "--threads", "1"]);
    assert_eq!(
        ten["traces"][0]["simulations"],
        json(&["--seed", "3"])["traces"][0]["simulations"],
        "figures are of that one"
    );
    assert_eq!(ten, json(&["--layouts", "10", "--seed", "3", "--threads", "5"]), "whoever does it");
    assert_ne!(ten["traces"][0]["layouts"], json(&["--layouts", "10", "--seed", "4"])["traces"][0]["layouts"]);
    assert!(ten["traces"][0]["notes"].to_string().contains("10 randomised layouts, chosen by --seed 3"));
    let spreads = ten["traces"][0]["layouts"]["spreads"].as_array().unwrap();
    assert!(spreads.len() == 6 && spreads.iter().all(|spread| spread["layouts"] == 10), "{spreads:#?}");
    let thp = spread(&ten, "thp", "faults");
    let [fixed, least, median, most] =
        ["without_randomisation", "least", "median", "most"].map(|key| thp[key].as_u64().unwrap());
    assert_eq!(ten["traces"][0]["simulations"][1]["faults"], fixed);
    assert!(least <= median && median <= most && most > least + 256, "{thp}");
    // The number of base pages does not depend on the layout.
    let base = spread(&ten, "base", "anonymous_faults");
    assert_eq!((&base["least"], &base["most"]), (&base["median"], &base["without_randomisation"]));
    let answer = &ten["traces"][0]["answers"][0];
    assert!(answer["sentence"].as_str().unwrap().contains("Counts are medians over 10 randomised layouts"), "{answer}");
    let lost = |policy: &str| spread(&ten, policy, "max_lost_cycles")["median"].as_f64().unwrap();
    let ratio = lost(answer["best"][0].as_str().unwrap()) / lost("base");
    assert!((answer["lost_cycles_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{answer}");
    let text = sim(&["--layouts", "3", "--html", &page]);
    text.assert_exit(0, &[]).assert_stdout(&[
        "over 3 randomised layouts of addresses, seed 0",
        "not randomised",
        "median",
    ]);
    assert!(std::fs::read_to_string(page).unwrap().contains("Over 3 layouts that Linux makes by randomisation"));
}

#[test]
fn refuses_traces_without_another_layout() {
    let traced = Traced::new();
    traced
        .sim(&["--layouts", "3"])
        .assert_exit(2, &["a.trace: the trace has the addresses that the program had", "pagelab record"]);
    traced.sim(&["--layouts", "3", "--accesses-only"]).assert_exit(2, &["cannot be used with"]);
    traced.sim(&["--layouts", "0"]).assert_exit(2, &["--layouts", "1..=10000"]);
    traced.sim(&["--layouts", "many"]).assert_exit(2, &["--layouts"]);
    assert!(!traced.sim(&["-p", "base"]).stdout.contains("without randomisation"), "its addresses are its own");
}

/// The faults of each counted trial under a policy, with randomised addresses.
fn measured(bench: &Bench, path: &str) -> Vec<f64> {
    let options = ["--json", "--khugepaged", "off", "--blocks", MEASURED, "--min-blocks", MEASURED, "-p", "base,thp"];
    let ran = bench.compare(&options, &words_of(&[path])).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    let document = ran.json();
    arm(&document, "thp");
    let trials = document["trials"].as_array().unwrap();
    let of_thp = trials.iter().filter(|trial| trial["label"] == "thp" && trial["counted"] == true);
    let mut faults: Vec<f64> = of_thp.map(|trial| observed(trial, "minor_faults").unwrap()).collect();
    faults.sort_by(f64::total_cmp);
    faults
}

/// The measured and the simulated range overlap if each contains the median of the other. Medians are used because the ends of both
/// ranges are random. Suppose that both are drawn from one distribution without ties. Then all 20 runs are on one side of the
/// median of the 48 layouts once in 43,000 tests, and all 48 layouts are on one side of the median of the runs once in 4 million
/// (counted over the orders of 68 values). Ties, and the tolerance of 2 % and five faults that also applies to one layout, make
/// this rarer.
#[test]
fn measured_and_simulated_faults_spread_over_the_same_range() {
    let here = [("x86-64", cfg!(target_arch = "x86_64")), root(), recording("qemu-x86_64"), program("gcc")];
    if !needs(&here) || !needs(&[("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir())]) {
        return;
    }
    if !needs(&[(
        "randomised addresses",
        std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").is_ok_and(|set| set.trim() == "2"),
    )]) {
        return;
    }
    let bench = Bench::in_memory();
    let path = recorded(&bench);
    let exits = bench.word("true");
    std::fs::copy("/bin/true", &exits).unwrap();
    record(&bench, &exits, "exits");
    let sim = |trace: &str| {
        let words = ["sim", trace, "-m", "cascade-lake", "-p", "thp", "--layouts", LAYOUTS, "--json"];
        bench.pagelab(&words).ran().json()
    };
    let (simulated, of_exits) = (sim("trace"), sim("exits"));
    let _stable = validation::StablePageCache::new(&bench.path("")).unwrap();
    let (runs, launches) = (measured(&bench, &path), measured(&bench, &exits));
    let middle = |sorted: &[f64]| sorted[sorted.len() / 2];
    let figure = |document: &Value, key: &str| spread(document, "thp", "faults")[key].as_f64().unwrap();
    // Faults that no trace contains: those before the execve, and the few on the vDSO.
    let launch = middle(&launches) - figure(&of_exits, "median");
    let (least, median, most) = (runs[0] - launch, middle(&runs) - launch, runs[runs.len() - 1] - launch);
    let [own_least, own_median, own_most] = ["least", "median", "most"].map(|key| figure(&simulated, key));
    println!("measured {least} to {most}, median {median}; simulated {own_least} to {own_most}, median {own_median}");
    let allowed = |of: f64| (of * 0.02).max(5.0);
    assert!(runs.len() >= 20 && most - least > 256.0 && own_most - own_least > 256.0, "it spreads");
    assert!(median >= own_least - allowed(own_least) && median <= own_most + allowed(own_most));
    assert!(own_median >= least - allowed(least) && own_median <= most + allowed(most));
    // No run may be outside the possible range, from all pages large to no large page where one could be missing.
    let width = own_most - own_least;
    assert!(least >= own_least - width / 2.0 && most <= own_most + width / 2.0);
}
