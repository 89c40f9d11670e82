//! Tests of demoting one leaf of this host's direct map, and of refused demotions.

use super::*;

const YES: &str = "--yes-demote-this-host";

#[test]
fn a_demotion_is_refused_unless_it_is_meant_and_possible() {
    let _lease_guard = is_root().then(LeaseGuard::wait);
    let bench = Bench::new();
    let before = this_boot();
    let demote = |words: &[&str]| bench.pagelab(&[&["direct-map", "demote"], words].concat());
    demote(&["--to", "2m"])
        .ran()
        .assert_exit(2, &["nothing was demoted", "until it is rebooted", "2M pages scarce", YES]);
    demote(&["--to", "2m", "--limit", "0x", YES]).ran().assert_exit(2, &["0x"]);
    demote(&["--to", "3m", YES]).ran().assert_exit(2, &["power of two"]);
    demote(&[YES]).ran().assert_exit(2, &["--to"]);
    if needs(&[root(), counts_leaves()]) {
        demote(&["--to", "1g", YES]).ran().assert_exit(2, &["cannot be split to 1G", "--to 4K or 2M"]);
        demote(&["--to", "64k", YES]).ran().assert_exit(2, &["64K"]);
    }
    if needs(&[root(), program("setpriv"), counts_leaves()]) {
        demote(&["--to", "4k", "--limit", "2M", YES]).as_nobody().ran().assert_exit(2, &["root"]);
    }
    let after = this_boot();
    assert_eq!((&before["changes"], &before["demoted"]), (&after["changes"], &after["demoted"]), "nothing was split");
}

/// This is the only test that changes the direct map of the host. It splits one 2M leaf, and a 1G leaf if the 2M leaf is part of
/// one. Only a reboot restores them.
#[test]
fn a_demotion_of_two_megabytes_splits_one_leaf_marks_and_gives_its_memory_back() {
    if !(needs(&[counts_leaves(), secret_memory()]) && needs(&own_lease())) {
        return;
    }
    let bench = Bench::with_own_lease();
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
    ran.assert_exit(0, &[]);
    assert_eq!(done["stopped"], "limit", "{done:#}");
    assert!(done["secret_peak_bytes"].as_u64().unwrap() <= 2 << 20, "{done:#}");
    let changes = done["changes"].as_array().unwrap();
    let splits = |leaf: u64| changes.iter().find(|change| change["leaf_bytes"] == leaf).unwrap()["splits"].as_u64();
    assert_eq!(splits(2 << 20), Some(1), "or the kernel split one for code that was loaded meanwhile: {done:#}");
    assert!(splits(1 << 30) <= Some(1), "{done:#}");
    let of_4k = |document: &Value| document["leaves"][0]["bytes"].as_u64().unwrap();
    assert_eq!(of_4k(&after), of_4k(&before) + (2 << 20), "{before:#}\n{after:#}");
    // Every later result of this boot records the demotion, and warns of it if it can matter.
    let options = [&["-p", "default,base"][..], &["--min-blocks", "1", "--blocks", "1"]].concat();
    let ran = bench.compare(&options, &bench.touch()).ran();
    let counted: u64 = after["leaves"].as_array().unwrap().iter().map(|leaf| leaf["bytes"].as_u64().unwrap()).sum();
    let warns = ran
        .assert_exit(0, &[])
        .stdout
        .contains("pagelab split part of the kernel's direct map into leaves of 4K in this boot");
    assert_eq!(warns, of_4k(&after) * 100 >= counted, "{ran}");
    let state = &bench.stored(1)["trials"][0]["state_before"];
    assert_eq!(state["direct_map_demoted_to_bytes"], 4096);
    assert_eq!(state["direct_map_bytes"]["4K"], of_4k(&after));
}

#[test]
fn a_demotion_that_has_nothing_to_do_marks_nothing() {
    if !(needs(&[counts_leaves(), secret_memory()]) && needs(&own_lease())) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = this_boot();
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "0", "--json", YES]).ran();
    let done = ran.assert_exit(0, &[]).json();
    assert_eq!(
        (&done["stopped"], &done["secret_peak_bytes"], &done["demoted"]),
        (&json!("limit"), &json!(0), &json!(null))
    );
    assert_eq!(this_boot()["demoted"], before["demoted"]);
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "0", YES]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["no page was taken, so nothing was split or marked"]);
}

#[test]
fn nothing_is_demoted_while_something_is_measured() {
    if !(needs(&[counts_leaves(), secret_memory(), program("sleep")]) && needs(&own_lease())) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = this_boot();
    let mut measuring = bench.pagelab(&["exec", "-p", "mthp-64k", "--", "sleep", "60"]).begin();
    bench.await_lease(&measuring);
    let ran = bench.pagelab(&["direct-map", "demote", "--to", "4k", "--limit", "2M", "--wait", "1s", YES]).ran();
    ran.assert_exit(2, &["the system settings are leased", &measuring.id().to_string()]);
    assert_eq!(this_boot()["demoted"], before["demoted"]);
    send("TERM", measuring.id());
    measuring.wait();
}

#[test]
fn without_locked_memory_or_frame_numbers_nothing_is_split_or_marked() {
    if !(needs(&[program("setpriv"), program("sh"), counts_leaves(), secret_memory()]) && needs(&own_lease())) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = this_boot();
    let demote_without = |capability: &str, limits: &str| {
        let line = format!("{limits}; exec \"$@\"");
        let without = ["setpriv", "--bounding-set", capability, "--inh-caps", capability, "sh", "-c", &line, "sh"];
        bench.pagelab_by(&without, &["direct-map", "demote", "--to", "4k", "--limit", "2M", YES]).ran()
    };
    let locked = ["no more locked memory (RLIMIT_MEMLOCK 65536 bytes", "ulimit -l"];
    demote_without("-ipc_lock,-sys_resource", "ulimit -l 64").assert_exit(2, &locked);
    demote_without("-sys_admin", "true").assert_exit(2, &["hides frame numbers", "CAP_SYS_ADMIN"]);
    let after = this_boot();
    assert_eq!((&before["changes"], &before["demoted"]), (&after["changes"], &after["demoted"]));
}
