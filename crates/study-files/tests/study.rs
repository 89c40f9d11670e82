//! From a study's file to its matrix.

#[path = "../../study/tests/common/mod.rs"]
mod common;

use common::{Fake, Noise, comparison, design, machine};
use policy::Admission;
use policy::verdict::Holding;
use study::comparison::{Comparison, Ended};
use study::metric::Provenance;
use study::runner::compare;
use study_files::definition::{DefinitionError, Size, Wire, WireSuite};
use study_files::matrix::{Agreement, Cell, Conclusion, Matrix, Row};

fn wire(workloads: serde_json::Value) -> Wire {
    serde_json::from_value(serde_json::json!({
        "schema": "pagelab.study/1",
        "name": "tiny",
        "question": "Does it help?",
        "policies": ["base", "thp"],
        "sizes": {
            "standard": { "parameters": { "bytes": "1G", "count": 7 }, "precision": "1%" },
            "quick": { "parameters": { "bytes": "1M", "count": 1 }, "blocks": 6 },
        },
        "workload": workloads,
    }))
    .unwrap()
}

fn error(wire: &Wire) -> String {
    wire.of_size(Size::Standard).unwrap_err().to_string()
}

#[test]
fn sizes_and_axes_fill_in_the_words() {
    let wire = wire(serde_json::json!([
        { "name": "gups", "command": ["gups", "{bytes}", "-n{count}", "{threads}"], "axes": { "threads": [1, "2"] } },
        { "name": "omnet", "stands_for": "471.omnetpp", "missing": "it has no free counterpart" },
    ]));
    let full = wire.of_size(Size::Standard).unwrap();
    let names: Vec<&str> = full.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["gups threads=1", "gups threads=2", "omnet"]);
    assert_eq!(full.workloads[1].command, ["gups", "1G", "-n7", "2"]);
    assert_eq!((full.baseline.as_str(), &full.machines[..]), ("base", &["host".to_owned()][..]));
    let quick = wire.of_size(Size::Quick).unwrap();
    assert_eq!(quick.workloads[0].command, ["gups", "1M", "-n1", "1"]);
    assert_eq!((quick.stopping.blocks, full.stopping.precision.as_deref()), (Some(6), Some("1%")));
}

#[test]
fn invalid_keys_of_a_study_are_refused_by_name() {
    let one = || serde_json::json!([{ "name": "gups", "command": ["gups"] }]);
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut document = serde_json::json!({
            "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
            "sizes": { "standard": {} }, "workload": one(),
        });
        change(&mut document);
        serde_json::from_value::<Wire>(document).unwrap()
    };
    assert!(with(&|_| ()).of_size(Size::Standard).is_ok());
    assert!(error(&with(&|study| study["schema"] = "pagelab.study/9".into())).contains("expected \"pagelab.study/1\""));
    assert!(error(&with(&|study| study["name"] = "../x".into())).contains("letters, digits"));
    assert!(error(&with(&|study| study["policies"] = serde_json::json!(["base"]))).contains("two or more, found 1"));
    assert!(error(&with(&|study| study["policies"] = serde_json::json!(["a", "a"]))).contains("duplicate \"a\""));
    assert!(
        error(&with(&|study| study["baseline"] = "thq".into())).contains("there is no \"thq\"; there are base, thp")
    );
    assert!(error(&with(&|study| study["workload"] = serde_json::json!([]))).contains("one or more"));
    assert!(
        error(&with(&|study| study["workload"][0]["command"] = serde_json::json!([]))).contains("expected a command")
    );
    assert!(error(&with(&|study| study["workload"][0]["command"] = serde_json::json!(["{n}"]))).contains("{n}"));
    let missing = error(&with(&|study| study["workload"][0]["missing"] = "none is free".into()));
    assert!(missing.contains("expected either `missing` or something to run"), "{missing}");
    let published = serde_json::json!([{ "what": "x", "change": "33", "source": "s" }]);
    assert!(error(&with(&|study| study["published"] = published.clone())).contains("signed percentage"));
    let quick = with(&|_| ()).of_size(Size::Quick).unwrap_err();
    assert_eq!(quick.to_string(), "there is no [sizes.quick]; there are [sizes.standard]: choose one with --size");
    assert!(matches!(quick, DefinitionError::Size { .. }));
}

