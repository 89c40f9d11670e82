//! Tests of invalid input, and of hosts on which pagelab cannot work: the message must contain a remedy, and the exit code
//! must be right.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::*;

/// Runs `compare -p default,base` with these options and this command.
fn compare(options: &[&str], command: &[&str]) -> Ran {
    compared(&Bench::new(), options, command)
}

fn compared(bench: &Bench, options: &[&str], command: &[&str]) -> Ran {
    bench.compare(&[&["-p", "default,base"][..], &QUICK, options].concat(), &words_of(command)).ran()
}

#[test]
fn arguments_that_cannot_be_read_end_with_2_and_say_what_was_expected() {
    let bench = Bench::new();
    for (options, parts) in [
        (&["-p", "thq"][..], &["there is no policy \"thq\"", "nearest is \"thp\""][..]),
        (&["-p", "thp+no-gards"], &["\"no-gards\"", "nearest is \"no-guards\""]),
        (&["--precision", "0"], &["--precision", "more than 0%"]),
        (&["--precision", "-1"], &["--precision", "more than 0%"]),
        (&["--precision", "much"], &["--precision", "such as 1%"]),
        (&["--band", "100%"], &["--band", "less than 100%"]),
        (&["--max-time", "3"], &["--max-time", "90s, 10m or 1h"]),
        (&["--max-time=-3s"], &["--max-time", "90s, 10m or 1h"]),
        (&["--blocks", "0"], &["--blocks", "1..=100000"]),
        (&["--hugetlb-pool", "3x"], &["--hugetlb-pool", "64K, 2M or 1G"]),
        (&["--hugetlb-pool", "99999999999999G"], &["--hugetlb-pool"]),
        (&["--seed", "-"], &["--seed"]),
        (&["--metric", "rps"], &["--metric", "NAME=REGEX"]),
        (&["--metric", "rps=["], &["--metric", "regex"]),
        (&["--metric", "rps=x"], &["exactly one capture group"]),
        (&["--metric", "apples=(x)"], &["apples:higher=REGEX or apples:lower=REGEX"]),
        (&["--metric", "a_ms=(x)", "--metric", "a_ms=(y)"], &["--metric a_ms", "duplicate name"]),
        (&["--metric", "wall_s=(x)"], &["wall_s", "taken"]),
        (&["--repeat-inside", "x"], &["exactly one capture group"]),
        (&["--primary", "blah"], &["no metric \"blah\"", "wall, cpu"]),
        (&["--user", "no-such-user"], if is_root() { &["no-such-user", "getent passwd"] } else { &["only root"] }),
        (&["--input", "/nonexistent/input"], &["--input /nonexistent/input", "No such file"]),
        (&["--html", "/nonexistent/report.html"], &["/nonexistent/report.html cannot be written", "No such file"]),
        (&["--csv", "/nonexistent/samples.csv"], &["/nonexistent/samples.csv cannot be written"]),
        (&["--html", "/tmp"], &["/tmp cannot be written", "directory"]),
        (&["--server", "sleep 9"], &["--ready"]),
        (&["--ready", "true"], &["--server"]),
        (&["--server", "'", "--ready", "true"], &["--server", "as for a shell"]),
        (&["--server", "", "--ready", "true"], &["--server", "as for a shell"]),
        (&["--no-such-option"], &["--no-such-option"]),
    ] {
        let options = [&["-p", "default,base"], options].concat();
        bench.compare(&options, &words_of(&["true"])).ran().assert_exit(2, parts);
    }
    for words in
        [&["compare", "-p", "default,base"][..], &["compare", "-p", "default,base", "--"], &["exec", "-p", "thp"]]
    {
        bench.pagelab(words).ran().assert_exit(2, &["required", "<COMMAND>"]);
    }
    bench
        .pagelab(&["compare", "-p", "default", "--", "true"])
        .ran()
        .assert_exit(2, &["default alone is no comparison", "--aa"]);
    bench
        .pagelab(&["compare", "--kernel", "/boot/vmlinuz", "-p", "default", "--", "true"])
        .ran()
        .assert_exit(2, &["one kernel under default alone is no comparison"]);
    bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &words_of(&["true"])).ran().assert_exit(0, &[]);
    bench.pagelab(&["show", "9", "--store", &bench.store()]).ran().assert_exit(2, &["no comparison 9"]);
}

/// A command that only reads a store does not create it.
#[test]
fn a_store_that_is_not_there_is_not_made_to_be_read() {
    let bench = Bench::new();
    let store = bench.word("no/such.sqlite");
    let listed = bench.pagelab(&["list", "comparisons", "--store", &store]).ran();
    listed.assert_exit(0, &[]).assert_stdout(&["no comparison is stored in", &store]);
    let shown = bench.pagelab(&["show", "1", "--store", &store]).ran();
    shown.assert_exit(2, &["there is no store", &store, "--store FILE"]);
    assert!(!bench.path("no").exists());
}

