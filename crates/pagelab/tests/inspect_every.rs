//! Tests of `pagelab inspect --every` and `--html`: a process over time, for users, for programs, and for Prometheus.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Bench, Ran, Running, Runs, needs, program, send, within};

const PATIENCE: Duration = Duration::from_secs(120);

/// A process that sleeps until it is killed.
fn sleeper() -> Running {
    Command::new("sleep").arg("600").stdin(Stdio::null()).begin()
}

/// A running command, and the samples that it has printed so far.
struct Watching {
    running: Running,
    stdout: BufReader<ChildStdout>,
    shown: String,
}

impl Watching {
    /// Starts the command, and waits until it has printed this number of lines.
    fn begin(mut command: Command, lines: usize) -> Watching {
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
        let (mut stdout, mut shown) = (BufReader::new(running.stdout()), String::new());
        while shown.lines().count() < lines {
            assert_ne!(stdout.read_line(&mut shown).unwrap(), 0, "it ended after {shown}");
        }
        Watching { running, stdout, shown }
    }

    /// Waits until the command ends.
    fn ran(mut self) -> Ran {
        self.stdout.read_to_string(&mut self.shown).unwrap();
        Ran { stdout: self.shown, ..self.running.ran() }
    }
}

#[test]
fn every_look_is_a_row_until_the_process_ends() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let pid = sleeper.id().to_string();
    let watching = Watching::begin(bench.pagelab(&["inspect", &pid, "--every", "200ms"]), 6);
    sleeper.kill();
    let ran = watching.ran();
    ran.assert_exit(0, &[&format!("process {pid} has ended")])
        .assert_stdout(&[&format!("process {pid} (sleep)"), "so far why not"]);
    assert!(ran.stdout.lines().count() > 4 && ran.stdout.contains('▁'), "{ran}");
}

#[test]
fn json_lines_are_documents_and_a_signal_ends_them() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let pid = sleeper.id();
    let words = ["inspect", &pid.to_string(), "--every", "200ms", "--json-lines"];
    let watching = Watching::begin(bench.pagelab(&words), 2);
    send("TERM", watching.running.id());
    let ran = watching.ran();
    ran.assert_exit(128 + 15, &["stopped by signal 15"]);
    let looks: Vec<serde_json::Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(looks.len() > 1, "{ran}");
    for look in &looks {
        assert_eq!((look["schema"].as_str(), look["pid"].as_u64()), (Some("pagelab.inspect-look/1"), Some(pid.into())));
        assert!(look["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{look:#}");
    }
    let times: Vec<f64> = looks.iter().map(|look| look["elapsed_s"].as_f64().unwrap()).collect();
    assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
}

#[test]
fn a_command_is_looked_at_while_it_runs_and_at_its_end() {
    let bench = Bench::new();
    let until_gone = bench.word("go");
    let line = format!("while [ -e {until_gone} ]; do sleep 0.01; done; exit 3");
    fs::write(&until_gone, "").unwrap();
    let watching = Watching::begin(bench.pagelab(&["inspect", "--every", "200ms", "--", "sh", "-c", &line]), 6);
    fs::remove_file(&until_gone).unwrap();
    let ran = watching.ran();
    ran.assert_exit(1, &["exit code 3"]).assert_stdout(&["(sh)", "so far why not", "resident"]);
    assert!(ran.stdout.matches('▁').count() > 2, "{ran}");
}

/// Checks the file with Prometheus' own tool, while the file is replaced again and again.
#[test]
fn prometheus_reads_the_export_and_never_half_of_it() {
    if !needs(&[program("promtool")]) {
        return;
    }
    let bench = Bench::new();
    let sleeper = sleeper();
    let pid = sleeper.id().to_string();
    let file = bench.path("pagelab.prom");
    let words = ["inspect", &pid, "--every", "20ms", "--json-lines", "--openmetrics", &bench.word("pagelab.prom")];
    let mut watching = bench.pagelab(&words);
    let watching = watching.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    assert!(within(PATIENCE, || file.exists()), "the file is there after the first look");
    let mut text = String::new();
    for _ in 0..200 {
        text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# HELP") && text.ends_with("# EOF\n"), "{text}");
        std::thread::sleep(Duration::from_millis(2));
    }
    send("INT", watching.id());
    watching.ran().assert_exit(128 + 2, &["stopped by signal 2"]);
    assert!(text.contains(&format!("pagelab_memory_bytes{{pid=\"{pid}\",name=\"sleep\",")), "{text}");
    let mut lint = Command::new("promtool");
    lint.args(["check", "metrics"]).stdin(fs::File::open(&file).unwrap());
    let linted = lint.stdout(Stdio::piped()).stderr(Stdio::piped()).begin().ran();
    assert_eq!((linted.code, linted.stdout.as_str(), linted.stderr.as_str()), (Some(0), "", ""), "{text}");
    // promtool also reads OpenMetrics for Prometheus' database; for that, each sample needs a time.
    let stamped = text
        .lines()
        .map(|line| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1774101900\n") });
    fs::write(bench.path("stamped"), stamped.collect::<String>()).unwrap();
    let mut import = Command::new("promtool");
    import.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(bench.path("stamped")).arg(bench.path("blocks"));
    let imported = import.ran();
    assert_eq!(imported.code, Some(0), "{imported}");
    let left = fs::read_dir(bench.path("")).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("pagelab.prom")).collect();
    assert_eq!(left, ["pagelab.prom"], "nothing half made is left");
}

