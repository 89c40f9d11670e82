//! Tests of suites and of the inputs of their workloads: inputs are found, made once, identified by their hash, and reported if
//! this machine cannot make them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::*;
use serde_json::Value;

/// A suite in the directory of the study.
const SUITE: &str = r#"
schema = "pagelab.suite/1"
name = "small"
about = "what tests are run with"
[sizes.standard]
parameters = { lines = 3 }

[[input]]
name = "numbers"
output = "numbers"
command = ["sh", "-s", "{lines}"]
script = '''
echo made >> "$MADE_LIST"
seq "$1"
'''

[[workload]]
name = "sum"
package = "coreutils"
command = ["sha256sum", "{numbers}"]
check_output = true

[[workload]]
name = "reader"
command = ["cat"]
input = "{numbers}"
check_output = true

[[workload]]
name = "nowhere"
package = "acme, acme-data"
needs = ["/usr/share/acme/data"]
command = ["acme-bench", "{numbers}"]
"#;

const STUDY: &str = r#"
schema = "pagelab.study/1"
name = "of-suite"
question = "Does it run?"
policies = ["default", "base"]
[sizes.standard]
blocks = 6
min_blocks = 6
[[suite]]
name = "small"
"#;

/// A bench with the study `of-suite.toml` and a suite in the same directory.
fn bench(study: &str, suite: &str) -> Bench {
    let bench = Bench::new();
    fs::create_dir(bench.path("suites")).unwrap();
    fs::write(bench.path("suites/small.toml"), suite).unwrap();
    fs::write(bench.path("of-suite.toml"), study).unwrap();
    bench
}

/// `pagelab study VERB` without privileges, so that a verb that changes no setting does not wait for the lease.
fn study(bench: &Bench, verb: &str, options: &[&str]) -> Command {
    let store = bench.store();
    let mut command =
        bench.pagelab(&[&["study", verb, &bench.word("of-suite.toml"), "--store", &store], options].concat());
    command.env("XDG_CACHE_HOME", bench.path("cache")).env("MADE_LIST", bench.path("made"));
    if is_root() && has("setpriv") { command.as_nobody() } else { command }
}

fn times_made(bench: &Bench) -> usize {
    fs::read_to_string(bench.path("made")).map_or(0, |text| text.lines().count())
}

/// The command that a stored comparison has measured.
fn command(bench: &Bench, number: u64) -> Value {
    bench.stored(number)["invocation"]["command"].clone()
}

#[test]
fn an_input_is_made_once_and_its_hash_is_stored() {
    let _alone = is_root().then(Alone::wait);
    let bench = bench(STUDY, SUITE);
    study(&bench, "run", &["--dry-run"])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["make its input, then pagelab compare", "not-made-yet"]);
    assert!(times_made(&bench) == 0 && !bench.path("cache").exists(), "a dry run makes nothing");
    let ran = study(&bench, "run", &[]).ran();
    ran.assert_exit(0, &["making the input numbers, once", "the input numbers has the hash"])
        .assert_stdout(&["2 of 3 rows are done"]);
    assert_eq!(times_made(&bench), 1, "two workloads have it");
    let stored = command(&bench, 1);
    let path = stored[1].as_str().unwrap();
    let hash = path.rsplit('/').nth(1).unwrap();
    assert!(ran.stderr.contains(hash) && hash.len() == 64, "{path}");
    assert_eq!(fs::read_to_string(path).unwrap(), "1\n2\n3\n");
    // The results of the first run count, because paths are not part of a measurement's identity.
    study(&bench, "run", &[]).ran().assert_exit(0, &[]).assert_stdout(&["2 of 3 rows are done"]);
    assert_eq!((times_made(&bench), bench.listed().len()), (1, 2));
    fs::write(path, "4\n").unwrap();
    fs::write(bench.path("of-suite.toml"), STUDY.replace("= 6", "= 7")).unwrap();
    let ran = study(&bench, "run", &["--only", "sum"]).ran();
    ran.assert_exit(1, &["the input numbers has changed since it was made", hash, "remove that directory"]);
    assert_eq!(bench.listed().len(), 2, "nothing is measured with it");
}