#[test]
fn nothing_is_stored_of_what_never_began() {
    let bench = Bench::new();
    compared(&bench, &["--html", "/nonexistent/report.html"], &["true"]).assert_exit(2, &[]);
    assert!(bench.listed().is_empty());
}

#[test]
fn a_command_that_cannot_run_ends_as_in_a_shell_and_with_its_name() {
    let bench = Bench::new();
    let plain = bench.word("plain");
    fs::write(&plain, "text").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let broken = bench.word("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    for (command, code, parts) in [
        ("no-such-command", 127, &["\"no-such-command\" was not found", "PATH"][..]),
        ("/nonexistent/command", 127, &["\"/nonexistent/command\" was not found"]),
        (&plain, 126, &["is not executable", "chmod +x"]),
        (&broken, 126, &["its interpreter \"/no/such/interpreter\" does not exist", "correct the #! line"]),
        ("/tmp", 126, &["\"/tmp\" is not executable", "it is a directory; name a program in it"]),
        ("", 127, &["not"]),
    ] {
        let ran = compare(&[], &[command]);
        ran.assert_exit(code, parts);
        assert_eq!(ran.stderr.contains("chmod"), command == plain, "a wrong remedy: {ran}");
        for policy in ["default", "default+no-huge"] {
            bench.pagelab(&["exec", "-p", policy, "--", command]).ran().assert_exit(code, parts);
        }
        if command.starts_with('/') {
            let shell = std::process::Command::new("sh").args(["-c", "\"$0\"", command]).output().unwrap();
            // If the interpreter of a script is missing, shells differ in the exit code.
            assert!(shell.status.code() == Some(code) || command == broken, "{command}: {shell:?}");
        }
    }
    // Another user's permissions are known only when the command is started.
    if needs(&[("root", is_root())]) {
        let private = bench.script("private", ":");
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        compare(&["--user", "nobody"], &[&private]).assert_exit(126, &["private"]);
        bench
            .pagelab(&["exec", "-p", "default", "--user", "nobody", "--", &private])
            .ran()
            .assert_exit(126, &["private"]);
    }
}

#[test]
fn a_command_that_fails_ends_with_1_and_its_last_words() {
    let ran = compare(&[], &["sh", "-c", "echo printed; echo the disk is on fire >&2; exit 7"]);
    ran.assert_exit(1, &["last words: the disk is on fire", "exit status 7"]);
    let two = compare(&[], &["sh", "-c", "printf 'one\\ntwo\\n' >&2; exit 7"]);
    assert!(two.stderr.contains("one\ntwo\n"), "{two}");
    if needs(&[program("strace")]) {
        let traced = compare(&[], &["strace", "true"]);
        traced.assert_exit(1, &["traces processes itself (ptrace)", "which may be why", "without the debugger"]);
        assert!(!traced.stderr.contains("by itself"), "{traced}");
    }
    compare(&[], &["sh", "-c", "kill -SEGV $$"]).assert_exit(1, &["killed by signal 11"]);
    compare(&[], &["sh", "-c", "kill -KILL $$"]).assert_exit(1, &["killed by signal 9"]);
    let hostile = compare(&[], &["sh", "-c", r"printf '\033[2Jclear' >&2; exit 1"]);
    assert!(!hostile.assert_exit(1, &["clear"]).stderr.contains('\u{1b}'), "{hostile}");
}

#[test]
fn a_figure_that_is_not_printed_ends_with_1_and_what_was_printed() {
    let metric = ["--metric", "rps=([a-z0-9.]+) requests"];
    compare(&metric, &["echo", "apples"]).assert_exit(1, &["--metric rps", "matches", "apples"]);
    compare(&metric, &["true"]).assert_exit(1, &["--metric rps", "printed nothing"]);
    compare(&metric, &["echo", "many requests"]).assert_exit(1, &["--metric rps", "expected a number, found \"many\""]);
    compare(&metric, &["echo", "nan requests"]).assert_exit(1, &["expected a number, found \"nan\""]);
    compare(&["--repeat-inside", "took (.*) s"], &["true"]).assert_exit(1, &["--repeat-inside", "printed nothing"]);
    let zero = compare(&["--metric", "rps=([0-9]+)", "--primary", "rps"], &["echo", "0"]);
    zero.assert_exit(1, &["rps is 0", "--primary"]);
}

