//! The table, at several widths.

use policy::cause::{Cause, CauseShare};
use policy::verdict::{Holding, Peak};
use study::comparison::Khugepaged;
use study::metric::Observation;

use super::*;
use crate::sample;

/// Width of a line in terminal columns; the sample has no wide characters.
fn columns(line: &str) -> usize {
    line.chars().count()
}

#[test]
fn every_line_fits() {
    let comparison = sample::comparison();
    for width in MIN_WIDTH..=MAX_WIDTH {
        for line in render(&comparison, width).lines() {
            let single_word = !line.trim().trim_start_matches("- ").contains(' ');
            assert!(columns(line) <= width || single_word, "{width}: {line:?}");
        }
    }
}

#[test]
fn reports_khugepaged_per_row_and_how_it_was_held_once() {
    let mut comparison = sample::comparison();
    assert!(!render(&comparison, 140).contains("khugepaged made"), "no trial knows");
    for record in &mut comparison.trials {
        let collapses = match (record.trial.arm, record.trial.block) {
            (3, 2) => 1.0,
            (3, 4 | 5) => 3.0,
            _ => 0.0,
        };
        record.observations.push(Observation::measured(names::HOST_COLLAPSES, collapses));
    }
    let text = render(&comparison, 140);
    assert!(
        text.contains("thp: khugepaged made 1 to 3 large pages in 3 of the 15 trials (a counter of the host"),
        "{text}"
    );
    assert_eq!(
        (text.matches("khugepaged made").count(), text.matches("--khugepaged off holds it still").count()),
        (1, 1),
        "{text}"
    );
    let document = crate::json::document(&comparison);
    let of_arm = |arm: usize, key: &str| document["arms"][arm]["khugepaged"][key].as_u64();
    let keys = ["of_trials", "trials", "least_collapses", "most_collapses"];
    assert_eq!(keys.map(|key| of_arm(3, key)), [Some(15), Some(3), Some(1), Some(3)]);
    assert_eq!(keys.map(|key| of_arm(0, key)), [Some(15), Some(0), Some(0), Some(0)]);
    assert_eq!(document["design"]["khugepaged"], "as_is");
    comparison.design.khugepaged = Khugepaged::Off;
    assert!(render(&comparison, 140).contains("khugepaged was held still (--khugepaged off)"));
    assert!(crate::html::report(&comparison).contains("khugepaged made 1 to 3 large pages in 3 of the 15 trials"));
}

#[test]
fn figures_are_not_broken() {
    for width in [40, 60, 80, 100, 123, 140] {
        let text = render(&sample::comparison(), width);
        for figure in ["3.274 s", "-11.8", "1.29G", "130K", "2,141", "282k", "unsupported", "equivalent"] {
            assert!(text.contains(figure), "{width}: {figure} is not in\n{text}");
        }
    }
}

#[test]
fn every_arm_of_the_sample_is_judged() {
    let text = render(&sample::comparison(), 140);
    let outcome = |label: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{label} "))).expect(label);
        line.rsplit("  ").next().unwrap().trim().to_string()
    };
    let labels = ["default", "hugetlb-1g", "thp+no-guards", "thp", "mthp-64k", "default (again)"];
    let outcomes = ["baseline", "unsupported", "undecided", "best", "undecided", "equivalent"];
    assert_eq!(labels.map(outcome), outcomes);
    assert!(
        text.contains("hugetlb-1g is unsupported: the pool of 1G pages is empty (0 of 2 wanted); as root: echo 2 >")
    );
    assert!(text.contains("thp+no-guards was in force on 4 % of the memory"));
    assert!(text.contains("thp: answered by the tracer, not the kernel: prctl(PR_SET_THP_DISABLE) (once a run)"));
    assert!(text.contains("warning: the baseline drifted"));
}

#[test]
fn prints_a_remedy_that_warnings_share_once() {
    let mut comparison = sample::comparison();
    let loaded = |arm| study::stats::Warning::TracerLoad { arm, ratio: 0.125 };
    comparison.analysis.as_mut().unwrap().warnings = vec![loaded(0), loaded(2), study::stats::Warning::BaselineNotHeld];
    let text = render(&comparison, 200).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("a total of 12.5 % of the wall time").count(), 2, "{text}");
    assert_eq!(text.matches(&loaded(0).remedy()).count(), 1, "{text}");
    assert!(text.find(&loaded(0).remedy()) > text.rfind("total of 12.5 %"), "behind the last: {text}");
    assert_eq!(text.matches("warning: ").count(), 3);
}

#[test]
fn metrics_that_were_asked_for_have_their_change_and_interval() {
    let comparison = sample::with_own_metrics();
    for width in [40, 60, 80] {
        let text = render(&comparison, width);
        assert!(text.contains("p99_latency_ms") && !text.contains('…'), "names are whole: {text}");
    }
    let lines = |width: usize| {
        let text = render(&comparison, width);
        let of_arm = text.lines().skip_while(|line| !line.starts_with("mthp-64k ")).take(4);
        let lines: Vec<String> = of_arm.map(str::to_string).collect();
        assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {text}");
        lines
    };
    for width in [160, 100] {
        let lines = lines(width);
        for (line, name, figures) in [
            (&lines[0], "wall", ["3.231", "-1.3", "-3.0", "+0.9"]),
            (&lines[1], "rps", ["92864", "+1.3", "-0.9", "+3.1"]),
            (&lines[2], "p99_latency_ms", ["3.231", "-1.3", "-3.0", "+0.9"]),
            (&lines[3], "cpu", ["3.128", "-1.4", "-3.1", "+0.8"]),
        ] {
            for part in figures.iter().chain([&name]) {
                assert!(line.contains(part), "{width}: no {part} in {line:?}");
            }
        }
    }
}

