//! Reports of a small matrix, in every form.

use super::sample::{definition, with_report};
use study::stats::Effect;
use study_files::matrix::Conclusion;

use super::*;

#[test]
fn the_table_has_every_workload_and_every_reason() {
    with_report(|report| {
        let text = render(report, 120);
        for what in ["Does it help?", "sort|it", "a policy of models", "no free one", "a list", "one boot", "lowest"] {
            assert!(text.contains(what), "{what} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    });
}

#[test]
fn markdown_escapes_the_text() {
    with_report(|report| {
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
fn the_document_says_the_same() {
    with_report(|report| {
        let document = document(report);
        assert_eq!(document["schema"], SCHEMA);
        let cells = document["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 4, "every row has every policy");
        assert_eq!(cells[3]["conclusion"], serde_json::json!({ "conclusion": "none", "why": "a policy of models" }));
        assert_eq!(document["rows"][1]["cells"].as_array().unwrap().len(), 4);
        assert_eq!(document["published"][0]["published_ratio"], 0.5);
    });
}

#[test]
fn every_sample_is_a_row_in_every_form() {
    let comparison = crate::sample::comparison();
    let sampled = [SampleSource { workload: "sort", machine: "a host", comparison: &comparison }];
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
    with_report(|report| {
        let text = answer(report);
        assert!(
            text.starts_with("a host (measured): thp has 1") && text.contains("% less wall time than default ("),
            "{text}"
        );
        assert!(text.contains("no figure to compare for contig-64k"), "{text}");
        let text = claim(report).unwrap();
        assert!(
            text.starts_with(
                "The origin's claim is, here, confirmed in its direction only: its one published figure is of the same"
            ),
            "{text}"
        );
        for reason in ["its input was larger", "the host is a guest of KVM"] {
            assert!(text.contains(reason), "{reason}: {text}");
        }
        assert_eq!(text.matches(". ").count(), 0, "one sentence: {text}");
    });
}

#[test]
fn a_policy_that_was_not_held_was_asked_for_and_has_no_published_figure() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &crate::sample::comparison(), &[]);
    row.cells[1].is_held = false;
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    with_report(|report| {
        let report = Report { matrix: &matrix, ..report.clone() };
        let text = answer(&report);
        assert!(text.contains(": asking for thp has 1"), "{text}");
        assert!(
            claim(&report)
                .unwrap()
                .starts_with("The origin's claim is not judged: nothing was measured that can be compared")
        );
    });
}

#[test]
fn a_change_that_is_not_shown_is_not_asserted_anywhere() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &crate::sample::comparison(), &[]);
    row.cells[1].conclusion = Conclusion::Undecided;
    let wide = Effect { blocks: 3, ratio: 1.2, low: Some(0.84), high: Some(1.63), p_adjusted: None };
    row.cells[1].effects.insert("wall_s".into(), wide);
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    with_report(|report| {
        let report = Report { matrix: &matrix, ..report.clone() };
        let all = conclude(&report).join(" ");
        assert!(!all.contains("20") && !all.contains("more wall time"), "{all}");
        assert!(answer(&report).contains("no difference from default is shown for thp (-16 to +63 %)"), "{all}");
        assert!(all.contains("over the 1 workload that has a figure (-16 to +63 %)"), "{all}");
        let totals = sheets(&report).into_iter().find(|sheet| sheet.header[1] == "geometric mean").unwrap();
        assert_eq!(totals.rows[1][1], "+20 % (-16 to +63)");
        let html = crate::html::matrix::report(&report);
        let cell = html.split("<td class=\"n\"").find(|cell| cell.contains("sort, thp:")).unwrap();
        assert!(!cell.starts_with(" style=\"background"), "{cell}");
    });
}

#[test]
fn over_fewer_than_six_workloads_each_speaks_for_itself() {
    let definition = definition();
    let row = |name: &str, conclusion: Conclusion| {
        let comparison = crate::sample::comparison();
        let mut row = Row::of_comparison(name, "a host", &definition.policies, &comparison, &[]);
        row.cells[1].conclusion = conclusion;
        row
    };
    let answered = |rows: Vec<Row>, check: &dyn Fn(&Report<'_>)| {
        let matrix = Matrix::of(&definition.policies, &definition.baseline, rows, &[]);
        with_report(|report| check(&Report { matrix: &matrix, ..report.clone() }));
    };
    answered(vec![row("sort", Conclusion::Undecided), row("gcc", Conclusion::Undecided)], &|report| {
        let text = answer(report);
        assert!(text.starts_with("a host (measured): no difference from"), "{text}");
        assert!(text.contains("thp on sort (-12.4 to -11.2 %), thp on gcc (-12.4 to -11.2 %)"), "{text}");
        assert_eq!(title(report), "No difference from default is shown");
        let all = conclude(report).join(" ") + &mail(report) + &render(report, 120);
        assert!(!all.contains(" less ") && !all.contains("geometric mean of the changes"), "{all}");
        assert!(all.contains("thp on a host, measured: no mean over 2 workloads, because it needs 6"), "{all}");
        assert!(all.contains("No mean over all workloads: it needs 6 of them.") && all.contains("too few"), "{all}");
        assert!(!crate::html::matrix::report(report).contains("geometric mean: "), "no mark for a mean");
    });
    answered(vec![row("sort", Conclusion::Undecided), row("gcc", Conclusion::Better)], &|report| {
        let text = answer(report);
        assert!(text.contains(": thp has 11.8 % less wall time than default on gcc (-12.4 to -11.2 %)"), "{text}");
        assert!(text.contains("is shown for thp on sort (-12.4 to -11.2 %)"), "{text}");
        assert_eq!(title(report), "thp has 11.8 % less wall time than default on gcc");
    });
}

/// Seven workloads under eight policies, four of which only models have.
#[test]
fn the_answer_of_many_policies_has_five_lines_of_a_mail() {
    let names = ["thp", "base", "mthp-64k", "hugetlb-2m", "contig-64k", "contig-64k+thp", "base-64k", "base-64k+thp"];
    let policies = names.map(str::to_owned);
    let row = |at: usize| {
        let mut row = Row::without(&format!("workload {at}"), "AMD EPYC, Linux 6.18.44", &policies, "of models");
        row.cells[0].conclusion = Conclusion::Baseline;
        for (cell, ratio) in row.cells[1..4].iter_mut().zip([1.1, 1.04, 0.97]) {
            let logs: Vec<f64> = [-0.01, 0.0, 0.01, 0.0].iter().map(|noise| f64::ln(ratio) + noise).collect();
            let effect =
                Effect { blocks: 4, ratio, low: Some(ratio - 0.02), high: Some(ratio + 0.02), p_adjusted: Some(0.01) };
            cell.effects.insert("wall_s".into(), effect);
            cell.conclusion = Conclusion::Undecided;
            cell.error = study::stats::LogError::of_sample(&logs);
            cell.log_ratios = logs.into_iter().map(Some).collect();
        }
        row
    };
    let check = |rows: Vec<Row>, share: &str| {
        let matrix = Matrix::of(&policies, "thp", rows, &[]);
        with_report(|report| {
            let text = answer(&Report { matrix: &matrix, ..report.clone() });
            assert!(text.contains(share), "{text}");
            let lines = fold(&text, mail::WIDTH, 0);
            assert!(lines.lines().count() <= 5, "{lines}");
        });
    };
    let better = |at: usize| {
        let mut row = row(at);
        row.cells[2] = study_files::matrix::Cell { policy: "mthp-64k".to_owned(), ..row.cells[3].clone() };
        row
    };
    check((0..7).map(better).collect(), "of the gain of ");
    // Without a better policy, the shares are those of the baseline's gain over base pages.
    let without = |at: usize| {
        let mut row = row(at);
        row.cells[3] = study_files::matrix::Cell::without("hugetlb-2m", "no pool".to_owned());
        row
    };
    check((0..7).map(without).collect(), "of the gain of thp over base, mthp-64k brings 6");
}

#[test]
fn models_answer_by_their_metric_and_after_the_host() {
    let definition = definition();
    let of =
        |machine: &str| Row::of_comparison("sort", machine, &definition.policies, &crate::sample::comparison(), &[]);
    let (mut host, mut model) = (of("a host"), of("rva23"));
    host.cells[1].conclusion = Conclusion::WithinTracerCost;
    host.cells[2].conclusion = Conclusion::WithinTracerCost;
    model.provenance = Provenance::Modelled;
    model.metric = "walks".into();
    for cell in &mut model.cells[1..3] {
        let fewer = Effect { blocks: 0, ratio: 0.116, low: None, high: None, p_adjusted: None };
        cell.conclusion = Conclusion::Modelled;
        cell.effects.insert("walks".into(), fewer);
    }
    let nothing = Row::without("netperf", "another host", &definition.policies, "no package");
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![nothing, host, model], &[]);
    with_report(|report| {
        let text = answer(&Report { matrix: &matrix, ..report.clone() });
        assert!(!text.contains("another host"), "nothing was measured there: {text}");
        assert!(text.starts_with("a host (measured): thp shows no more than the tracer's cost"), "{text}");
        assert!(text.contains("rva23 (modelled): thp has 88.4 % fewer walks than default,"), "{text}");
    });
}

#[test]
fn a_figure_without_its_baseline_has_a_reason() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &crate::sample::comparison(), &[]);
    row.cells[0].conclusion = Conclusion::None { why: "no boot that has it was measured".into() };
    row.cells[1].effects.clear();
    row.cells[2].effects.clear();
    let mut model = row.clone();
    model.machine = "rva23".into();
    model.provenance = Provenance::Modelled;
    model.metric = "walks".into();
    model.cells[0].conclusion = Conclusion::Baseline;
    model.cells[1].conclusion = Conclusion::Modelled;
    let fewer = Effect { blocks: 0, ratio: 0.5, low: None, high: None, p_adjusted: None };
    model.cells[1].effects.insert("walks".into(), fewer);
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row, model], &[]);
    with_report(|report| {
        let text = answer(&Report { matrix: &matrix, ..report.clone() });
        let begin = "a host (measured): default has no figure (no boot that has it was measured), so nothing can be compared with it;";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("rva23 (modelled): thp has 50.0 % fewer walks"), "{text}");
    });
}

