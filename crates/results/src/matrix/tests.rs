//! Reports of a small matrix: what is in them, in every form.

use super::sample::{definition, shown};
use study::matrix::Standing;
use study::stats::Effect;

use super::*;

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
    let comparison = crate::sample::comparison();
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

#[test]
fn the_answer_and_the_claim_are_a_sentence_each() {
    shown(|report| {
        let said = answer(report);
        assert!(
            said.starts_with("a host (measured): thp has 1") && said.contains("% less cost than default ("),
            "{said}"
        );
        assert!(said.contains("contig-64k has no figure"), "{said}");
        let said = claim(report);
        assert!(
            said.starts_with(
                "The origin's claim is, here, confirmed in its direction only: its one published figure is of the same"
            ),
            "{said}"
        );
        for reason in ["its input was larger", "a host is a guest of KVM"] {
            assert!(said.contains(reason), "{reason}: {said}");
        }
        assert_eq!(said.matches(". ").count(), 0, "one sentence: {said}");
    });
}

#[test]
fn what_was_not_held_is_no_answer_and_said_so() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &crate::sample::comparison(), &[]);
    row.cells[1].standing = Standing::NotHeld;
    row.cells[2].standing = Standing::NotHeld;
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    shown(|report| {
        let report = Report { matrix: &matrix, ..report.clone() };
        let said = answer(&report);
        assert!(said.contains("thp was not held, so its figures say nothing of it"), "{said}");
        assert!(claim(&report).starts_with("The origin's claim is, here, undecided: no published figure"));
    });
}

#[test]
fn figures_of_an_origin_are_a_table_in_its_own_order() {
    let published = |workload: &str, policy: &str, change: &str| study::definition::Published {
        what: "x".into(),
        workload: Some(workload.into()),
        policy: Some(policy.into()),
        boot: None,
        metric: None,
        measure: study::definition::Measure::Change,
        change: change.into(),
        ratio: 0.9,
        source: "a list".into(),
        differs: None,
    };
    let all = [published("b", "thp", "-1%"), published("a", "mthp-64k", "-2%"), published("a", "thp", "-3%")];
    let policies = &definition().policies;
    let row = |name: &str| Row::of_comparison(name, "a host", policies, &crate::sample::comparison(), &[]);
    let matrix = Matrix::of(policies, "default", vec![row("a"), row("b")], &all);
    let sheets = further::of_origin(matrix.published.iter());
    assert_eq!(sheets.len(), 1);
    let header = ["workload", "thp, published", "thp, here", "mthp-64k, published", "mthp-64k, here"];
    assert_eq!(sheets[0].header, header);
    assert_eq!(sheets[0].rows[0][..2], ["b", "-1%"]);
    assert_eq!((sheets[0].rows[0][3].as_str(), sheets[0].rows[1][3].as_str()), ("", "-2%"));
}

#[test]
fn a_mail_has_real_kernel_and_user_time_beside_the_metric_that_decides() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &crate::sample::comparison(), &[]);
    let effect = |ratio| Effect { blocks: 9, ratio, low: Some(ratio * 0.5), high: Some(ratio * 1.5), p_adjusted: None };
    for name in ["wall_s", "system_s", "user_s", "ops_per_s"] {
        row.cells[1].effects.insert(name.into(), effect(3.2));
    }
    row.metric = "ops_per_s".into();
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    shown(|report| {
        let text = mail(&Report { matrix: &matrix, ..report.clone() });
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
        let heading = text.lines().find(|line| line.contains("ops_per_s")).unwrap();
        assert_eq!(heading.split_whitespace().collect::<Vec<_>>(), ["ops_per_s", "real", "kern", "user"]);
        let line = text.lines().find(|line| line.starts_with("thp ")).unwrap();
        assert_eq!(line.matches("+220% +-160").count(), 4, "{line}");
    });
}

/// The origin's matrix: 259 tests of 3 policies on 4 machines, no two figures alike.
#[test]
fn a_large_report_is_small() {
    let definition = definition();
    let policies: Vec<String> = definition.policies[..3].to_vec();
    let comparison = crate::sample::comparison();
    let of = |machine: usize, at: usize| {
        let (name, machine) = (format!("test {at}"), format!("machine {machine}"));
        let mut row = Row::of_comparison(&name, &machine, &policies, &comparison, &[]);
        let effects = row.cells.iter_mut().flat_map(|cell| cell.effects.values_mut());
        effects.for_each(|effect| {
            effect.ratio *= 1.0 + at as f64 / 1234.0;
            effect.high = effect.high.map(|high| high * (1.0 + at as f64 / 999.0));
        });
        row
    };
    let rows: Vec<Row> =
        (0..4).flat_map(|machine| (0..259).map(move |at| (machine, at))).map(|(machine, at)| of(machine, at)).collect();
    let matrix = Matrix::of(&policies, &definition.baseline, rows, &[]);
    shown(|report| {
        let html = crate::html::matrix::report(&Report { matrix: &matrix, ..report.clone() });
        assert_eq!(html.matches("class=\"tip\"").count(), 259 * 3 * 4);
        assert!(html.len() < 3_000_000, "{}", html.len());
    });
}
