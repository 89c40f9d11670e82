//! The kernel's direct map: what is shown of it, what is refused, a demotion of a few megabytes, and arms
//! over boots.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use common::*;
use serde_json::{Value, json};

/// Held by tests that compare this boot with what it was, or change it.
static BOOT: Mutex<()> = Mutex::new(());

const YES: &str = "--yes-demote-this-host";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host").join(name)
}

fn status(bench: &Bench, root: &Path) -> Value {
    bench.pagelab(&["direct-map", "status", "--json", "--root", root.to_str().unwrap()]).ran().json()
}

fn standing(document: &Value, policy: &str) -> String {
    let policies = document["policies"].as_array().unwrap();
    let row = policies.iter().find(|row| row["policy"] == policy).unwrap_or_else(|| panic!("{policy}: {document:#}"));
    row["standing"].as_str().unwrap().to_string()
}

fn this_boot() -> Value {
    status(&Bench::new(), Path::new("/"))
}

fn counts_leaves() -> (&'static str, bool) {
    ("a kernel that counts its direct map in /proc/meminfo (x86)", this_boot()["source"] == "/proc/meminfo")
}

fn secret_memory() -> (&'static str, bool) {
    let features = this_boot()["features"].clone();
    let has = |feature: &Value| feature["name"] == "memfd_secret" && feature["value"] == "available";
    ("memfd_secret", features.as_array().unwrap().iter().any(has))
}

#[test]
fn captured_hosts_answer() {
    let bench = Bench::new();
    let recent = status(&bench, &fixture("x86_64-6.18"));
    assert_eq!(recent["schema"], "pagelab.direct-map-status/1");
    assert_eq!(recent["leaves"][2]["bytes"], json!(25_165_824u64 << 10));
    assert_eq!(recent["changes"][0], json!({ "leaf_bytes": 2 << 20, "splits": 4, "collapses": 0 }));
    let of = |document: &Value| ["1g", "2m", "4k"].map(|leaf| standing(document, &format!("direct-map-{leaf}")));
    assert_eq!(of(&recent), ["now", "by_demotion", "by_demotion"]);
    assert_eq!(of(&status(&bench, &fixture("x86_64-5.10"))), ["no", "by_demotion", "by_demotion"]);
    let root = fixture("aarch64-64k-6.12");
    let unseen = status(&bench, &root);
    assert_eq!(["512m", "64k"].map(|leaf| standing(&unseen, &format!("direct-map-{leaf}"))), ["unknown", "unknown"]);
    assert!(unseen["unknown"]["remedy"].as_str().unwrap().contains("mount -t debugfs"), "{unseen:#}");
    let ran = bench.pagelab(&["direct-map", "status", "--root", root.to_str().unwrap()]).ran();
    ran.says(0, &[]).prints(&["unknown, because /proc/meminfo has no lines DirectMap"]);
}

#[test]
fn a_captured_dump_of_page_tables_answers_where_meminfo_does_not() {
    let bench = Bench::new();
    let root = bench.path("tree");
    let copied = Command::new("cp").arg("-r").arg(fixture("aarch64-64k-6.12")).arg(&root).status().unwrap();
    assert!(copied.success());
    let folder = root.join("sys/kernel/debug");
    fs::create_dir_all(&folder).unwrap();
    let dump = "---[ Linear Mapping start ]---\n\
        0xffff000000000000-0xffff000020000000         512M PTE       RW NX SHD AF        CON     UXN    MEM/NORMAL\n\
        0xffff000020000000-0xffff000280000000        9728M PMD       RW NX SHD AF            BLK UXN    MEM/NORMAL\n\
        ---[ Linear Mapping end ]---\n";
    fs::write(folder.join("kernel_page_tables"), dump).unwrap();
    fs::write(root.join("proc/cmdline"), "quiet rodata=on\n").unwrap();
    let document = status(&bench, &root);
    assert_eq!(document["source"], "/sys/kernel/debug/kernel_page_tables");
    assert_eq!(document["leaves"][0]["contiguous_bytes"], json!(512u64 << 20));
    assert_eq!(
        (standing(&document, "direct-map-512m"), standing(&document, "direct-map-64k")),
        ("now".into(), "by_demotion".into())
    );
}

