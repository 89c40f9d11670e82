//! Tests of `--require`: exit codes, figures and causes, and the memory of guests, which is judged by its regions.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Alone, Bench, Ran, Running, Runs, needs, program, root};

const M: u64 = 1 << 20;

/// A memory control group.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let name = format!("pagelab-test-required-{}", std::process::id());
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
            .iter()
            .map(|place| Group(Path::new(place).join(&name)))
            .find(|group| fs::create_dir(&group.0).is_ok() && group.0.join("memory.stat").is_file())
    }

    /// Which share of the group's anonymous memory consists of transparent huge pages, as managers of virtual machines compute it: from
    /// memory.stat of version 1 or 2.
    fn thp_share(&self) -> f64 {
        let text = fs::read_to_string(self.0.join("memory.stat")).unwrap();
        let value = |names: [&str; 2]| -> f64 {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(name, _)| names.contains(name)).unwrap().1.parse().unwrap()
        };
        value(["anon_thp", "rss_huge"]) / value(["anon", "rss"])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A process with a virtual machine, in a control group.
fn monitor(bench: &Bench, group: &Group, words: [&str; 4]) -> Running {
    let compiled = bench.word("monitor");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/monitor.c");
    assert!(Command::new("gcc").args(["-O1", "-o", &compiled]).arg(source).status().unwrap().success());
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
        .arg(group.0.join("cgroup.procs"))
        .arg(&compiled)
        .args(words);
    let mut monitor = command.stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    let mut line = String::new();
    BufReader::new(monitor.stdout()).read_line(&mut line).unwrap();
    assert_eq!(line, "touched\n");
    monitor
}

/// The exit code, and the judgement of each requirement.
fn judged(bench: &Bench, words: &[&str], requirements: &[&str]) -> (Option<i32>, Vec<Value>) {
    let mut command = bench.pagelab(&[&["inspect"], words, &["--json"]].concat());
    for requirement in requirements {
        command.args(["--require", requirement]);
    }
    let ran = command.ran();
    let document = ran.json();
    (ran.code, document["requirements"].as_array().cloned().unwrap_or_default())
}

/// In three cases a guest has no huge pages, and yet more than 95 % of its control group are huge pages: because of the monitor's own
/// heap, because the guest's memory is a memfd and not anonymous, or because of another guest in the group. In a fourth case it is the
/// other way round.
#[test]
fn guest_memory_is_judged_by_its_regions_and_not_by_the_control_group() {
    let can_open_kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let here =
        [root(), program("gcc"), ("/dev/kvm", can_open_kvm), ("THP that can be advised", !thp.contains("[never]"))];
    if !needs(&here) {
        return;
    }
    let _alone = Alone::wait();
    validation::free_large_blocks();
    let bench = Bench::new();
    for (words, neighbour, group_passes, guest_share) in [
        (["512", "huge", "16", "base"], None, true, 0.0),
        (["64", "huge", "32", "shared"], None, true, 0.0),
        (["0", "base", "16", "base"], Some(["0", "base", "512", "huge"]), true, 0.0),
        (["64", "base", "64", "huge"], None, false, 1.0),
    ] {
        let Some(group) = Group::new() else {
            needs(&[("memory control groups", false)]);
            return;
        };
        let neighbour = neighbour.map(|words| monitor(&bench, &group, words));
        let monitor = monitor(&bench, &group, words);
        let pid = monitor.id().to_string();
        let share = group.thp_share();
        assert_eq!(share >= 0.95, group_passes, "{words:?}: {share}");
        let (code, judgements) = judged(&bench, &[&pid], &["guest:large>=95%"]);
        let judgement = &judgements[0];
        assert_eq!(judgement["ratio"], guest_share, "{words:?}: {judgement:#}");
        assert_eq!(judgement["of_bytes"], words[2].parse::<u64>().unwrap() * M, "{words:?}");
        let is_met = guest_share > 0.5;
        assert_eq!(judgement["is_met"], is_met, "{words:?}");
        assert_eq!(code, Some(if is_met { 0 } else { 5 }), "{words:?}");
        if !is_met {
            assert_eq!(judgement["off_by_bytes"], (words[2].parse::<u64>().unwrap() * M * 95).div_ceil(100));
            assert!(judgement["causes"][0]["bytes"].as_u64().unwrap() > 0, "{judgement:#}");
        }
        drop((monitor, neighbour));
    }
}

