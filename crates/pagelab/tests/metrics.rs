//! Tests of `pagelab metrics`: figures of control groups, exact to the byte, in documents and for Prometheus.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use common::{Alone, Bench, Running, Runs, described_formats, needs, program, root, send, within};

const PATIENCE: Duration = Duration::from_secs(120);
const M: u64 = 1 << 20;

/// A memory control group, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Group> {
        let name = format!("pagelab-test-metrics-{}{name}", std::process::id());
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
            .iter()
            .map(|place| Group(Path::new(place).join(&name)))
            .find(|group| fs::create_dir(&group.0).is_ok() && group.0.join("memory.stat").is_file())
    }

    /// The end of the group's path, as labels contain it.
    fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// Runs a command in the group.
    fn holding(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs")).args(words);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        within(PATIENCE, || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Starts a process in the group which has this amount of shared memory in base pages, anonymous memory in base pages, and anonymous
/// memory in PMD leaves. `copies` further processes share all of it.
fn planted(bench: &Bench, group: &Group, [shmem, small, large]: [u64; 3], copies: u64) -> Running {
    let compiled = bench.word("planted");
    if !Path::new(&compiled).exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/planted.c");
        assert!(Command::new("gcc").args(["-O1", "-o", &compiled]).arg(source).status().unwrap().success());
    }
    let numbers = [shmem, small, large, 10, copies].map(|number| number.to_string());
    let words: Vec<&str> = std::iter::once(&compiled).chain(&numbers).map(String::as_str).collect();
    let mut running = group.holding(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    let mut output = BufReader::new(running.stdout());
    for _ in 0..=copies {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "planted\n");
    }
    running
}

/// The document of one sample.
fn document(bench: &Bench) -> Value {
    bench.pagelab(&["metrics", "--json"]).ran().json()
}

/// A group of a document.
fn group_in<'a>(document: &'a Value, group: &Group) -> &'a Value {
    let groups = document["groups"].as_array().unwrap();
    let name = group.name();
    let is_it = |one: &&Value| one["cgroup"].as_str().is_some_and(|path| path.ends_with(&name));
    groups.iter().find(is_it).unwrap_or_else(|| panic!("no group {name} in {document:#}"))
}

/// Bytes of a backing by a leaf in a group of a document.
fn bytes_in(group: &Value, backing: &str, leaf_bytes: u64) -> u64 {
    let rows = group["census"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["backing"] == backing && row["leaf_bytes"] == leaf_bytes);
    rows.map(|row| row["bytes"].as_u64().unwrap()).sum()
}

/// Samples of OpenMetrics text: names with their labels, and values.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut samples = BTreeMap::new();
    for (name, value) in lines.map(|line| line.rsplit_once(' ').unwrap()) {
        assert!(samples.insert(name.to_string(), value.parse().unwrap()).is_none(), "{name} occurs twice");
    }
    samples
}

/// The sample of a test's group: found by its metric, and by the labels after that of the group.
fn sample(samples: &BTreeMap<String, f64>, metric: &str, group: &Group, labels: &str) -> u64 {
    let start = format!("pagelab_cgroup_{metric}{{cgroup=\"");
    let end = format!("{}\"{labels}}}", group.name());
    let found = samples.iter().find(|(name, _)| name.starts_with(&start) && name.ends_with(&end));
    *found.unwrap_or_else(|| panic!("no {start}...{end} in {samples:#?}")).1 as u64
}

/// The sum of a field of smaps over the processes of a group, in bytes.
fn smaps_bytes(group: &Group, field: &str) -> u64 {
    let pids = fs::read_to_string(group.0.join("cgroup.procs")).unwrap();
    let of_process = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"));
        lines.map(|kilobytes| kilobytes.trim().parse::<u64>().unwrap() << 10).sum::<u64>()
    };
    pids.lines().map(of_process).sum()
}

fn can_plant() -> bool {
    let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let has_thp = thp.contains("[madvise]") || thp.contains("[always]");
    let has_groups = Group::new("-probe").is_some();
    needs(&[root(), program("gcc"), ("THP that can be advised", has_thp), ("memory control groups", has_groups)])
}

