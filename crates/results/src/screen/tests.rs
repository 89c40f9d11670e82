//! The first screen, at several widths.

use policy::cause::{Cause, CauseShare};
use policy::remedy::Change;
use policy::size::PageSize;
use policy::verdict::{Holding, Peak};
use study::advice::{self, Advice, Attempt, LargeBytes, Tried};
use study::stats::Warning;

use super::*;
use crate::emphasis::without_emphasis;
use crate::sample;

const WIDTHS: [usize; 5] = [40, 60, 80, 120, 200];

fn at(width: usize) -> Place<'static> {
    Place { width, is_folded: true, full: "pagelab show 3 --full" }
}

fn screen(comparison: &Comparison, width: usize) -> String {
    without_emphasis(&render(comparison, at(width)))
}

/// A comparison like that of `pagelab demo`: five policies, one of them unsupported by the host, and every warning that does not change how
/// the result is read.
fn of_the_demo() -> Comparison {
    let mut comparison = sample::comparison();
    comparison.design.arms.truncate(5);
    comparison.trials.retain(|record| record.trial.arm < 5);
    for (arm, label) in [(1, "hugetlb-2m"), (2, "base")] {
        comparison.design.arms[arm].label = label.to_owned();
    }
    for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == 2) {
        record.verdict.holding = Holding::Held;
        record.verdict.covered_bytes = record.verdict.concerned_bytes;
    }
    sample::analyse(&mut comparison);
    comparison
}

/// The demo also prints what it runs and where the report is, each on one line.
#[test]
fn the_screen_of_the_demo_has_at_most_15_lines() {
    let text = screen(&of_the_demo(), 80);
    assert_eq!(text, include_str!("demo.txt").trim_end());
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 15 - 2, "{text}");
}

