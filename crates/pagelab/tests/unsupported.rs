//! Tests of policies that this machine or this user cannot use: they become rows with a reason and a remedy, and never
//! fall back to another policy.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;

#[test]
fn a_size_that_does_not_exist_is_a_row_and_the_others_run() {
    let bench = Bench::new();
    let options = [&["-p", "default,base,mthp-2k,hugetlb-64k"][..], &QUICK].concat();
    let ran = bench.compare(&options, &bench.touch()).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["why 2 policies are unsupported"]);
    let in_full = bench.pagelab(&["show", "1", "--full", "--store", &bench.store()]).ran();
    in_full.assert_stdout(&["mthp-2k is unsupported", "hugetlb-64k is unsupported", "no pool of 64K pages"]);
    let document = bench.stored(1);
    for label in ["mthp-2k", "hugetlb-64k"] {
        let arm = arm(&document, label);
        assert_eq!(arm["admission"]["supported"], false);
        let text = |field: &str| arm["admission"][field].as_str().unwrap_or_default().len();
        assert!(text("reason") > 10 && text("remedy") > 5, "{arm:#}");
        assert_eq!(arm["outcome"]["outcome"], "unsupported", "{arm:#}");
        let index = &arm["arm"];
        assert!(document["trials"].as_array().unwrap().iter().all(|trial| trial["arm"] != *index), "never run");
    }
}

#[test]
fn nothing_to_compare_ends_with_3() {
    let bench = Bench::new();
    let ran = bench.compare(&["-p", "default,mthp-2k,hugetlb-64k"], &bench.touch()).ran();
    ran.assert_exit(3, &["nothing to compare", "mthp-2k: ", "hugetlb-64k: "]);
    assert!(bench.stored(1)["trials"].as_array().unwrap().is_empty());
    bench.compare(&["-p", "base,default", "--baseline", "mthp-2k"], &bench.touch()).ran().assert_exit(3, &["mthp-2k"]);
    bench.pagelab(&["exec", "-p", "hugetlb-64k", "--", "true"]).ran().assert_exit(3, &["no pool of 64K"]);
}

#[test]
fn without_root_base_and_thp_run_and_are_proven_without_settings() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let before = settings();
    let bench = Bench::new();
    let options = [&["-p", "default,base,thp"][..], &QUICK].concat();
    let ran = bench.compare(&options, &bench.touch()).as_nobody().ran();
    ran.assert_exit(0, &[]);
    let document = bench.stored(1);
    assert_eq!(arm(&document, "base")["verdict"]["holding"], "held", "{ran}");
    let thp = arm(&document, "thp");
    if thp["admission"]["supported"] == true {
        assert_eq!(thp["verdict"]["holding"], "held", "{ran}")
    } else {
        assert!(thp["admission"]["reason"].as_str().unwrap().contains("needs root"), "{thp:#}")
    }
    assert_eq!(settings(), before);
}

/// Free memory may be too fragmented for a pool of the largest pages. That is known only once the kernel has been asked
/// for the pool.
#[test]
fn a_pool_that_the_kernel_does_not_give_is_a_row_and_the_others_run() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let Some((size, pool)) = empty_pool() else {
        return testing::skip("a hugetlb pool without pages");
    };
    let before = settings();
    let policy = format!("hugetlb-{}", size.to_lowercase());
    let options = ["-p", "default,base", "-p", &policy, "--hugetlb-pool", &size, "--full"];
    let ran = giving_none(&pool, &bench.compare(&[&options[..], &QUICK].concat(), &bench.touch())).ran();
    ran.assert_exit(0, &[])
        .assert_stdout(&[&format!("{policy} is unsupported: the kernel found contiguous memory for 0 of 1")]);
    assert_eq!(arm(&bench.stored(1), "base")["verdict"]["holding"], "held", "{ran}");
    let exec = bench.pagelab(&["exec", "-p", &policy, "--hugetlb-pool", &size, "--", "true"]);
    giving_none(&pool, &exec).ran().assert_exit(3, &["found contiguous memory for 0 of", "at boot: hugepagesz="]);
    assert_eq!(settings(), before);
}

/// A hugetlb pool without pages: the size of its pages, and the file of the pool's size.
fn empty_pool() -> Option<(String, PathBuf)> {
    let pools = std::fs::read_dir("/sys/kernel/mm/hugepages").ok()?.flatten();
    pools.into_iter().find_map(|pool| {
        let kib: u64 = pool.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let file = pool.path().join("nr_hugepages");
        let is_empty = std::fs::read_to_string(&file).is_ok_and(|pages| pages.trim() == "0");
        is_empty.then(|| (format!("{}M", kib >> 10), file))
    })
}

/// The command, run so that the pool's file accepts 1 as the number of pages and still reads 0, however much memory is free. For
/// this, /proc/PID/oom_adj is mounted over the pool's file. It converts the 1 to 58 thousandths (proc_pid_oom_adj(5)), which is
/// less than one of its own units, so reading gives 0.
fn giving_none(pool: &Path, command: &Command) -> Command {
    let script = "mount --bind /proc/$$/oom_adj \"$0\" && exec \"$@\"";
    let mut unshared = Command::new("unshare");
    unshared.args(["--mount", "sh", "-c", script]).arg(pool);
    wrap(&mut unshared, command);
    unshared
}

/// A user may execute a program without being able to read it, and then cannot read the memory of the process. Memory
/// that cannot be inspected proves nothing.
#[test]
fn a_program_whose_memory_may_not_be_looked_at_is_unproven() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let copy = bench.path("unreadable");
    std::fs::copy(bench.program(), &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let command = [&bench.word("unreadable"), "workload", "page-touch", "--bytes", "24M"].map(String::from);
    let options = [&["-p", "default,base,base+no-guards", "--full"][..], &QUICK].concat();
    let _lease_guard = LeaseGuard::wait();
    let ran = bench.compare(&options, &command).as_nobody().ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "default: a process could not be inspected: unreadable: /proc/PID/",
        "not known whether it was in force",
    ]);
    assert_eq!(ran.stdout.matches("base+no-guards: not known whether").count(), 1, "{ran}");
    let document = bench.stored(1);
    for label in ["base", "base+no-guards"] {
        let arm = arm(&document, label);
        assert_eq!(arm["verdict"]["holding"], "unknown");
        let cause = &arm["verdict"]["causes"][0];
        assert_eq!(cause["code"], "process_unseen", "one for all trials: {arm:#}");
        assert!(cause["bytes"].as_u64() > Some(0), "what it had when it ended: {arm:#}");
    }
}

#[test]
fn names_policies_that_need_root_and_how_to_get_it() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let options = [&["-p", "default,base,mthp-64k,hugetlb-2m"][..], &QUICK].concat();
    let ran = bench.compare(&options, &bench.touch()).as_nobody().ran();
    ran.assert_exit(0, &[]);
    let document = bench.stored(1);
    for label in ["mthp-64k", "hugetlb-2m"] {
        let admission = &arm(&document, label)["admission"];
        if admission["supported"] == true {
            testing::skip(format!("a host where {label} is not there without root"));
            continue;
        }
        assert!(admission["reason"].as_str().unwrap().contains("root"), "{admission}");
        assert!(admission["remedy"].as_str().unwrap().contains("as root: echo "), "{admission}");
    }
    let as_other = bench.compare(&["-p", "default,base", "--user", "root"], &bench.touch()).as_nobody().ran();
    as_other.assert_exit(2, &["--user", "only root"]);
}