#[test]
fn planted_memory_is_exported_to_the_byte_by_group_and_leaf() {
    if !can_plant() {
        return;
    }
    let _alone = Alone::wait();
    validation::free_large_blocks();
    let bench = Bench::new();
    let (one, other) = (Group::new("-one").unwrap(), Group::new("-other").unwrap());
    let _planted = [
        planted(&bench, &one, [M, 3 * M + 4096, 8 * M], 0),
        planted(&bench, &one, [2 * M + 8192, M, 4 * M], 0),
        planted(&bench, &other, [3 * M, 5 * M, 0], 2),
    ];
    let file = bench.word("pagelab.prom");
    let ran = bench.pagelab(&["metrics", "--openmetrics", &file]).ran();
    ran.assert_stdout(&["control group", "free by block: node 0:", "khugepaged since the boot"]);
    let samples = samples(&fs::read_to_string(&file).unwrap());
    let leaf = |group: &Group, backing: &str, leaf: u64| {
        sample(&samples, "leaf_bytes", group, &format!(",backing=\"{backing}\",leaf_bytes=\"{leaf}\""))
    };
    assert_eq!(leaf(&one, "anonymous", 2 * M), 12 * M);
    assert_eq!(leaf(&one, "shmem", 4096), 3 * M + 8192);
    assert_eq!(leaf(&other, "anonymous", 2 * M), 0);
    assert_eq!(leaf(&other, "shmem", 4096), 9 * M, "three processes map it, and it counts for each");
    for group in [&one, &other] {
        let anonymous = smaps_bytes(group, "Anonymous:");
        assert_eq!(leaf(group, "anonymous", 4096), anonymous - leaf(group, "anonymous", 2 * M));
        let of = |sharing: &str| sample(&samples, "resident_bytes", group, &format!(",sharing=\"{sharing}\""));
        let leaves: f64 = samples.iter().filter(|(name, _)| is_leaf(name, group)).map(|(_, bytes)| bytes).sum();
        assert_eq!(of("private") + of("shared"), leaves as u64, "no byte is neither private nor shared");
        let processes = sample(&samples, "processes", group, ",inspection=\"inspected\"");
        assert_eq!(processes, if group.0 == one.0 { 2 } else { 3 });
        assert!(sample(&samples, "charged_bytes", group, "") > 0);
    }
    let shared = |group: &Group| sample(&samples, "resident_bytes", group, ",sharing=\"shared\"");
    assert!(shared(&other) >= 3 * 8 * M && shared(&one) < 8 * M, "{} {}", shared(&other), shared(&one));
    let proportional = sample(&samples, "proportional_bytes", &other, "");
    assert!((8 * M..12 * M).contains(&proportional), "shared memory counts once: {proportional}");
    // The kernel keeps this count per processor, so it can be off by some pages.
    let charged = sample(&samples, "charged_anonymous_large_bytes", &one, "");
    assert!(charged.abs_diff(12 * M) <= 2 * M, "{charged}");
    let document = document(&bench);
    assert_eq!(bytes_in(group_in(&document, &one), "anonymous", 2 * M), 12 * M);
}

/// Whether the metric is for the memory of this group by leaf.
fn is_leaf(name: &str, group: &Group) -> bool {
    name.starts_with("pagelab_cgroup_leaf_bytes{") && name.contains(&format!("{}\",", group.name()))
}

#[test]
fn causes_add_up_and_sizes_names_none() {
    if !can_plant() {
        return;
    }
    let bench = Bench::new();
    let group = Group::new("-causes").unwrap();
    let _planted = planted(&bench, &group, [0, 16 * M, 0], 0);
    let causes = document(&bench);
    let causes = group_in(&causes, &group);
    let bytes = |one: &Value| one["bytes"].as_u64().unwrap();
    let all: u64 = causes["causes"].as_array().unwrap().iter().map(bytes).sum();
    assert_eq!(causes["could_be_larger_bytes"].as_u64(), Some(all), "{causes:#}");
    assert_eq!(causes["causes"][0]["cause"], "advised_against", "{causes:#}");
    assert!(bytes(&causes["causes"][0]) >= 14 * M, "{causes:#}");
    let sizes = bench.pagelab(&["metrics", "--json", "--sizes"]).ran().json();
    let sizes = group_in(&sizes, &group);
    assert_eq!((&sizes["causes"], &sizes["shared_bytes"]), (&Value::Array(vec![]), &Value::Null), "{sizes:#}");
    assert_eq!(bytes_in(sizes, "anonymous", 4096), bytes_in(causes, "anonymous", 4096));
}

