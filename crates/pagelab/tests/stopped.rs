//! Tests that every running or waiting command ends on a signal, when its terminal is closed, and when its output has
//! no reader.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};

/// The timeout for any action, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The signals that stop pagelab.
const SIGNALS: [(&str, i32); 3] = [("INT", 2), ("TERM", 15), ("HUP", 1)];

/// A process that sleeps until it is killed.
fn sleeper() -> Running {
    Command::new("sleep").arg("600").stdin(Stdio::null()).begin()
}

/// Waits until a program ends, and returns its exit code as a shell reports it.
fn code(running: &mut Running) -> i32 {
    let over = within(PATIENCE, || running.is_over());
    assert!(over, "it still runs");
    let status = running.wait();
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

// ---- signals ----

#[test]
fn every_verb_that_runs_a_command_ends_with_128_and_the_signal() {
    let bench = Bench::new();
    let begun = bench.path("begun");
    let command = bench.script("command", &format!("echo > {}; while :; do sleep 0.05; done", begun.display()));
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    let trace = bench.word("trace");
    let mut verbs = vec![
        vec!["exec", "-p", "default"],
        vec!["exec", "-p", "default+no-guards"],
        vec!["inspect"],
        vec!["inspect", "--json"],
        vec!["inspect", "--every", "100ms"],
        vec!["inspect", "--every", "100ms", "--json-lines"],
    ];
    if needs(&[recording("qemu-x86_64")]) {
        verbs.push(vec!["record", "-o", &trace]);
    }
    for (verb, (name, signal)) in verbs.iter().flat_map(|verb| SIGNALS.map(|signal| (verb, signal))) {
        let _ = std::fs::remove_file(&begun);
        let mut run = bench.pagelab(&[&verb[..], &["--", &command]].concat());
        run.env("PAGELAB_QEMU_PLUGIN", &plugin);
        let mut running = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        // Another test may hold the lease for a while.
        assert!(within(LIMIT, || begun.exists()), "{verb:?} does not begin");
        send(name, running.id());
        assert_eq!(code(&mut running), 128 + signal, "{verb:?} {name}");
        let gone = within(PATIENCE, || processes_with(&command).is_empty());
        assert!(gone, "{verb:?} {name} leaves {:?}", processes_with(&command));
    }
}

#[test]
fn every_verb_that_waits_ends_with_128_and_the_signal() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let pid = sleeper.id().to_string();
    let program = bench.word("pagelab");
    for words in [
        &["inspect", &pid, "--every", "100ms"][..],
        &["inspect", &pid, "--every", "1h", "--json-lines"],
        &["exec", "-p", "default", "--", &program, "inspect", &pid, "--every", "100ms"],
    ] {
        for (name, signal) in SIGNALS {
            let mut running = bench.pagelab(words);
            let mut running = running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).begin();
            let mut line = String::new();
            let mut stdout = BufReader::new(running.stdout());
            stdout.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "{words:?} prints nothing");
            send(name, running.id());
            assert_eq!(code(&mut running), 128 + signal, "{words:?} {name}");
        }
    }
}

// ---- readers ----

/// Starts pagelab, reads the first line of its output, and closes the pipe.
fn first_line(bench: &Bench, words: &[&str]) -> (Running, String) {
    let mut running = bench.pagelab(words);
    let mut running = running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    let mut line = String::new();
    BufReader::new(running.stdout()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{words:?} prints nothing");
    (running, line)
}

#[test]
fn rows_end_when_their_pipe_is_closed() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let pid = sleeper.id().to_string();
    for options in [
        &["--every", "50ms"][..],
        &["--every", "50ms", "--json-lines"],
        // With an interval of an hour, no write could fail before.
        &["--every", "1h", "--json-lines"],
        &["--every", "50ms", "--json-lines", "--openmetrics", "metrics"],
    ] {
        let (running, _) = first_line(&bench, &[&["inspect", &pid], options].concat());
        let ran = running.ran();
        ran.assert_exit(0, &[]);
        assert_eq!(ran.stderr, "", "{options:?}: a closed pipe is no error");
    }
}

#[test]
fn metrics_end_when_their_pipe_is_closed() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let line = format!(
        "exec {} inspect {} --every 50ms --json-lines --openmetrics /dev/fd/3 3>&1 >/dev/null",
        bench.word("pagelab"),
        sleeper.id()
    );
    let mut running = Command::new("sh");
    running.args(["-c", &line]).current_dir(bench.path(""));
    let mut running = running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    let mut read = String::new();
    BufReader::new(running.stdout()).read_line(&mut read).unwrap();
    assert!(read.starts_with("# HELP"), "{read}");
    running.ran().assert_exit(0, &[]);
}

#[test]
fn a_command_continues_when_the_pipe_of_its_rows_is_closed() {
    let bench = Bench::new();
    let done = bench.path("done");
    let command = format!("exec >/dev/null; while [ ! -e {} ]; do sleep 0.02; done", done.display());
    for options in [&["--every", "50ms"][..], &["--every", "50ms", "--json-lines"]] {
        let words = [&["inspect"], options, &["--", "sh", "-c", &command]].concat();
        let (mut running, _) = first_line(&bench, &words);
        std::thread::sleep(Duration::from_millis(500));
        assert!(!running.is_over(), "{options:?}: the command was ended");
        std::fs::write(&done, "").unwrap();
        running.ran().assert_exit(0, &[]);
        std::fs::remove_file(&done).unwrap();
    }
}

