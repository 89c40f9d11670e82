//! Tests of studies on a real Slurm: submitted, killed and requeued, on a node that is drained, and merged from
//! complete shards.

mod cluster;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/traced.rs"]
mod traced;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster::{Cluster, slurm_is_here};
use common::*;
use traced::Traced;

/// A study of two commands, of which the first takes some time, and of a workload that cannot run.
const TINY: &str = r#"
schema = "pagelab.study/1"
name = "tiny"
question = "Does it run?"
policies = ["default", "base"]

[slurm]
partition = "pagelab-64"
time = "10m"

[sizes.standard]
parameters = { s = "0.05" }
blocks = 6
min_blocks = 6

[[workload]]
name = "sleep"
command = ["sleep", "{s}"]

[[workload]]
name = "true"
command = ["true"]

[[workload]]
name = "omnet"
missing = "it has no free counterpart"
"#;

fn written(bench: &Bench, text: &str) -> String {
    fs::write(bench.path("tiny.toml"), text).unwrap();
    bench.word("tiny.toml")
}

/// A bench with a directory that serves as the node's own disk for tasks.
fn bench() -> Bench {
    let bench = Bench::new();
    with_disk(&bench);
    bench
}

fn with_disk(bench: &Bench) {
    fs::create_dir(bench.path("disk")).unwrap();
    fs::set_permissions(bench.path("disk"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
}

/// A verb of `study` on the bench's store, on the cluster, as the user without privileges.
fn study(bench: &Bench, cluster: &Cluster, words: &[&str]) -> Ran {
    privileged(bench, cluster, words).as_nobody().ran()
}

fn privileged(bench: &Bench, cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = bench.pagelab(&[&["study"], words, &["--store", &bench.store()]].concat());
    command.env("SLURM_CONF", cluster.path("slurm.conf")).env("TMPDIR", bench.path("disk"));
    command
}

fn shard(bench: &Bench, name: &str) -> PathBuf {
    bench.path("results.shards").join(name)
}

fn printed(bench: &Bench, begin: &str) -> String {
    let entries = fs::read_dir(bench.path("results.shards")).into_iter().flatten().flatten();
    let mut named: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    named.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(begin));
    named.retain(|path| path.extension().is_some_and(|ending| ending == "out"));
    named.sort();
    named.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The number of trials in the only comparison of a store; 0 if it cannot be read yet.
fn trials(bench: &Bench, store: &Path) -> u64 {
    let store = store.display().to_string();
    let listed = bench.pagelab(&["list", "comparisons", "--json", "--store", &store]).ran();
    serde_json::from_str::<serde_json::Value>(&listed.stdout)
        .ok()
        .and_then(|listed| listed["comparisons"][0]["trials"].as_u64())
        .unwrap_or(0)
}

/// The places of the trials in the store's first comparison: arm, block, attempt.
fn places(bench: &Bench, store: &Path) -> Vec<(u64, u64, u64)> {
    let store = store.display().to_string();
    let shown = bench.pagelab(&["show", "1", "--store", &store, "--json"]).ran().json();
    let of = |trial: &serde_json::Value| ["arm", "block", "attempt"].map(|key| trial[key].as_u64().unwrap()).into();
    shown["trials"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn without_slurm_the_scripts_are_printed_and_nothing_is_submitted() {
    let bench = bench();
    let text = TINY.replace("partition", "concurrent = 3\nconstraint = \"intel&avx\"\npartition");
    let file = written(&bench, &text);
    let run = |options: &[&str]| {
        let store = bench.store();
        let mut command = bench.pagelab(&[&["study", "run", &file, "--store", &store], options].concat());
        command.env("PATH", bench.path("")).ran()
    };
    run(&["--on", "slurm", "--dry-run"]).assert_exit(0, &[]).assert_stdout(&[
        "task 0, sleep on host",
        "task 1, true on host",
        "#SBATCH --array=0-1%3",
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        "#SBATCH --requeue",
        "#SBATCH --partition=pagelab-64",
        "#SBATCH --constraint=intel&avx",
        "#SBATCH --time=10 ",
        "--task \"$SLURM_ARRAY_TASK_ID\"",
        "#SBATCH --dependency=afterany:JOB1,singleton",
        "study merge --shards",
    ]);
    run(&["--on", "slurm", "--dry-run", "--only", "tru"]).assert_exit(0, &[]).assert_stdout(&["#SBATCH --array=1%3"]);
    run(&["--on", "slurm"]).assert_exit(2, &["there is no squeue in PATH", "runs on this machine without --on slurm"]);
    assert!(!bench.path("results.shards").exists() && fs::read_dir(bench.path("disk")).unwrap().next().is_none());
    let merge = ["study", "merge", "--shards", &file, "--store", &bench.store()];
    bench.pagelab(&merge).ran().assert_exit(2, &["no study was submitted to Slurm with the store"]);
    run(&["--task", "2"]).assert_exit(2, &["the study has 2 tasks"]);
    run(&["--task", "1", "--on", "slurm"]).assert_exit(2, &["cannot be used with"]);
    written(&bench, &text.replace("\"pagelab-64\"", "\"bench\\n#SBATCH --uid=0\""));
    run(&["--on", "slurm", "--dry-run"]).assert_exit(2, &["slurm.partition", "expected a word of Slurm"]);
    written(&bench, &text.replace("\"10m\"", "\"10\""));
    run(&["--on", "slurm", "--dry-run"]).assert_exit(2, &["slurm.time", "expected a time"]);
    written(&bench, &text.replace("concurrent", "concurent"));
    run(&["--on", "slurm", "--dry-run"]).assert_exit(2, &["concurent", "the nearest is `concurrent`"]);
}

#[test]
fn a_study_runs_on_nodes_and_is_merged() {
    if !slurm_is_here() {
        return;
    }
    let _alone = is_root().then(Alone::wait);
    let cluster = Cluster::start("");
    let traced = Traced::new();
    let bench = &traced.bench;
    with_disk(bench);
    let more = "[[workload]]\nname = \"writes\"\ntrace = \"a.trace\"\n\
        [[workload]]\nname = \"nowhere\"\npackage = \"acme\"\ncommand = [\"acme-bench\"]\n";
    let text = TINY.replace("[slurm]", "machines = [\"host\", \"cortex-a53\"]\n[slurm]\nmodel_cpus = 2");
    let text = text.replace("\"default\", \"base\"]", "\"base\", \"default\", \"mthp-64k\"]");
    let file = written(bench, &(text + more));
    let submitted = study(bench, &cluster, &["run", &file, "--on", "slurm", "--only", "sleep,writes,nowhere"]);
    submitted.assert_exit(0, &[]).assert_stdout(&["submitted: job 1 and job", "merges what it leaves"]);
    study(bench, &cluster, &["run", &file, "--on", "slurm"]).assert_exit(2, &["already queued or running: 1"]);
    cluster.await_end();
    let log = printed(bench, "tiny-standard-merge-");
    for part in [
        "1 comparisons added",
        "nowhere on host: cannot be run",
        "nowhere on cortex-a53: cannot be run",
        "acme-bench",
        "true on host: it left no shard: it has not started",
    ] {
        assert!(log.contains(part), "no {part:?} in {log}\n{}", printed(bench, "tiny-standard-"));
    }
    let report = study(bench, &cluster, &["report", &file, "--json"]).json();
    let row = |workload: &str, is_host: bool| {
        let rows = report["rows"].as_array().unwrap();
        let is_own =
            |row: &&serde_json::Value| row["workload"] == workload && (row["provenance"] == "measured") == is_host;
        rows.iter().find(is_own).unwrap_or_else(|| panic!("no {workload} in {report:#}")).clone()
    };
    let why = row("sleep", true)["cells"][2].to_string();
    assert!(why.contains("root"), "a policy that needs settings has its reason: {why}");
    assert_eq!(row("writes", false)["cells"].as_array().unwrap().len(), 3);
    assert!(row("writes", false)["cells"][0]["medians"]["walks"].as_f64().is_some(), "{report:#}");
    assert!(fs::read_dir(bench.path("disk")).unwrap().next().is_none(), "nothing is left on the node's disk");
    let again = study(bench, &cluster, &["merge", "--shards", &file]);
    again
        .assert_exit(1, &["tasks have no result"])
        .assert_stdout(&["0 comparisons added, 0 completed, 1 there already"]);
}

/// On this cluster array indices are below two, and the study has three tasks. So they become two arrays, of which the
/// second waits for the first.
#[test]
fn a_site_with_short_arrays_gets_several_and_the_status_says_how_each_task_is() {
    if !slurm_is_here() {
        return;
    }
    let _alone = is_root().then(Alone::wait);
    let cluster = Cluster::start("MaxArraySize=2\n");
    let bench = bench();
    let third = "[[workload]]\nname = \"echo\"\ncommand = [\"echo\"]\n";
    let file = written(&bench, &(TINY.replace("partition", "concurrent = 1\npartition") + third));
    let status = || study(&bench, &cluster, &["status", &file, "--json"]).json();
    assert_eq!(status()["tasks"], serde_json::json!([]), "nothing was submitted");
    study(&bench, &cluster, &["run", &file, "--on", "slurm", "--dry-run"]).assert_exit(0, &[]).assert_stdout(&[
        "#SBATCH --array=0-1%1",
        "#SBATCH --array=0%1",
        "--task \"$((SLURM_ARRAY_TASK_ID + 2))\"",
    ]);
    let submitted = study(&bench, &cluster, &["run", &file, "--on", "slurm"]);
    submitted.assert_exit(0, &[]).assert_stdout(&["submitted: job 1 and job "]);
    let states = || {
        let document = status();
        let of = |task: &serde_json::Value| ["state", "why"].map(|key| task[key].as_str().unwrap().to_owned());
        document["tasks"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let is_seen = || {
        let states = states();
        states.len() == 3 && states[2][0] == "queued" && states[2][1].contains("PENDING (")
    };
    assert!(within(LIMIT, is_seen), "{:?}", states());
    cluster.await_end();
    let log = printed(&bench, "tiny-standard-merge-");
    assert!(log.contains("3 comparisons added") && log.contains("all 3 tasks are done"), "{log}");
    assert!(shard(&bench, "tiny-standard-2+0.out").exists(), "its output has the name of its task");
    let expected = ["left a shard".to_owned(), "all its rows are done".to_owned()];
    assert_eq!(states(), [expected.clone(), expected.clone(), expected]);
    study(&bench, &cluster, &["status", &file]).assert_exit(0, &[]).assert_stdout(&[
        "tasks of Slurm:",
        "echo",
        "left a shard",
    ]);
}

#[test]
fn a_task_that_is_killed_and_queued_again_repeats_nothing() {
    if !slurm_is_here() {
        return;
    }
    let _alone = is_root().then(Alone::wait);
    let cluster = Cluster::start("");
    let bench = bench();
    let file = written(&bench, &TINY.replace("blocks = 6", "blocks = 48").replace("0.05", "0.1"));
    study(&bench, &cluster, &["run", &file, "--on", "slurm", "--only", "sleep"]).assert_exit(0, &[]);
    let local = bench.path("disk").join("pagelab-1-tiny-standard-0").join("results.sqlite");
    let has_begun = |most: u64| local.exists() && trials(&bench, &local) > most;
    assert!(within(LIMIT, || has_begun(3)), "it does not begin: {}", printed(&bench, "tiny"));
    // All processes of the task are killed, as in a failure of the node, so none can save anything.
    let tasks = processes_with("--task 0");
    tasks.iter().filter(|(_, line)| line.contains(&bench.word(""))).for_each(|(pid, _)| send("KILL", *pid));
    cluster.await_end();
    let log = printed(&bench, "tiny-standard-merge-");
    assert!(log.contains("task 0, sleep on host: it left no shard: it is running, or was killed"), "{log}");
    let before = places(&bench, &local);
    // A job whose cleanup has not finished cannot be requeued.
    let is_queued = || {
        cluster.ask("scontrol", &["requeue", "1_0"]);
        !cluster.queue().is_empty()
    };
    assert!(within(LIMIT, is_queued), "it is not queued again");
    assert!(within(LIMIT, || has_begun(before.len() as u64 + 2)), "{:?}", cluster.queue());
    // The task gets a signal, as in a preemption, and saves its trials.
    cluster.ask("scontrol", &["requeue", "1_0"]);
    let shard = shard(&bench, "tiny-standard-0.sqlite");
    assert!(within(LIMIT, || shard.exists()), "{}", printed(&bench, "tiny-standard-0"));
    let between = places(&bench, &shard);
    assert!(between.starts_with(&before) && between.len() > before.len());
    cluster.await_end();
    let merged = study(&bench, &cluster, &["merge", "--shards", &file]);
    merged
        .assert_exit(1, &["1 of 2 tasks have no result"])
        .assert_stdout(&["1 comparisons added", "task 1, true on host"]);
    let after = places(&bench, &bench.path("results.sqlite"));
    assert!(after.starts_with(&between), "what was finished is kept as it was");
    // A block that was disturbed is run again as another attempt, which does not count as a duplicate.
    let distinct: std::collections::BTreeSet<_> = after.iter().collect();
    assert_eq!(distinct.len(), after.len(), "no trial twice");
    assert!(!local.exists());
}

#[test]
fn on_a_node_that_drains_tasks_wait_and_half_a_shard_is_not_merged() {
    if !slurm_is_here() {
        return;
    }
    let _alone = is_root().then(Alone::wait);
    let cluster = Cluster::start("");
    let bench = bench();
    let file = written(&bench, &TINY.replace("0.05", "0.2"));
    study(&bench, &cluster, &["run", &file, "--on", "slurm"]).assert_exit(0, &[]);
    cluster.await_state("1_0", "RUNNING");
    cluster.ask("scontrol", &["update", "NodeName=node1", "State=DRAIN", "Reason=test"]);
    let first = shard(&bench, "tiny-standard-0.sqlite");
    assert!(within(LIMIT, || first.exists()), "{}", printed(&bench, "tiny-standard-0"));
    cluster.await_state("1_1", "PENDING");
    let merge = || study(&bench, &cluster, &["merge", "--shards", &file]);
    merge()
        .assert_exit(1, &["1 of 2 tasks have no result"])
        .assert_stdout(&["task 1, true on host: it left no shard: it has not started"]);
    cluster.ask("scontrol", &["update", "NodeName=node1", "State=RESUME"]);
    cluster.await_end();
    let log = printed(&bench, "tiny-standard-merge-");
    assert!(log.contains("all 2 tasks are done"), "{log}");

    // Only half of the first shard was copied, and the second shard is still a temporary copy.
    fs::remove_file(bench.path("results.sqlite")).unwrap();
    let whole = fs::read(&first).unwrap();
    fs::write(&first, &whole[..whole.len() / 2]).unwrap();
    let second = shard(&bench, "tiny-standard-1.sqlite");
    fs::rename(&second, shard(&bench, "tiny-standard-1.sqlite.elsewhere-7.partial")).unwrap();
    merge().assert_exit(1, &["task 0, sleep on host:", "damaged", "it was not merged", "2 of 2 tasks"]).assert_stdout(
        &[
            "0 comparisons added",
            "is damaged, or an incomplete copy",
            "the copy of its shard was not finished",
            "elsewhere-7.partial",
        ],
    );
    study(&bench, &cluster, &["run", &file, "--on", "slurm"]).assert_exit(0, &[]);
    cluster.await_end();
    let again = merge();
    again
        .assert_exit(0, &[])
        .assert_stdout(&["0 comparisons added, 0 completed, 2 there already", "all 2 tasks are done"]);
    assert!(shard(&bench, "tiny-standard-0.sqlite.damaged").exists(), "the damaged shard is kept");
    study(&bench, &cluster, &["run", &file, "--on", "slurm"])
        .assert_exit(0, &[])
        .assert_stdout(&["nothing is left to submit"]);
}

/// An example of a site's script, with one text changed for the test.
fn example(bench: &Bench, name: &str, from: &str, to: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/slurm");
    let text = fs::read_to_string(examples.join(name)).unwrap();
    assert!(text.contains(from));
    bench.script(name, &text.replace(from, to))
}

#[test]
fn settings_granted_by_a_prolog_are_measured_and_taken_back() {
    let size = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    if !slurm_is_here() || !needs(&[("folios of 64K", Path::new(size).exists())]) {
        return;
    }
    // The scripts change settings, so the test holds the lease meanwhile. `restore` would wait for it.
    let _lease_guard = LeaseGuard::wait();
    let before = settings();
    let bench = bench();
    let prolog = example(&bench, "prolog.sh", "nr_hugepages 512", "nr_hugepages 8");
    let epilog = example(&bench, "epilog.sh", "/usr/local/bin/pagelab", "true");
    let cluster = Cluster::start(&format!("Prolog={prolog}\nEpilog={epilog}"));
    let file = written(&bench, &TINY.replace("\"base\"]", "\"mthp-64k\"]"));
    study(&bench, &cluster, &["run", &file, "--on", "slurm", "--only", "sleep"]).assert_exit(0, &[]);
    cluster.await_end();
    let is_as_before = within(LIMIT, || settings() == before);
    assert!(is_as_before, "it is not taken back: {:?}", settings());
    let listed = bench.pagelab(&["show", "1", "--store", &bench.store(), "--json"]).ran().json();
    assert_eq!(arm(&listed, "mthp-64k")["unsupported"], serde_json::Value::Null, "{listed:#}");
    assert_eq!(trials(&bench, &bench.path("results.sqlite")), 14, "six blocks of two arms, and block 0");
}

#[test]
fn after_a_kill_that_takes_the_watchdog_along_the_epilog_restores() {
    if !slurm_is_here() {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    bench.pagelab(&["restore"]).ran();
    let before = settings_at_rest();
    let epilog = example(&bench, "epilog.sh", "/usr/local/bin/pagelab", &bench.word("pagelab"));
    let cluster = Cluster::start(&format!("Epilog={epilog}"));
    let text = TINY.replace("\"base\"]", "\"mthp-64k\", \"hugetlb-2m\"]").replace("0.05", "0.2");
    let file = written(&bench, &text.replace("blocks = 6", "blocks = 200"));
    let submit = ["run", &file, "--on", "slurm", "--only", "sleep"];
    // Root uses a directory for temporary files only if no other user can change it.
    let disk = tempfile::tempdir().unwrap();
    privileged(&bench, &cluster, &submit).env("TMPDIR", disk.path()).ran().assert_exit(0, &[]);
    let own = || processes_with(&bench.word("pagelab")).into_iter().filter(|(_, line)| line.contains("--task"));
    let has_lease = || leaseholder().is_some_and(|holder| own().any(|(pid, _)| pid == holder));
    // Another comparison on this host may hold the lease for a while.
    assert!(within(LIMIT, has_lease), "it never had the lease: {}", printed(&bench, "tiny"));
    // A process that is writing a setting stops only after the write. So every process that may restore settings must have
    // stopped before the settings are read.
    let stopped = within(LIMIT, || {
        let running = || own().filter(|(pid, _)| !is_stopped(*pid)).collect::<Vec<_>>();
        let all_stop = within(LIMIT, || {
            running().iter().for_each(|(pid, _)| send("STOP", *pid));
            running().is_empty()
        });
        assert!(all_stop, "{:?} should have stopped {LIMIT:?} ago", running());
        let is_changed = has_lease() && settings() != before;
        if !is_changed {
            own().for_each(|(pid, _)| send("CONT", pid));
            std::thread::sleep(Duration::from_millis(50));
        }
        is_changed
    });
    assert!(stopped, "no setting was ever changed: {}", printed(&bench, "tiny"));
    // Kills the task and its watchdog as a control group would: neither can act between the two kills.
    own().for_each(|(pid, _)| send("KILL", pid));
    assert!(settings() != before, "who was killed restored something");
    cluster.ask("scancel", &["1"]);
    let is_as_before = within(LIMIT, || settings() == before);
    assert!(is_as_before, "the epilog restores nothing: {}", cluster.ask("sinfo", &["-R"]));
    cluster.await_end();
}