#[test]
fn an_input_that_cannot_be_made_says_why_and_the_others_go_on() {
    let _alone = is_root().then(Alone::wait);
    let fails = "[ -e \"$MADE_LIST.ok\" ] || { echo no seq here >&2; exit 3; }; seq \"$1\"";
    let suite = SUITE.replace("seq \"$1\"", fails);
    let suite = suite.replace(
        "[[workload]]\nname = \"sum\"",
        "[[workload]]\nname = \"plain\"\npackage = \"coreutils\"\ncommand = [\"true\"]\n\n[[workload]]\nname = \"sum\"",
    );
    let bench = bench(STUDY, &suite);
    let ran = study(&bench, "run", &[]).ran();
    ran.assert_exit(
        1,
        &[
            "no result yet of sum",
            "sum: the input numbers cannot be made: its command failed (exit status 3); its last words: no seq here",
        ],
    );
    ran.assert_stdout(&["1 of 4 rows are done", "2 of 4 workloads on this host"]);
    let names = |directory: &Path| -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let inputs = bench.path("cache/pagelab/inputs");
    let left = names(&inputs);
    assert!(
        left.len() == 2 && left[1] == format!("{}.why-not-made", left[0]),
        "the reason, and nothing half made: {left:?}"
    );
    assert!(names(&inputs.join(&left[0])).is_empty());
    let why = "the input numbers cannot be made: its command failed (exit status 3)";
    let status = study(&bench, "status", &["--json"]).ran().json();
    let row = status["rows"].as_array().unwrap().iter().find(|row| row["workload"] == "sum").unwrap();
    assert!(row["state"] == "missing" && row["why"].as_str().unwrap().starts_with(why), "{row}");
    study(&bench, "report", &[]).ran().assert_exit(0, &[]).assert_stdout(&["the input numbers cannot be made:"]);
    // Making the input is tried again, and the old reason is removed.
    fs::write(bench.path("made.ok"), "").unwrap();
    study(&bench, "run", &["--only", "sum"]).ran().assert_exit(0, &["making the input numbers"]);
    let made = names(&inputs);
    assert!(made.len() == 1 && names(&inputs.join(&made[0]))[0].len() == 64, "{made:?}");
}