#[test]
fn a_boot_option_that_is_given_is_not_asked_for_again() {
    let bench = Bench::new();
    let root = bench.path("tree");
    let copied = Command::new("cp").arg("-r").arg(fixture("x86_64-6.18")).arg(&root).status().unwrap();
    assert!(copied.success());
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap();
    let others = meminfo.lines().filter(|line| !line.starts_with("DirectMap"));
    let demoted = ["DirectMap4k:    20000000 kB", "DirectMap2M:     5000000 kB"];
    fs::write(root.join("proc/meminfo"), others.chain(demoted).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let remedy = |command_line: &str| {
        fs::write(root.join("proc/cmdline"), command_line).unwrap();
        let document = status(&bench, &root);
        let policies = document["policies"].as_array().unwrap();
        let row = policies.iter().find(|row| row["policy"] == "direct-map-2m").unwrap();
        row["remedy"].as_str().unwrap_or_else(|| panic!("{document:#}")).to_string()
    };
    assert_eq!(remedy("quiet nogbpages\n"), "reboot");
    assert_eq!(remedy("quiet\n"), "boot with nogbpages");
}

/// A machine of 8G whose counters said 10G at boot. By them alone no demotion to 2M could be told from one half way.
#[test]
fn what_a_demotion_split_proves_its_leaves_where_counters_begin_too_high() {
    let bench = Bench::new();
    let root = bench.path("tree");
    let copied = Command::new("cp").arg("-r").arg(fixture("x86_64-6.18")).arg(&root).status().unwrap();
    assert!(copied.success());
    let replaced = |file: &str, start: &str, lines: &[&str]| {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let others = text.lines().filter(|line| !line.starts_with(start));
        fs::write(root.join(file), others.chain(lines.iter().copied()).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    };
    let leaves = ["DirectMap4k:       65536 kB", "DirectMap2M:     8323072 kB", "DirectMap1G:     2097152 kB"];
    replaced("proc/meminfo", "DirectMap", &leaves);
    replaced("proc/vmstat", "direct_map_level3", &["direct_map_level3_splits 4", "direct_map_level3_collapses 0"]);
    fs::write(root.join("proc/zoneinfo"), "Node 0, zone   Normal\n        present  2097152\n").unwrap();
    let share = |document: &Value| document["leaves"][1]["least_share_ratio"].as_f64().unwrap();
    let counted = status(&bench, &root);
    assert_eq!(standing(&counted, "direct-map-2m"), "by_demotion", "{counted:#}");
    assert!((share(&counted) - 0.742).abs() < 1e-3, "{counted:#}");
    let why = counted["policies"].to_string();
    let found = "74.2 to 99.2 % of the direct map of this boot lie in leaves of 2M";
    assert!(why.contains(found) && why.contains("2G in 1G counted, 2G of that twice)"), "{why}");
    let boot_id = counted["boot_id"].as_str().unwrap();
    let mark = json!({
        "schema": "pagelab.direct-map-demotion/1", "boot_id": boot_id, "leaf_bytes": 2 << 20, "began_unix_s": 1,
        "demotions": 1, "split_bytes": { "1073741824": 8u64 << 30 },
    });
    fs::create_dir_all(root.join("run")).unwrap();
    fs::write(root.join("run/pagelab.direct-map.json"), mark.to_string()).unwrap();
    let known = status(&bench, &root);
    assert_eq!(standing(&known, "direct-map-2m"), "now", "{known:#}");
    assert!((share(&known) - 0.992).abs() < 1e-3, "{known:#}");
    assert_eq!(known["leaves"][2]["possible_bytes"], 0);
    assert_eq!(known["demoted"]["split"], json!([{ "leaf_bytes": 1 << 30, "bytes": 8u64 << 30 }]));
    let ran = bench.pagelab(&["direct-map", "status", "--root", root.to_str().unwrap()]).ran();
    ran.says(0, &[]).prints(&["8G were taken out of leaves of 1G"]);
}

#[test]
fn a_demotion_is_refused_unless_it_is_meant_and_possible() {
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let before = this_boot();
    let demote = |words: &[&str]| bench.pagelab(&[&["direct-map", "demote"], words].concat());
    demote(&["--to", "2m"]).ran().says(2, &["nothing was demoted", "until it is rebooted", "2M pages scarce", YES]);
    demote(&["--to", "2m", "--limit", "0x", YES]).ran().says(2, &["0x"]);
    demote(&["--to", "3m", YES]).ran().says(2, &["power of two"]);
    demote(&[YES]).ran().says(2, &["--to"]);
    if needs(&[root(), counts_leaves()]) {
        demote(&["--to", "1g", YES]).ran().says(2, &["cannot be split to 1G", "--to 4K or 2M"]);
        demote(&["--to", "64k", YES]).ran().says(2, &["64K"]);
    }
    if needs(&[root(), program("setpriv"), counts_leaves()]) {
        demote(&["--to", "4k", "--limit", "2M", YES]).as_nobody().ran().says(2, &["root"]);
    }
    let after = this_boot();
    assert_eq!((&before["changes"], &before["demoted"]), (&after["changes"], &after["demoted"]), "nothing was split");
}

#[test]
fn a_demotion_of_two_megabytes_splits_marks_and_gives_its_memory_back() {
    if !needs(&[root(), counts_leaves(), secret_memory()]) {
        return;
    }
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let before = this_boot();
    let marks = |document: &Value| document["demoted"]["demotions"].as_u64().unwrap_or(0);
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "2M", "--json", YES]).ran();
    let done = ran.json();
    let after = this_boot();
    assert_eq!(marks(&after), marks(&before) + 1, "{after:#}");
    if done["stopped"] == "none_found" {
        testing::skip("free memory that is mapped by large leaves");
        return;
    }
    ran.says(0, &[]);
    assert_eq!(done["stopped"], "limit", "{done:#}");
    assert!(done["secret_peak_bytes"].as_u64().unwrap() <= 2 << 20, "{done:#}");
    let of_4k = |document: &Value| document["leaves"][0]["bytes"].as_u64().unwrap();
    assert!(of_4k(&after) >= of_4k(&before) + (2 << 20), "{before:#}\n{after:#}");
    // Every result of this boot tells of it.
    let options = [&["-p", "default,base"][..], &["--min-blocks", "1", "--blocks", "1"]].concat();
    let ran = bench.compare(&options, &bench.touch()).ran();
    ran.says(0, &[]).prints(&["the kernel's direct map was demoted to 4K in this boot"]);
    assert_eq!(bench.stored(1)["trials"][0]["state_before"]["direct_map_demoted_to_bytes"], 4096);
}