/// The program prints PR_SET_THP_DISABLE as it sees it. The policy `base` sets it, so the answer differs.
#[test]
fn a_wrong_answer_under_one_policy_ends_with_1() {
    if !needs(&[(
        "Linux 5.0, which tells THP_enabled",
        fs::read_to_string("/proc/self/status").unwrap().contains("THP_enabled"),
    )]) {
        return;
    }
    let command = ["grep", "THP_enabled", "/proc/self/status"];
    let bench = Bench::new();
    let ran = bench
        .compare(&[&["-p", "default,base", "--aa", "--check-output"][..], &QUICK].concat(), &words_of(&command))
        .ran();
    ran.assert_exit(1, &["changed the answer"]).assert_stdout(&["base gave a wrong answer", "sha256"]);
    let document = bench.stored(1);
    assert_eq!(arm(&document, "base")["outcome"]["outcome"], "wrong_answer");
    assert_ne!(arm(&document, "default (again)")["outcome"]["outcome"], "wrong_answer");
    assert!(document["result"]["best"].as_array().is_none_or(|best| !best.contains(&1.into())), "{document:#}");
    compare(&[], &command).assert_exit(0, &[]).assert_stdout(&["base"]);
    let changing = compare(&["--check-output"], &["cat", "/proc/sys/kernel/random/uuid"]);
    changing.assert_exit(1, &["the answer changes from one trial to another"]);
}

#[test]
fn a_store_that_cannot_be_written_ends_with_2_before_anything_is_run() {
    let bench = Bench::new();
    let mark = bench.word("mark");
    let to = |store: &str| bench.pagelab(&["compare", "-p", "default,base", "--store", store, "--", "touch", &mark]);
    let text = bench.word("text");
    fs::write(
        &text,
        "not a database, whatever its name says; and long enough for a header of SQLite, of 100 bytes or so\n",
    )
    .unwrap();
    to(&text).ran().assert_exit(2, &["is not a pagelab store", "--store FILE"]);
    assert!(fs::read_to_string(&text).unwrap().starts_with("not a database"), "left as it is");
    to(&bench.word("no/such/directory")).ran().code.expect("no crash");
    to("/proc/store").ran().assert_exit(2, &["/proc/store", "--store FILE"]);
    to("/tmp").ran().assert_exit(2, &["/tmp", "--store FILE"]);
    fs::remove_file(&mark).ok();

    if needs(&[root(), program("setpriv")]) {
        let closed = bench.path("closed");
        fs::create_dir(&closed).unwrap();
        let store = bench.word("closed/results.sqlite");
        to(&store).as_nobody().ran().assert_exit(2, &[&store, "Permission denied", "--store FILE"]);
        assert!(!bench.path("mark").exists(), "nothing was run");
    }
}

#[test]
fn a_corrupt_store_is_left_as_it_is() {
    let bench = Bench::new();
    compared(&bench, &[], &["true"]).assert_exit(0, &[]);
    let whole = fs::read(bench.store()).unwrap();
    for (from, to) in [(0, 16), (4096, 16384), (12288, 65536), (100, whole.len())] {
        let mut torn = whole.clone();
        let end = to.min(torn.len());
        torn[from.min(end)..end].fill(0xa5);
        fs::write(bench.store(), &torn).unwrap();
        let ran = bench.pagelab(&["list", "comparisons", "--store", &bench.store()]).ran();
        assert!(!ran.stderr.contains("panicked") && matches!(ran.code, Some(0 | 2)), "{from}..{to}: {ran}");
        let ran = compared(&bench, &[], &["true"]);
        if ran.code != Some(0) {
            ran.assert_exit(2, &["left as it is", "move it aside"]);
        }
        assert!(!ran.stderr.contains("panicked"), "{from}..{to}: {ran}");
    }
    fs::write(bench.store(), &whole[..whole.len() / 2]).unwrap();
    bench.pagelab(&["show", "1", "--store", &bench.store()]).ran().assert_exit(2, &["damaged"]);
}

/// Runs a command with a file system of this size mounted at the bench's `small`.
fn on_a_small_disk(bench: &Bench, kib: u32, command: &Command) -> Ran {
    let small = bench.word("small");
    fs::create_dir_all(&small).unwrap();
    in_namespace(&format!("mount -t tmpfs -o size={kib}k none {small}"), command)
}

/// Runs a command in a mount namespace of its own, after these mounts.
fn in_namespace(mounts: &str, command: &Command) -> Ran {
    let mut outer = Command::new("unshare");
    outer.args(["--mount", "sh", "-c", &format!("{mounts} && exec \"$@\""), "sh"]);
    wrap(&mut outer, command);
    outer.ran()
}

