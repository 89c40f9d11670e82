//! Studies that multiply out to too many trials are refused before they are built.

use serde_json::{Value, json};
use study_files::definition::{MAX_TRIALS, Size, Wire, WireSuite};
use testing::Random;

/// A study under two policies, with these keys replacing the usual ones.
fn study(keys: Value) -> Value {
    let mut study = json!({
        "schema": "pagelab.study/1", "name": "large", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": { "blocks": 1 } }, "workload": [],
    });
    keys.as_object().unwrap().iter().for_each(|(key, value)| study[key] = value.clone());
    study
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A workload with these numbers of values on its axes.
fn workload(name: &str, axes: &[usize]) -> Value {
    let names: Vec<String> = (0..axes.len()).map(|axis| format!("a{axis}")).collect();
    let words = names.iter().map(|name| format!("{{{name}}}"));
    let command: Vec<String> = ["true".to_owned()].into_iter().chain(words).collect();
    let axes: serde_json::Map<String, Value> =
        names.iter().zip(axes).map(|(name, count)| (name.clone(), json!(numbers(*count)))).collect();
    json!({ "name": name, "command": command, "axes": axes })
}

fn suite(workloads: Value) -> WireSuite {
    let suite = json!({
        "schema": "pagelab.suite/1", "name": "set", "about": "?", "sizes": { "standard": {} }, "workload": workloads,
    });
    serde_json::from_value(suite).unwrap()
}

fn refused(keys: Value, suites: &[WireSuite]) -> String {
    let wire: Wire = serde_json::from_value(study(keys)).unwrap();
    wire.with_suites(Size::Standard, suites).expect_err("it is too large").to_string()
}

#[test]
fn more_trials_than_the_limit_are_refused_with_every_factor() {
    let many: Vec<Value> = (0..200_000).map(|at| workload(&format!("w{at}"), &[])).collect();
    let variants: serde_json::Map<String, Value> = (0..1000)
        .map(|at| (format!("v{at}"), json!({ "env": { "N": at.to_string() }, "baseline": at == 0 })))
        .collect();
    let policies = numbers(200_000);
    let machines: Vec<String> = (0..100_000).map(|at| format!("m{at}.toml")).collect();
    let boots: serde_json::Map<String, Value> = (0..1000).map(|at| (format!("b{at}"), json!({}))).collect();
    let [one, hundred] = [workload("w", &[]), workload("w", &[100])];
    let full = |key: &str, value: u32| json!({ "standard": { key: value } });
    for (keys, trials) in [
        (json!({ "workload": [workload("w", &[1000, 1000, 1000])] }), "found 2000000000: 1000000000 rows"),
        (json!({ "workload": [workload("w", &[60; 40])] }), "found 340282366920938463463374607431768211455"),
        (json!({ "workload": many }), "found 400000: 200000 rows"),
        (json!({ "workload": [hundred], "variants": variants }), "found 200000: 100000 rows"),
        (
            json!({ "workload": [one], "policies": policies }),
            "found 200000: 1 rows (workloads x axis values x variants) x 200000 policies x 1 trials",
        ),
        (json!({ "workload": [one], "machines": machines }), "found 200000:"),
        (json!({ "workload": [hundred], "sizes": full("blocks", 1000) }), "2 policies x 1000 trials"),
        (json!({ "workload": [one], "sizes": full("min_blocks", 60_000) }), "2 policies x 60000 trials"),
        (
            json!({ "workload": [one], "boots": boots, "sizes": full("boots", u32::MAX) }),
            "2 policies x 34359738360000 trials",
        ),
        (json!({ "workload": [hundred], "boots": boots }), "found 200000:"),
    ] {
        let error = refused(keys, &[]);
        assert!(error.contains(trials) && error.contains("at most 100000"), "{trials}: {error}");
    }
}

#[test]
fn only_selected_workloads_of_suites_count() {
    let suites = [suite(json!([workload("small", &[]), workload("large", &[1000, 1000])]))];
    let error = refused(json!({ "suite": [{ "name": "set" }] }), &suites);
    assert!(error.contains("found 2000002: 1000001 rows"), "{error}");
    let error = refused(json!({ "suite": [{ "name": "set", "only": ["large"] }] }), &suites);
    assert!(error.contains("1000000 rows"), "{error}");
    let small: Wire =
        serde_json::from_value(study(json!({ "suite": [{ "name": "set", "without": ["large"] }] }))).unwrap();
    assert_eq!(small.with_suites(Size::Standard, &suites).unwrap().workloads.len(), 1);
    let error = refused(json!({ "suite": vec![json!({ "name": "set", "only": ["small"] }); 100_000] }), &suites);
    assert!(error.contains("suite.name: duplicate \"set\""), "{error}");
    let names = numbers(100_000);
    let error = refused(json!({ "suite": [{ "name": "set", "only": names }] }), &suites);
    assert!(error.contains("there is no \"0\"; there are small, large"), "{error}");
}

#[test]
fn a_study_with_the_maximum_number_of_trials_is_built() {
    let wire: Wire = serde_json::from_value(study(json!({ "workload": [workload("w", &[500, 100])] }))).unwrap();
    assert_eq!(wire.of_size(Size::Standard).unwrap().workloads.len() as u64 * 2, MAX_TRIALS);
    let error = refused(json!({ "workload": [workload("w", &[500, 100]), workload("v", &[])] }), &[]);
    assert!(error.contains("found 100002:"), "{error}");
}

#[test]
fn the_limit_on_words_applies_after_placeholders_are_filled_in() {
    let long = "x".repeat(100_000);
    let sizes = |value: &str| json!({ "standard": { "blocks": 1, "parameters": { "long": value } } });
    let words = |command: Value| json!([{ "name": "w", "command": command, "axes": { "a": numbers(1000) } }]);
    // Words of the file that each row repeats, without and with a placeholder.
    for command in [json!(["true", "{a}", long]), json!(["true", "{a}", "{long}"])] {
        let error = refused(json!({ "workload": words(command), "sizes": sizes(&long) }), &[]);
        assert!(error.contains("longer than 64M together"), "{error}");
    }
    let error = refused(json!({ "workload": words(json!(["{a}", "{long}{long}"])), "sizes": sizes(&long) }), &[]);
    assert!(error.contains("more than 131072 bytes") && error.len() < 500, "{error}");
}

#[test]
fn a_series_has_a_bounded_number_of_sizes() {
    let sizes: Vec<String> = (1..=1001).map(|size| format!("{size}K")).collect();
    let series = json!([{ "name": "s", "what": "x", "sizes": sizes, "layouts": ["y"], "source": "z" }]);
    let error = refused(json!({ "series": series }), &[]);
    assert!(error.contains("series.sizes: expected at most 1000, found 1001"), "{error}");
}

/// The counted extent equals what is built.
#[test]
fn the_product_is_the_number_of_rows() {
    let mut random = Random::new();
    for _ in 0..50 {
        let mut below = |end| random.below(end) as usize;
        let axes: Vec<Vec<usize>> = (0..1 + below(3)).map(|_| (0..below(4)).map(|_| 1 + below(6)).collect()).collect();
        let rows: usize = axes.iter().map(|axes| axes.iter().product::<usize>()).sum();
        let workloads: Vec<Value> =
            axes.iter().enumerate().map(|(at, axes)| workload(&format!("w{at}"), axes)).collect();
        let at_limit = MAX_TRIALS as usize / 2 / rows;
        for (blocks, is_taken) in [(at_limit, true), (at_limit + 1, false)] {
            let sizes = json!({ "standard": { "blocks": blocks } });
            let wire: Wire = serde_json::from_value(study(json!({ "workload": workloads, "sizes": sizes }))).unwrap();
            let built = wire.of_size(Size::Standard).map(|definition| definition.workloads.len());
            assert_eq!(built.as_ref().ok(), Some(&rows).filter(|_| is_taken), "{axes:?} x {blocks}: {built:?}");
        }
    }
}