#[test]
fn counts_a_figure_once_however_many_machines_show_it() {
    let definition = definition();
    let undecided = |provenance| Reproduction {
        published: definition.published[0].clone(),
        machine: "m".into(),
        provenance,
        found: Some((0.9, None)),
        agreement: study_files::matrix::Agreement::Undecided,
    };
    with_report(|report| {
        let claim_with = |published: Vec<Reproduction>| {
            let matrix = Matrix { published, ..report.matrix.clone() };
            claim(&Report { matrix: &matrix, ..report.clone() })
        };
        let measured = || undecided(study::metric::Provenance::Measured);
        let modelled = || undecided(study::metric::Provenance::Modelled);
        let one = claim_with(vec![measured(), modelled()]).unwrap();
        assert!(one.contains("its one published figure is not decided here;"), "{one}");
        let one = claim_with(vec![modelled(), modelled()]).unwrap();
        assert!(one.starts_with("The origin's claim is not judged: nothing was measured"), "{one}");
        assert!(modelled().describe().contains("a model gives no interval"));
        let mut definition = definition.clone();
        definition.published.clear();
        let matrix = Matrix { published: Vec::new(), ..report.matrix.clone() };
        let report = Report { matrix: &matrix, definition: &definition, ..report.clone() };
        assert_eq!(claim(&report), None, "nothing is published, so there is no sentence about it");
        assert!(!render(&report, 100).contains("origin's claim"));
    });
}

#[test]
fn control_characters_of_a_file_are_escaped() {
    let mut definition = definition();
    definition.question = "\u{1b}[31mDoes it?".to_owned();
    with_report(|report| {
        let missing = vec!["the boot \u{9b}2J".to_owned()];
        let report = Report { definition: &definition, missing, ..report.clone() };
        let text = render(&report, 120);
        assert!(text.contains("\\x1b[31mDoes it?") && text.contains("\\u009b2J"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    });
}

#[test]
fn figures_of_an_origin_are_a_table_in_its_own_order() {
    let published = |workload: &str, policy: &str, change: &str| study_files::definition::Published {
        what: "x".into(),
        workload: Some(workload.into()),
        suite: None,
        policy: Some(policy.into()),
        boot: None,
        variant: None,
        metric: None,
        measure: study_files::definition::Measure::Change,
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

/// The report is as large as the matrix of the origin (Intel 2021): 259 tests of 3 policies on 4 machines, with all figures
/// different.
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
    with_report(|report| {
        let html = crate::html::matrix::report(&Report { matrix: &matrix, ..report.clone() });
        assert_eq!(html.matches("class=\"tip\"").count(), 259 * 3 * 4);
        assert!(html.len() < 3_000_000, "{}", html.len());
    });
}
