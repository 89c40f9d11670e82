//! Tests of `compare --explain`: the control arm that has the frames of a policy, and what its figures say.

mod common;

use common::*;
use serde_json::Value;

/// A fake platform with an effect that has two parts (fixtures/platform).
const EXPLAINED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/explained.toml");
/// Enough blocks for a confidence interval.
const EIGHT: [&str; 4] = ["--blocks", "8", "--min-blocks", "8"];

/// Whether this program has a fake platform, which release builds do not have.
fn has_fake_platform() -> bool {
    needs(&[("a build with debug assertions", cfg!(debug_assertions))])
}

/// Runs a comparison with `--explain` on a fake platform defined by this file.
fn faked(bench: &Bench, file: &str, options: &[&str]) -> Ran {
    let options = [&["--fake-platform", file, "--trial-time", "none", "--explain"], options, &EIGHT].concat();
    bench.compare(&options, &words_of(&["true"])).ran()
}

/// The fixture in which one text is replaced by another.
fn changed(bench: &Bench, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(EXPLAINED).unwrap();
    assert!(text.contains(from), "{from}");
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/host/x86_64-6.18");
    let file = bench.word("explained.toml");
    std::fs::write(&file, text.replace(from, to).replace("../host/x86_64-6.18", host)).unwrap();
    file
}

#[test]
fn the_answer_has_the_parts_and_they_add_up() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let html = bench.word("report.html");
    let ran = faked(&bench, EXPLAINED, &["-p", "base,thp,mthp-64k", "--html", &html]);
    ran.assert_exit(0, &[]).assert_stdout(&[
        "thp takes 13.7 % less user time: 4.6 (4.6 to 4.7) by reach, 9.1 (8.8 to 9.3) by placement of frames",
        "system time is 50.0 % less (50.0 to 50.0), by faults and zeroing, 286 faults instead of 16.6k",
        "mthp-64k takes 12.6 % less user time; all of it is by placement of frames, or by entries that the processor coalesces",
    ]);
    let document = bench.stored(1);
    let explained = &document["arms"][1]["explained"];
    let ratio = |part: &str| explained[part]["ratio"].as_f64().unwrap();
    assert!((ratio("reach") + ratio("placement") - ratio("user_time")).abs() < 1e-12, "{explained:#}");
    assert_eq!(document["arms"][0]["frame_blocks"]["median"], 750.0);
    assert!(document["arms"][0]["explained"].is_null() && document["arms"][2]["explained"]["reach"].is_null());
    let of_thp = |arm: &&Value| arm["label"] == "frames of thp";
    let control = document["controls"].as_array().unwrap().iter().find(of_thp).unwrap();
    assert_eq!((&control["frames_of"], &control["policy"]), (&1.into(), &"thp+pte-mapped".into()));
    let page = std::fs::read_to_string(html).unwrap();
    for text in ["by placement of frames", "750 (33 possible)", "\u{2212}4.6 (\u{2212}4.7 to \u{2212}4.6)"] {
        assert!(page.contains(text), "{text}");
    }
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(shown.stdout, ran.stdout, "the stored comparison reads as the fresh one");
    let scatter = "base 750 (33), thp 34 (33), frames of thp 34 (33)";
    bench
        .pagelab(&["show", "1", "--store", &bench.store(), "--full"])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&[scatter]);
}

