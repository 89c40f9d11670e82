//! Mails of reports and of comparisons.

use proptest::prelude::*;
use study::comparison::Comparison;
use study::stats::Effect;
use study_files::definition::{Boot, Guest};
use study_files::matrix::{Basis, Conclusion};

use super::super::sample::{definition, with_large_report, with_report};
use super::super::*;
use crate::sample;

/// Checks what every mail must fulfil.
fn check_width(text: &str) {
    assert!(text.is_ascii(), "{text}");
    let long: Vec<&str> = text.lines().filter(|line| line.len() > 72).collect();
    assert!(long.is_empty(), "{long:?} in\n{text}");
}

fn check(text: &str) {
    check_width(text);
    assert!(!text.contains("-0.0%") && !text.contains("-0%") && !text.contains("(chance)"), "{text}");
}

fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin} in\n{text}"))
}

/// The lines after a metric's name, up to the next metric.
fn of_metric<'a>(text: &'a str, metric: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != metric).skip(1);
    lines.take_while(|line| line.starts_with("  ")).collect()
}

#[test]
fn a_mail_of_a_comparison_has_what_a_reviewer_asks_for() {
    let comparison = Comparison { id: 7, ..sample::comparison() };
    let text = mail_of(&comparison);
    check(&text);
    let machine = line(&text, "Machine");
    assert!(machine.contains(&comparison.machine.cpu_model) && machine.contains("processors"), "{text}");
    assert!(line(&text, "Kernel").contains(&comparison.machine.kernel), "{text}");
    assert!(line(&text, "THP").contains("enabled "), "{text}");
    assert!(text.contains("  pagelab compare"), "{text}");
    let wall = of_metric(&text, "wall time");
    let cells: Vec<Vec<&str>> = wall.iter().map(|line| line.split_whitespace().collect()).collect();
    // The baseline is first, with its median and its spread; the other arms follow, with changes and intervals.
    assert_eq!((cells[0][0], cells[0].len()), ("default", 5), "{wall:?}");
    let thp = cells.iter().find(|cells| cells[0] == "thp").unwrap();
    assert!(thp.len() == 7 && thp[5] == "-11.8%" && thp[6].contains(".."), "{wall:?}");
    for metric in ["user time", "system time", "minor faults", "peak memory", "page tables"] {
        assert!(of_metric(&text, metric).len() > 1, "{metric} in\n{text}");
    }
    assert!(line(&text, "* default: baseline; 15 runs").len() > 20);
    assert!(text.contains("comparison 7, "), "{text}");
}

#[test]
fn every_arm_without_figures_or_pages_has_its_reason() {
    let text = mail_of(&sample::comparison());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("* hugetlb-1g: no figure: "), "{text}");
    assert!(
        words.contains("* thp+no-guards: undecided; 15 runs; not held (4 % of the memory asked for, on average): "),
        "{text}"
    );
    let not_held = words.split("asked for, on average): ").nth(1).unwrap();
    assert!(not_held.split('*').next().unwrap().contains(" a run)"), "the cause, with its bytes: {not_held}");
}

#[test]
fn a_mail_of_a_study_has_every_workload_and_every_reason() {
    with_report(|report| {
        let text = mail(report);
        check(&text);
        for what in ["sort|it", "wall time", "  thp ", "contig-64k: no figure: a policy of models", "a list"] {
            assert!(text.contains(what), "{what} in\n{text}");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("\n\nCommand\n  sort\n\n"), "the command is not part of the last bullet: {text}");
        assert!(words.contains("* omnet, a host: default, thp, mthp-64k, contig-64k: no free one"), "{text}");
    });
}