/// A suite of three workloads, one of which needs an input that must be created first.
fn suite() -> WireSuite {
    serde_json::from_value(serde_json::json!({
        "schema": "pagelab.suite/1", "name": "set", "about": "a set",
        "sizes": { "standard": { "parameters": { "steps": 10, "bytes": "1G" } }, "quick": { "parameters": { "steps": 1 } } },
        "input": [{ "name": "network", "command": ["make", "{steps}"], "script": "{not filled}", "output": "n" }],
        "workload": [
            { "name": "mcf", "stands_for": "429.mcf", "package": "p", "command": ["solve", "{network}", "{steps}"] },
            { "name": "chase", "command": ["chase", "{bytes}"] },
            { "name": "both", "command": ["sh"], "prepare": "copy {network}", "input": "{network}" },
        ],
    }))
    .unwrap()
}

/// A study of one suite, with a workload of its own.
fn of_suite(used: &serde_json::Value) -> Wire {
    serde_json::from_value(serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": { "parameters": { "bytes": "2G" } }, "quick": { "parameters": { "bytes": "1M" } } },
        "suite": [used], "workload": [{ "name": "own", "command": ["own", "{bytes}"] }],
    }))
    .unwrap()
}

#[test]
fn a_study_selects_workloads_of_a_suite_and_overrides_its_parameters() {
    let used = serde_json::json!({ "name": "set" });
    let definition = of_suite(&used).with_suites(Size::Standard, &[suite()]).unwrap();
    let names: Vec<&str> = definition.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["mcf", "chase", "both", "own"]);
    let of: Vec<Option<&str>> = definition.workloads.iter().map(|workload| workload.suite.as_deref()).collect();
    assert_eq!(of, [Some("set"), Some("set"), Some("set"), None]);
    assert_eq!(definition.workloads[1].command, ["chase", "2G"], "the study's value");
    assert_eq!(definition.workloads[0].command[2], "10", "the suite's own");
    assert_eq!(suite().of_size(Size::Standard).unwrap()[1].command, ["chase", "1G"]);
    let some = |used: serde_json::Value| {
        let definition = of_suite(&used).with_suites(Size::Standard, &[suite()]).unwrap();
        definition.workloads.into_iter().map(|workload| workload.name).collect::<Vec<_>>()
    };
    assert_eq!(some(serde_json::json!({ "name": "set", "only": ["chase"] })), ["chase", "own"]);
    assert_eq!(some(serde_json::json!({ "name": "set", "without": ["mcf", "both"] })), ["chase", "own"]);
    let unknown = of_suite(&serde_json::json!({ "name": "set", "only": ["chaise"] }));
    let error = unknown.with_suites(Size::Standard, &[suite()]).unwrap_err().to_string();
    assert!(error.starts_with("suite \"set\": only: there is no \"chaise\""), "{error}");
}

#[test]
fn inputs_are_marked_by_name_until_their_paths_are_known() {
    let workloads = suite().of_size(Size::Standard).unwrap();
    let inputs = |at: usize| workloads[at].inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>();
    assert_eq!((inputs(0), inputs(1), inputs(2)), (vec!["network"], vec![], vec!["network"]));
    let input = &workloads[0].inputs[0];
    assert_eq!((input.command.join(" ").as_str(), input.script.as_deref()), ("make 10", Some("{not filled}")));
    assert!(input.is_in(&workloads[0].command[1]) && !input.is_in(&workloads[0].command[2]));
    let placed = workloads[2].with_input_paths(|input| format!("/cache/{}", input.name));
    assert_eq!(placed.prepare.as_deref(), Some("copy /cache/network"));
    assert_eq!(placed.input.as_deref(), Some("/cache/network"));
    assert_eq!(workloads[0].with_input_paths(|_| "/n".into()).command, ["solve", "/n", "10"]);
}