#[test]
fn a_demotion_that_has_nothing_to_do_marks_nothing() {
    if !needs(&[root(), counts_leaves(), secret_memory()]) {
        return;
    }
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let before = this_boot();
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "0", "--json", YES]).ran();
    let done = ran.says(0, &[]).json();
    assert_eq!(
        (&done["stopped"], &done["secret_peak_bytes"], &done["demoted"]),
        (&json!("limit"), &json!(0), &json!(null))
    );
    assert_eq!(this_boot()["demoted"], before["demoted"]);
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "0", YES]).ran();
    ran.says(0, &[]).prints(&["no page was taken, so nothing was split or marked"]);
}

#[test]
fn nothing_is_demoted_while_something_is_measured() {
    if !needs(&[root(), counts_leaves(), secret_memory(), program("sleep")]) {
        return;
    }
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let before = this_boot();
    let mut measuring = bench.pagelab(&["exec", "-p", "mthp-64k", "--", "sleep", "60"]).begin();
    await_lease(&measuring);
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "2M", "--wait", "1s", YES]).ran();
    ran.says(2, &["the system settings are leased", &measuring.id().to_string()]);
    assert_eq!(this_boot()["demoted"], before["demoted"]);
    send("TERM", measuring.id());
    measuring.wait();
}

#[test]
fn without_locked_memory_or_frame_numbers_nothing_is_split_or_marked() {
    if !needs(&[root(), program("setpriv"), program("sh"), counts_leaves(), secret_memory()]) {
        return;
    }
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let before = this_boot();
    let demote_without = |capability: &str, limits: &str| {
        let pagelab = bench.program();
        let line = format!("{limits}; exec {} direct-map demote --to 4k --limit 2M {YES}", pagelab.display());
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", capability, "--inh-caps", capability, "sh", "-c", &line]);
        command.current_dir(bench.path("")).ran()
    };
    let locked = ["no more locked memory (RLIMIT_MEMLOCK 65536 bytes", "ulimit -l"];
    demote_without("-ipc_lock,-sys_resource", "ulimit -l 64").says(2, &locked);
    demote_without("-sys_admin", "true").says(2, &["hides frame numbers", "CAP_SYS_ADMIN"]);
    let after = this_boot();
    assert_eq!((&before["changes"], &before["demoted"]), (&after["changes"], &after["demoted"]));
}

