use super::*;
use crate::sample;

#[test]
fn the_document_has_what_was_measured_and_what_follows() {
    let comparison = sample::comparison();
    let document = document(&comparison);
    assert_eq!(document["schema"], "pagelab.compare/1");
    assert_eq!(document["result"]["best"], json!([3]));
    assert_eq!(document["arms"][3]["outcome"], json!({ "outcome": "better", "best": true }));
    let effect = &document["arms"][3]["effects"]["wall_s"];
    assert!(effect["low_ratio"].as_f64() < effect["ratio"].as_f64());
    assert_eq!(document["arms"][1]["admission"]["supported"], false);
    assert_eq!(document["arms"][2]["verdict"]["holding"], "not_held");
    let peak = &document["arms"][2]["verdict"]["peak"];
    assert!(peak["seen_bytes"] == peak["least_bytes"] && peak["most_bytes"].as_u64() > peak["least_bytes"].as_u64());
    assert_eq!(document["arms"][2]["verdict"]["causes"][0]["code"], "not_advised");
    let trials = document["trials"].as_array().unwrap();
    assert_eq!(trials.len(), comparison.trials.len());
    let counted = trials.iter().filter(|trial| trial["counted"] == true).count();
    assert_eq!(counted, 75, "15 blocks of 5 arms; the first block and the rejected trial do not count");
    for (trial, record) in trials.iter().zip(&comparison.trials) {
        assert_eq!(trial["observations"][0]["value"].as_f64(), record.value("wall_s"));
    }
    assert_eq!(document["settings"].as_array().unwrap().len(), 2);
}

#[test]
fn lists_the_tracers_cost_of_each_arm_with_its_interval() {
    let document = document(&sample::with_controls());
    assert_eq!(document["controls"].as_array().unwrap().len(), 5);
    assert_eq!(document["controls"][0]["label"], "bare");
    assert_eq!(document["controls"][3]["sham_of"], 3);
    assert_eq!(document["arms"].as_array().unwrap().len(), 6, "control arms are listed separately");
    let thp = &document["arms"][3];
    assert_eq!(thp["outcome"], json!({ "outcome": "within_tracer_cost" }));
    let bound = &thp["tracer_cost"]["wall_s"]["bound"];
    assert!(bound["low_ratio"].as_f64() <= bound["ratio"].as_f64() && bound["ratio"].as_f64().unwrap() > 1.3);
    assert!(bound["ratio"].as_f64() < thp["tracer_cost"]["wall_s"]["of_bare"]["ratio"].as_f64());
    assert_eq!(document["arms"][0]["tracer_cost"]["wall_s"]["bound"], Value::Null);
    let counted = document["trials"].as_array().unwrap().iter().filter(|trial| trial["counted"] == true).count();
    assert_eq!((counted, document["control_trials"].as_array().unwrap().len()), (75, 32));
}

/// Names of fields are in snake case and include units.
#[test]
fn names_are_in_snake_case() {
    fn check(value: &Value) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let snake = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                assert!(snake || name.starts_with('/') || ["4K", "2M", "1G"].contains(&name.as_str()), "{name}");
                check(value);
            }),
            Value::Array(values) => values.iter().for_each(check),
            _ => {}
        }
    }
    check(&document(&sample::comparison()));
}

#[test]
fn any_comparison_has_a_document() {
    for comparison in [sample::empty(), sample::hostile()] {
        let text = document(&comparison).to_string();
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document(&comparison));
    }
}
