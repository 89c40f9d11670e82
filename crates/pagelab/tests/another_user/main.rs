//! Commands that run as another user: nothing of root's reaches them, neither its terminal, nor its environment, nor a
//! privilege by exec; and they are used as before.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/terminal.rs"]
mod terminal;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Bench, QUICK, Runs, needs, program, root, send, shell, within, words_of};
use terminal::{PATIENCE, Typist};

/// One that is traced, one that is not.
const POLICIES: [&str; 2] = ["base", "default+no-huge"];
/// As whom.
const NOBODY: [&str; 2] = ["--user", "nobody"];

/// A bench with a compiled program of this directory, which everybody can execute.
fn bench_with(name: &str, mode: u32) -> (Bench, String) {
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let compiled = bench.path(name);
    let status = Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap();
    assert!(status.success());
    fs::set_permissions(&compiled, Permissions::from_mode(mode)).unwrap();
    let word = bench.word(name);
    (bench, word)
}

fn can_become_another() -> bool {
    needs(&[root(), program("gcc"), program("setsid")])
}

/// `pagelab exec` as nobody.
fn exec(bench: &Bench, policy: &str, command: &[&str]) -> Command {
    bench.pagelab(&[&["exec", "-p", policy][..], &NOBODY, &["--"], command].concat())
}

/// A shell with job control at a terminal.
fn interactive(bench: &Bench) -> Typist {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]).current_dir(bench.path("")).env("HOME", bench.path(""));
    bash.env("PS1", "NEXT> ").env("HISTFILE", "/dev/null").env_remove("SUDO_UID");
    let mut typist = Typist::at(&bash);
    typist.sees("NEXT> ");
    typist.types("bind 'set enable-bracketed-paste off'\n");
    typist.sees("off'");
    typist.sees("NEXT> ");
    typist
}

/// The session in what `standing` says last.
fn session(said: &str) -> Option<u32> {
    said.trim_end().rsplit_once("session=")?.1.parse().ok()
}

// ---- the session and its terminal ----

/// The finding: a program of nobody's had the shell of root execute a command.
#[test]
fn what_another_user_runs_types_nothing_into_the_shell() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, types) = bench_with("types", 0o755);
    for policy in POLICIES {
        let mut typist = interactive(&bench);
        let pagelab = bench.word("pagelab");
        typist.types(&format!(
            "exec 7</dev/tty; {pagelab} exec -p {policy} --user nobody -- {types} 'echo at''tacked'\n"
        ));
        typist.sees("nobody");
        typist.sees("NEXT> ");
        typist.types("echo to the e''nd\n");
        let shown = typist.sees("to the end");
        assert!(!shown.contains("attacked"), "{policy}: {shown}");
        assert!(!shown.contains("terminal 7"), "{policy}: it has another descriptor of the terminal: {shown}");
    }
}

#[test]
fn without_a_terminal_among_its_streams_a_command_has_none() {
    if !can_become_another() {
        return;
    }
    let (bench, standing) = bench_with("standing", 0o755);
    let expected = "it user=65534 for=65534 gains-nothing=1 terminal=none streams=000 session=";
    for policy in POLICIES {
        for as_whom in [&NOBODY[..], &[]] {
            let file = bench.word("said");
            // As under sudo, where nobody is named.
            let words = [&[bench.word("pagelab").as_str(), "exec", "-p", policy][..], as_whom].concat().join(" ");
            let line = format!("{words} -- {standing} it </dev/null >{file} 2>&1");
            let mut redirected = Command::new("sh");
            redirected.args(["-c", &line]).env("SUDO_UID", "65534").current_dir(bench.path(""));
            let mut typist = Typist::at(&redirected);
            assert!(typist.command.wait().success(), "{policy} {as_whom:?}");
            let said = fs::read_to_string(&file).unwrap();
            assert!(said.contains(expected), "{policy} {as_whom:?}: {said}");
            assert_ne!(session(&said), Some(typist.command.id()), "{policy} {as_whom:?}: {said}");
        }
    }
}