#[test]
fn the_arm_of_a_boot_is_measured_or_there_is_none() {
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let boot = this_boot();
    let policies = boot["policies"].as_array().unwrap();
    let has = policies.iter().find(|row| row["standing"] == "now");
    let ran = bench.compare(&["--arm-of-boot", "--min-blocks", "2"], &bench.touch()).ran();
    match has {
        Some(row) => {
            let policy = row["policy"].as_str().unwrap();
            ran.says(0, &[]).prints(&[policy, "was measured in one boot only", "measured in no boot"]);
            let document = bench.pagelab(&["show", "1", "--json", "--store", &bench.store()]).ran().json();
            assert_eq!(document["boots"][0]["boot_id"], boot["boot_id"]);
            assert_eq!(document["boots"][0]["trials"], 2);
            let again = bench.pagelab(&["merge", &bench.store()]).ran();
            again.says(0, &[]).prints(&["was measured in one boot only"]);
            // The arm alone, which joins those that were asked for together.
            let alone = bench.compare(&["--arm-of-boot", "-p", policy, "--min-blocks", "3"], &bench.touch()).ran();
            alone.says(0, &[]).prints(&[policy, "was measured in one boot only", "measured in no boot"]);
            let document = &bench.stored(2);
            assert_eq!((document["boots"][0]["trials"].as_u64(), &document["boots"][1]), (Some(3), &Value::Null));
        }
        None => {
            ran.says(3, &["nothing to compare", "direct-map"]);
        }
    };
    for row in policies.iter().filter(|row| row["standing"] != "now") {
        let policy = row["policy"].as_str().unwrap();
        let refused = bench.compare(&["--arm-of-boot", "-p", policy], &bench.touch()).ran();
        refused.says(3, &["there is nothing to compare", policy]);
    }
    bench.compare(&["--arm-of-boot", "-p", "thp"], &bench.touch()).ran().says(2, &["thp does not depend on the boot"]);
}

/// Boots as `compare --arm-of-boot --json` prints them.
fn boots(arms: &[(&str, usize, f64)]) -> Value {
    let metric = json!({ "name": "wall_s", "unit": "seconds", "direction": "lower" });
    let labels = ["direct-map-1g", "direct-map-2m"];
    let boot = |(at, (host, arm, wall_s)): (usize, &(&str, usize, f64))| {
        json!({
            "host": host, "boot_id": format!("{host}-{at}-{arm}-{wall_s}"), "arm": arm, "started_unix_s": at,
            "kernel": "6.18", "kernel_command_line": "quiet", "demoted_to": null, "trials": 8,
            "medians": { "wall_s": wall_s }, "holding": "held",
            "answer": { "exit": { "code": 0 }, "stdout_sha256": null },
        })
    };
    json!({
        "schema": "pagelab.compare-boots/1",
        "design": {
            "arms": labels.map(|label| json!({ "label": label, "policy": label })), "baseline": 0,
            "metrics": [metric], "primary": "wall_s", "min_blocks": 8, "max_blocks": 60, "max_time_s": null,
            "precision_ratio": 0.01, "band_ratio": 0.01, "confidence": 0.95, "seed": 1,
        },
        "invocation": { "command": ["work", "hard"], "client": null, "pagelab": [], "version": "0.1.0" },
        "boots": arms.iter().enumerate().map(boot).collect::<Vec<_>>(),
    })
}

#[test]
fn boots_of_several_hosts_are_joined() {
    let bench = Bench::new();
    let file = |name: &str, document: &Value| {
        fs::write(bench.path(name), document.to_string()).unwrap();
        bench.word(name)
    };
    let one = file(
        "one",
        &boots(&[("a", 0, 1.00), ("a", 0, 1.01), ("a", 0, 1.02), ("a", 1, 1.2), ("a", 1, 1.21), ("a", 1, 1.22)]),
    );
    let two = file("two", &boots(&[("b", 0, 2.00), ("b", 0, 2.01), ("b", 1, 2.4), ("b", 1, 2.41)]));
    let ran = bench.pagelab(&["merge", &one, &two, "--json"]).ran();
    ran.says(0, &[]);
    let document = ran.json();
    let arm = &document["arms"][1];
    assert_eq!(
        (&arm["boots"], &arm["hosts"], &arm["outcome"]["outcome"]),
        (&json!(5), &json!(2), &json!("worse")),
        "{document:#}"
    );
    let joined = file("joined", &document);
    let again = bench.pagelab(&["merge", &joined, &one, "--json"]).ran().json();
    assert_eq!(again["arms"], document["arms"], "a boot counts once");
    let alone = file("alone", &boots(&[("a", 0, 1.0), ("a", 0, 1.01), ("a", 1, 2.0)]));
    let ran = bench.pagelab(&["merge", &alone]).ran();
    ran.says(0, &[]).prints(&["- direct-map-2m was measured in one boot only", "Undecided: 3 boots do not"]);
    let (csv, html) = (bench.word("boots.csv"), bench.word("boots.html"));
    bench.pagelab(&["merge", &one, &two, "--csv", &csv, "--html", &html]).ran().says(0, &[&html]);
    let rows = fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), 1 + 10, "one for each boot: {rows}");
    assert!(
        rows.starts_with("host,boot_id,") && rows.contains(",direct-map-2m,direct-map-2m,8,wall_s,2.41,"),
        "{rows}"
    );
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("arms over boots") && page.contains("direct-map-2m is worse"), "{page}");
    let nowhere = bench.word("no/such/place.csv");
    bench.pagelab(&["merge", &one, "--csv", &nowhere]).ran().says(2, &["cannot be written"]);
}

