//! Tests of `compare --khugepaged off`, on a host whose khugepaged is configured to work all the time, and of the reports about
//! khugepaged in rows.

mod common;

use std::fs;

use common::{Bench, Runs, Settings, arm, needs, observed, program, root, settings, words_of};
use serde_json::Value;

const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Settings that make khugepaged scan many pages, and often.
const EAGER: [(&str, &str); 3] =
    [("pages_to_scan", "1000000"), ("scan_sleep_millisecs", "10"), ("max_ptes_none", "511")];
/// The number of windows that the program leaves to khugepaged. It is so large that khugepaged must collapse some of them, and not
/// only windows of another program.
const WINDOWS: &str = "32";

/// A host with these settings, restored at the end.
struct EagerHost(Settings);

impl EagerHost {
    /// Makes the host eager. The bench proves that the test holds the host's lease, so that no other pagelab takes these values
    /// for those to restore.
    fn make(_bench: &Bench) -> EagerHost {
        let host = EagerHost(settings());
        for (name, value) in EAGER {
            fs::write(format!("{KHUGEPAGED}/{name}"), value).unwrap();
        }
        host
    }
}

impl Drop for EagerHost {
    fn drop(&mut self) {
        for (path, value) in self.0.iter().filter(|(path, _)| path.starts_with(KHUGEPAGED)) {
            let _ = fs::write(path, value);
        }
    }
}

/// Whether the host meets the conditions of these tests.
fn can_be_held() -> bool {
    let thp = fs::read_to_string(ENABLED).unwrap_or_default();
    needs(&[
        root(),
        program("unshare"),
        program("gcc"),
        ("THP for programs that ask for it", thp.contains("[madvise]") || thp.contains("[always]")),
    ])
}

/// A program that leaves windows to khugepaged, and prints whether one of them was collapsed before its timeout.
fn left_to_khugepaged(bench: &Bench, patience_ms: &str) -> Vec<String> {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/left_to_khugepaged.c");
    let compiled = bench.word("left_to_khugepaged");
    let status = std::process::Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap();
    assert!(status.success());
    words_of(&[&compiled, WINDOWS, patience_ms])
}

fn counts(document: &Value) -> Vec<f64> {
    let trials = document["trials"].as_array().unwrap();
    trials.iter().map(|trial| observed(trial, "host_khugepaged_collapses").expect("the host counts it")).collect()
}

#[test]
fn khugepaged_sleeps_in_every_trial_and_is_as_before_afterwards() {
    if !can_be_held() {
        return;
    }
    let bench = Bench::with_own_lease();
    let _host = EagerHost::make(&bench);
    let before = settings();
    let run = |how: &str, patience_ms: &str| {
        // These policies disable and enable the PMD size in turn, and each time the kernel starts khugepaged again.
        let options =
            ["--khugepaged", how, "-p", "default,mthp-64k,thp", "--aa", "--blocks", "2", "--min-blocks", "1", "--json"];
        bench.compare(&options, &left_to_khugepaged(&bench, patience_ms)).ran().assert_exit(0, &[]).json()
    };
    let as_it_is = run("as-is", "20000");
    assert!(arm(&as_it_is, "default")["khugepaged"]["trials"].as_u64() > Some(0), "{:#}", as_it_is["arms"]);
    assert_eq!(as_it_is["design"]["khugepaged"], "as_is");
    let off = run("off", "300");
    assert!(counts(&off).iter().all(|count| *count == 0.0), "{:?}", counts(&off));
    for label in ["default", "default (again)", "mthp-64k", "thp"] {
        assert_eq!(arm(&off, label)["khugepaged"]["trials"], 0, "{label}");
    }
    assert_eq!(off["design"]["khugepaged"], "off");
    let slept: Vec<&Value> = off["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| &of[format!("{KHUGEPAGED}/scan_sleep_millisecs")])
        .collect();
    assert!(!slept.is_empty() && slept.iter().all(|ms| *ms == "604800000"), "{slept:?}");
    assert_eq!(bench.settings_at_rest(), before);
    let shown = |number: &str| bench.pagelab(&["show", number, "--full", "--store", &bench.store()]).ran();
    shown("1").assert_exit(0, &[]).assert_stdout(&[
        "khugepaged made",
        "a counter of the host",
        "--khugepaged off holds it still",
    ]);
    let held = shown("2");
    held.assert_exit(0, &[]).assert_stdout(&["khugepaged was held still (--khugepaged off)"]);
    assert!(!held.stdout.contains("khugepaged made"), "{held}");
}

#[test]
fn refuses_users_who_cannot_hold_it_before_anything_runs() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let options = ["--khugepaged", "off", "-p", "default,base"];
    let ran = bench.compare(&options, &bench.touch()).as_nobody().ran();
    ran.assert_exit(2, &["--khugepaged off: needs root", "run pagelab as root", "leave it out"]);
    assert!(bench.listed().is_empty());
    let (program, store) = (bench.word("pagelab"), bench.store());
    let within = ["exec", "-p", "base", "--", &program, "compare", "--store", &store];
    let ran = bench.pagelab(&[&within[..], &options[..], &["--", "true"]].concat()).ran();
    ran.assert_exit(2, &["pagelab itself runs with THP disabled"]);
    bench.compare(&["--khugepaged", "on"], &bench.touch()).ran().assert_exit(2, &["--khugepaged", "as-is, off"]);
}
