//! Tests that the session of another user's command has neither root's terminal nor root's privileges.

use super::*;

/// The session in the last line that the program `standing` printed.
fn session(printed: &str) -> Option<u32> {
    printed.trim_end().rsplit_once("session=")?.1.parse().ok()
}

/// Regression test: a program run by the user `nobody` made root's shell execute a command (TIOCSTI).
#[test]
fn a_command_of_another_user_cannot_type_into_the_shell() {
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
        for user in [&NOBODY[..], &[]] {
            let file = bench.word("printed");
            // Without `user`, pagelab takes the user from SUDO_UID, as under sudo.
            let words = [&[bench.word("pagelab").as_str(), "exec", "-p", policy][..], user].concat().join(" ");
            let line = format!("{words} -- {standing} it </dev/null >{file} 2>&1");
            let mut redirected = Command::new("sh");
            redirected.args(["-c", &line]).env("SUDO_UID", "65534").current_dir(bench.path(""));
            let mut typist = Typist::at(&redirected);
            assert!(typist.command.wait().success(), "{policy} {user:?}");
            let printed = fs::read_to_string(&file).unwrap();
            assert!(printed.contains(expected), "{policy} {user:?}: {printed}");
            assert_ne!(session(&printed), Some(typist.command.id()), "{policy} {user:?}: {printed}");
        }
    }
}

#[test]
fn everything_that_a_comparison_runs_is_apart_and_gains_nothing() {
    if !can_become_another() {
        return;
    }
    // The program has the set-user-ID bit of root, so a process that executes it would have all privileges.
    let (bench, standing) = bench_with("standing", 0o4755);
    let file = bench.word("printed");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let runs = |name: &str| format!("{standing} {name} {file}");
    let up = bench.word("up");
    let server = format!("sh -c '{}; touch {up}; sleep 600'", runs("server"));
    let ready = format!("sh -c '{}; test -e {up}'", runs("ready"));
    let prepare = format!("sh -c '{}; rm -f {up}'", runs("prepare"));
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
    let file = bench.word("printed");
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

/// Regression test: a set-user-ID program owned by root ran as root when the user `nobody` executed it.
#[test]
fn no_privilege_is_gained_by_exec_unless_the_user_is_root() {
    if !can_become_another() {
        return;
    }
    let (bench, standing) = bench_with("standing", 0o4755);
    for policy in ["default", "base", "default+no-huge"] {
        let ran = exec(&bench, policy, &[&standing, "it"]).ran();
        assert!(
            ran.assert_exit(0, &[]).stdout.starts_with("it user=65534 for=65534 gains-nothing=1"),
            "{policy}: {ran}"
        );
        let own = bench.pagelab(&["exec", "-p", policy, "--", &standing, "it"]);
        if needs(&[program("setpriv")]) {
            let ran = own.as_nobody().stdin(Stdio::null()).ran();
            assert!(ran.stdout.starts_with("it user=65534 for=65534 gains-nothing=1"), "{policy}, without root: {ran}");
        }
        let mut own = own;
        let ran = own.ran();
        assert!(ran.assert_exit(0, &[]).stdout.starts_with("it user=0 for=0 gains-nothing=0"), "{policy}: {ran}");
    }
    let ran = exec(&bench, "default+no-huge", &[&standing, "it"]).ran();
    ran.assert_exit(0, &["a setuid program ran without its privilege", "run pagelab as root, with --user root"]);
}
