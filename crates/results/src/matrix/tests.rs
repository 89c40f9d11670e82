//! Reports of a small matrix: what is in them, in every form.

use study::definition::{Definition, Size, Wire};

use super::*;
use crate::sample;

fn definition() -> Definition {
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "Does it help?",
        "policies": ["default", "thp", "mthp-64k", "contig-64k"],
        "sizes": { "full": {} },
        "workload": [{ "name": "sort|it", "command": ["sort"] }, { "name": "omnet", "missing": "no free one" }],
        "published": [{ "what": "THP", "workload": "sort|it", "policy": "thp", "change": "-50%", "source": "a list" }],
    });
    serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Full).unwrap()
}

fn shown(check: impl Fn(&Report<'_>)) {
    let definition = definition();
    let left_out = [("contig-64k".to_owned(), "a policy of models".to_owned())];
    let policies = &definition.policies;
    let comparison = sample::comparison();
    let rows = vec![
        Row::of_comparison("sort|it", "a host", policies, &comparison, &left_out),
        Row::without("omnet", "a host", policies, "no free one"),
    ];
    let matrix = Matrix::of(policies, &definition.baseline, rows, &definition.published);
    let command = vec!["pagelab".to_owned()];
    let missing = vec!["one boot".to_owned()];
    check(&Report { definition: &definition, matrix: &matrix, missing, command, version: "0.1".into() });
}

#[test]
fn the_table_has_every_workload_and_every_reason() {
    shown(|report| {
        let text = render(report, 120);
        for what in ["Does it help?", "sort|it", "a policy of models", "no free one", "a list", "one boot", "by chance"]
        {
            assert!(text.contains(what), "{what} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    });
}

#[test]
fn markdown_has_nothing_of_the_text_s_own() {
    shown(|report| {
        let text = markdown(report);
        assert!(text.starts_with("# tiny\n"), "{text}");
        assert!(text.contains("sort\\|it"), "{text}");
        let widths = |line: &str| line.replace("\\|", "").matches('|').count();
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let lines: Vec<usize> = table.lines().map(widths).collect();
            assert!(lines.iter().all(|width| *width == lines[0]), "{table}");
        }
    });
}

#[test]
fn a_mail_is_plain_and_narrow() {
    shown(|report| {
        let text = mail(report);
        assert!(text.is_ascii(), "{text}");
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
        for what in ["sort|it", "real", "thp", "contig-64k", "none", "a list"] {
            assert!(text.contains(what), "{what} in\n{text}");
        }
    });
}

#[test]
fn the_document_says_the_same() {
    shown(|report| {
        let document = document(report);
        assert_eq!(document["schema"], SCHEMA);
        let cells = document["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 4, "every row has every policy");
        assert_eq!(cells[3]["standing"], serde_json::json!({ "standing": "none", "why": "a policy of models" }));
        assert_eq!(document["rows"][1]["cells"].as_array().unwrap().len(), 4);
        assert_eq!(document["published"][0]["published_ratio"], 0.5);
    });
}

#[test]
fn every_sample_is_a_row_in_every_form() {
    let comparison = sample::comparison();
    let sampled = [Sampled { workload: "sort", machine: "a host", comparison: &comparison }];
    let count: usize = comparison.trials.iter().map(|record| record.observations.len()).sum();
    let mut text = Vec::new();
    csv("tiny", &sampled, &mut text).unwrap();
    let rows = crate::csv::read(&String::from_utf8(text).unwrap());
    assert_eq!(rows.len(), count + 1);
    assert!(rows.iter().all(|row| row.len() == CSV_COLUMNS.len()));
    let mut lines = Vec::new();
    json_lines("tiny", &sampled, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.lines().count(), count);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(CSV_COLUMNS.iter().all(|column| first.get(column).is_some()), "{first}");
    let file = parquet("tiny", &sampled, Vec::new()).unwrap();
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
}

/// The origin's matrix: 259 tests of 3 policies on 4 machines.
#[test]
fn a_large_report_is_made_soon_and_is_small() {
    let definition = definition();
    let policies: Vec<String> = definition.policies[..3].to_vec();
    let mut comparison = sample::comparison();
    comparison.trials.clear();
    let of = |machine: usize, at: usize| {
        let (name, machine) = (format!("test {at}"), format!("machine {machine}"));
        Row::of_comparison(&name, &machine, &policies, &comparison, &[])
    };
    let began = std::time::Instant::now();
    let rows = (0..4).flat_map(|machine| (0..259).map(move |at| (machine, at))).map(|(machine, at)| of(machine, at));
    let matrix = Matrix::of(&policies, &definition.baseline, rows.collect(), &[]);
    let report =
        Report { definition: &definition, matrix: &matrix, missing: vec![], command: vec![], version: "0.1".into() };
    let html = crate::html::matrix::report(&report);
    assert!(html.len() < 3_000_000, "{}", html.len());
    assert!(began.elapsed().as_secs_f64() < 5.0, "{:?}", began.elapsed());
}
