//! Tests of arms over boots: the arm of this boot, and boots of several hosts.

use super::*;

#[test]
fn the_arm_of_a_boot_is_measured_or_there_is_none() {
    let bench = Bench::new();
    let boot = this_boot();
    let policies = boot["policies"].as_array().unwrap();
    let has = policies.iter().find(|row| row["state"] == "now");
    let ran = bench.compare(&["--arm-of-boot", "--min-blocks", "2"], &bench.touch()).ran();
    match has {
        Some(row) => {
            let policy = row["policy"].as_str().unwrap();
            ran.assert_exit(0, &[]).assert_stdout(&[policy, "was measured in one boot only", "measured in no boot"]);
            let document = bench.pagelab(&["show", "1", "--json", "--store", &bench.store()]).ran().json();
            assert_eq!(document["boots"][0]["boot_id"], boot["boot_id"]);
            assert_eq!(document["boots"][0]["trials"], 2);
            let again = bench.pagelab(&["merge", &bench.store()]).ran();
            again.assert_exit(0, &[]).assert_stdout(&["was measured in one boot only"]);
            // Runs only this arm, which is then merged with the boots that requested all arms together.
            let alone = bench.compare(&["--arm-of-boot", "-p", policy, "--min-blocks", "3"], &bench.touch()).ran();
            alone.assert_exit(0, &[]).assert_stdout(&[policy, "was measured in one boot only", "measured in no boot"]);
            let document = &bench.stored(2);
            assert_eq!((document["boots"][0]["trials"].as_u64(), &document["boots"][1]), (Some(3), &Value::Null));
        }
        None => {
            ran.assert_exit(3, &["nothing to compare", "direct-map"]);
        }
    };
    for row in policies.iter().filter(|row| row["state"] != "now") {
        let policy = row["policy"].as_str().unwrap();
        let refused = bench.compare(&["--arm-of-boot", "-p", policy], &bench.touch()).ran();
        refused.assert_exit(3, &["there is nothing to compare", policy]);
    }
    bench
        .compare(&["--arm-of-boot", "-p", "thp"], &bench.touch())
        .ran()
        .assert_exit(2, &["thp does not depend on the boot"]);
}

/// A document of boots in the format of `compare --arm-of-boot --json`.
fn boots(arms: &[(&str, usize, f64)]) -> Value {
    let metric = json!({ "name": "wall_s", "unit": "seconds", "direction": "lower" });
    let labels = ["direct-map-1g", "direct-map-2m"];
    let boot = |(at, (host, arm, wall_s)): (usize, &(&str, usize, f64))| {
        json!({
            "host": host, "boot_id": format!("{host}-{at}-{arm}-{wall_s}"), "arm": arm, "started_unix_s": at,
            "kernel": "6.18", "kernel_command_line": "quiet", "demoted_to": null, "trials": 8,
            "medians": { "wall_s": wall_s }, "holding": "held",
            "answer": { "exit": { "code": 0 }, "stdout_sha256": null, "too_slow": false },
        })
    };
    json!({
        "schema": "pagelab.compare-boots/1",
        "design": {
            "arms": labels.map(|label| json!({ "label": label, "policy": label, "role": { "role": "policy" } })), "baseline": 0,
            "metrics": [metric], "primary": "wall_s", "min_blocks": 8, "max_blocks": 60, "max_time_s": null,
            "precision_ratio": 0.01, "band_ratio": 0.01, "confidence": 0.95, "seed": 1,
            "prove_all": false, "khugepaged": "as_is",
        },
        "invocation": { "command": ["work", "hard"], "client": null, "pagelab": [], "version": "0.1.0" },
        "boots": arms.iter().enumerate().map(boot).collect::<Vec<_>>(),
    })
}