#[test]
fn invalid_keys_of_a_suite_are_refused_by_name() {
    let error = |used: serde_json::Value, suites: &[WireSuite]| {
        of_suite(&used).with_suites(Size::Standard, suites).unwrap_err().to_string()
    };
    let set = || serde_json::json!({ "name": "set" });
    assert!(error(serde_json::json!({ "name": "sat" }), &[suite()]).contains("there is no \"sat\"; there are set"));
    let only = serde_json::json!({ "name": "set", "only": ["mfc"] });
    assert_eq!(error(only, &[suite()]), "suite \"set\": only: there is no \"mfc\"; there are mcf, chase, both");
    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut document = serde_json::json!({
            "schema": "pagelab.suite/1", "name": "set", "about": "a set", "sizes": { "standard": {} },
            "input": [{ "name": "i", "command": ["make"] }], "workload": [{ "name": "a", "command": ["a", "{i}"] }],
        });
        change(&mut document);
        serde_json::from_value::<WireSuite>(document).unwrap()
    };
    assert!(of_suite(&set()).with_suites(Size::Standard, &[changed(&|_| ())]).is_ok());
    for (suite, part) in [
        (changed(&|suite| suite["schema"] = "pagelab.study/1".into()), "expected \"pagelab.suite/1\""),
        (changed(&|suite| suite["sizes"] = serde_json::json!({ "quick": {} })), "there is no [sizes.standard]"),
        (
            changed(&|suite| suite["workload"][0]["command"] = serde_json::json!(["{j}"])),
            "asks for {j}; there are {bytes}, {i}",
        ),
        (
            changed(&|suite| suite["input"][0]["command"] = serde_json::json!([])),
            "expected a command that makes the file",
        ),
        (
            changed(&|suite| suite["input"][0]["command"] = serde_json::json!(["{x}"])),
            "input \"i\": \"{x}\" asks for {x}",
        ),
        (changed(&|suite| suite["input"][0]["output"] = "../x".into()), "name of a file without `/`"),
        (changed(&|suite| suite["input"][0]["name"] = "bytes".into()), "duplicate \"bytes\""),
    ] {
        let error = error(set(), &[suite]);
        assert!(error.starts_with("suite \"set\": ") && error.contains(part), "{error}");
    }
    let twice = changed(&|suite| suite["workload"][0]["name"] = "own".into());
    assert_eq!(error(set(), &[twice]), "workload: duplicate \"own\"");
}

#[test]
fn invalid_policies_and_metrics_are_refused() {
    let with = |policies: &[&str], workload: serde_json::Value| {
        let wire: Wire = serde_json::from_value(serde_json::json!({
            "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": policies,
            "sizes": { "standard": {} }, "workload": [workload],
        }))
        .unwrap();
        wire.of_size(Size::Standard).map(drop).map_err(|error| error.to_string())
    };
    let plain = || serde_json::json!({ "name": "a", "command": ["a"] });
    let same = with(&["base", "mthp-64k", "mthp-65536"], plain()).unwrap_err();
    assert_eq!(same, "policies: \"mthp-64k\" and \"mthp-65536\" are the same policy; name it once");
    let mixed = with(&["base", "direct-map-4k"], plain()).unwrap_err();
    assert!(mixed.contains("\"direct-map-4k\" is set when the machine boots"), "{mixed}");
    assert_eq!(with(&["base", "contig-64k"], plain()), Ok(()), "one of the host and one of models");
    let deciding = |primary: &str| {
        let metrics = serde_json::json!(["rps=([0-9]+)", "p99:lower=x([0-9]+)"]);
        let workload = serde_json::json!({ "name": "a", "command": ["a"], "metrics": metrics, "primary": primary });
        with(&["base", "thp"], workload)
    };
    for primary in ["wall", "cpu", "minor_faults", "rps", "p99"] {
        assert_eq!(deciding(primary), Ok(()), "{primary}");
    }
    let error = deciding("rsp").unwrap_err();
    assert_eq!(
        error,
        "workload \"a\": primary: there is no metric \"rsp\"; there are wall, cpu, user, system, rps, p99"
    );
}

/// A comparison of base pages with THP, which takes `ratio` of the time, on a quiet machine.
fn compared(ratio: f64, holding: Holding, seed: u64) -> Comparison {
    let mut design = design(&["base", "thp"], seed);
    (design.min_blocks, design.max_blocks) = (12, 12);
    let mut fake = Fake::new(&design, &[1.0, ratio], Noise::quiet(), seed);
    fake.arms[1].holding = holding;
    let run = compare(&design, &mut fake, &mut |_| ());
    comparison(seed as i64, machine(0, 0), design, run)
}

fn policies() -> Vec<String> {
    vec!["base".to_owned(), "thp".to_owned()]
}

fn row(workload: &str, ratio: f64, seed: u64) -> Row {
    Row::of_comparison(workload, "a host", &policies(), &compared(ratio, Holding::Held, seed), &[])
}