#[test]
fn the_last_copy_of_an_input_is_removed() {
    let _alone = is_root().then(Alone::wait);
    let suite = SUITE.replace("name = \"sum\"", "name = \"sum\"\nprepare = \"mkdir -p {numbers}.trial/a\"");
    let suite = suite.replace("output = \"numbers\"\n", "").replace("seq \"$1\"", "seq \"$1\" > numbers");
    let suite = suite.replace("\"{numbers}\"]", "\"{numbers}/numbers\"]");
    let bench = bench(STUDY, &suite);
    study(&bench, "run", &["--only", "sum"]).ran().assert_exit(0, &[]).assert_stdout(&["1 of 3 rows are done"]);
    let made: Vec<String> = fs::read_dir(bench.path("cache/pagelab/inputs"))
        .unwrap()
        .flatten()
        .flat_map(|one| fs::read_dir(one.path()).unwrap().flatten())
        .map(|one| one.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(made.len() == 1 && made[0].len() == 64, "the input and nothing beside it: {made:?}");
}

#[test]
fn names_missing_programs_with_their_packages() {
    let bench = bench(STUDY, SUITE);
    let file = bench.word("of-suite.toml");
    let ran = bench.pagelab(&["study", "doctor", &file]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["nowhere", "lacking", "acme-bench", "/usr/share/acme/data"]);
    ran.assert_stdout(&[
        "apt-get install --no-install-recommends acme acme-data",
        "its input is made when it is first run",
    ]);
    let document = bench.pagelab(&["study", "doctor", &file, "--json"]).ran().json();
    assert_eq!(document["schema"], "pagelab.study-doctor/1");
    assert_eq!(document["packages"], serde_json::json!(["acme", "acme-data"]));
    let states: Vec<&str> =
        document["workloads"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["here", "here", "lacking"]);
    let all = bench.pagelab(&["study", "doctor"]).ran();
    all.assert_exit(0, &[]).assert_stdout(&[
        "specint-like",
        "omnetpp",
        "it has no free counterpart",
        "kernel-heavy",
        "servers",
    ]);
    bench.pagelab(&["study", "doctor", "contig-hunt"]).ran().assert_exit(2, &["the nearest is contig-hint"]);
}

#[test]
fn a_suite_that_makes_no_sense_is_refused_in_a_line() {
    let _alone = is_root().then(Alone::wait);
    for (study_text, suite, parts) in [
        (STUDY.replace("\"small\"", "\"smal\""), SUITE.to_owned(), &["no suite \"smal\"", "the nearest is small"][..]),
        (
            STUDY.replace("\"small\"", "\"nowhere\""),
            SUITE.to_owned(),
            &["there is no suite \"nowhere\"", "specint-like"],
        ),
        (
            STUDY.replace("\"small\"", "\"small\"\nonyl = []"),
            SUITE.to_owned(),
            &["unknown field `onyl`", "nearest is `only`"],
        ),
        (
            STUDY.to_owned(),
            SUITE.replace("about", "abuot"),
            &["suite small", "unknown field `abuot`", "nearest is `about`"],
        ),
        (STUDY.to_owned(), SUITE.replace("\"small\"", "\"large\""), &["suite small", "its `name` is \"large\""]),
        (STUDY.to_owned(), SUITE.replace("script", "scirpt"), &["unknown field `scirpt`", "nearest is `script`"]),
        (STUDY.to_owned(), SUITE.replace("{lines}", "{line}"), &["input \"numbers\"", "{line}", "{lines}"]),
        (STUDY.replace("\"base\"]", "\"direct-map-4k\"]"), SUITE.to_owned(), &["when the machine boots"]),
        (
            STUDY.replace("question", "primary = \"rps\"\nquestion"),
            SUITE.to_owned(),
            &["workload \"sum\"", "no metric \"rps\"", "wall, cpu"],
        ),
    ] {
        let bench = bench(&study_text, &suite);
        let ran = study(&bench, "run", &["--dry-run"]).ran();
        ran.assert_exit(2, parts);
        assert_eq!(ran.stderr.trim().lines().count(), 1, "{ran}");
    }
    let own = bench(STUDY, SUITE);
    let ran = study(&own, "run", &["--only", "sum,sume"]).ran();
    ran.assert_exit(2, &["--only: no workload has \"sume\" in its name; there are sum, reader, nowhere"]);
    let bench = Bench::new();
    let ran = bench.pagelab(&["study", "run", "nowhere"]).ran();
    assert!(
        !ran.assert_exit(2, &["there is no study \"nowhere\"; there are base-64k"]).stderr.contains("nearest"),
        "{ran}"
    );
}

#[test]
fn an_answer_that_is_wrong_in_one_arm_alone_is_that_arms() {
    let _alone = is_root().then(Alone::wait);
    // Under `base` the kernel reports that the process has no THP, and under other policies that it has.
    let study_text = STUDY.replace("\"base\"]", "\"base\", \"default+no-guards\"]");
    let with = |answer: &str| {
        let workload = format!(
            "only = [\"sum\"]\n[[workload]]\nname = \"flag\"\nanswer = '{answer}'\n\
             command = [\"grep\", \"-E\", \"THP_enabled|^Pid:\", \"/proc/self/status\"]\n"
        );
        let bench = bench(&(study_text.clone() + &workload), SUITE);
        let ran = study(&bench, "run", &["--only", "flag"]).ran();
        let document = study(&bench, "report", &["--json"]).ran().json();
        let row = document["rows"].as_array().unwrap().iter().find(|row| row["workload"] == "flag").unwrap();
        let cells = row["cells"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<String>>();
        (ran, cells)
    };
    let (ran, cells) = with("THP_enabled:\\s*([01])");
    assert!(ran.stdout.contains("1 of 2 rows are done"), "{ran}");
    assert!(cells[1].contains("wrong answer: standard output differs"), "{cells:#?}");
    assert!(!cells[0].contains("wrong answer") && !cells[2].contains("wrong answer"), "{cells:#?}");
    // The PID differs in every run, and is outside the part that counts as the answer.
    let (ran, cells) = with("(THP_enabled)");
    assert!(
        ran.stdout.contains("1 of 2 rows are done") && !cells.concat().contains("wrong answer"),
        "{ran} {cells:#?}"
    );
    // If the pattern finds no answer, the whole output is the answer.
    let (ran, _) = with("(nothing of it)");
    ran.assert_exit(1, &["flag: under the baseline default the answer changes from one trial to another"]);
}

#[test]
fn a_program_that_refuses_to_be_roots_is_another_users() {
    let _alone = is_root().then(Alone::wait);
    if !needs(&[("root", is_root())]) {
        return;
    }
    let suite = SUITE.replace("seq \"$1\"", "id -u").replace("name = \"sum\"", "name = \"sum\"\nuser = \"nobody\"");
    let bench =
        bench(STUDY, &suite.replace("\"sha256sum\", \"{numbers}\"", "\"id\", \"-u\", \"{numbers}\", \"--help\""));
    let words = ["study", "run", &bench.word("of-suite.toml"), "--store", &bench.store(), "--only", "sum"];
    let mut run = bench.pagelab(&words);
    // The other user must be able to read the directory, and only root may change it.
    let cache = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    run.env("XDG_CACHE_HOME", cache.path()).env("MADE_LIST", "/dev/null");
    run.ran().assert_exit(0, &["making the input numbers, once"]).assert_stdout(&["1 of 3 rows are done"]);
    let stored = command(&bench, 1);
    let path = stored[2].as_str().unwrap();
    let id = String::from_utf8(Command::new("id").args(["-u", "nobody"]).output().unwrap().stdout).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), id, "made as that user");
    assert!(path.contains("-nobody/"), "{path}");
}