#[test]
fn an_emulated_machine_has_no_time() {
    let mut comparison = sample::comparison();
    comparison.design.primary = "minor_faults".into();
    sample::analyse(&mut comparison);
    assert!(!of_metric(&mail_of(&comparison), "wall time").is_empty());
    comparison.machine.cpu_model = "QEMU TCG CPU version 2.5+".into();
    comparison.machine.kernel_command_line = format!("quiet {}", study::guest::emulator_word("QEMU-7.2.22"));
    let text = mail_of(&comparison);
    check(&text);
    assert!(
        text.contains("Machine   QEMU 7.2.22 (x86_64)"),
        "an emulator has a version, its processor no model: {text}"
    );
    assert!(of_metric(&text, "wall time").is_empty() && of_metric(&text, "user time").is_empty(), "{text}");
    assert!(!of_metric(&text, "minor faults").is_empty() && !of_metric(&text, "peak memory").is_empty(), "{text}");
    assert!(text.contains("* no time: the machine was emulated"), "{text}");
}

#[test]
fn a_mail_says_what_limits_its_figures() {
    let definition = definition();
    let of = |name: &str, notes: &[&str]| {
        let of = Row::of_comparison(name, "a host", &definition.policies, &sample::comparison(), &[]);
        Row { notes: notes.iter().map(|note| (*note).to_owned()).collect(), ..of }
    };
    let rows = vec![of("sort", &["of another build", "demoted"]), of("gcc", &["demoted"])];
    let matrix = Matrix::of(&definition.policies, &definition.baseline, rows, &[]);
    with_report(|report| {
        let text = mail(&Report { matrix: &matrix, ..report.clone() });
        let limits = "What limits these figures:\n* sort: of another build\n* all workloads: demoted\n\n";
        assert!(text.contains(limits), "{text}");
        let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![of("sort", &[])], &[]);
        assert!(!mail(&Report { matrix: &matrix, ..report.clone() }).contains("limits"));
    });
}

#[test]
fn a_mail_says_where_zeros_leave_no_per_cent() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &sample::comparison(), &[]);
    for cell in &mut row.cells[..2] {
        cell.effects.remove("system_s");
        cell.medians.insert("system_s".into(), 0.0);
        cell.basis.ranges.insert("system_s".into(), (0.0, 0.004));
    }
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    with_report(|report| {
        let text = mail(&Report { matrix: &matrix, ..report.clone() });
        check(&text);
        let thp =
            of_metric(&text, "system time").into_iter().find(|line| line.trim_start().starts_with("thp ")).unwrap();
        assert!(thp.contains("0 s..4.000 ms") && thp.ends_with("none"), "{thp}");
        assert!(text.contains("* system time: no change where a run has 0: the ratio is undefined"), "{text}");
    });
}

#[test]
fn a_study_of_kernels_begins_with_them_and_has_their_figures_once() {
    let guest = |name: &str| Guest {
        image: format!("images/{name}"),
        cmdline: String::new(),
        memory: None,
        icount: true,
        sysroot: None,
    };
    with_large_report(|report| {
        let over_boots = report.over_boots.unwrap();
        let kernels = &over_boots.policies;
        let boots = kernels.iter().map(|name| Boot::of_guest(name, *name == kernels[0], guest(name))).collect();
        let definition = Definition { boots, ..report.definition.clone() };
        let mut matrix = report.matrix.clone();
        matrix.rows.iter_mut().for_each(|row| row.machine = format!("{}, emulated", kernels[1]));
        let rows = std::mem::take(&mut matrix.rows);
        let matrix = Matrix::of(&matrix.policies, &matrix.baseline, rows, &[]);
        let text = mail(&Report { definition: &definition, matrix: &matrix, ..report.clone() });
        check(&text);
        let answer = super::super::answer(&Report { definition: &definition, ..report.clone() });
        assert!(answer.contains(&kernels[1]) && !answer.contains("asking for"), "{answer}");
        assert!(answer.contains("The largest change of a single figure: "), "{answer}");
        let against = |baseline: &str| text.matches(&format!("per cent is against {baseline}")).count();
        assert_eq!(
            (against(&kernels[0]), against(&definition.baseline)),
            (1, 1),
            "only the model's figures remain: {text}"
        );
    });
}