#[test]
fn everything_that_a_comparison_runs_is_apart_and_gains_nothing() {
    if !can_become_another() {
        return;
    }
    // Set user id root: what executes it would have all privileges.
    let (bench, standing) = bench_with("standing", 0o4755);
    let file = bench.word("said");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let said = |name: &str| format!("{standing} {name} {file}");
    let up = bench.word("up");
    let server = format!("sh -c '{}; touch {up}; sleep 600'", said("server"));
    let ready = format!("sh -c '{}; test -e {up}'", said("ready"));
    let prepare = format!("sh -c '{}; rm -f {up}'", said("prepare"));
    let options = ["-p", "default,base", "--server", &server, "--ready", &ready, "--prepare", &prepare];
    let client = words_of(&[&standing, "client", &file]);
    let mut typist = Typist::at(&bench.compare(&[&options[..], &NOBODY, &QUICK].concat(), &client));
    let shown = typist.sees_the_end();
    assert!(typist.command.wait().success(), "{shown}");
    let lines = fs::read_to_string(&file).unwrap();
    for name in ["server", "ready", "prepare", "client"] {
        let expected = format!("{name} user=65534 for=65534 gains-nothing=1 terminal=none streams=000");
        let mut of_it = lines.lines().filter(|line| line.split(' ').next() == Some(name)).peekable();
        assert!(of_it.peek().is_some(), "no {name} in {lines}");
        of_it.for_each(|line| {
            assert!(line.starts_with(&expected), "{line}");
            assert_ne!(session(line), Some(typist.command.id()), "{line}");
        });
    }
}

#[test]
fn a_terminal_given_as_input_is_another_one_too() {
    if !can_become_another() {
        return;
    }
    let (bench, standing) = bench_with("standing", 0o755);
    let file = bench.word("said");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let options = [&["-p", "default,base", "--input", "/dev/tty"][..], &NOBODY, &QUICK].concat();
    let mut typist = Typist::at(&bench.compare(&options, &words_of(&[&standing, "it", &file])));
    let shown = typist.sees_the_end();
    assert!(typist.command.wait().success(), "{shown}");
    let lines = fs::read_to_string(&file).unwrap();
    assert!(
        lines.lines().count() > 3 && lines.lines().all(|line| line.contains("terminal=some streams=100")),
        "{lines}"
    );
}

// ---- use ----

#[test]
fn keys_sizes_and_ends_are_relayed_once() {
    if !can_become_another() {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for policy in POLICIES {
        let mut typist = Typist::at(&exec(&bench, policy, &[&keys]));
        typist.sees("size 30x90");
        typist.sees("ready\r");
        typist.types("\x03");
        typist.sees("interrupt 1");
        typist.types("words\n");
        typist.sees("line words");
        typist.resizes(11, 22);
        typist.sees("size 11x22");
        typist.types("\x04");
        let shown = typist.sees_the_end();
        assert!(shown.contains("end after 1"), "{policy}: {shown}");
        assert!(typist.command.wait().success());
    }
}

#[test]
fn as_the_same_user_the_terminal_is_the_same_and_a_key_arrives_once() {
    if !needs(&[program("gcc"), program("setsid")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for policy in POLICIES {
        let mut typist = Typist::at(&bench.pagelab(&["exec", "-p", policy, "--", &keys]));
        typist.sees("ready\r");
        typist.types("\x03");
        typist.sees("interrupt 1");
        typist.types("\x04");
        typist.sees("end after 1");
        assert!(typist.command.wait().success(), "{policy}");
    }
}

/// Its terminal is still pagelab's, which passes on what is typed there.
#[test]
fn a_key_reaches_a_command_without_a_terminal_once() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for policy in POLICIES {
        let mut typist = interactive(&bench);
        let (pagelab, file) = (bench.word("pagelab"), bench.path(&format!("said-{policy}")));
        let said = |text: &str| within(PATIENCE, || fs::read_to_string(&file).is_ok_and(|all| all.contains(text)));
        let line =
            format!("{pagelab} exec -p {policy} --user nobody -- {keys} wait </dev/null >{} 2>&1\n", file.display());
        typist.types(&line);
        assert!(said("ready"), "{policy}");
        typist.types("\x03");
        assert!(said("interrupt 1"), "{policy}");
        typist.types("\x1a");
        typist.sees("Stopped");
        typist.sees("NEXT> ");
        let of_keys = common::processes_with(&format!("{keys} wait"));
        let (command, _) = of_keys.iter().find(|(_, line)| line.starts_with(&keys)).expect("the command");
        common::await_stop(*command);
        typist.types("fg\n");
        // The shell names the job before it gives it the terminal; when the command goes on it has done so.
        assert!(within(PATIENCE, || !common::stands(*command)), "{policy}");
        typist.types("\x03");
        assert!(said("interrupt 2"), "{policy}");
        send("TERM", *command);
        assert!(said("end after 2"), "{policy}");
    }
}

#[test]
fn all_that_a_command_writes_is_shown_before_pagelab_goes_on() {
    if !can_become_another() {
        return;
    }
    let bench = Bench::new();
    for policy in POLICIES {
        let mut typist = Typist::at(&exec(&bench, policy, &["seq", "30000"]));
        let shown = typist.sees_the_end();
        let numbers: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!((numbers.len(), numbers.last()), (30_000, Some(&"30000")), "{policy}");
        let mut typist = Typist::at(&exec(&bench, policy, &["sh", "-c", "printf 'last words'; exit 7"]));
        assert_eq!(typist.sees_the_end(), "last words", "{policy}");
        assert_eq!(typist.command.wait().code(), Some(7), "{policy}");
        let mut typist = Typist::at(&exec(&bench, policy, &["sh", "-c", "kill -USR1 $$"]));
        assert_eq!(typist.command.wait().code(), Some(128 + 10), "{policy}");
        let mut typist = Typist::at(&exec(&bench, policy, &["/dev/null"]));
        let shown = typist.sees_the_end();
        assert!(shown.contains("not executable"), "{policy}: {shown}");
    }
}

#[test]
fn streams_that_are_no_terminals_stay_what_they_are() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, standing) = bench_with("standing", 0o755);
    let pagelab = bench.word("pagelab");
    for policy in POLICIES {
        let mut typist = interactive(&bench);
        let exec = format!("{pagelab} exec -p {policy} --user nobody --");
        typist.types(&format!("echo piped | {exec} sh -c 'cat; {standing} it'\n"));
        typist.sees("piped\r");
        typist.sees("terminal=some streams=011");
        typist.sees("NEXT> ");
        typist.types(&format!("{exec} {standing} it | cat\n"));
        typist.sees("terminal=some streams=101");
        typist.sees("NEXT> ");
        // A password is asked for at the terminal, whatever the input is.
        typist.types(&format!("echo piped | {exec} sh -c 'echo ask; read word </dev/tty; echo the word is $word'\n"));
        typist.sees("ask\r");
        typist.types("secret\n");
        typist.sees("the word is secret");
        typist.sees("NEXT> ");
    }
}