// ---- terminals ----

/// A terminal of which only the test has the other side open.
struct Terminal {
    screen: File,
    running: Running,
}

impl Terminal {
    /// Runs a command line on a new terminal, in a session of its own.
    fn of(bench: &Bench, line: &str, is_controlling: bool) -> Terminal {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag of a descriptor");
        }
        let terminal = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut session = Command::new("setsid");
        session.args(is_controlling.then_some("--ctty")).args(["sh", "-c", line]).current_dir(bench.path(""));
        session.env("TERM", "xterm");
        let running = session.stdin(terminal()).stdout(terminal()).stderr(terminal()).begin();
        Terminal { screen: File::from(pair.master), running }
    }

    /// Reads until this text is shown.
    fn sees(&mut self, text: &str) {
        let mut shown = Vec::new();
        let mut bytes = [0; 4096];
        while !String::from_utf8_lossy(&shown).contains(text) {
            match self.screen.read(&mut bytes) {
                Ok(count @ 1..) => shown.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                end => panic!("{end:?} before {text:?} in {:?}", String::from_utf8_lossy(&shown)),
            }
        }
    }

    /// Closes the terminal, and returns how the command on it ended.
    fn closes(self) -> i32 {
        let Terminal { screen, mut running } = self;
        drop(screen);
        code(&mut running)
    }
}

#[test]
fn top_ends_when_its_terminal_is_closed() {
    if !needs(&[program("setsid")]) {
        return;
    }
    let bench = Bench::new();
    let top = format!("exec {} top --every 300ms", bench.word("pagelab"));
    let deaf = format!("trap '' HUP; {top}");
    // The kernel closes a terminal before it sends SIGHUP, so the command may notice either of them first.
    for (line, is_controlling, expected) in [(&top, true, &[128 + 1, 2][..]), (&deaf, true, &[2]), (&top, false, &[2])]
    {
        let mut terminal = Terminal::of(&bench, line, is_controlling);
        terminal.sees("NAME");
        let code = terminal.closes();
        assert!(expected.contains(&code), "{line}: {code}");
    }
    // A terminal that cannot move its cursor.
    let dumb = format!("trap '' HUP; TERM=dumb {top}");
    let mut terminal = Terminal::of(&bench, &dumb.replace("TERM=dumb exec", "export TERM=dumb; exec"), true);
    terminal.sees("NAME");
    terminal.sees("NAME");
    assert_eq!(terminal.closes(), 0);
}

#[test]
fn a_signal_ends_top_in_the_middle_of_an_escape_sequence() {
    if !needs(&[program("setsid")]) {
        return;
    }
    let bench = Bench::new();
    for (name, signal) in SIGNALS {
        let mut terminal = Terminal::of(&bench, &format!("exec {} top --every 300ms", bench.word("pagelab")), true);
        terminal.sees("NAME");
        terminal.screen.write_all(b"\x1b[").unwrap();
        // In the time of two frames, `top` has read the beginning of the sequence. It redraws only what has changed.
        std::thread::sleep(Duration::from_millis(600));
        send(name, terminal.running.id());
        terminal.sees(&format!("stopped by signal {signal}"));
        assert_eq!(code(&mut terminal.running), 128 + signal, "{name}");
    }
}

#[test]
fn rows_end_when_their_terminal_is_closed() {
    if !needs(&[program("setsid")]) {
        return;
    }
    let bench = Bench::new();
    let sleeper = sleeper();
    let rows = format!("exec {} inspect {} --every 100ms", bench.word("pagelab"), sleeper.id());
    for (line, expected) in [(rows.clone(), &[128 + 1, 0][..]), (format!("trap '' HUP; {rows}"), &[0])] {
        let mut terminal = Terminal::of(&bench, &line, true);
        terminal.sees("why not");
        let code = terminal.closes();
        assert!(expected.contains(&code), "{line}: {code}");
    }
}

/// The terminal is as after Ctrl-S, or like a terminal emulator that hangs.
#[test]
fn a_signal_ends_top_and_rows_on_a_terminal_that_takes_no_output() {
    if !needs(&[program("setsid")]) {
        return;
    }
    let bench = Bench::new();
    let sleeper = sleeper();
    let program = bench.word("pagelab");
    let lines = [
        format!("exec {program} top --every 300ms"),
        format!("exec {program} inspect {} --every 5ms --json-lines", sleeper.id()),
    ];
    let mut terminals = lines.map(|line| {
        let mut terminal = Terminal::of(&bench, &line, true);
        terminal.sees(if line.contains("top") { "NAME" } else { "schema" });
        terminal
    });
    for terminal in &mut terminals {
        // Output that is not read fills the terminal's buffer, and then a write blocks. The keys make `top` draw its help,
        // and its rows again.
        let pid = terminal.running.id();
        let waits = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("wait_woken"));
        let mut keys = b"?q".iter().cycle();
        let is_full = within(PATIENCE, || {
            terminal.screen.write_all(&[*keys.next().unwrap()]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            waits()
        });
        assert!(is_full, "it should stop at the full terminal");
        send("TERM", pid);
    }
    for terminal in &mut terminals {
        assert_eq!(code(&mut terminal.running), 128 + 15);
    }
}
