//! Tests of endless input and of system limits: pagelab neither waits nor grows without bound, and escape sequences in
//! arguments do not move the cursor of a terminal.

mod common;

use std::fs;
use std::process::Command;

use common::*;

/// These FIFOs have no writer, so opening one for reading would block forever.
#[test]
fn a_pipe_in_place_of_a_file_is_refused_without_waiting() {
    let bench = Bench::new();
    for name in ["pipe", "pipe.toml"] {
        nix::unistd::mkfifo(&bench.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let trace = bench.word("trace");
    for words in [
        &["trace", "info", "pipe"][..],
        &["trace", "check", "pipe"],
        &["trace", "dump", "pipe"],
        &["trace", "cut", "pipe", "-o", &trace],
        &["sim", "pipe"],
        &["sim", "sweep", "pipe"],
        &["sim", "chase", "-m", "pipe.toml"],
        &["sim", "pipe", "--linux", "pipe.toml"],
        &["table", "check", "pipe", "-f", "x86-64", "--root", "0", "--base", "0"],
        &["show", "1", "--store", "pipe"],
        &["list", "comparisons", "--store", "pipe"],
        &["merge", "pipe"],
        &["study", "merge", "pipe", "--store", "results.sqlite"],
        &["study", "status", "./pipe"],
        &["study", "status", "pipe.toml"],
        &["compare", "--kernel", "pipe", "--", "true"],
        &["compare", "-p", "default,base", "--input", "pipe", "--", "cat"],
        &["compare", "-p", "default,base", "--store", "pipe", "--", "true"],
    ] {
        let ran = bench.pagelab(words).ran();
        ran.assert_exit(2, &["pipe"]);
        assert!(["a pipe", "regular file"].iter().any(|kind| ran.stderr.contains(kind)), "{words:?}: {ran}");
    }
    // The suite is in the directory of a study that names it.
    fs::create_dir(bench.path("suites")).unwrap();
    fs::rename(bench.path("pipe.toml"), bench.path("suites/mine.toml")).unwrap();
    let study = "schema = \"pagelab.study/1\"\nname = \"a\"\nquestion = \"?\"\npolicies = [\"base\", \"thp\"]\n\
                 [sizes.standard]\n[[suite]]\nname = \"mine\"\n";
    fs::write(bench.path("study.toml"), study).unwrap();
    bench.pagelab(&["study", "status", "./study.toml"]).ran().assert_exit(2, &["mine.toml", "found a pipe"]);
}

#[test]
fn a_definition_that_is_too_large_is_refused_before_it_is_read() {
    let bench = Bench::new();
    let file = fs::File::create(bench.path("large.toml")).unwrap();
    file.set_len(1 << 40).unwrap();
    for words in [
        &["study", "status", "./large.toml"][..],
        &["sim", "chase", "-m", "large.toml"],
        &["sim", "trace", "--linux", "large.toml"],
    ] {
        bench.pagelab(words).ran().assert_exit(2, &["large.toml", "at most 4M"]);
    }
    let study = "schema = \"pagelab.study/1\"\nname = \"a\"\nquestion = \"?\"\npolicies = [\"base\", \"thp\"]\n[sizes.standard]\n\
                 [[workload]]\nname = \"w\"\ncommand = [\"{a}\", \"{b}\", \"{c}\"]\n";
    let values = format!("[{}]", (0..1000).map(|value| value.to_string()).collect::<Vec<_>>().join(", "));
    let axes = format!("[workload.axes]\na = {values}\nb = {values}\nc = {values}\n");
    fs::write(bench.path("study.toml"), format!("{study}{axes}")).unwrap();
    for verb in ["status", "report", "run"] {
        bench.pagelab(&["study", verb, "./study.toml"]).ran().assert_exit(2, &["found 16000000000", "at most 100000"]);
    }
}

#[test]
fn threads_and_processes_that_cannot_be_started_are_an_error() {
    if !needs(&[root(), program("setpriv"), program("prlimit")]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("lackey"), "I  1000,4\n L 2000,8\n S 3000,8\n").unwrap();
    bench.pagelab(&["trace", "import", "lackey", "--from", "lackey", "-o", "trace"]).ran().assert_exit(0, &[]);
    let alone = |words: &[&str]| {
        let mut limited = Command::new("prlimit");
        limited.arg("--nproc=1");
        wrap(&mut limited, &bench.pagelab(words));
        limited.as_nobody().ran()
    };
    let no_thread = &["no thread can be started", "Resource temporarily unavailable", "ulimit -u"][..];
    for (words, expected) in [
        (&["sim", "trace", "-p", "base,thp"][..], no_thread),
        (&["sim", "sweep", "trace"], no_thread),
        (&["workload", "copies", "--count", "3", "--", "true"], no_thread),
        (&["workload", "fork-cow", "--bytes", "1M"], &["Resource temporarily unavailable"]),
        (&["compare", "-p", "default,base", "--store", "own.sqlite", "--", "true"], &[]),
        (&["exec", "-p", "default+no-huge", "--", "true"], &["Resource temporarily unavailable"]),
        (&["inspect", "--", "true"], &["Resource temporarily unavailable"]),
    ] {
        let ran = alone(words);
        assert!(!ran.stderr.contains("panicked") && !matches!(ran.code, None | Some(0 | 101)), "{words:?}: {ran}");
        expected.iter().for_each(|part| assert!(ran.stderr.contains(part), "{words:?}: {part}: {ran}"));
    }
}

/// Error messages repeat arguments, also those of the command line parser.
#[test]
fn words_of_the_command_line_reach_no_terminal_as_they_are() {
    let bench = Bench::new();
    let hostile = "\u{1b}[31m\u{7}\u{9b}2J";
    let option = format!("--{hostile}");
    for words in [
        &["sim", hostile][..],
        &[hostile],
        &["sim", &option],
        &["compare", "--blocks", hostile, "--", "true"],
        &["compare", "-p", hostile, "--", "true"],
        &["compare", "-p", "default,base", "--metric", hostile, "--", "true"],
        &["compare", "-p", "default,base", "--", hostile],
        &["study", "status", hostile],
        &["trace", "info", hostile],
        &["show", hostile],
        &["show", "1", "--store", hostile],
        &["inspect", hostile],
        &["table", "decode", "-f", hostile, "0"],
        &["workload", hostile],
    ] {
        let ran = bench.pagelab(words).ran();
        assert!(matches!(ran.code, Some(2 | 126 | 127)), "{words:?}: {ran}");
        let is_plain = |text: &str| text.chars().all(|c| !c.is_control() || c == '\n');
        assert!(is_plain(&ran.stderr) && is_plain(&ran.stdout), "{words:?}: {ran}");
        let escaped = ["\\x1b[31m\\x07\\u009b2J", "\\u{1b}[31m\\u{7}\\u{9b}2J"];
        assert!(escaped.iter().any(|text| ran.stderr.contains(text)), "it is shown: {words:?}: {ran}");
    }
}