#[test]
fn a_change_is_the_ratio_of_two_printed_values() {
    let comparison = sample::comparison();
    let text = render(&comparison, 160);
    let figures = |label: &str| -> Vec<f64> {
        let line = text.lines().find(|line| line.starts_with(&format!("{label} "))).unwrap();
        let words = line.split_whitespace().skip_while(|word| *word != "wall").skip(1);
        words.filter_map(|word| word.parse().ok()).take(2).collect()
    };
    let baseline = figures("default")[0];
    for label in ["thp", "mthp-64k", "thp+no-guards"] {
        let [typical, change] = figures(label)[..] else { panic!("{label}: {text}") };
        assert!((100.0 * (typical / baseline - 1.0) - change).abs() < 0.1, "{label}: {typical} {change} {text}");
    }
}

/// A tree of processes with 90 subshells: the effect of its stops is shown below the change, and the row makes no
/// claim.
#[test]
fn shows_the_tracers_cost_below_the_change_without_a_claim() {
    let comparison = sample::with_controls();
    for width in [80, 100, 140] {
        let text = render(&comparison, width);
        assert!(text.lines().all(|line| columns(line) <= width), "{width}: {text}");
        let lines: Vec<&str> = text.lines().collect();
        let has = |label: &str, parts: &[&str]| {
            let begins = |line: &str| line.starts_with(&format!("{label} ")) || line.starts_with(&format!("{label}:"));
            let is_row = |rows: &&[&str]| {
                begins(rows[0]) && parts.iter().all(|part| rows.iter().any(|line| line.contains(part)))
            };
            assert!(lines.windows(6).any(|rows| is_row(&rows)), "{width}: {label} {parts:?}: {text}");
        };
        has("thp", &["unproven:", "+30.1", "tracing ", "+31.1"]);
        has("default", &["baseline", "tracing ", "+0.7"]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("stops: default against a run without a tracer (bare)"), "{width}: {text}");
        assert!(words.contains("thp: unproven: the tracer's cost (+31.1"), "{width}: {text}");
        assert!(words.contains("of thp against default, by runs with the same stops (sham)"), "{width}: {text}");
        assert!(!text.lines().any(|line| line.starts_with("bare") || line.starts_with("sham")), "{width}: {text}");
    }
}

/// The verdict and the coverage must be about the same trial: a mean coverage could contradict the verdict.
#[test]
fn the_coverage_in_the_table_agrees_with_its_word() {
    let mut comparison = sample::comparison();
    let thp = comparison.design.arms.iter().position(|arm| arm.label == "thp").unwrap();
    let mut of_thp: Vec<_> =
        comparison.trials.iter_mut().filter(|record| record.trial.arm == thp && record.trial.block > 0).collect();
    let tenth = of_thp.len() / 10;
    for record in &mut of_thp[..=tenth] {
        record.verdict.covered_bytes = record.verdict.concerned_bytes / 2;
        record.verdict.holding = Holding::Partly;
    }
    let text = render(&comparison, 140);
    let note =
        "thp was in force on 50 % of the memory in the worst tenth of the runs, which decides, and on 91 % on average";
    assert!(text.contains(note), "{text}");
    assert!(text.lines().any(|line| line.starts_with("thp ") && line.contains("partly 50 %")), "{text}");
}

#[test]
fn reports_an_unexamined_peak_with_its_bytes() {
    let mut comparison = sample::comparison();
    let thp = comparison.design.arms.iter().position(|arm| arm.label == "thp").unwrap();
    for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == thp) {
        let verdict = &mut record.verdict;
        (verdict.holding, verdict.causes) = (Holding::Unknown, Vec::new());
        verdict.causes.push(CauseShare { cause: Cause::PeakUnseen, bytes: Some(481 << 20) });
        verdict.peak = Some(Peak { seen_bytes: 12 << 20, least_bytes: 493 << 20, most_bytes: 520 << 20 });
    }
    let text = render(&comparison, 200).split_whitespace().collect::<Vec<_>>().join(" ");
    let note = "thp: not known whether it was in force - most of the memory was given back before it could be inspected (12M of 493M \
                at the peak); add --prove-all, which inspects all memory before it is given back";
    assert!(text.contains(note), "{text}");
}

#[test]
fn nothing_from_outside_reaches_the_terminal_raw() {
    for width in [40, 80, 200] {
        let text = render(&sample::hostile(), width);
        assert!(!text.chars().any(|c| c != '\n' && c.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
    }
}

#[test]
fn a_comparison_that_has_hardly_begun_has_a_table() {
    let text = render(&sample::empty(), 100);
    assert!(text.contains("not measured") && text.contains("unsupported"), "{text}");
}

#[test]
fn the_full_table_says_what_its_own_columns_and_rows_leave_open() {
    let text = render(&sample::comparison(), 200);
    assert!(text.contains("typical: the baseline's median; in other rows, that median times the change"), "{text}");
    assert!(text.contains("mthp-64k is one mTHP size of several"), "{text}");
    assert!(!text.contains("no tracer"), "{text}");
    let mut untraced = sample::comparison();
    for record in &mut untraced.trials {
        record.observations.retain(|one| {
            ![names::TRACER_S, names::PEAK_RESIDENT_BYTES, names::PAGE_TABLE_SEEN_BYTES].contains(&one.metric.as_str())
        });
    }
    sample::analyse(&mut untraced);
    assert!(render(&untraced, 200).contains("memory: not known: pages of a pool"));
}