#[test]
fn totals_are_over_the_rows_of_one_machine() {
    let ratios = [("a", 0.8), ("b", 0.9), ("c", 1.25), ("d", 0.8), ("e", 0.9), ("f", 1.2)];
    let mut rows: Vec<Row> = ratios.iter().zip(1..).map(|((name, ratio), seed)| row(name, *ratio, seed)).collect();
    rows.push(Row { machine: "another host".into(), ..row("a", 0.5, 4) });
    rows.push(Row::without("g", "a host", &policies(), "it was not run"));
    let matrix = Matrix::of(&policies(), "base", rows, &[]);
    assert_eq!(matrix.totals.len(), 4);
    let thp = &matrix.totals[1];
    assert_eq!((thp.machine.as_str(), thp.policy.as_str(), thp.provenance), ("a host", "thp", Provenance::Measured));
    let mean = thp.mean.unwrap();
    assert_eq!(mean.of, 6, "a workload that was not run is in no mean");
    let product: f64 = ratios.iter().map(|(_, ratio)| ratio).product();
    assert!((mean.ratio - product.powf(1.0 / 6.0)).abs() < 0.01);
    let (low, high) = mean.these.unwrap();
    assert!(low < mean.ratio && mean.ratio < high && high / low < 1.02 && mean.like_these.is_some(), "{mean:?}");
    assert_eq!((thp.wins.races, thp.wins.won, thp.wins.led), (6, 4, 4));
    assert_eq!(matrix.totals[0].wins.won, 2, "the baseline wins where THP is worse");
    assert_eq!(thp.worst.as_ref().unwrap().1, "c");
    assert_eq!(matrix.totals[3].mean.unwrap().of, 1);
}

#[test]
fn a_policy_that_was_not_held_counts_but_is_not_compared_with_published_figures() {
    let not_held = Row::of_comparison("a", "a host", &policies(), &compared(0.5, Holding::NotHeld, 1), &[]);
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": {} }, "workload": [{ "name": "a", "command": ["a"] }],
        "published": [{ "what": "x", "workload": "a", "policy": "thp", "change": "-50%", "source": "s" }],
    });
    let definition = serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard).unwrap();
    let matrix = Matrix::of(&policies(), "base", vec![not_held], &definition.published);
    let cell = &matrix.rows[0].cells[1];
    assert_eq!((&cell.conclusion, cell.is_held), (&Conclusion::Better, false));
    assert_eq!((matrix.totals[1].mean.map(|mean| mean.of), matrix.totals[1].is_held), (Some(1), false));
    assert_eq!(matrix.published[0].found, None);
}

#[test]
fn a_claim_is_withdrawn_if_it_is_not_significant_among_many_workloads() {
    let alike = |seed| row(&format!("w{seed}"), 1.0, seed);
    let mut rows: Vec<Row> = (1..40).map(alike).collect();
    // A cell that is just significant on its own.
    let cell = &mut rows[0].cells[1];
    cell.conclusion = Conclusion::Better;
    cell.effects.get_mut("wall_s").unwrap().p_adjusted = Some(0.03);
    let alone = Matrix::of(&policies(), "base", vec![rows[0].clone()], &[]);
    assert_eq!((&alone.rows[0].cells[1].conclusion, alone.rows[0].cells[1].q), (&Conclusion::Better, Some(0.03)));
    for row in &mut rows[1..] {
        row.cells[1].effects.get_mut("wall_s").unwrap().p_adjusted = Some(0.5);
    }
    let among = Matrix::of(&policies(), "base", rows, &[]);
    assert_eq!(among.rows[0].cells[1].conclusion, Conclusion::NotAfterCorrection);
    assert_eq!(among.rows[0].cells[1].q, Some(0.5));
}

#[test]
fn a_policy_without_figures_has_a_reason() {
    let mut comparison = compared(0.8, Holding::Held, 1);
    comparison.ended = Ended::Blocks;
    let policies = vec!["base".to_owned(), "thp".to_owned(), "contig-64k".to_owned(), "mthp-64k".to_owned()];
    let left_out = [("contig-64k".to_owned(), "a model's".to_owned())];
    let row = Row::of_comparison("a", "a host", &policies, &comparison, &left_out);
    let why = |cell: &Cell| match &cell.conclusion {
        Conclusion::None { why } => why.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!(row.cells.iter().map(why).collect::<Vec<_>>()[2..], ["a model's", "the comparison has no such policy"]);
    assert_eq!(row.race.running, [0, 1]);
    comparison.admissions[1] =
        Admission::Unsupported(policy::Unsupported { reason: "no THP".into(), remedy: "boot another kernel".into() });
    let row = Row::of_comparison("a", "a host", &policies, &comparison, &[]);
    assert_eq!(why(&row.cells[1]), "no THP; boot another kernel");
}

#[test]
fn published_figures_are_compared_with_the_cell_or_the_mean() {
    let mut wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": {} }, "workload": [{ "name": "a", "command": ["a"] }],
    });
    wire["published"] = serde_json::json!([
        { "what": "of the cell", "workload": "a", "policy": "thp", "change": "-20%", "source": "s" },
        { "what": "another size", "workload": "a", "policy": "thp", "change": "-50%", "source": "s" },
        { "what": "the other way", "workload": "a", "policy": "thp", "change": "+20%", "source": "s" },
        { "what": "the mean", "policy": "thp", "change": "-20%", "source": "s" },
    ]);
    let wire: Wire = serde_json::from_value(wire).unwrap();
    let definition = wire.of_size(Size::Standard).unwrap();
    let matrix = Matrix::of(&policies(), "base", vec![row("a", 0.8, 1)], &definition.published);
    let agreements: Vec<Agreement> = matrix.published.iter().map(|set| set.agreement).collect();
    assert_eq!(agreements, [Agreement::Inside, Agreement::OtherSize, Agreement::Contradicted, Agreement::Undecided]);
    let (ratio, interval) = matrix.published[3].found.unwrap();
    assert!((ratio - 0.8).abs() < 0.01 && interval.is_none(), "one workload has no mean with an interval");
}

