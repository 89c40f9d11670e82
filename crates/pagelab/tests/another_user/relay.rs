//! Tests of the relay between root's terminal and the command's: typed keys, output, sizes, stops and ends.

use super::*;

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

/// Standard input and output of the command are no terminal here. pagelab still passes on what is typed at its own
/// terminal, and each key reaches the command only once.
#[test]
fn a_key_reaches_a_command_without_a_terminal_once() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for policy in POLICIES {
        let mut typist = interactive(&bench);
        let (pagelab, file) = (bench.word("pagelab"), bench.path(&format!("said-{policy}")));
        let has_printed =
            |text: &str| within(PATIENCE, || fs::read_to_string(&file).is_ok_and(|all| all.contains(text)));
        let line =
            format!("{pagelab} exec -p {policy} --user nobody -- {keys} wait </dev/null >{} 2>&1\n", file.display());
        typist.types(&line);
        assert!(has_printed("ready"), "{policy}");
        typist.types("\x03");
        assert!(has_printed("interrupt 1"), "{policy}");
        typist.types("\x1a");
        typist.sees("Stopped");
        typist.sees("NEXT> ");
        let of_keys = common::processes_with(&format!("{keys} wait"));
        let (command, _) = of_keys.iter().find(|(_, line)| line.starts_with(&keys)).expect("the command");
        common::await_stop(*command);
        typist.types("fg\n");
        // The shell prints the job before it gives the terminal to it. Once the command continues, the job has the
        // terminal.
        assert!(within(PATIENCE, || !common::is_stopped(*command)), "{policy}");
        typist.types("\x03");
        assert!(has_printed("interrupt 2"), "{policy}");
        send("TERM", *command);
        assert!(has_printed("end after 2"), "{policy}");
    }
}

#[test]
fn shows_all_output_of_a_command_before_it_continues() {
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
        // A password is read from the terminal even if the standard input is something else.
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
        // A process that reads the terminal from the background is stopped. The shell then reports it by its name.
        typist.types(&format!("set -b; {line} cat &\n"));
        typist.sees("Stopped");
        typist.types("fg\n");
        typist.sees("cat\r\n");
        typist.types("typed\n");
        typist.sees("typed\r\ntyped\r\n");
        typist.types("\x04"); // before cat is in the foreground, pagelab's terminal would take this key as end of input
        typist.sees("NEXT> ");
    }
}

/// The modes of the terminal are restored even if pagelab is killed: the process between the two terminals then
/// restores them.
#[test]
fn every_end_gives_the_terminal_its_modes_back_and_leaves_nothing() {
    if !can_become_another() || !needs(&[program("bash")]) {
        return;
    }
    let (bench, keys) = bench_with("keys", 0o755);
    for (policy, signal) in
        POLICIES.iter().flat_map(|policy| ["TERM", "HUP", "QUIT", "KILL"].map(|signal| (policy, signal)))
    {
        // A shell that does not change the modes, and so does not restore them either, runs the command.
        let line = format!("{} exec -p {policy} --user nobody -- {keys}; echo over; sleep 600", bench.word("pagelab"));
        let mut sh = Command::new("sh");
        sh.args(["-c", &line]).current_dir(bench.path("")).env_remove("SUDO_UID");
        let mut typist = Typist::at(&sh);
        typist.sees("ready\r");
        assert!(!typist.is_cooked(), "{policy} {signal}: keys are passed on untouched");
        let ours = common::processes_with(&format!("--user nobody -- {keys}"));
        let is_pagelab = |line: &str| line.starts_with(&bench.word("pagelab"));
        // The process between the terminals has the same command line as pagelab, and is its child.
        let pagelab =
            ours.iter().filter(|(_, line)| is_pagelab(line)).find(|(pid, _)| parent(*pid) == typist.command.id());
        send(signal, pagelab.expect("pagelab").0);
        typist.sees("over");
        assert!(within(common::LIMIT, || typist.is_cooked()), "{policy} {signal}");
        let is_gone = || common::processes_with(&keys).iter().all(|(_, line)| line.starts_with("sh "));
        assert!(within(common::LIMIT, is_gone), "{policy} {signal}: {:?}", common::processes_with(&keys));
    }
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(0)
}
