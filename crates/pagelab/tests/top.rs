//! Tests of `pagelab top`, in a real terminal (tmux) and without one.

mod common;
#[path = "common/terminal.rs"]
mod terminal;

#[allow(dead_code, reason = "its main is a program's")]
#[path = "../benches/top.rs"]
mod bench;

use std::process::Command;
use std::time::Duration;

use common::{Bench, Runs, needs, program, within, wrap};
use terminal::Typist;

/// The timeout for a frame, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal in a tmux server of its own.
struct Terminal {
    bench: Bench,
}

impl Terminal {
    /// Starts a shell in a terminal of this size.
    fn new(columns: u16, rows: u16) -> Terminal {
        let terminal = Terminal { bench: Bench::new() };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        // The shell reads no startup files, which could set another prompt.
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "env PS1='ready$ ' sh"]);
        terminal.sees("ready$");
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.bench.path("tmux")).args(words).current_dir(self.bench.path(""));
        tmux.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("TMUX").env_remove("NO_COLOR");
        tmux.env("HOME", self.bench.path(""));
        tmux.ran().stdout
    }

    /// Types a line into the shell.
    fn runs(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Presses keys, given by tmux's names for them.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until this text is on the screen.
    fn sees(&self, text: &str) -> String {
        self.sees_where(text, |screen| screen.contains(text))
    }

    fn sees_where(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let seen = within(PATIENCE, || {
            screen = self.screen();
            condition(&screen)
        });
        assert!(seen, "never saw {what}, but\n{screen}");
        screen
    }

    /// Waits until the shell has its terminal back: in cooked mode, with a cursor, and not on the alternate screen.
    fn is_restored(&self, code: u8) {
        // Until `top` has left the terminal, `top` reads the typed keys, not the shell.
        let left = || self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "0";
        assert!(within(PATIENCE, left), "it does not leave the terminal:\n{}", self.screen());
        self.runs("echo ended with $? ; stty -a | tr ' ;' '\\n\\n' | grep -cx -e icanon -e echo -e isig");
        let screen = self.sees(&format!("ended with {code}"));
        self.sees_where("three modes of a usual terminal", |screen| screen.lines().any(|line| line.trim() == "3"));
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(state.trim(), "0 1", "{screen}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn can_run() -> bool {
    needs(&[program("tmux")])
}

#[test]
fn a_terminal_shows_processes_and_q_gives_it_back() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(110, 30);
    terminal.runs("./pagelab top --every 500ms");
    let screen = terminal.sees("NAME");
    let first = screen.lines().next().unwrap();
    assert!(first.starts_with("pagelab top") && first.contains("every "), "{screen}");
    let selected = terminal.sees("q end  Enter inspect");
    assert!(selected.contains("faults") && selected.contains("PID"), "{selected}");
    // Rates are shown only from the second frame on.
    terminal.sees(" · over ");
    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn keys_sort_filter_inspect_and_ctrl_c_gives_the_terminal_back() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(100, 30);
    // The process gets a name that no other process has.
    terminal.runs("cp $(command -v sleep) ./dozes && ./dozes 600 & clear; echo sleeps as $!.");
    let pid_of = |screen: &str| screen.split("sleeps as ").find_map(|part| part.split_once('.')?.0.parse::<u32>().ok());
    let pid = pid_of(&terminal.sees_where("the PID of sleep", |screen| pid_of(screen).is_some())).unwrap();
    terminal.runs("./pagelab top --every 500ms");
    terminal.sees("Enter inspect");
    terminal.press(&["/"]);
    terminal.sees("filter: _");
    terminal.tmux(&["send-keys", "-l", "dozes"]);
    terminal.press(&["Enter"]);
    terminal.sees_where("the one process that is looked for", |screen| {
        screen.contains("with \"dozes\"") && screen.contains(&pid.to_string()) && !screen.contains("pagelab  ")
    });
    terminal.press(&["Enter"]);
    let inspection = terminal.sees("Esc back");
    assert!(inspection.contains(&format!("inspection of process {pid}")), "{inspection}");
    terminal.sees("dozes");
    terminal.press(&["Escape"]);
    terminal.sees("PID NAME");
    terminal.press(&["?"]);
    terminal.sees("keys and columns");
    terminal.press(&["q"]);
    terminal.sees("PID NAME");
    terminal.press(&["C-c"]);
    terminal.is_restored(0);
    terminal.runs("kill $!");
}

#[test]
fn a_terminal_that_is_resized_is_drawn_anew() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(120, 30);
    terminal.runs("./pagelab top --every 500ms");
    terminal.sees("WHY IT IS NOT LARGER");
    for (columns, rows, seen) in [("40", "10", "TO WIN"), ("8", "3", "NAME"), ("120", "30", "WHY IT IS NOT LARGER")] {
        terminal.tmux(&["resize-window", "-x", columns, "-y", rows]);
        terminal.sees(seen);
    }
    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn a_signal_ends_it_with_the_terminal_as_it_was() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(100, 20);
    let term = "while ! test -e shown; do sleep 0.1; done; kill -TERM $PAGELAB";
    terminal.runs(&format!("./pagelab top --every 500ms & PAGELAB=$!; ({term}) & fg %1"));
    terminal.sees("Enter inspect");
    std::fs::write(terminal.bench.path("shown"), "").unwrap();
    terminal.sees("stopped by signal 15");
    terminal.is_restored(143);
}