#[test]
fn a_published_mean_of_a_suite_is_compared_with_its_workloads_only() {
    let study = |published: serde_json::Value| {
        let mut wire = serde_json::json!({
            "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
            "sizes": { "standard": {} }, "workload": [{ "name": "other", "command": ["a"] }], "suite": [{ "name": "two" }],
        });
        wire["published"] = serde_json::json!([published]);
        let workloads =
            ["a", "b", "c", "d", "e", "f"].map(|name| serde_json::json!({ "name": name, "command": [name] }));
        let suite = serde_json::json!({
            "schema": "pagelab.suite/1", "name": "two", "about": "two", "sizes": { "standard": {} },
            "workload": workloads,
        });
        let suite: WireSuite = serde_json::from_value(suite).unwrap();
        serde_json::from_value::<Wire>(wire).unwrap().with_suites(Size::Standard, &[suite])
    };
    let published = |key: &str, value: &str| serde_json::json!({ "what": "x", key: value, "policy": "thp", "change": "-10%", "source": "s" });
    let definition = study(published("suite", "two")).unwrap();
    let ratios = [("other", 0.4), ("a", 0.8), ("b", 0.9), ("c", 0.8), ("d", 0.9), ("e", 0.8), ("f", 0.9)];
    let rows: Vec<Row> = ratios.into_iter().zip(1..).map(|((name, ratio), seed)| row(name, ratio, seed)).collect();
    let few = Matrix::of(&policies(), "base", rows[..6].to_vec(), &definition.published);
    assert_eq!(few.published[0].agreement, Agreement::Undecided, "the mean of five programs has no interval");
    let matrix = Matrix::of(&policies(), "base", rows, &definition.published);
    let (ratio, interval) = matrix.published[0].found.unwrap();
    assert!((ratio - (0.8f64 * 0.9).sqrt()).abs() < 0.01 && interval.is_some(), "{ratio}");
    let error = study(published("suite", "three")).unwrap_err().to_string();
    assert!(error.contains("published.suite") && error.contains("three") && error.contains("two"), "{error}");
    let mut both = published("suite", "two");
    both["workload"] = "a".into();
    let error = study(both).unwrap_err().to_string();
    assert_eq!(error, "published \"x\": expected at most one of `workload` and `suite`");
}

#[test]
fn published_win_shares_are_compared_with_shares_and_chance() {
    let mut wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": {} }, "workload": [{ "name": "a", "command": ["a"] }],
    });
    let mut of = |published: serde_json::Value| {
        wire["published"] = serde_json::json!([published]);
        serde_json::from_value::<Wire>(wire.clone()).unwrap().of_size(Size::Standard)
    };
    let definition = of(serde_json::json!({ "what": "x", "policy": "thp", "wins": "90%", "source": "s" })).unwrap();
    let rows: Vec<Row> =
        (1..=24).map(|seed| row(&format!("w{seed}"), if seed < 23 { 0.8 } else { 1.2 }, seed)).collect();
    let matrix = Matrix::of(&policies(), "base", rows, &definition.published);
    let set = &matrix.published[0];
    assert_eq!((set.found.unwrap().0, set.agreement), (22.0 / 24.0, Agreement::Inside), "{set:?}");
    let mut wrong = |published| of(published).unwrap_err().to_string();
    let wins = |wins: &str| serde_json::json!({ "what": "x", "policy": "thp", "wins": wins, "source": "s" });
    assert!(
        wrong(wins("120%")).contains("a percentage of workloads such as 45%") && wrong(wins("-5%")).contains("-5%")
    );
    let neither = serde_json::json!({ "what": "x", "policy": "thp", "source": "s" });
    assert_eq!(wrong(neither), "published \"x\": expected exactly one of `change` and `wins`");
}