#[test]
fn a_shell_stops_and_resumes_it() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for policy in POLICIES {
        let mut typist = interactive(&bench);
        let line = format!("{} exec -p {policy} --user nobody --", bench.word("pagelab"));
        typist.types(&format!("{line} {keys}\n"));
        typist.sees("ready\r");
        for word in ["once", "again"] {
            typist.types("\x1a");
            typist.sees("Stopped");
            typist.sees("NEXT> ");
            typist.types("fg\n");
            typist.sees("nobody");
            typist.types(&format!("{word}\n"));
            typist.sees(&format!("line {word}"));
        }
        typist.types("\x04");
        typist.sees("end after 0");
        typist.sees("NEXT> ");
        // What reads in the background is stopped, by the name that a shell has for it.
        typist.types(&format!("set -b; {line} cat &\n"));
        typist.sees("Stopped");
        typist.types("fg\n");
        typist.sees("cat\r\n");
        typist.types("typed\n");
        typist.sees("typed\r\ntyped\r\n");
        typist.types("\x04"); // before it is in front this key would mean the end to pagelab's terminal
        typist.sees("NEXT> ");
    }
}

/// Also where it has no time to: the process between the terminals does it then.
#[test]
fn every_end_gives_the_terminal_its_modes_back_and_leaves_nothing() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for (policy, signal) in
        POLICIES.iter().flat_map(|policy| ["TERM", "HUP", "QUIT", "KILL"].map(|signal| (policy, signal)))
    {
        // A shell that does not touch the modes, and so does not give them back either.
        let line = format!("{} exec -p {policy} --user nobody -- {keys}; echo over; sleep 600", bench.word("pagelab"));
        let mut sh = Command::new("sh");
        sh.args(["-c", &line]).current_dir(bench.path("")).env_remove("SUDO_UID");
        let mut typist = Typist::at(&sh);
        typist.sees("ready\r");
        assert!(!typist.is_cooked(), "{policy} {signal}: keys are passed on untouched");
        let ours = common::processes_with(&format!("--user nobody -- {keys}"));
        let is_pagelab = |line: &str| line.starts_with(&bench.word("pagelab"));
        // The process between the terminals has the same command line, and is pagelab's child.
        let pagelab =
            ours.iter().filter(|(_, line)| is_pagelab(line)).find(|(pid, _)| parent(*pid) == typist.command.id());
        send(signal, pagelab.expect("pagelab").0);
        typist.sees("over");
        assert!(within(Duration::from_secs(60), || typist.is_cooked()), "{policy} {signal}");
        let is_gone = || common::processes_with(&keys).iter().all(|(_, line)| line.starts_with("sh "));
        assert!(within(Duration::from_secs(60), is_gone), "{policy} {signal}: {:?}", common::processes_with(&keys));
    }
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(0)
}