#[test]
fn a_stopped_job_gives_the_terminal_back_until_it_continues() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(100, 20);
    terminal.runs("set -m; ./pagelab top --every 500ms");
    terminal.sees("Enter inspect");
    terminal.press(&["C-z"]);
    terminal.sees_where("the shell", |screen| screen.contains("Stopped") && !screen.contains("Enter inspect"));
    terminal.runs("fg");
    terminal.sees("Enter inspect");
    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn no_color_and_a_terminal_that_cannot_move_its_cursor() {
    if !can_run() {
        return;
    }
    let terminal = Terminal::new(100, 40);
    terminal.runs("NO_COLOR=1 ./pagelab top --every 500ms");
    terminal.sees("Enter inspect");
    let escaped = terminal.tmux(&["capture-pane", "-p", "-e"]);
    let colours = escaped.split("\u{1b}[").skip(1).filter_map(|part| part.split_once('m')).map(|(codes, _)| codes);
    let is_colour =
        |code: &str| code.parse::<u32>().is_ok_and(|code| (30..39).contains(&code) || (40..49).contains(&code));
    let coloured: Vec<&str> = colours.flat_map(|codes| codes.split(';')).filter(|code| is_colour(code)).collect();
    assert_eq!(coloured, [""; 0], "{escaped}");
    terminal.press(&["q"]);
    terminal.is_restored(0);
    terminal.runs("clear; TERM=dumb ./pagelab top --every 500ms --filter pagelab");
    terminal.sees_where("two frames, one below the other", |screen| screen.matches("PID NAME").count() > 1);
    terminal.press(&["C-c"]);
    terminal.is_restored(130);
}

#[test]
fn without_a_terminal_there_is_one_frame() {
    let bench = Bench::new();
    let text = bench.pagelab(&["top"]).ran().stdout;
    assert!(text.starts_with("pagelab top") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("PID NAME") && text.contains(" · over ") && !text.contains("not looked at yet"), "{text}");
    let id = std::process::id();
    let words = ["top", "--json", "--filter", &id.to_string(), "--every", "100ms"];
    let document = bench.pagelab(&words).ran().json();
    assert_eq!(document["schema"], "pagelab.top/1");
    let processes = document["processes"].as_array().unwrap();
    let own = processes.iter().find(|process| process["pid"] == id).expect("this test");
    let bytes = |value: &serde_json::Value| value.as_u64().unwrap();
    let sizes: u64 = own["sizes"].as_array().unwrap().iter().map(|size| bytes(&size["bytes"])).sum();
    assert!(sizes > 0 && bytes(&own["resident_bytes"]) > 0, "{own:#}");
    assert!(document["system"]["faults_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{document:#}");
}

#[test]
fn refuses_unknown_intervals_and_columns() {
    let bench = Bench::new();
    for (words, message) in [
        (["--every", "2"], "expected a time above 0, such as 90s"),
        (["--every", "0s"], "expected a time above 0, such as 90s"),
        (["--sort", "size"], "possible values: resident, larger, faults, base, name, pid"),
    ] {
        bench.pagelab(&[&["top"], &words[..]].concat()).ran().assert_exit(2, &[message]);
    }
}

/// Runs the benchmark with few processes. The cost with many processes is measured by the benchmark itself.
#[test]
fn the_benchmark_runs() {
    if !needs(&[program("script"), program("python3")]) {
        return;
    }
    let share = bench::share(std::path::Path::new(env!("CARGO_BIN_EXE_pagelab")), 2, 3).unwrap();
    assert!(share > 0.0 && share < 0.5, "{share}");
}

/// Memory for all cells of such a terminal would be hundreds of gigabytes.
#[test]
fn a_terminal_of_any_size_is_drawn_in_bounded_memory() {
    if !needs(&[program("prlimit"), program("setsid"), program("stty")]) {
        return;
    }
    let bench = Bench::new();
    let mut limited = Command::new("prlimit");
    limited.arg("--as=2147483648");
    wrap(&mut limited, bench.pagelab(&["top"]).env("TERM", "xterm"));
    let mut typist = Typist::at(&limited);
    typist.sees("q end");
    typist.resizes(65535, 65535);
    typist.sees("q end");
    typist.types("q");
    let shown = typist.sees_the_end();
    assert!(typist.command.wait().success(), "{shown:?}");
}
