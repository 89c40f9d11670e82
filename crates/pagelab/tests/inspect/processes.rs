//! Tests that processes are found by their names.

use std::process::{Command, Stdio};

use crate::common::{Bench, LIMIT, Running, Runs, within};

/// A sleeping process, whose program file has this name.
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
fn a_name_selects_its_process_and_several_have_a_row_each() {
    let bench = Bench::new();
    // The name is longer than the 15 bytes that the kernel keeps, so the name of the program's file decides.
    let name = format!("sleeper-by-name-{}", std::process::id());
    let one = sleeping(&bench, &name);
    let first = one.id().to_string();
    bench.pagelab(&["inspect", &name]).ran().assert_stdout(&[&format!("process {first} (sleeper-by-name")]);
    let document = bench.pagelab(&["inspect", &name, "--json"]).ran().json();
    assert_eq!(document["processes"][0]["pid"].as_u64(), Some(one.id().into()));
    let two = sleeping(&bench, &name);
    let second = two.id().to_string();
    let ran = bench.pagelab(&["inspect", &name]).ran();
    ran.assert_stdout(&[&first, &second, "could be larger", "pagelab inspect PID"]);
    for option in [&["--every", "1s"][..], &["--html", "x"], &["--collapse"], &["--capture", "x"]] {
        let ran = bench.pagelab(&[&["inspect", &name], option].concat()).ran();
        ran.assert_exit(2, &[option[0], "needs one process", &first, &second, "give the PID"]);
    }
    // The kernel's own name of the processes is cut after 15 bytes.
    bench.pagelab(&["inspect", &name[..15]]).ran().assert_stdout(&[&first, &second]);
}

#[test]
fn openmetrics_need_no_interval_but_json_lines_do() {
    let bench = Bench::new();
    for words in [&["--all", "--json-lines"][..], &["--tree", "1", "--json-lines"], &["1", "--json-lines"]] {
        assert_eq!(bench.pagelab(&[&["inspect"], words].concat()).ran().code, Some(2), "{words:?}");
    }
    let file = bench.word("pagelab.prom");
    let ran = bench.pagelab(&["inspect", "--openmetrics", &file, "--", "true"]).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("name=\"true\""));
}

/// The thread that ends last is rarely the first one.
#[test]
fn a_program_of_many_threads_is_seen_at_its_end() {
    if !crate::common::needs(&[crate::common::program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let source = bench.path("threads.c");
    let text = "#include <pthread.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                static void *waits(void *x) { pause(); return x; }\n\
                int main(void) { pthread_t t; for (int i = 0; i < 16; i++) pthread_create(&t, 0, waits, 0); exit(0); }\n";
    std::fs::write(&source, text).unwrap();
    let program = bench.word("threads");
    let compiled = Command::new("gcc").args(["-pthread", "-o", &program]).arg(&source).status().unwrap();
    assert!(compiled.success());
    for _ in 0..8 {
        let document = bench.pagelab(&["inspect", "--json", "--", &program]).ran().json();
        assert!(document["processes"][0]["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{document:#}");
    }
}
