//! Processes are found by their names.

use std::process::{Command, Stdio};

use crate::common::{Bench, LIMIT, Running, Runs, within};

/// A sleeping process whose program has this name.
fn sleeping(bench: &Bench, name: &str) -> Running {
    let program = bench.path(name);
    if !program.exists() {
        std::fs::copy("/bin/sleep", &program).unwrap();
    }
    let sleeping = Command::new(&program).arg("600").stdin(Stdio::null()).begin();
    let exe = format!("/proc/{}/exe", sleeping.id());
    assert!(within(LIMIT, || std::fs::read_link(&exe).is_ok_and(|path| path == program)));
    sleeping
}

#[test]
fn a_name_stands_for_its_process_and_several_have_a_row_each() {
    let bench = Bench::new();
    // Longer than the 15 bytes that the kernel keeps, so that the program's file decides.
    let name = format!("sleeper-by-name-{}", std::process::id());
    let one = sleeping(&bench, &name);
    let first = one.id().to_string();
    bench.pagelab(&["inspect", &name]).ran().prints(&[&format!("process {first} (sleeper-by-name")]);
    let document = bench.pagelab(&["inspect", &name, "--json"]).ran().json();
    assert_eq!(document["processes"][0]["pid"].as_u64(), Some(one.id().into()));
    let two = sleeping(&bench, &name);
    let second = two.id().to_string();
    let ran = bench.pagelab(&["inspect", &name]).ran();
    ran.prints(&[&first, &second, "could be larger", "pagelab inspect PID"]);
    for option in [&["--every", "1s"][..], &["--html", "x"], &["--collapse"], &["--capture", "x"]] {
        let ran = bench.pagelab(&[&["inspect", &name], option].concat()).ran();
        ran.says(2, &[option[0], "needs one process", &first, &second, "give the PID"]);
    }
    // The kernel's own name of the processes, cut after 15 bytes.
    bench.pagelab(&["inspect", &name[..15]]).ran().prints(&[&first, &second]);
}

#[test]
fn what_is_written_for_a_collector_needs_no_interval_but_lines_do() {
    let bench = Bench::new();
    for words in [&["--all", "--json-lines"][..], &["--tree", "1", "--json-lines"], &["1", "--json-lines"]] {
        assert_eq!(bench.pagelab(&[&["inspect"], words].concat()).ran().code, Some(2), "{words:?}");
    }
    let file = bench.word("pagelab.prom");
    let ran = bench.pagelab(&["inspect", "--openmetrics", &file, "--", "true"]).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("name=\"true\""));
}