#[test]
fn a_name_with_quotes_is_escaped_and_prometheus_reads_the_file_while_it_is_replaced() {
    if !needs(&[root(), program("promtool")]) {
        return;
    }
    let Some(group) = Group::new("-a\"b\\c {}") else {
        needs(&[("memory control groups", false)]);
        return;
    };
    let bench = Bench::new();
    let _sleeper = group.holding(&["sleep", "600"]).stdin(Stdio::null()).begin();
    let file = bench.path("pagelab.prom");
    let words = ["metrics", "--every", "50ms", "--json-lines", "--openmetrics", &bench.word("pagelab.prom")];
    let mut watching = bench.pagelab(&words);
    let watching = watching.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    let has_group = || fs::read_to_string(&file).is_ok_and(|text| text.contains("-a\\\"b\\\\"));
    assert!(within(PATIENCE, has_group), "the group has a sample, and its name is quoted");
    for _ in 0..100 {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# HELP") && text.ends_with("# EOF\n"), "{text}");
        std::thread::sleep(Duration::from_millis(2));
    }
    send("TERM", watching.id());
    watching.ran().assert_exit(128 + 15, &["stopped by signal 15"]);
    let mut lint = Command::new("promtool");
    lint.args(["check", "metrics"]).stdin(fs::File::open(&file).unwrap());
    let linted = lint.stdout(Stdio::piped()).stderr(Stdio::piped()).begin().ran();
    assert_eq!((linted.code, linted.stdout.as_str(), linted.stderr.as_str()), (Some(0), "", ""));
    let text = fs::read_to_string(&file).unwrap();
    let stamp = |line: &str| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1774101900\n") };
    fs::write(bench.path("stamped"), text.lines().map(stamp).collect::<String>()).unwrap();
    let mut import = Command::new("promtool");
    import.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(bench.path("stamped")).arg(bench.path("blocks"));
    assert_eq!(import.ran().code, Some(0));
}

#[test]
fn looks_at_an_interval_are_documents_and_the_page_describes_them() {
    let bench = Bench::new();
    let mut watching = bench.pagelab(&["metrics", "--every", "100ms", "--json-lines"]);
    let mut watching = watching.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    let mut output = BufReader::new(watching.stdout());
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        output.read_line(&mut line).unwrap();
    }
    drop(output);
    // Nothing reads the output any more, so the command ends.
    watching.ran().assert_exit(0, &[]);
    let look: Value = serde_json::from_str(&line).unwrap();
    let formats = described_formats("pagelab.metrics/1");
    let groups = look["groups"].as_array().unwrap();
    let parts = [&look, &look["system"], &look["without_group"], &groups[0]];
    for key in parts.iter().flat_map(|part| part.as_object().unwrap().keys()) {
        assert!(formats.contains(&format!("`{key}`")), "{key} is not described");
    }
    let own = groups.iter().map(|group| group["processes"].as_u64().unwrap()).sum::<u64>();
    assert!(own > 0 && look["cost_s"].as_f64().unwrap() > 0.0, "{look:#}");
}

#[test]
fn every_exported_metric_is_described() {
    let bench = Bench::new();
    let file = bench.word("pagelab.prom");
    bench.pagelab(&["metrics", "--openmetrics", &file]).ran().assert_exit(0, &[]);
    let text = fs::read_to_string(&file).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/formats/metrics-openmetrics.md");
    let page = fs::read_to_string(page).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn another_user_counts_what_may_not_be_read() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];
    let document = bench.pagelab_by(&words, &["metrics", "--json"]).ran().json();
    let groups = document["groups"].as_array().unwrap();
    let forbidden: u64 = groups.iter().map(|group| group["uninspected"]["forbidden"].as_u64().unwrap()).sum();
    assert!(forbidden > 0, "{document:#}");
    let unseen = groups.iter().find(|group| group["processes"] == 0).unwrap();
    assert_eq!(unseen["resident_bytes"], Value::Null, "an unknown figure is not zero: {unseen:#}");
}

#[test]
fn refuses_conflicting_options() {
    let bench = Bench::new();
    for (words, message) in [
        (&["--json-lines"][..], "--every <TIME>"),
        (&["--json", "--every", "1s"], "cannot be used with"),
        (&["--every", "often"], "expected a time above 0, such as 90s"),
        (&["--openmetrics", "/no/such/place"], "/no/such/place"),
    ] {
        bench.pagelab(&[&["metrics"], words].concat()).ran().assert_exit(2, &[message]);
    }
}