#[test]
fn a_command_is_judged_at_its_peak_and_its_own_failure_comes_first() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let touch = ["--", bench.program().to_str().unwrap(), "workload", "page-touch", "--bytes", "32M", "--answer-only"]
        .map(str::to_owned);
    let words: Vec<&str> = touch.iter().map(String::as_str).collect();
    let run = |requirements: &[&str], words: &[&str]| {
        let required: Vec<&str> = requirements.iter().flat_map(|one| ["--require", one]).collect();
        bench.pagelab(&[&["inspect"], &required[..], words].concat()).ran()
    };
    run(&["all:4K>=1M", "could-be-larger<=100%"], &words)
        .assert_exit(0, &[])
        .assert_stdout(&["required all:4K>=1M: met ("]);
    let unmet = run(&["1G>=1%", "large<=100%", "guest:large>=0%"], &words);
    unmet.assert_exit(5, &["not met: 1G>=1%; not known whether met: guest:large>=0%"]);
    unmet.assert_stdout(&[
        "required 1G>=1%: not met (0.0 %, 0 of",
        "required large<=100%: met (",
        "not known, because no memory of a virtual machine was found",
    ]);
    run(&["1G>=1%"], &["--", "false"]).assert_exit(1, &["exit code 1"]);
    run(&["large>=95"], &["--", "true"]).assert_exit(5, &["not met: large>=95"]);
}

#[test]
fn groups_of_processes_are_judged_together() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let own = std::process::id().to_string();
    let (code, judgements) = judged(&bench, &["--tree", &own], &["all:4K>=100%"]);
    assert_eq!((code, &judgements[0]["is_met"]), (Some(0), &true.into()), "{judgements:#?}");
    let codes = |requirement: &str| -> Vec<String> {
        let (_, judgements) = judged(&bench, &[&own], &[requirement]);
        let causes = judgements[0]["causes"].as_array().unwrap();
        causes.iter().map(|one| one["cause"]["code"].as_str().unwrap().to_owned()).collect()
    };
    let is_of_files = |code: &String| code.starts_with("file_") || code == "code_pages";
    assert!(codes("all:large>=100%").iter().any(is_of_files), "a program has pages of files");
    assert!(!codes("large>=100%").iter().any(is_of_files), "they are not in the scope");
    bench
        .pagelab(&["inspect", &own, "--sizes", "--require", "could-be-larger<=1G"])
        .ran()
        .assert_exit(5, &["not known whether met"]);
    bench
        .pagelab(&["inspect", &own, "--require", "huge>=95%"])
        .ran()
        .assert_exit(2, &["\"huge\" is no figure", "large>=95%"]);
    bench
        .pagelab(&["inspect", &own, "--every", "1s", "--require", "large>=1%"])
        .ran()
        .assert_exit(2, &["cannot be used with"]);
}

/// The code blocks of the guide about `--require`.
fn examples() -> Vec<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/gate.md")).unwrap();
    page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}

/// Runs a line of the guide in the bench, where `service` is ready at once and runs for two seconds.
fn example(bench: &Bench, line: &str, variables: &[(&str, &str)]) -> Ran {
    let service = "#!/bin/sh\n: > \"$READY\"; exec sleep 2\n";
    let path = bench.path("service");
    fs::write(&path, service).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let directory = bench.program().parent().unwrap().display().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", line, "entry", "./service"]).current_dir(bench.path(""));
    command.env("PATH", format!("{directory}:{}", std::env::var("PATH").unwrap_or_default()));
    command.env("READY", bench.path("ready")).envs(variables.iter().copied()).ran()
}

#[test]
fn the_examples_of_the_guide_pass_and_fail_by_the_pages() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let examples = examples();
    let with = |text: &str| examples.iter().find(|one| one.contains(text)).unwrap().replace("large>=9", "all:4K>=9");
    let ci = with("--self-test");
    example(&bench, &ci, &[]).assert_exit(0, &[]).assert_stdout(&["required all:4K>=90%: met"]);
    example(&bench, &ci.replace("all:4K", "1G"), &[]).assert_exit(5, &["not met: 1G>=90%"]);
    let unit = with("ExecStartPost");
    let post = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStartPost=+/usr/bin/"))
        .unwrap()
        .replace("%%", "%")
        .replace(">=", "\\>=");
    let own = std::process::id().to_string();
    example(&bench, &post, &[("MAINPID", &own)]).assert_exit(0, &[]);
    example(&bench, &post.replace("all:4K", "1G"), &[("MAINPID", &own)]).assert_exit(5, &["not met: 1G>=95%"]);
    let start = with("#!/bin/sh");
    example(&bench, &start, &[]).assert_exit(0, &[]);
    fs::remove_file(bench.path("ready")).unwrap();
    example(&bench, &start.replace("all:4K", "1G"), &[])
        .assert_exit(5, &["required 1G>=95%: not met", "not met: 1G>=95%"]);
}