#[test]
fn a_full_disk_ends_with_2_and_loses_nothing_that_was_printed() {
    if !needs(&[root(), program("unshare")]) {
        return;
    }
    let bench = Bench::new();
    let store = bench.word("small/results.sqlite");
    let compare = |blocks: &str| {
        let words = [
            "compare",
            "-p",
            "default,base",
            "--store",
            &store,
            "--blocks",
            blocks,
            "--min-blocks",
            blocks,
            "--",
            "true",
        ];
        bench.pagelab(&words)
    };
    on_a_small_disk(&bench, 16, &compare("1")).assert_exit(2, &["no space left for the store", "--store FILE"]);
    let ran = on_a_small_disk(&bench, 200, compare("30").env("TMPDIR", "/nonexistent"));
    ran.assert_exit(2, &["not completely stored", "no space left", "cannot be set aside"])
        .assert_stdout(&["default", "base"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let ran = on_a_small_disk(&bench, 200, compare("30").env("TMPDIR", elsewhere.path()));
    ran.assert_exit(2, &["no space left", "set aside", "number 1 of", "/pagelab-set-aside-"])
        .assert_stdout(&["default", "base"]);
}

#[test]
fn reports_read_only_settings_with_the_command() {
    if !needs(&[root(), program("unshare")]) {
        return;
    }
    let bench = Bench::new();
    let mounts = "mount --bind /sys /sys && mount -o remount,bind,ro /sys";
    let _alone = Alone::wait();
    let ran = in_namespace(mounts, &bench.compare(&["-p", "default,mthp-64k,hugetlb-2m"], &words_of(&["true"])));
    ran.assert_exit(3, &["nothing to compare", "read-only", "echo ", "nr_overcommit_hugepages"]);
    let ran = in_namespace(
        mounts,
        &bench.compare(&[&["-p", "default,base,mthp-64k", "--full"][..], &QUICK].concat(), &bench.touch()),
    );
    ran.assert_exit(0, &[]).assert_stdout(&["mthp-64k is unsupported", "read-only"]);
}

#[test]
fn hidden_proc_is_no_obstacle_or_is_reported() {
    if !needs(&[root(), program("unshare"), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let hidden = "mount -t proc -o hidepid=2 proc /proc";
    let compare = bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &bench.touch());
    let _lease_guard = LeaseGuard::wait();
    in_namespace(hidden, &compare.as_nobody()).assert_exit(0, &[]);
    assert_eq!(arm(&bench.stored(1), "base")["verdict"]["holding"], "held");
    in_namespace("mount -t tmpfs none /proc", &compare).assert_exit(2, &["cannot read /proc/", "mount /proc"]);
}

#[test]
fn reports_a_program_that_is_already_traced() {
    if !needs(&[program("strace")]) {
        return;
    }
    let bench = Bench::new();
    let under_strace = |pagelab: &Command| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null"]);
        wrap(&mut strace, pagelab);
        strace.ran()
    };
    let already = ["strace (process ", "one tracer at most", "run pagelab without it"];
    let compared = under_strace(&bench.compare(&["-p", "default,base"], &words_of(&["true"])));
    compared.assert_exit(3, &["nothing to compare"]).assert_exit(3, &already);
    under_strace(&bench.pagelab(&["exec", "-p", "base+prefault", "--", "true"])).assert_exit(3, &already);
}

/// The message says that the output could not be printed. Files are still written.
#[test]
fn a_full_standard_output_ends_with_2() {
    let bench = Bench::new();
    let full = |words: &[&str]| {
        let output = fs::File::options().write(true).open("/dev/full").unwrap();
        bench.pagelab(words).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).begin().ran()
    };
    let expected = ["standard output cannot be written", "No space left"];
    full(&["list", "workloads"]).assert_exit(2, &expected);
    full(&["workload", "chase", "--bytes", "64K", "--steps", "10"]).assert_exit(2, &expected);
    let (store, html) = (bench.store(), bench.word("report.html"));
    let options = ["compare", "--store", &store, "--html", &html, "-p", "default,base", "--blocks", "1", "--", "true"];
    full(&options).assert_exit(2, &expected);
    assert!(fs::read_to_string(&html).unwrap().ends_with("</html>\n"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let bench = Bench::new();
    let program = bench.word("pagelab");
    let store = bench.store();
    for (verb, code) in [
        (format!("{program} compare --store {store} -p default,base --blocks 1 --json -- true"), 0),
        (format!("{program} compare --store {store} -p default,base --blocks 1 -- false 2>&1"), 1),
        (format!("{program} list policies"), 0),
        (format!("{program} doctor"), 0),
        (format!("{program} show 1 --store {store} --json"), 0),
    ] {
        // The reader has closed the pipe before the first word is written.
        let script = format!("( sleep 0.3; {verb} 3>&-; echo $? >&3 ) | true");
        let output =
            Command::new("bash").args(["-c", &format!("{{ {script}; }} 3>&1")]).stdin(Stdio::null()).output().unwrap();
        let ran = Ran::of(&output);
        assert_eq!(ran.stdout.trim(), code.to_string(), "{verb}: {ran}");
        assert!(!ran.stderr.contains("panicked"), "{verb}: {ran}");
    }
}
