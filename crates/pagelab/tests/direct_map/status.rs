//! Tests of the status of the direct maps of captured hosts.

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host").join(name)
}

#[test]
fn captured_hosts_answer() {
    let bench = Bench::new();
    let recent = status(&bench, &fixture("x86_64-6.18"));
    assert_eq!(recent["schema"], "pagelab.direct-map-status/1");
    assert_eq!(recent["leaves"][2]["bytes"], json!(25_165_824u64 << 10));
    assert_eq!(recent["changes"][0], json!({ "leaf_bytes": 2 << 20, "splits": 4, "collapses": 0 }));
    let of = |document: &Value| ["1g", "2m", "4k"].map(|leaf| state_of(document, &format!("direct-map-{leaf}")));
    assert_eq!(of(&recent), ["now", "by_demotion", "by_demotion"]);
    assert_eq!(of(&status(&bench, &fixture("x86_64-5.10"))), ["no", "by_demotion", "by_demotion"]);
    let root = fixture("aarch64-64k-6.12");
    let unseen = status(&bench, &root);
    assert_eq!(["512m", "64k"].map(|leaf| state_of(&unseen, &format!("direct-map-{leaf}"))), ["unknown", "unknown"]);
    assert!(unseen["unknown"]["remedy"].as_str().unwrap().contains("mount -t debugfs"), "{unseen:#}");
    let ran = bench.pagelab(&["direct-map", "status", "--root", root.to_str().unwrap()]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["unknown, because /proc/meminfo has no lines DirectMap"]);
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
        (state_of(&document, "direct-map-512m"), state_of(&document, "direct-map-64k")),
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

/// The counters of this machine with 8G reported 10G at boot. From the counters alone, a finished demotion to 2M would look like
/// one that is half finished.
#[test]
fn bytes_split_by_a_demotion_prove_leaves_where_counters_start_too_high() {
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
    assert_eq!(state_of(&counted, "direct-map-2m"), "by_demotion", "{counted:#}");
    assert!((share(&counted) - 0.742).abs() < 1e-3, "{counted:#}");
    let why = counted["policies"].to_string();
    let found = "74.2 to 99.2 % of the direct map of this boot is in leaves of 2M";
    assert!(why.contains(found) && why.contains("2G in 1G counted, 2G of that twice)"), "{why}");
    let boot_id = counted["boot_id"].as_str().unwrap();
    let mark = json!({
        "schema": "pagelab.direct-map-demotion/1", "boot_id": boot_id, "leaf_bytes": 2 << 20, "began_unix_s": 1,
        "demotions": 1, "split_bytes": { "1073741824": 8u64 << 30 },
    });
    fs::create_dir_all(root.join("run")).unwrap();
    fs::write(root.join("run/pagelab.direct-map.json"), mark.to_string()).unwrap();
    let known = status(&bench, &root);
    assert_eq!(state_of(&known, "direct-map-2m"), "now", "{known:#}");
    assert!((share(&known) - 0.992).abs() < 1e-3, "{known:#}");
    assert_eq!(known["leaves"][2]["possible_bytes"], 0);
    assert_eq!(known["demoted"]["split"], json!([{ "leaf_bytes": 1 << 30, "bytes": 8u64 << 30 }]));
    let ran = bench.pagelab(&["direct-map", "status", "--root", root.to_str().unwrap()]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["8G split out of leaves of 1G"]);
}