#[test]
fn a_part_that_is_not_shown_is_reported_as_not_shown() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let same = changed(&bench, "0.909, 0.914, 0.905, 0.910", "0.862, 0.868, 0.859, 0.865");
    faked(&bench, &same, &["-p", "base,thp"])
        .assert_exit(0, &[])
        .assert_stdout(&["reach is not shown (", "by placement of frames; system time is 50.0 % less"]);
    let unproven = changed(
        &bench,
        "late_leaves_ratio = [0.01] }\nholding = \"held\"",
        "}\ncauses = [{ cause = { code = \"folios_invisible\" } }]\nholding = \"unknown\"",
    );
    faked(&bench, &unproven, &["-p", "base,thp"])
        .assert_exit(0, &[])
        .assert_stdout(&["by reach,", "is not proven: folios are visible to root alone"]);
    let late = changed(&bench, "late_leaves_ratio = [0.01]", "late_leaves_ratio = [0.4]");
    faked(&bench, &late, &["-p", "base,thp"])
        .assert_exit(0, &[])
        .assert_stdout(&["reach is at least that: 40 % of the control arm's memory"]);
    let unheld = changed(
        &bench,
        "mapped = { \"4K\" = \"64M\" }\n\n[arm.mthp",
        "mapped = { \"4K\" = \"64M\" }\ncauses = [{ cause = { code = \"larger_than_asked\" }, bytes = 60000000 }]\n\n[arm.mthp",
    );
    let unheld = faked(&bench, &unheld, &["-p", "base,thp"]);
    unheld
        .assert_exit(0, &[])
        .assert_stdout(&["reach and placement are not separated: base-page entries over whole folios mapped 11 %"]);
    assert!(!unheld.stdout.contains("by reach"), "{unheld}");
}

#[test]
fn what_cannot_be_split_is_refused() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    for (policies, why) in
        [("thp,base", "make base or default the baseline"), ("default,base", "no policy asks for large pages")]
    {
        faked(&bench, EXPLAINED, &["-p", policies]).assert_exit(2, &["--explain", why]);
    }
    bench.pagelab(&["exec", "-p", "thp+pte-mapped", "--", "true"]).ran().assert_exit(2, &["compare --explain"]);
}

/// Bytes of a trial's anonymous memory that leaves of this size map, in whole folios of this size.
fn mapped(trial: &Value, leaf_bytes: u64, folio_bytes: u64) -> u64 {
    let is_meant = |row: &&Value| {
        (&row["backing"], &row["folio"]) == (&"anonymous".into(), &"whole".into())
            && (&row["leaf_bytes"], &row["folio_bytes"]) == (&leaf_bytes.into(), &folio_bytes.into())
    };
    let rows = trial["census"].as_array().unwrap().iter().filter(is_meant);
    rows.map(|row| row["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn leaves_are_split_and_neither_folios_nor_the_program_notice() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !needs(&[root(), program("gcc"), ("2M folios for programs that ask for them", !enabled.contains("[never]"))]) {
        return;
    }
    const M2: u64 = 2 << 20;
    let bench = Bench::new();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/interrupted.c");
    let compiled = bench.word("interrupted");
    let gcc = std::process::Command::new("gcc").args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&compiled).status();
    assert!(gcc.unwrap().success());
    // After pagelab has looked for new leaves, it looks again only after twenty times as long as that took, and the
    // look may have waited for a processor. So one window may still have its leaf.
    let options = ["--explain", "-p", "base,thp", "--blocks", "1", "--min-blocks", "1", "--json"];
    bench.compare(&options, &words_of(&[&compiled, "48", "1000"])).ran().assert_exit(0, &[]);
    let document = bench.stored(1);
    assert_eq!(document["design"]["khugepaged"], "off");
    let of_frames = |trial: &&Value| trial["label"] == "frames of thp";
    let trials: Vec<&Value> = document["control_trials"].as_array().unwrap().iter().filter(of_frames).collect();
    assert_eq!(trials.len(), 2, "block 0 and block 1");
    for trial in trials {
        let (split, left) = (mapped(trial, 4096, M2), mapped(trial, M2, M2));
        assert!(split >= 46 << 20 && left <= M2, "{split} {left} {:#}", trial["census"]);
        assert_eq!(trial["verdict"]["holding"], "held", "{:#}", trial["verdict"]);
        let late = observed(trial, "late_leaves_ratio").unwrap();
        assert!((0.0..1.0).contains(&late), "{late}");
    }
    let blocks = |arm: &Value| arm["frame_blocks"]["median"].as_f64().unwrap();
    let arms = document["arms"].as_array().unwrap();
    let control = document["controls"].as_array().unwrap().iter().find(of_frames).unwrap();
    for scatter in [blocks(&arms[0]), blocks(&arms[1]), blocks(control)] {
        assert!(scatter >= 24.0, "48M are in no fewer blocks of 2M: {scatter}");
    }
}
