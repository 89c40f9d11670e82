//! The torture set: small programs that are hard to trace, run under every policy. Their output must be the same as without
//! pagelab. Their sources are in `torture`, with one idea in each.
//!
//! The small size runs with all tests. `PAGELAB_TORTURE=full cargo test -p pagelab --test torture` runs the large one: 60,000
//! mappings and 41 children, 50,000 signals, chains of 10,000 forks.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Bench, Runs, arm, is_root, needs, program};

/// The size argument of a program. With the small one, a program takes a fraction of a second without pagelab.
fn size() -> &'static str {
    if std::env::var_os("PAGELAB_TORTURE").is_some_and(|size| size == "full") { "100" } else { "2" }
}

/// Policies that together use every kind of action of the tracer. Policies that this machine does not support are left out,
/// and reported.
fn policies(bench: &Bench) -> Vec<String> {
    let wanted = [
        "default",
        "base",
        "default+no-huge",
        "mthp-64k",
        "thp",
        "thp+no-guards",
        "thp+prefault",
        "default+no-guards",
        "hugetlb-2m",
        "hugetlb-2m+no-guards",
    ];
    let listed = bench.pagelab(&["list", "policies", "--json"]).ran().json();
    let here = |policy: &str| {
        let granularity = policy.split('+').next().unwrap_or_default();
        let rows = listed["policies"].as_array().unwrap();
        rows.iter().any(|row| row["policy"] == granularity && row["here"] == "available")
    };
    let (here, missing): (Vec<&str>, Vec<&str>) = wanted.into_iter().partition(|policy| here(policy));
    if !missing.is_empty() {
        let needed = if is_root() { "a kernel with these sizes" } else { "root" };
        testing::skip(format!("{needed} for {}", missing.join(", ")));
    }
    here.into_iter().map(str::to_string).collect()
}

/// Compiles a program of the set.
fn compiled(bench: &Bench, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture").join(name).with_extension("c");
    let program = bench.path(name);
    let status = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(status.success(), "gcc could not compile {}", source.display());
    program
}

/// Runs a program under every policy, with `exec` and with `compare`. Its exit code and its whole output must be the same as
/// without pagelab.
fn torture(name: &str) {
    torture_but(name, |_| true);
}

/// Like [`torture`], but only under the policies whose names `concerns` accepts. Left out are policies that change the feature
/// that the program tests.
fn torture_but(name: &str, concerns: impl Fn(&str) -> bool) {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, name);
    let mut bare = Command::new(&program);
    bare.arg(size());
    let expected = bare.ran();
    assert!(expected.code == Some(0) && !expected.stdout.contains("WRONG"), "{expected}");
    let mut policies = policies(&bench);
    policies.retain(|policy| concerns(policy));
    let command = [program.display().to_string(), size().to_string()];
    for policy in &policies {
        let words = ["exec", "-p", policy, "--", &command[0], &command[1]];
        let ran = bench.pagelab(&words).ran();
        assert_eq!((ran.code, &ran.stdout), (expected.code, &expected.stdout), "{name} under {policy}: {ran}");
    }
    let chosen = policies.join(",");
    let mut options = vec!["-p", &chosen, "--blocks", "1", "--min-blocks", "1"];
    // `fork_chain` is a chain of short processes that outlives its first process. On a busy machine a comparison ends the chain
    // before the last process prints.
    if name != "fork_chain" {
        options.push("--check-output");
    }
    let ran = bench.compare(&options, &command).ran();
    assert_eq!(ran.code, Some(0), "{name}: {ran}");
    let document = bench.stored(1);
    for policy in &policies {
        let outcome = &arm(&document, policy)["outcome"];
        assert!(outcome != "wrong_answer" && outcome != "unsupported", "{name} under {policy}: {outcome}; {ran}");
    }
}

#[test]
fn a_chain_of_forks_whose_first_process_ends_first() {
    torture("fork_chain");
}

#[test]
fn forks_threads_and_execs_all_at_once() {
    torture("storm");
}

#[test]
fn sessions_a_terminal_and_job_control() {
    torture("session");
}

#[test]
fn filters_of_the_programs_own() {
    // Without a tracer, the filter of `exec -p base` keeps the program from entering seccomp's strict mode, as
    // docs/explain/policies.md says.
    torture_but("filters", |policy| policy != "base");
}

#[test]
fn userfaultfd_brings_base_pages() {
    // Memory that the policy populates in advance causes no faults that the program could handle.
    torture_but("faults_of_its_own", |policy| !policy.contains("prefault"));
}

#[test]
fn very_many_mappings_and_children() {
    torture("mappings");
}

#[test]
fn signals_while_memory_is_mapped() {
    torture("signals");
}

#[test]
fn next_to_no_stack_left() {
    torture("small_stack");
}

#[test]
fn a_program_that_hooks_its_own_calls() {
    torture("hooks");
}