#[test]
fn a_tree_is_looked_at_as_a_whole_until_it_ends() {
    let bench = Bench::new();
    let line = "sleep 600 & sleep 600 & wait";
    let tree = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).begin();
    let root = tree.id().to_string();
    let count = |wanted: &str| {
        let look = bench.pagelab(&["inspect", "--tree", &root]).ran().stdout;
        look.matches(wanted).count()
    };
    assert!(within(PATIENCE, || count(" sleep ") == 2), "the shell has two children");
    let file = bench.word("pagelab.prom");
    let words = ["inspect", "--tree", &root, "--every", "200ms", "--json-lines", "--openmetrics", &file];
    let lines = Watching::begin(bench.pagelab(&words), 2);
    let rows = Watching::begin(bench.pagelab(&["inspect", "--tree", &root, "--every", "200ms"]), 4);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("pagelab_could_be_larger_bytes{").count(), 3, "{text}");
    drop(tree);
    let ended = format!("process {root} has ended");
    let rows = rows.ran();
    rows.assert_exit(0, &[&ended])
        .assert_stdout(&[&format!("process {root} and its descendants"), "processes resident"]);
    let lines = lines.ran();
    lines.assert_exit(0, &[&ended]);
    let look: serde_json::Value = serde_json::from_str(lines.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((look["schema"].as_str(), look["processes"].as_u64()), (Some("pagelab.inspect-set-look/1"), Some(3)));
    let formats = common::described_formats("pagelab.inspect-set-look/1");
    for key in look.as_object().unwrap().keys() {
        assert!(formats.contains(&format!("`{key}`")), "{key} is not described");
    }
}

#[test]
fn all_processes_are_looked_at_until_a_signal() {
    let bench = Bench::new();
    let watching = Watching::begin(bench.pagelab(&["inspect", "--all", "--every", "100ms", "--sizes"]), 4);
    send("TERM", watching.running.id());
    watching.ran().assert_exit(128 + 15, &["stopped by signal 15"]).assert_stdout(&["all processes", "so far why not"]);
}

#[test]
fn a_page_has_the_map_of_a_process() {
    let bench = Bench::new();
    let sleeper = sleeper();
    let page = bench.word("map.html");
    let ran = bench.pagelab(&["inspect", &sleeper.id().to_string(), "--html", &page]).ran();
    ran.assert_exit(0, &["report: "]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.ends_with("</html>\n") && html.contains("Map of the address space"), "{html}");
    assert!(html.contains("(process") && html.contains("sleep") && html.contains("The same as text"));
}

#[test]
fn refuses_conflicting_options() {
    let bench = Bench::new();
    for (words, message) in [
        (&["1", "--json-lines"][..], "--every <TIME>"),
        (&["1", "--openmetrics", "/no/such/place"], "/no/such/place"),
        (&["--tree", "4294967295", "--every", "1s"], "there is no process 4294967295"),
        (&["--cgroup", "/no/such/group", "--every", "1s"], "/no/such/group"),
        (&["--all", "--every", "1s", "--json"], "which show one inspection"),
        (&["--all", "--html", "x"], "cannot be used with"),
        (&["1", "--every", "1s", "--html", "x"], "which show one inspection"),
        (&["1", "--every", "1s", "--json"], "which show one inspection"),
        (&["1", "--every", "often"], "expected a time above 0, such as 90s"),
        (&["1", "--every", "1s", "--openmetrics", "/no/such/place"], "/no/such/place"),
        (&["1", "--html", "/no/such/place"], "/no/such/place"),
        (&["4294967295", "--every", "1s"], "there is no process 4294967295"),
    ] {
        bench.pagelab(&[&["inspect"], words].concat()).ran().assert_exit(2, &[message]);
    }
}