#[test]
fn boots_that_answer_differently_end_with_1() {
    let bench = Bench::new();
    let mut document = boots(&[("a", 0, 1.0), ("a", 1, 2.0)]);
    document["boots"][1]["answer"]["stdout_sha256"] = json!("ab");
    fs::write(bench.path("one"), document.to_string()).unwrap();
    let ran = bench.pagelab(&["merge", &bench.word("one")]).ran();
    ran.says(1, &["boots do not agree in the answer"]).prints(&["wrong answer"]);
}

#[test]
fn a_stored_comparison_that_cannot_be_read_is_left_out_and_told() {
    let _alone = BOOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let bench = Bench::new();
    let policies = this_boot()["policies"].clone();
    let has_arm = policies.as_array().unwrap().iter().any(|row| row["standing"] == "now");
    if !needs(&[program("python3"), ("a boot that has an arm", has_arm)]) {
        return;
    }
    let measure = || bench.compare(&["--arm-of-boot", "--min-blocks", "1"], &bench.touch()).ran();
    measure().says(0, &[]);
    let script = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); \
                  store.execute(\"UPDATE comparisons SET pagelab = '{' WHERE id = 1\"); store.commit()";
    assert!(Command::new("python3").args(["-c", script, &bench.store()]).status().unwrap().success());
    measure().says(0, &["comparison 1 is left out"]).prints(&["was measured in one boot only"]);
    let merged = bench.pagelab(&["merge", &bench.store()]).ran();
    merged.says(0, &["comparison 1 is left out"]).prints(&["was measured in one boot only"]);
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let bench = Bench::new();
    let merge = |word: &str| bench.pagelab(&["merge", word]).ran();
    let file = |name: &str, text: &str| {
        fs::write(bench.path(name), text).unwrap();
        bench.word(name)
    };
    merge(&bench.word("missing")).says(2, &["missing", "No such file"]);
    assert!(!bench.path("missing").exists(), "no store is made");
    merge(&file("text", "hello")).says(2, &["expected a store of pagelab or a document pagelab.compare-boots/1"]);
    merge(&file("other", r#"{"schema":"pagelab.compare/1"}"#)).says(2, &["pagelab.compare/1"]);
    merge(&file("empty", "")).says(2, &["expected a store"]);
    let mut broken = boots(&[("a", 0, 1.0)]);
    broken["boots"][0]["arm"] = json!(-1);
    merge(&file("broken", &broken.to_string())).says(2, &["broken"]);
    let mut foreign = boots(&[("a", 7, 1.0)]);
    merge(&file("foreign", &foreign.to_string())).says(2, &["no comparison of arms over boots"]);
    foreign["invocation"]["command"] = json!(["play"]);
    let both = [file("work", &boots(&[("a", 0, 1.0)]).to_string()), file("play", &foreign.to_string())];
    let ran = bench.pagelab(&["merge", &both[0], &both[1]]).ran();
    ran.says(2, &["the command differs", "-- COMMAND", "work hard", "play"]);
    bench.pagelab(&["merge", &both[0], &both[1], "--", "work", "hard"]).ran().says(0, &[]);
    bench.pagelab(&["merge", &both[0], "--", "idle"]).ran().says(2, &["no boot measured \"idle\"; they measured: "]);
    bench.pagelab(&["merge", &both[0], "-p", "thp"]).ran().says(2, &["unexpected argument '-p'"]);
}