#[test]
fn programs_of_the_suites_run_and_answer() {
    let _alone = is_root().then(Alone::wait);
    let here = [program("perl"), program("gcc"), program("dimacs-solver")];
    let games = ["gnugo", "sjeng"].map(|name| (name, fs::exists(format!("/usr/games/{name}")).unwrap()));
    if !needs(&here) || !needs(&games) || !needs(&[("libquantum-dev", fs::exists("/usr/include/quantum.h").unwrap())]) {
        return;
    }
    let used = "name = \"specint-like\"\nonly = [\"network simplex\", \"libquantum\", \"gcc\", \"gnugo\", \"sjeng\", \"astar\"]";
    let parameters = "parameters = { nodes = 500, arcs = 3000, factored = 15, base = 8, functions = 2, moves = 2, plies = 3, searches = 1 }\nblocks";
    let bench = bench(&STUDY.replace("name = \"small\"", used).replacen("blocks", parameters, 1), SUITE);
    // A run of another process that was killed may have left a directory.
    let homes = || -> BTreeSet<std::ffi::OsString> {
        let names = fs::read_dir("/tmp").unwrap().flatten().map(|one| one.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("sjeng-home")).collect()
    };
    let before = homes();
    let ran = study(&bench, "run", &[]).ran();
    ran.assert_exit(0, &["the input network has the hash", "the input shor has the hash"])
        .assert_stdout(&["5 of 6 rows are done"]);
    let document = study(&bench, "report", &["--json"]).ran().json();
    assert!(!document.to_string().contains("wrong answer"), "{document:#}");
    let answer = |name: &str| {
        let row = document["rows"].as_array().unwrap().iter().find(|row| row["workload"] == name).unwrap();
        bench.stored(row["comparison"].as_u64().unwrap())["trials"][0]["answer"]["stdout_sha256"].clone()
    };
    // The hash of `Raw nodes for depth 3: 8902`, the correct number of positions in chess, and the hash of empty
    // output.
    assert_eq!(answer("sjeng"), "977e50f4eceeb46cc104dad00ff121be396a1ca818f81c44625b549eecb0b9f3");
    assert_ne!(answer("gnugo"), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "it plays");
    assert!(homes().is_subset(&before), "the home of sjeng is gone with it");
}

#[test]
fn databases_report_percentiles_with_their_throughput() {
    let _alone = is_root().then(Alone::wait);
    let here = ["/usr/sbin/mariadbd", "sysbench", "pgbench", "pg_isready"].map(program);
    if !needs(&[root()]) || !needs(&here) {
        return;
    }
    let used = "name = \"servers\"\nonly = [\"mysql\", \"postgresql\"]";
    let parameters = "parameters = { rows = 500, events = 60, scale = 1, transactions = 500 }\nblocks";
    let bench = bench(&STUDY.replace("name = \"small\"", used).replacen("blocks", parameters, 1), SUITE);
    // The database runs as a user of its own, who could not read a directory of the test.
    let cache = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let run = |verb: &str, options: &[&str]| {
        let words = ["study", verb, &bench.word("of-suite.toml"), "--store", &bench.store()];
        let mut command = bench.pagelab(&[&words[..], options].concat());
        command.env("XDG_CACHE_HOME", cache.path());
        command.ran()
    };
    run("run", &[]).assert_exit(0, &[]).assert_stdout(&["2 of 2 rows are done"]);
    let document = run("report", &["--json"]).json();
    for row in document["rows"].as_array().unwrap() {
        let median = |name: &str| row["cells"][0]["medians"][name].as_f64().unwrap();
        assert!(0.0 < median("transaction_p50_ms") && median("transaction_p50_ms") <= median("transaction_p99_ms"));
        for name in ["transactions_per_s", "transaction_p50_ms", "transaction_p99_ms"] {
            assert!(row["cells"][1]["effects"][name]["low"].is_f64(), "{name} of {row:#}");
        }
    }
    let text = run("report", &[]);
    text.assert_stdout(&[
        "further figures that the programs print",
        "transaction_p99_ms",
        "memory and page tables under default",
    ]);
    let copies = fs::read_dir(cache.path().join("pagelab/inputs")).unwrap().flatten();
    let copies: Vec<_> = copies.flat_map(|one| fs::read_dir(one.path()).unwrap().flatten()).collect();
    assert_eq!(copies.len(), 2, "a database each, and no copy: {copies:?}");
}