#[test]
fn boots_of_several_hosts_are_joined() {
    let bench = Bench::new();
    let file = |name: &str, document: &Value| {
        fs::write(bench.path(name), document.to_string()).unwrap();
        bench.word(name)
    };
    let one = file(
        "one",
        &boots(&[("a", 0, 1.00), ("a", 0, 1.01), ("a", 0, 1.02), ("a", 1, 1.2), ("a", 1, 1.21), ("a", 1, 1.22)]),
    );
    let two = file("two", &boots(&[("b", 0, 2.00), ("b", 0, 2.01), ("b", 1, 2.4), ("b", 1, 2.41)]));
    let ran = bench.pagelab(&["merge", &one, &two, "--json"]).ran();
    ran.assert_exit(0, &[]);
    let document = ran.json();
    let arm = &document["arms"][1];
    assert_eq!(
        (&arm["boots"], &arm["hosts"], &arm["outcome"]["outcome"]),
        (&json!(5), &json!(2), &json!("worse")),
        "{document:#}"
    );
    let joined = file("joined", &document);
    let again = bench.pagelab(&["merge", &joined, &one, "--json"]).ran().json();
    assert_eq!(again["arms"], document["arms"], "a boot counts once");
    let alone = file("alone", &boots(&[("a", 0, 1.0), ("a", 0, 1.01), ("a", 1, 2.0)]));
    let ran = bench.pagelab(&["merge", &alone]).ran();
    ran.assert_exit(0, &[])
        .assert_stdout(&["- direct-map-2m was measured in one boot only", "Undecided: 3 boots do not"]);
    let (csv, html) = (bench.word("boots.csv"), bench.word("boots.html"));
    bench.pagelab(&["merge", &one, &two, "--csv", &csv, "--html", &html]).ran().assert_exit(0, &[&html]);
    let rows = fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), 1 + 10, "one for each boot: {rows}");
    assert!(
        rows.starts_with("host,boot_id,") && rows.contains(",direct-map-2m,direct-map-2m,8,wall_s,2.41,"),
        "{rows}"
    );
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("arms over boots") && page.contains("direct-map-2m is worse"), "{page}");
    let nowhere = bench.word("no/such/place.csv");
    bench.pagelab(&["merge", &one, "--csv", &nowhere]).ran().assert_exit(2, &["cannot be written"]);
}

#[test]
fn boots_that_answer_differently_end_with_1() {
    let bench = Bench::new();
    let mut document = boots(&[("a", 0, 1.0), ("a", 1, 2.0)]);
    document["boots"][1]["answer"]["stdout_sha256"] = json!("ab");
    fs::write(bench.path("one"), document.to_string()).unwrap();
    let ran = bench.pagelab(&["merge", &bench.word("one")]).ran();
    ran.assert_exit(1, &["the command's answer differs between boots"]).assert_stdout(&["wrong answer"]);
}

#[test]
fn an_unreadable_stored_comparison_is_left_out_and_reported() {
    let bench = Bench::new();
    let policies = this_boot()["policies"].clone();
    let has_arm = policies.as_array().unwrap().iter().any(|row| row["state"] == "now");
    if !needs(&[program("python3"), ("a boot that has an arm", has_arm)]) {
        return;
    }
    let measure = || bench.compare(&["--arm-of-boot", "--min-blocks", "1"], &bench.touch()).ran();
    measure().assert_exit(0, &[]);
    let script = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); \
                  store.execute(\"UPDATE comparisons SET pagelab = '{' WHERE id = 1\"); store.commit()";
    assert!(Command::new("python3").args(["-c", script, &bench.store()]).status().unwrap().success());
    measure().assert_exit(0, &["comparison 1 is left out"]).assert_stdout(&["was measured in one boot only"]);
    let merged = bench.pagelab(&["merge", &bench.store()]).ran();
    merged.assert_exit(0, &["comparison 1 is left out"]).assert_stdout(&["was measured in one boot only"]);
}

#[test]
fn refuses_stores_that_cannot_be_merged() {
    let bench = Bench::new();
    let merge = |word: &str| bench.pagelab(&["merge", word]).ran();
    let file = |name: &str, text: &str| {
        fs::write(bench.path(name), text).unwrap();
        bench.word(name)
    };
    merge(&bench.word("missing")).assert_exit(2, &["missing", "No such file"]);
    assert!(!bench.path("missing").exists(), "no store is made");
    merge(&file("text", "hello"))
        .assert_exit(2, &["expected a store of pagelab or a document pagelab.compare-boots/1"]);
    merge(&file("other", r#"{"schema":"pagelab.compare/1"}"#)).assert_exit(2, &["pagelab.compare/1"]);
    merge(&file("empty", "")).assert_exit(2, &["expected a store"]);
    let mut broken = boots(&[("a", 0, 1.0)]);
    broken["boots"][0]["arm"] = json!(-1);
    merge(&file("broken", &broken.to_string())).assert_exit(2, &["broken"]);
    let mut foreign = boots(&[("a", 7, 1.0)]);
    merge(&file("foreign", &foreign.to_string())).assert_exit(2, &["no comparison of arms over boots"]);
    foreign["invocation"]["command"] = json!(["play"]);
    let both = [file("work", &boots(&[("a", 0, 1.0)]).to_string()), file("play", &foreign.to_string())];
    let ran = bench.pagelab(&["merge", &both[0], &both[1]]).ran();
    ran.assert_exit(2, &["the command differs", "-- COMMAND", "work hard", "play"]);
    bench.pagelab(&["merge", &both[0], &both[1], "--", "work", "hard"]).ran().assert_exit(0, &[]);
    bench
        .pagelab(&["merge", &both[0], "--", "idle"])
        .ran()
        .assert_exit(2, &["no boot measured \"idle\"; the measured commands are: "]);
    bench.pagelab(&["merge", &both[0], "-p", "thp"]).ran().assert_exit(2, &["unexpected argument '-p'"]);
}