// ---- the environment ----

#[test]
fn the_environment_is_the_users_and_what_is_named() {
    if !can_become_another() {
        return;
    }
    let bench = Bench::new();
    for policy in POLICIES {
        let mut own = bench.pagelab(&[&["exec", "-p", policy][..], &NOBODY].concat());
        own.args(["--env", "PAGELAB_GIVEN=a=b", "--env", "PAGELAB_NAMED", "--", "env"]);
        own.env("TERM", "vt100").env("LC_TIME", "C").env("TZ", "UTC").env("LANG", "C");
        own.env("PAGELAB_SECRET", "1")
            .env("PAGELAB_NAMED", "2")
            .env("XDG_CONFIG_HOME", "/superuser/x")
            .env("LD_LIBRARY_PATH", "/superuser");
        let ran = own.env_remove("COLORTERM").env_remove("LANGUAGE").env_remove("LC_ALL").ran();
        ran.says(0, &[]);
        let mut found: Vec<&str> = ran.stdout.lines().collect();
        found.sort_unstable();
        let home = "HOME=/nonexistent";
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let shell = "SHELL=/usr/sbin/nologin";
        let rest = ["TERM=vt100", "TZ=UTC", "USER=nobody"];
        let named = ["LANG=C", "LC_TIME=C", "LOGNAME=nobody", "PAGELAB_GIVEN=a=b", "PAGELAB_NAMED=2", path, shell];
        assert_eq!(found, [&[home][..], &named, &rest].concat(), "{policy}");
    }
}

#[test]
fn variables_are_given_to_the_same_user_too_and_bad_ones_are_refused() {
    let bench = Bench::new();
    let exec = |option: &str| {
        bench.pagelab(&["exec", "-p", "base", "--env", option, "--", "sh", "-c", "echo $PAGELAB_X"]).ran()
    };
    assert_eq!(exec("PAGELAB_X=1").says(0, &[]).stdout, "1\n");
    exec("PAGELAB_X").says(2, &["--env PAGELAB_X", "PAGELAB_X=VALUE"]);
    for bad in ["", "=", "1X=2", "A-B=1"] {
        exec(bad).says(2, &["--env", "expected NAME"]);
    }
    let options =
        [&["-p", "default,base", "--env", "PAGELAB_X=7", "--json", "--metric", "x:lower=x=([0-9]+)"][..], &QUICK]
            .concat();
    let prepare = "sh -c '[ \"$PAGELAB_X\" = 7 ]'";
    let options = [&options[..], &["--prepare", prepare]].concat();
    let ran = bench.compare(&options, &shell("echo x=$PAGELAB_X")).ran();
    ran.says(0, &[]);
    assert!(ran.json()["arms"].is_array());
    for verb in ["exec", "compare"] {
        bench.pagelab(&[verb, "--help"]).ran().prints(&["--env <NAME[=VALUE]>", "HOME, USER, LOGNAME, SHELL, PATH"]);
    }
}

// ---- privileges ----

/// The finding: a setuid program of root's, executed by nobody's, was root.
#[test]
fn no_privilege_is_gained_by_exec_unless_the_user_is_root() {
    if !can_become_another() {
        return;
    }
    let (bench, standing) = bench_with("standing", 0o4755);
    for policy in ["default", "base", "default+no-huge"] {
        let ran = exec(&bench, policy, &[&standing, "it"]).ran();
        assert!(ran.says(0, &[]).stdout.starts_with("it user=65534 for=65534 gains-nothing=1"), "{policy}: {ran}");
        let own = bench.pagelab(&["exec", "-p", policy, "--", &standing, "it"]);
        if needs(&[program("setpriv")]) {
            let ran = own.as_nobody().stdin(Stdio::null()).ran();
            assert!(ran.stdout.starts_with("it user=65534 for=65534 gains-nothing=1"), "{policy}, without root: {ran}");
        }
        let mut own = own;
        let ran = own.ran();
        assert!(ran.says(0, &[]).stdout.starts_with("it user=0 for=0 gains-nothing=0"), "{policy}: {ran}");
    }
    let ran = exec(&bench, "default+no-huge", &[&standing, "it"]).ran();
    ran.says(0, &["a setuid program ran without its privilege", "run pagelab as root, with --user root"]);
}