/// Two settings to apply, and undecided rivals: the longest sentence and the longest advice that a demo can have.
#[test]
fn the_screen_of_a_demo_that_mthp_wins_has_at_most_15_lines() {
    let mut comparison = of_the_demo();
    let analysis = comparison.analysis.as_mut().unwrap();
    analysis.arms[3].outcome = Outcome::Better { best: false };
    analysis.arms[4] = analysis.arms[3].clone();
    analysis.arms[4].outcome = Outcome::Better { best: true };
    analysis.arms[4].tied = vec![1, 3];
    analysis.arms[4].effects.get_mut(names::PEAK_RESIDENT_BYTES).unwrap().ratio = 1.0;
    analysis.arms[1].outcome = Outcome::Undecided { blocks_needed: None };
    analysis.arms[3].outcome = Outcome::Undecided { blocks_needed: None };
    let setting = |name: &str, value| {
        Change::setting(format!("/sys/kernel/mm/transparent_hugepage/hugepages-{name}/enabled"), value)
    };
    let changes = vec![setting("2048kB", "never"), setting("64kB", "always")];
    let outcome = advice::Outcome::Ran { large_bytes: 256 << 20, no_block_bytes: 0 };
    let large = LargeBytes { by_policy: 257 << 20, by_default: 0 };
    let attempts = vec![Attempt { changes, outcome }];
    let policy = "mthp-64k".parse().unwrap();
    comparison.advice = Some(Advice::Tried(Tried { policy, large, attempts, source_change: None }));
    let text = screen(&comparison, 80);
    assert!(text.contains("tied best with hugetlb-2m and thp (undecided)"), "{text}");
    assert!(text.contains("cd /sys/kernel/mm/transparent_hugepage; echo never >\nhugepages"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 15 - 2, "{text}");
}

#[test]
fn every_line_fits_and_every_name_is_whole() {
    for (which, comparison) in
        [sample::comparison(), sample::with_controls(), sample::with_own_metrics()].iter().enumerate()
    {
        for width in WIDTHS {
            let text = screen(comparison, width);
            let is_word = |line: &&str| !line.trim().contains(' ');
            let long = |line: &&str| line.chars().count() > width && !is_word(line);
            assert_eq!(text.lines().find(long), None, "{which} {width}: {text}");
            for label in ["default (again)", "hugetlb-1g", "thp+no-guards", "mthp-64k"] {
                assert!(text.contains(label), "{which} {width}: no {label} in {text}");
            }
            assert!(!text.contains('…'), "{text}");
        }
    }
}

/// Columns are left out in this order: memory, pages, interval, time.
#[test]
fn a_narrow_terminal_has_fewer_columns() {
    let header = |width: usize| {
        let text = screen(&sample::comparison(), width);
        let header = text.lines().next().unwrap();
        header.split("  ").map(str::trim).filter(|title| !title.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = ["policy", "wall time", "change", "95 % interval", "memory", "pages", "outcome"];
    assert_eq!(header(120), all);
    assert_eq!(header(70), ["policy", "wall time", "change", "95 % interval", "outcome"]);
    assert_eq!(header(55), ["policy", "wall time", "change", "outcome"]);
    assert_eq!(header(40), ["policy", "change", "outcome"]);
    let text = screen(&sample::comparison(), 55).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("more (3 columns, "), "what is left out is counted: {text}");
}

/// With metrics of the user's own, what else is optional is left out before them, except the proof.
#[test]
fn metrics_that_the_user_named_stay_at_80_columns() {
    let comparison = sample::with_own_metrics();
    for (width, shown) in [(60, &["rps"][..]), (80, &["rps"]), (200, &["rps", "p99_latency_ms"])] {
        let text = screen(&comparison, width);
        let header = text.lines().next().unwrap();
        assert!(shown.iter().all(|name| header.contains(name)), "{width}: {text}");
        assert_eq!(header.contains("pages"), width > 60, "{width}: {text}");
        assert!(text.lines().find(|line| line.starts_with("thp ")).unwrap().contains("-11.8 %"), "{text}");
    }
    assert!(screen(&comparison, 200).lines().next().unwrap().contains("rps interval"));
}

#[test]
fn a_policy_has_one_line() {
    let text = screen(&sample::comparison(), 120);
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 1 + 6, "{text}");
    for (label, parts) in [
        ("default ", &["3.274 s", "1.07G", "-", "baseline"][..]),
        ("thp ", &["-11.8 %", "1.29G", "held 97 %", "best"]),
        ("thp+no-guards ", &["not held 4 %", "undecided"]),
        ("hugetlb-1g ", &["unsupported"]),
    ] {
        let line = lines.iter().find(|line| line.starts_with(label)).expect(label);
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}

#[test]
fn what_changes_no_reading_is_counted() {
    let mut comparison = sample::comparison();
    comparison.analysis.as_mut().unwrap().warnings = vec![Warning::Drift { ratio: 1.1 }, Warning::BaselineNotHeld];
    let text = screen(&comparison, 200);
    assert!(text.contains("warning: the baseline's policy was not shown") && !text.contains("drifted"), "{text}");
    assert!(text.contains("thp+no-guards was in force on 4 % of the memory: not advised"), "{text}");
    // Counted as notes: the drift, two further causes, and the call that the tracer answered.
    assert!(text.ends_with("more (4 notes, why hugetlb-1g is unsupported): pagelab show 3 --full"), "{text}");
}

#[test]
fn a_peak_that_was_not_looked_at_has_its_bytes() {
    let mut comparison = sample::comparison();
    for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == 3) {
        let verdict = &mut record.verdict;
        verdict.holding = Holding::Unknown;
        verdict.causes = vec![CauseShare { cause: Cause::PeakUnseen, bytes: Some(481 << 20) }];
        verdict.peak = Some(Peak { seen_bytes: 12 << 20, least_bytes: 493 << 20, most_bytes: 520 << 20 });
    }
    let text = screen(&comparison, 200);
    assert!(text.contains("thp: not known whether it was in force: most of the memory was given back"), "{text}");
    assert!(text.contains("(12M of 493M at the peak); add --prove-all"), "{text}");
    comparison.design.prove_all = true;
    let texts = [screen(&comparison, 200), crate::table::render(&comparison, 200), crate::html::report(&comparison)];
    for text in texts {
        assert!(
            text.contains("easure a part of the program's life that gives back less")
                || text.contains("program&#39;s life"),
            "{text}"
        );
        assert!(!text.contains("add --prove-all") && !text.contains("Add --prove-all"), "it was given: {text}");
    }
}

#[test]
fn what_proves_a_policy_in_some_trials_is_no_cause_where_it_was_not_shown() {
    let mut comparison = sample::comparison();
    let proof = CauseShare { cause: Cause::ProvenByThpDisable, bytes: None };
    for record in comparison.trials.iter_mut().filter(|record| [2, 3].contains(&record.trial.arm)) {
        record.verdict.causes.push(proof.clone());
    }
    let text = crate::table::render(&comparison, 200);
    assert_eq!(text.matches("base pages are proven by PR_SET_THP_DISABLE").count(), 1, "{text}");
    assert!(text.contains("thp: base pages are proven"), "of the arm that held: {text}");
}

/// The comparison is like one of PostgreSQL, whose shared buffers are most of its memory.
#[test]
fn what_no_policy_touches_comes_before_the_causes_in_the_rest() {
    let mut comparison = sample::comparison();
    let shared = Warning::SharedMemory { bytes: 256 << 20, concerned_bytes: 8 << 20 };
    comparison.analysis.as_mut().unwrap().warnings.push(shared);
    let mail = crate::matrix::mail_of(&comparison);
    let place = |what: &str| mail.find(what).unwrap_or_else(|| panic!("{what}: {mail}"));
    assert!(place("huge_pages") < place("shmem_enabled") && place("huge_pages=on") < place("Machine"), "{mail}");
    for text in [screen(&comparison, 200), crate::table::render(&comparison, 200)] {
        let of_shared = text
            .find("warning: 256M of the memory is shared: its page size is set by the program (PostgreSQL: huge_pages)")
            .expect(&text);
        assert!(of_shared < text.find("in force").unwrap(), "{text}");
        assert!(text.find("PostgreSQL: huge_pages") < text.find("shmem_enabled"), "{text}");
        assert!(text.contains("vm.nr_hugepages") && text.contains("huge_pages=on"), "{text}");
    }
}

#[test]
fn what_may_hide_a_gain_of_large_pages_is_on_the_screen() {
    let mut comparison = sample::comparison();
    let analysis = comparison.analysis.as_mut().unwrap();
    analysis.warnings = vec![Warning::FreeMemoryReported { block: PageSize::M2, explained_by: None }];
    analysis.arms.iter_mut().for_each(|arm| {
        if matches!(arm.outcome, Outcome::Undecided { .. }) {
            arm.outcome = Outcome::Better { best: false };
        }
    });
    assert!(!screen(&comparison, 80).contains("hypervisor"), "all large pages gain");
    for outcome in [Outcome::Worse, Outcome::Undecided { blocks_needed: None }, Outcome::Equivalent] {
        comparison.analysis.as_mut().unwrap().arms[3].outcome = outcome.clone();
        let text = screen(&comparison, 80);
        assert!(
            text.contains("warning: first touches of large pages can fault in the hypervisor (--full: why)"),
            "{outcome:?}: {text}"
        );
    }
}

#[test]
fn a_cause_that_the_verdict_did_not_need_is_not_shown() {
    let mut comparison = sample::comparison();
    for record in &mut comparison.trials {
        record.verdict.causes.push(CauseShare { cause: Cause::PeakUncertain, bytes: None });
    }
    let text = crate::table::render(&comparison, 200);
    let of = |label: &str| text.lines().any(|line| line.starts_with(label) && line.contains("hide the peak"));
    assert!(text.contains("hide the peak"), "of the policy that did not hold: {text}");
    assert!(!of("base: ") && !of("thp: ") && !of("default: "), "{text}");
}

#[test]
fn a_gain_and_a_doubt_are_emphasised() {
    let lines = render(&sample::comparison(), at(120));
    let emphasis = |text: &str| {
        let found = lines.iter().flatten().find(|span| span.text == text).map(|span| span.emphasis);
        found.unwrap_or_else(|| panic!("no {text} in {lines:?}"))
    };
    for (text, expected) in [
        ("best", Emphasis::Good),
        ("undecided", Emphasis::Faint),
        ("not held 4 %", Emphasis::Doubtful),
        ("held 97 %", Emphasis::None),
        ("policy", Emphasis::Strong),
        ("thp", Emphasis::Strong),
        ("advice:", Emphasis::Strong),
    ] {
        assert_eq!(emphasis(text), expected, "{text}");
    }
}

#[test]
fn an_unproven_change_has_its_reason() {
    let text = screen(&sample::with_controls(), 120);
    let thp = text.lines().find(|line| line.starts_with("thp ")).unwrap();
    assert!(thp.ends_with("unproven"), "{text}");
    assert!(text.contains("thp: unproven: the tracer's cost (+31.1"), "{text}");
}

#[test]
fn nothing_from_outside_reaches_the_terminal_raw() {
    for width in WIDTHS {
        let text = screen(&sample::hostile(), width);
        assert!(!text.chars().any(|c| c != '\n' && c.is_control()) && !text.contains('\u{202e}'), "{text:?}");
    }
}

#[test]
fn a_comparison_that_has_hardly_begun_has_a_screen() {
    let text = screen(&sample::empty(), 100);
    assert!(text.contains("not measured") && text.contains("unsupported"), "{text}");
}
