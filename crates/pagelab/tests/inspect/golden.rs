//! Compares the inspection of captures with stored results that were checked by hand. `fixtures/inspect/README.md` describes
//! where the captures come from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::causes::for_advised;
use super::provoked::{Provoked, causes, region_at, sums_agree};
use crate::common::{Bench, Runs};

/// The captured process, and the captured host to which it is added; `None` for a capture that is complete by itself.
const CASES: [(&str, Option<&str>); 8] = [
    ("x86_64-6.1-guard", None),
    ("aarch64-6.12-refilled", None),
    ("aarch64-16k-6.12-guard", None),
    ("aarch64-7.2-guard", None),
    ("x86_64-6.18-guard", Some("x86_64-6.18")),
    ("x86_64-5.10-sums", Some("x86_64-5.10")),
    ("aarch64-64k-6.12-db", Some("aarch64-64k-6.12")),
    ("riscv64-6.12-never", Some("riscv64-6.12")),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// Copies a captured process and its host into the directory `tree` of a bench.
pub fn tree(bench: &Bench, case: &str) -> PathBuf {
    let tree = bench.path("tree");
    let (_, host) = CASES.into_iter().find(|(known, _)| *known == case).unwrap();
    let host = host.map(|host| fixtures().join("host").join(host));
    for from in host.into_iter().chain([fixtures().join("inspect").join(case)]) {
        fs::create_dir_all(&tree).unwrap();
        let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(&tree).status().unwrap();
        assert!(copied.success());
    }
    tree
}

#[test]
fn captured_processes_are_inspected_as_before() {
    for (case, _) in CASES {
        let bench = Bench::new();
        tree(&bench, case);
        let ran = bench.pagelab(&["inspect", "--root", "tree", "100", "--regions"]).ran();
        let expected =
            fs::read_to_string(fixtures().join("inspect").join(case).join("expected.txt")).unwrap_or_default();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected.as_str()), "{case}: {}", ran.stderr);
        sums_agree(&bench.pagelab(&["inspect", "--root", "tree", "100", "--json"]).ran().json()["processes"][0]);
        let ran = bench.pagelab(&["inspect", "--root", "tree", "100", "--html", "map.html"]).ran();
        assert_eq!(ran.code, Some(0), "{case}: {ran}");
        let page = fs::read_to_string(bench.path("map.html")).unwrap();
        assert!(page.contains("</html>") && page.contains("from a capture"), "{case}");
        // In the map each window has a cause of its own, while the sums of smaps have no causes by window.
        let is_cut = page.contains("; not larger: one allocation, cut by a guard page");
        assert_eq!(is_cut, case.ends_with("-guard") && !case.contains("6.1-"), "{case}");
    }
}

#[test]
fn a_capture_says_what_the_process_says() {
    let Some(_lease_guard) = for_advised() else { return };
    let provoked = Provoked::start("guard").unwrap();
    let (bench, pid) = (&provoked.bench, provoked.pid());
    bench
        .pagelab(&["inspect", &pid, "--capture", "tree"])
        .ran()
        .assert_stdout(&["captured", "pagelab inspect --root tree"]);
    let captured = bench.pagelab(&["inspect", "--root", "tree", &pid, "--json"]).ran();
    assert_eq!(captured.code, Some(0), "{captured}");
    let captured = captured.json();
    assert_eq!(captured["sight"]["is_live"], false);
    let region = region_at(&captured["processes"][0], provoked.address);
    assert_eq!(region, provoked.region());
    assert_eq!(causes(&region)[0].0, "mapping_cut");
    let files = Command::new("grep").args(["-rl", "provoke guard", &bench.word("tree")]).output().unwrap();
    assert!(files.stdout.is_empty(), "the command line is no part of a capture");
    // An existing capture is not overwritten, and a missing process is named.
    bench.pagelab(&["inspect", &pid, "--capture", "tree"]).ran().assert_exit(2, &["File exists"]);
    bench
        .pagelab(&["inspect", "--root", "tree", "4194304"])
        .ran()
        .assert_exit(2, &["no process 4194304 in the capture"]);
    let pages = bench.path(&format!("tree/proc/{pid}/pagelab-pages"));
    fs::write(&pages, "pagelab.capture/9\n").unwrap();
    bench.pagelab(&["inspect", "--root", "tree", &pid]).ran().assert_exit(2, &["pagelab-pages", "pagelab.capture/1"]);
    fs::remove_file(pages).unwrap();
    let sums = bench.pagelab(&["inspect", "--root", "tree", &pid]).ran();
    sums.assert_stdout(&["leaf sizes: sums of smaps", "14M by 2M"]);
}

#[test]
fn collapsing_gains_memory_and_refusals_have_their_reason() {
    let Some(_lease_guard) = for_advised() else { return };
    let provoked = Provoked::start("advised_late").unwrap();
    let (bench, pid) = (&provoked.bench, provoked.pid());
    let ran = bench.pagelab(&["inspect", &pid, "--collapse", "--json"]).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    let document = ran.json();
    let collapsed = document["collapsed"].as_array().unwrap();
    let one = collapsed.iter().find(|one| one["start"].as_u64() == Some(provoked.address)).unwrap();
    assert_eq!(one["asked_bytes"].as_u64(), Some(16 << 20), "{one:#}");
    assert!(one["gained_bytes"].as_u64().unwrap() > 0 && one["took_s"].as_f64().unwrap() > 0.0, "{one:#}");
    let left = region_at(&document["processes"][0], provoked.address)["could_be_larger_bytes"].as_u64().unwrap();
    assert_eq!(left, (16 << 20) - one["gained_bytes"].as_u64().unwrap());
    // Only the populated memory of a reserved range is collapsed.
    let arena = Provoked::start("arena").unwrap();
    let ran = arena.bench.pagelab(&["inspect", &arena.pid(), "--collapse"]).ran();
    ran.assert_stdout(&["16M gained of 16M asked for"]);
    assert!(!ran.stdout.contains("EINVAL"), "{ran}");
    // A process that has disabled THP for itself is not collapsed either.
    let disabled = Provoked::start("disabled").unwrap();
    let ran = disabled.bench.pagelab(&["inspect", &disabled.pid(), "--collapse"]).ran();
    ran.assert_stdout(&["cannot be undone", "0 gained of 16M asked for", "refused 8 times: EINVAL"]);
    if let Some(pinned) = Provoked::start("pinned") {
        pinned
            .bench
            .pagelab(&["inspect", &pinned.pid(), "--collapse"])
            .ran()
            .assert_stdout(&["refused 8 times: EAGAIN"]);
    }
}
