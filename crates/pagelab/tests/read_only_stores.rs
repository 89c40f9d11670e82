//! Tests of stores that the reader cannot write: stores of another user, and stores on a read-only file system.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;

/// Commands that read the stores in the directory `closed`, each with a word that its output must contain.
const READERS: [(&[&str], &str); 6] = [
    (&["list", "comparisons", "--store", "closed/results.sqlite"], "page-touch"),
    (&["show", "1", "--store", "closed/results.sqlite"], "base"),
    (&["study", "status", "study.toml", "--store", "closed/results.sqlite"], "touch"),
    (&["study", "report", "study.toml", "--store", "closed/results.sqlite"], "touch"),
    (&["study", "run", "study.toml", "--dry-run", "--store", "closed/results.sqlite"], "touch"),
    (&["study", "merge", "closed/results.sqlite", "--store", "own/results.sqlite"], "0 comparisons added"),
];

/// A bench with a comparison in a store that has a directory of its own.
fn bench() -> Bench {
    let bench = Bench::new();
    ["closed", "own"].iter().for_each(|name| fs::create_dir(bench.path(name)).unwrap());
    fs::set_permissions(bench.path("own"), fs::Permissions::from_mode(0o777)).unwrap();
    let words = [
        "compare",
        "--store",
        "closed/results.sqlite",
        "-p",
        "default,base",
        "--blocks",
        "1",
        "--min-blocks",
        "1",
        "--",
    ];
    let command = bench.touch();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    bench.pagelab(&[&words[..], &command].concat()).ran().assert_exit(0, &[]);
    let study = "schema = \"pagelab.study/1\"\nname = \"small\"\nquestion = \"?\"\npolicies = [\"default\", \"base\"]\n\
                 [sizes.standard]\n[[workload]]\nname = \"touch\"\ncommand = [\"true\"]\n";
    fs::write(bench.path("study.toml"), study).unwrap();
    bench
}

/// The files of a directory, with their content.
fn content(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn reads_a_store_of_another_user_and_creates_nothing_next_to_it() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let bench = bench();
    let closed = bench.path("closed");
    let before = content(&closed);
    assert_eq!(before.len(), 1, "no log is left: {before:?}");
    for (words, part) in READERS {
        bench.pagelab(words).as_nobody().ran().assert_exit(0, &[]).assert_stdout(&[part]);
        assert!(content(&closed) == before, "{words:?}");
    }
    let compare = ["compare", "--store", "closed/results.sqlite", "-p", "default,base", "--", "true"];
    bench.pagelab(&compare).as_nobody().ran().assert_exit(2, &["cannot write the store", "--store FILE"]);
    // The directory can be written, but the store in it cannot. The reader must leave no log in the directory.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o777)).unwrap();
    bench.pagelab(READERS[1].0).as_nobody().ran().assert_exit(0, &[]).assert_stdout(&["base"]);
    assert!(content(&closed) == before);
}

#[test]
fn a_store_on_a_file_system_that_is_mounted_read_only_is_read() {
    if !needs(&[root(), program("unshare")]) {
        return;
    }
    let bench = bench();
    let closed = bench.word("closed");
    let before = content(&bench.path("closed"));
    for (words, part) in READERS {
        let mut namespace = Command::new("unshare");
        let mounts = format!("mount --bind {closed} {closed} && mount -o remount,bind,ro {closed} && exec \"$@\"");
        namespace.args(["--mount", "sh", "-c", &mounts, "sh"]);
        wrap(&mut namespace, &bench.pagelab(words));
        namespace.ran().assert_exit(0, &[]).assert_stdout(&[part]);
    }
    assert!(content(&bench.path("closed")) == before);
}

/// While the owner writes to a store, the store has a log, and other users read the log through its index. They cannot read a
/// log that was left without an index.
#[test]
fn a_log_is_read_by_its_index_and_refused_without_one() {
    if !needs(&[root(), program("setpriv"), program("python3")]) {
        return;
    }
    let bench = bench();
    let hold = "import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute('UPDATE comparisons SET started_unix_s = started_unix_s + 1')
open('held', 'w')
time.sleep(1000)";
    let mut python = Command::new("python3");
    python.args(["-c", hold, &bench.word("closed/results.sqlite")]).current_dir(bench.path("."));
    let holder = python.stdout(Stdio::null()).begin();
    assert!(within(Duration::from_secs(300), || bench.path("held").exists()), "it was never held");
    let show = || bench.pagelab(READERS[1].0).as_nobody().ran();
    let closed = bench.path("closed");
    assert!(content(&closed).iter().any(|(name, bytes)| name.ends_with("-wal") && !bytes.is_empty()));
    show().assert_exit(0, &[]).assert_stdout(&["base"]);
    holder.kill();
    show().assert_exit(0, &[]).assert_stdout(&["base"]);
    fs::remove_file(closed.join("results.sqlite-shm")).unwrap();
    let before = content(&closed);
    show().assert_exit(2, &["has a write-ahead log", "pagelab list comparisons --store", "copy the store and its log"]);
    assert!(content(&closed) == before);
    // A user who can write to both moves the content of the log into the store.
    bench.pagelab(READERS[0].0).ran().assert_exit(0, &[]);
    show().assert_exit(0, &[]).assert_stdout(&["base"]);
}
