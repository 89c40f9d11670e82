//! Tests of the start of a recorded program, and of errors that are reported before anything is recorded.

use super::terminal::Typist;
use super::*;

#[test]
fn input_and_output_are_the_commands_own() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    std::fs::write(bench.path("input"), "a line\n").unwrap();
    let mut command = record(&bench, &[], &[&path, "echoes"]);
    command.stdin(std::fs::File::open(bench.path("input")).unwrap());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = command.begin().ran();
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "a line\n", "to standard error\n"));
}

#[test]
fn a_terminal_shows_what_was_recorded_and_how_to_simulate_it() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let shown = |options: &[&str]| Typist::at(&record(&bench, options, &[&path, "nothing"])).sees_the_end();
    let whole = shown(&["--no-native-run"]);
    let (trace, instructions) = (bench.word("trace"), info(&bench, "trace")["total"]["instructions"].as_u64().unwrap());
    let line = whole.lines().find(|line| line.contains("simulate it with: ")).unwrap();
    let digits = |text: &str| text.replace(',', "");
    assert!(digits(line).starts_with(&format!("pagelab: {trace}: {instructions} instructions ")), "{line}");
    assert!(line.trim_end().ends_with(&format!("; simulate it with: pagelab sim {trace}")), "{line}");
    assert!(whole.contains(&format!("{trace}: no CPU time of a native run: --no-native-run was given")), "{whole}");
    let part = shown(&["--no-native-run", "--skip", "10"]);
    assert!(part.contains("simulate it with: ") && !part.contains(" instructions, "), "{part}");
}

#[test]
fn hides_the_plugins_variables_from_the_program() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let has = |variable: &str| {
        let mut printed = record(&bench, &[], &["printenv", variable]);
        printed.env("PAGELAB_QEMU_PLUGIN_VERSION", "6").env("OF_THE_PROGRAM", "6").ran().code
    };
    assert_eq!((has("PAGELAB_QEMU_PLUGIN_VERSION"), has("OF_THE_PROGRAM")), (Some(1), Some(0)));
}

#[test]
fn where_shared_memory_is_full_a_program_is_recorded_all_the_same() {
    if !can_record() || !needs(&[common::root(), program("unshare"), program("mount")]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let script = "mount -t tmpfs -o size=4k none /dev/shm && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    common::wrap(&mut command, &record(&bench, &[], &[&path, "threads"]));
    command.ran().assert_exit(0, &[]);
    sound(&bench, "trace");
}

#[test]
fn explains_why_a_program_cannot_be_recorded() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "exact.c", &FREESTANDING);
    let refused = |command: &mut Command, parts: &[&str]| {
        command.ran().assert_exit(2, parts);
    };
    std::fs::write(bench.path("text"), "hello").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path("text"), mode).unwrap();
    refused(&mut record(&bench, &[], &[&bench.word("text")]), &["neither an ELF program nor a script"]);
    refused(&mut record(&bench, &[], &["no-such-program"]), &["no-such-program"]);
    refused(
        &mut record(&bench, &["--arch", "riscv64"], &[&path]),
        &["expected a program for riscv64 (--arch)", "found one for x86_64"],
    );
    refused(&mut record(&bench, &["--sysroot", "/nowhere"], &[&path]), &["/nowhere", "--sysroot"]);
    refused(&mut record(&bench, &["--window", "5"], &[&path]), &["--skip"]);
    let mut without = record(&bench, &[], &[&path]);
    refused(
        without.env("PAGELAB_QEMU_PLUGIN", "/nowhere.so"),
        &["/nowhere.so", "build it in a checkout (cargo build --release)"],
    );
    let mut elsewhere = bench.pagelab(&["record", "-o", "/nowhere/trace", "--", &path]);
    refused(elsewhere.env("PAGELAB_QEMU_PLUGIN", plugin()), &["/nowhere/trace", "cannot be written", "-o"]);
    let mut no_plugin = record(&bench, &["--plugin", &bench.word("text")], &[&path]);
    refused(&mut no_plugin, &["before anything was recorded"]);
    assert!(!bench.path("trace").exists());
    // PATH contains only the program's own directory, so that QEMU is not found.
    let mut nothing = record(&bench, &[], &[&path]);
    refused(nothing.env("PATH", bench.path("")), &["qemu-x86_64 is not installed", "apt-get install qemu-user"]);
    let mute = bench.script("qemu-x86_64", "echo qemu-x86_64 version 10.0.2");
    let mut built_without = record(&bench, &[], &[&path]);
    refused(built_without.env("PATH", bench.path("")), &[&mute, "10.0.2", "without plugins", "--enable-plugins"]);
    // This QEMU is newer than the tested versions, and rejects the plugin.
    let (version, help) = ("--version) echo qemu-x86_64 version 12.0.1", "--help) echo '-plugin x'");
    let newer = bench.script("qemu-x86_64", &format!("case $1 in {version};; {help};; *) exit 9;; esac"));
    let mut too_new = record(&bench, &[], &[&path]);
    let expected = [&newer, "status: 9", "12.0.1 is newer", "put one of 7.2 to 11.1 first in PATH"];
    refused(too_new.env("PATH", bench.path("")), &expected);
    assert!(!bench.path("trace").exists());
}

#[test]
fn an_old_trace_stays_until_something_is_recorded() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    // The program needs a dynamic linker that does not exist.
    let unstartable = compiled(&bench, "gcc", "address_space.c", &["-Wl,--dynamic-linker=/nowhere/ld.so"]);
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let text = bench.word("text");
    std::fs::write(&text, "hello").unwrap();
    let mute = bench.path("mute");
    std::fs::create_dir(&mute).unwrap();
    std::fs::rename(bench.script("qemu-x86_64", "echo qemu-x86_64 version 10.0.2"), mute.join("qemu-x86_64")).unwrap();
    let system = ["--system"];
    let no_machine = ["qemu-system-x86_64", "-M", "no-such-machine"];
    let has_system = needs(&[recording("qemu-system-x86_64")]);
    for old in [Some("what was there"), None] {
        let refused = |command: &mut Command, message: &str| {
            if let Some(old) = old {
                std::fs::write(bench.path("trace"), old).unwrap();
            }
            command.ran().assert_exit(2, &[message]);
            assert_eq!(std::fs::read_to_string(bench.path("trace")).ok().as_deref(), old, "{message}");
            let _ = std::fs::remove_file(bench.path("trace"));
        };
        refused(&mut record(&bench, &["--plugin", &text], &[&path, "threads"]), "before anything was recorded");
        refused(&mut record(&bench, &[], &[&unstartable]), "before anything was recorded");
        refused(&mut record(&bench, &["--lossless"], &[&unstartable]), "before anything was recorded");
        refused(record(&bench, &[], &[&path, "threads"]).env("PATH", &mute), "without plugins");
        if has_system {
            refused(&mut record(&bench, &system, &no_machine), "before anything was recorded");
        }
    }
    // An existing file is overwritten in place, even if the path leads through links or the file has other hard links.
    std::fs::write(bench.path("old"), "old".repeat(1 << 20)).unwrap();
    std::fs::hard_link(bench.path("old"), bench.path("other name")).unwrap();
    std::os::unix::fs::symlink(bench.path("old"), bench.path("trace")).unwrap();
    record(&bench, &[], &[&path, "threads"]).ran().assert_exit(0, &[]);
    for name in ["trace", "other name"] {
        sound(&bench, name);
    }
}
