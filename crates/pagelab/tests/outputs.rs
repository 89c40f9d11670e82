//! Tests of output files that a user names: which links and FIFOs are followed, the owner of new files, and output that is written
//! as it is produced.

mod common;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::process::Command;

use common::*;

/// The ID of the user without privileges.
const NOBODY: u32 = 65534;

/// Verbs that write a file. `FILE` is replaced by its path.
const WRITING: [&[&str]; 7] = [
    &["compare", "-p", "default,base", "--html", "FILE", "--", "true"],
    &["compare", "-p", "default,base", "--csv", "FILE", "--", "true"],
    &["demo", "--html", "FILE"],
    &["list", "tcg-regions", "--svg", "FILE"],
    &["list", "tcg-regions", "--html", "FILE"],
    &["table", "build", "-f", "x86-64", "--map", "0:0:4K", "-o", "FILE"],
    &["trace", "import", "--from", "lackey", "trace.txt", "-o", "FILE"],
];

/// A bench whose directory has the mode of /tmp, and a file that must not change.
fn bench() -> (Bench, tempfile::TempDir) {
    let bench = Bench::new();
    fs::set_permissions(bench.path("."), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(bench.path("trace.txt"), "I  04000000,3\n L 1ffeffe000,8\n").unwrap();
    let precious = tempfile::tempdir().unwrap();
    fs::write(precious.path().join("file"), "precious").unwrap();
    (bench, precious)
}

fn writing(bench: &Bench, words: &[&str], file: &str) -> Command {
    let words: Vec<&str> = words.iter().map(|word| if *word == "FILE" { file } else { word }).collect();
    bench.pagelab(&words)
}

#[test]
fn root_follows_no_link_and_waits_for_no_pipe_of_another_user() {
    if !needs(&[root()]) {
        return;
    }
    let (bench, precious) = bench();
    symlink(precious.path().join("file"), bench.path("link")).unwrap();
    symlink(precious.path().join("new"), bench.path("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(bench.path("pipe")).status().unwrap().success());
    ["link", "dangling", "pipe"].iter().for_each(|name| lchown(bench.path(name), Some(NOBODY), None).unwrap());
    for words in WRITING {
        for link in ["link", "dangling"] {
            let parts = ["belongs to user 65534", "links of other users are not followed"];
            writing(&bench, words, link).ran().assert_exit(2, &parts);
        }
        writing(&bench, words, "pipe").ran().assert_exit(2, &["pipe cannot be written", "a pipe of user 65534"]);
    }
    assert_eq!(fs::read_to_string(precious.path().join("file")).unwrap(), "precious");
    assert!(!precious.path().join("new").exists());
    assert!(bench.path("dangling").is_symlink() && bench.path("link").is_symlink());
    assert!(fs::metadata(bench.path("pipe")).unwrap().file_type().is_fifo());
}

#[test]
fn under_sudo_a_file_belongs_to_who_called_it() {
    if !needs(&[root()]) {
        return;
    }
    let (bench, _precious) = bench();
    fs::create_dir(bench.path("home")).unwrap();
    chown(bench.path("home"), Some(4711), Some(4712)).unwrap();
    for words in &WRITING[3..] {
        for file in ["home/file", "shared"] {
            let mut sudo = writing(&bench, words, file);
            sudo.env("SUDO_UID", "4711").env("SUDO_GID", "4712").ran().assert_exit(0, &[]);
            let there = fs::metadata(bench.path(file)).unwrap();
            assert_eq!((there.uid(), there.gid()), (4711, 4712), "{words:?} {file}");
            fs::remove_file(bench.path(file)).unwrap();
        }
    }
}

#[test]
fn pipes_and_descriptors_are_written_as_they_come_and_own_links_are_followed() {
    let (bench, precious) = bench();
    let file = precious.path().join("file");
    symlink(&file, precious.path().join("link")).unwrap();
    let link = precious.path().join("link").display().to_string();
    bench.pagelab(&["list", "tcg-regions", "--svg", &link]).ran().assert_exit(0, &[]);
    let whole = fs::read_to_string(&file).unwrap();
    assert!(whole.starts_with("<svg") && fs::symlink_metadata(link).unwrap().is_symlink());
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ran = bench.pagelab(&["list", "tcg-regions", "--svg", name]).ran();
        ran.assert_exit(0, &[]);
        assert!(ran.stdout.starts_with(&whole) && ran.stdout.len() > whole.len(), "the picture, then the table: {ran}");
    }
    let ran = bench.pagelab(&["list", "tcg-regions", "--svg", "/dev/stderr"]).ran();
    assert_eq!(ran.stderr, whole);
    let gone = "\"$0\" list tcg-regions --svg >(exec true) && \"$0\" list tcg-regions --svg >(cat >&2)";
    let mut shell = Command::new("bash");
    shell.args(["-c", gone, &bench.word("pagelab")]).current_dir(bench.path("."));
    let ran = shell.ran();
    ran.assert_exit(0, &[]);
    assert_eq!(ran.stderr, whole, "a reader that goes is no error, and one that stays gets all");
}

/// Covers the files of a study next to its store, generated files, and the directory into which traces for model machines
/// are recorded.
#[test]
fn root_makes_and_replaces_nothing_through_a_directory_that_another_user_links() {
    if !needs(&[root()]) {
        return;
    }
    let (bench, precious) = bench();
    for link in ["results.shards", "results.traces", "generated"] {
        symlink(precious.path(), bench.path(link)).unwrap();
        lchown(bench.path(link), Some(NOBODY), None).unwrap();
    }
    let study = "schema = \"pagelab.study/1\"\nname = \"beside\"\nquestion = \"?\"\npolicies = [\"default\", \"thp\"]\n\
                 machines = [\"cortex-a53\"]\n[sizes.standard]\nrecorded = 1000\n[[workload]]\nname = \"one\"\ncommand = [\"true\"]\n";
    fs::write(bench.path("beside.toml"), study).unwrap();
    let (file, store) = (bench.word("beside.toml"), bench.store());
    for words in [
        &["study", "run", &file, "--task", "0", "--store", &store][..],
        &["study", "run", &file, "--store", &store],
        &["man", "generated"],
        &["generate", "reference", "generated"],
    ] {
        let ran = bench.pagelab(words).ran();
        assert!(
            ran.code != Some(0) && ran.stderr.contains("links of other users are not followed"),
            "{words:?}: {ran}"
        );
    }
    assert_eq!(fs::read_dir(precious.path()).unwrap().count(), 1, "the file of before");
}

/// Inspects this process and writes a capture of it.
fn capture(bench: &Bench, directory: &str) -> Command {
    bench.pagelab(&["inspect", &std::process::id().to_string(), "--capture", directory])
}

#[test]
fn a_capture_follows_no_link_of_another_user_and_is_not_made_in_a_directory_of_theirs() {
    if !needs(&[root()]) {
        return;
    }
    let (bench, precious) = bench();
    for directory in ["theirs", "home", "home/of-root", "own"] {
        fs::create_dir(bench.path(directory)).unwrap();
    }
    ["theirs", "home"].iter().for_each(|name| chown(bench.path(name), Some(NOBODY), Some(NOBODY)).unwrap());
    for link in ["link", "home/link", "home/of-root/link", "own/proc"] {
        symlink(precious.path(), bench.path(link)).unwrap();
    }
    ["link", "home/link", "own/proc"].iter().for_each(|link| lchown(bench.path(link), Some(NOBODY), None).unwrap());
    for (directory, part) in [
        ("link", "links of other users are not followed"),
        ("link/new", "links of other users are not followed"),
        ("home/link", "links of other users are not followed"),
        ("home/of-root/link", "root does not follow it"),
        ("own", "links of other users are not followed"),
        ("theirs", "belongs to user 65534; name a directory of your own"),
        ("home/new", "belongs to user 65534; name a directory of your own"),
    ] {
        capture(&bench, directory).ran().assert_exit(2, &[part]);
    }
    assert_eq!(fs::read_to_string(precious.path().join("file")).unwrap(), "precious");
    assert_eq!(fs::read_dir(precious.path()).unwrap().count(), 1);
    assert!(!bench.path("home/new").exists() && fs::read_dir(bench.path("theirs")).unwrap().next().is_none());
}

#[test]
fn a_capture_can_be_read_by_its_owner_alone() {
    let bench = Bench::new();
    let pid = std::process::id().to_string();
    for (directory, umask) in [("open", "0"), ("usual", "022")] {
        let line = format!("umask {umask}; exec \"$0\" inspect {pid} --capture {directory}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, &bench.word("pagelab")]).current_dir(bench.path("")).ran().assert_exit(0, &[]);
        let found = Command::new("find").arg(bench.path(directory)).args(["-printf", "%y %m\n"]).ran();
        let kinds: std::collections::BTreeSet<&str> = found.stdout.lines().collect();
        assert_eq!(Vec::from_iter(kinds), ["d 700", "f 600"], "{directory}");
    }
    if !needs(&[root()]) {
        return;
    }
    let mut sudo = capture(&bench, "of-invoker");
    sudo.env("SUDO_UID", "4711").env("SUDO_GID", "4712").ran().assert_exit(0, &[]);
    let owners = Command::new("find").arg(bench.path("of-invoker")).args(["-printf", "%U %G\n"]).ran();
    assert!(owners.stdout.lines().all(|owner| owner == "4711 4712"), "{owners}");
}