#[test]
fn a_change_without_an_interval_says_why() {
    let definition = definition();
    let mut row = Row::of_comparison("sort", "a host", &definition.policies, &sample::comparison(), &[]);
    for cell in &mut row.cells[..2] {
        cell.basis = Basis { boots: 1, ..cell.basis.clone() };
        cell.effects.values_mut().for_each(|effect| (effect.low, effect.high) = (None, None));
    }
    let matrix = Matrix::of(&definition.policies, &definition.baseline, vec![row], &[]);
    with_report(|report| {
        let text = mail(&Report { matrix: &matrix, ..report.clone() });
        check(&text);
        assert!(text.contains("* no interval: "), "{text}");
        assert!(text.contains("15 runs in 1 boot"), "{text}");
    });
}

/// A figure of any size, of any sign.
fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-9..1e-3, 0.1..10.0, 1e3..1e7, 1e12..1e18]
}

fn effect() -> impl Strategy<Value = Effect> {
    let ratio = || prop_oneof![0.999_9..1.000_1, 0.5..2.0, 1e-4..1e-2, 1e3..1e9];
    (ratio(), proptest::option::of((ratio(), ratio()))).prop_map(|(ratio, range)| {
        let (low, high) = range.map(|(one, other): (f64, f64)| (one.min(other), one.max(other))).unzip();
        Effect { blocks: 9, ratio, low, high, p_adjusted: None }
    })
}

/// A cell with a figure, or an empty cell.
fn cell(metrics: Vec<String>) -> impl Strategy<Value = study_files::matrix::Cell> {
    let count = metrics.len();
    let known = (proptest::collection::vec((figure(), figure(), effect(), any::<[bool; 2]>()), count), any::<bool>());
    let known = known.prop_map(move |(figures, is_held)| {
        let mut cell = study_files::matrix::Cell::without("", String::new());
        (cell.is_held, cell.conclusion) = (is_held, Conclusion::Undecided);
        cell.basis.holding =
            Some(if is_held { policy::verdict::Holding::Held } else { policy::verdict::Holding::NotHeld });
        for (name, (one, other, effect, [is_seen, is_compared])) in metrics.iter().zip(figures) {
            if is_seen {
                cell.medians.insert(name.clone(), one);
                cell.basis.ranges.insert(name.clone(), (one.min(other), one.max(other)));
            }
            if is_seen && is_compared {
                cell.effects.insert(name.clone(), effect);
            }
        }
        cell
    });
    prop_oneof![4 => known, 1 => ".{0,200}".prop_map(|why| study_files::matrix::Cell::without("", why))]
}

fn row() -> impl Strategy<Value = Row> {
    let name = || prop_oneof!["[a-z]{1,12}", "[a-z_/-]{60,160}", "\\PC{1,90}"];
    let metrics = proptest::collection::vec(name(), 0..3).prop_map(|own| {
        ["wall_s", "system_s", "minor_faults", "peak_resident_bytes"]
            .map(str::to_owned)
            .into_iter()
            .chain(own)
            .collect()
    });
    let cells = metrics.prop_flat_map(|metrics: Vec<String>| proptest::collection::vec(cell(metrics), 1..12));
    (name(), name(), proptest::collection::vec(name(), 12), cells, any::<bool>()).prop_map(
        |(workload, machine, policies, mut cells, is_emulated)| {
            cells.iter_mut().zip(&policies).for_each(|(cell, policy)| cell.policy.clone_from(policy));
            if !matches!(cells[0].conclusion, Conclusion::None { .. }) {
                cells[0].conclusion = Conclusion::Baseline;
            }
            Row { cells, is_emulated, notes: vec![workload.clone()], ..Row::without(&workload, &machine, &[], "") }
        },
    )
}

proptest! {
    #![proptest_config(testing::properties(64))]

    // A word of a command line is never broken, so these words fit.
    #[test]
    fn no_mail_is_wider_whatever_is_in_it(row in row(), command in proptest::collection::vec("\\PC{0,5}", 1..40)) {
        let policies: Vec<String> = row.cells.iter().map(|cell| cell.policy.clone()).collect();
        let baseline = policies[0].clone();
        let matrix = Matrix::of(&policies, &baseline, vec![row], &[]);
        // The command is quoted in the mail, and may itself contain "-0%".
        with_report(|report| check_width(&mail(&Report { matrix: &matrix, command: command.clone(), ..report.clone() })));
    }
}
