//! Warnings: when they are given, and when not.

mod common;

use common::{admitted, design, normal, trials, uniform};
use policy::size::PageSize;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::comparison::Design;
use study::metric::names;
use study::stats::{Analysis, Outcome, Warning, analyse};
use study::trial::TrialRecord;

fn analysis(design: &Design, trials: &[TrialRecord]) -> Analysis {
    analyse(design, trials, &admitted(design.arms.len())).expect("blocks that count")
}

/// The share of comparisons, with values of this kind, that give a warning.
fn rate(is: fn(&Warning) -> bool, blocks: u32, mut value: impl FnMut(&mut Pcg64, u32) -> f64) -> f64 {
    let design = design(&["default", "thp"], 1);
    let runs = 300;
    let warned = (0..runs).filter(|seed| {
        let mut random = Pcg64::seed_from_u64(*seed);
        let all = trials(2, blocks, |_, block| value(&mut random, block));
        analysis(&design, &all).warnings.iter().any(is)
    });
    warned.count() as f64 / runs as f64
}

fn log_normal(random: &mut Pcg64) -> f64 {
    (0.03 * normal(random)).exp()
}

fn with_outliers(random: &mut Pcg64) -> f64 {
    log_normal(random) * if uniform(random) < 0.03 { 1.1 + 0.5 * uniform(random) } else { 1.0 }
}

fn drift(warning: &Warning) -> bool {
    matches!(warning, Warning::Drift { .. })
}

fn bimodal(warning: &Warning) -> bool {
    matches!(warning, Warning::Bimodal { .. })
}

fn outliers(warning: &Warning) -> bool {
    matches!(warning, Warning::Outliers { .. })
}

#[test]
fn two_groups_are_found_and_one_group_is_not_mistaken_for_two() {
    for blocks in [12, 20, 60] {
        assert!(rate(bimodal, blocks, |random, _| log_normal(random)) <= 0.01, "{blocks}");
        assert!(rate(bimodal, blocks, |random, _| with_outliers(random)) <= 0.02, "{blocks}");
        assert!(rate(bimodal, blocks, |random, _| 1.0 + uniform(random)) <= 0.05, "{blocks}");
        assert!(rate(bimodal, blocks, |random, block| log_normal(random) * (1.0 + 0.01 * f64::from(block))) <= 0.02);
        let two = |random: &mut Pcg64, _| log_normal(random) * if uniform(random) < 0.5 { 1.3 } else { 1.0 };
        assert!(rate(bimodal, blocks, two) >= 0.9, "{blocks}");
    }
}

#[test]
fn drift_is_found_and_noise_is_not_mistaken_for_it() {
    for blocks in [8, 20, 60] {
        assert!(rate(drift, blocks, |random, _| log_normal(random)) <= 0.02, "{blocks}");
        let warming = |random: &mut Pcg64, block| log_normal(random) * (-0.02 * f64::from(block)).exp();
        assert!(rate(drift, blocks.max(20), warming) >= 0.95, "{blocks}");
    }
}

#[test]
fn outliers_are_found_and_tails_are_not_mistaken_for_them() {
    assert!(rate(outliers, 30, |random, _| log_normal(random)) <= 0.02);
    let one_in_thirty = |random: &mut Pcg64, block: u32| log_normal(random) * if block == 7 { 1.5 } else { 1.0 };
    assert!(rate(outliers, 30, one_in_thirty) >= 0.98);
}

#[test]
fn tracer_load_and_short_runs_are_warned_of_beyond_their_limits() {
    let design = design(&["default", "thp"], 1);
    let with = |wall_s: f64, tracer_s: f64| {
        let mut all = trials(2, 8, |_, _| wall_s);
        all.iter_mut().for_each(|record| {
            record.observations.push(study::metric::Observation::measured(names::TRACER_S, tracer_s));
        });
        analysis(&design, &all).warnings
    };
    assert_eq!(with(1.0, 0.009), []);
    let tracer: Vec<Warning> = with(1.0, 0.02);
    assert_eq!(tracer, [Warning::TracerLoad { arm: 0, ratio: 0.02 }, Warning::TracerLoad { arm: 1, ratio: 0.02 }]);
    assert_eq!(with(0.01, 0.0), [Warning::ShortRuns { wall_s: 0.01 }]);
}

/// Two demoted leaves of 24G, as a test of a demotion leaves behind, do not invalidate a comparison.
#[test]
fn a_demotion_is_warned_of_if_it_affects_enough_of_the_direct_map() {
    let with = |small: &str, small_mib: u64, all_mib: u64| {
        let mut all = trials(2, 8, |_, _| 1.0);
        for record in all.iter_mut().skip(5) {
            record.state_before.demoted_to = Some(PageSize::K4);
            let bytes = [(small, small_mib), ("1G", all_mib - small_mib)];
            record.state_before.direct_map_bytes = bytes.map(|(leaf, mib)| (leaf.into(), mib << 20)).into();
        }
        analysis(&design(&["default", "thp"], 1), &all).warnings
    };
    let demoted = |ratio| vec![Warning::DirectMapDemoted { leaf: PageSize::K4, ratio }];
    assert_eq!(with("4K", 22, 24 << 10), []);
    assert_eq!(with("4K", 9, 1000), []);
    assert_eq!(with("2M", 999, 1000), [], "leaves larger than those of the demotion");
    assert_eq!(with("4K", 10, 1000), demoted(Some(0.01)));
    assert_eq!(with("4K", 0, 0), demoted(None), "not counted");
    let arms = design(&["default", "thp"], 1).arms;
    let text = |ratio| demoted(ratio)[0].describe(&arms);
    assert!(text(Some(0.0312)).ends_with("(direct-map demote): 3.1 % of it is in leaves of at most that size"));
    assert!(text(None).ends_with("the share of such leaves is not known"));
}

#[test]
fn warns_of_unlimited_inspections_that_the_wall_time_contains() {
    let with = |prove_all: bool, looks_s: f64| {
        let mut all = trials(2, 8, |_, _| 1.0);
        let of_thp = all.iter_mut().filter(|record| record.trial.arm == 1);
        of_thp.for_each(|record| {
            record.observations.push(study::metric::Observation::measured(names::LOOKS_S, looks_s));
        });
        analysis(&study::comparison::Design { prove_all, ..design(&["default", "thp"], 1) }, &all).warnings
    };
    assert_eq!((with(true, 0.0), with(true, 0.0009), with(false, 0.2)), (vec![], vec![], vec![]));
    assert_eq!(with(true, 0.002), [Warning::InspectionInWallTime { arm: 1, ratio: 0.002 }]);
}

#[test]
fn cpu_time_decides_if_the_first_process_ends_early() {
    use study::metric::Observation;
    let with = |cpu_s: f64, outlived_cpu_s: f64, outlived_s: f64, design: &study::comparison::Design| {
        let mut all = trials(2, 8, |_, _| 0.002);
        for record in &mut all {
            let faster = if record.trial.arm == 1 { 0.5 } else { 1.0 };
            record.observations.extend([
                Observation::measured(names::CPU_S, cpu_s * faster),
                Observation::measured(names::OUTLIVED_S, outlived_s),
                Observation::measured(names::OUTLIVED_CPU_S, outlived_cpu_s * faster),
            ]);
        }
        analysis(design, &all)
    };
    let metrics = study::metric::Metric::of_every_trial();
    let plain = study::comparison::Design { metrics, ..design(&["default", "thp"], 1) };
    let daemon = with(1.0, 0.9, 1.0, &plain);
    assert_eq!(daemon.primary, names::CPU_S);
    assert_eq!(daemon.warnings, [Warning::FirstProcessEnds { ratio: 0.9, cpu_decides: true }]);
    assert_eq!(daemon.arms[1].outcome, Outcome::Better { best: true }, "halved, though its wall time is the same");
    let idle = with(1.0, 0.02, 0.2, &plain);
    assert_eq!(idle.warnings, [Warning::FirstProcessEnds { ratio: 0.02, cpu_decides: true }]);
    for (outlived_cpu_s, outlived_s) in [(0.05, 0.05), (0.0, 0.0)] {
        let usual = with(1.0, outlived_cpu_s, outlived_s, &plain);
        assert_eq!(
            (usual.primary.as_str(), &usual.warnings[..]),
            (names::WALL_S, &[Warning::ShortRuns { wall_s: 0.002 }][..])
        );
    }
    let chosen = study::comparison::Design { primary: names::CPU_S.into(), ..plain };
    let warned = with(1.0, 0.9, 1.0, &chosen).warnings;
    assert_eq!(warned, [Warning::FirstProcessEnds { ratio: 0.9, cpu_decides: false }]);
    assert!(!warned[0].describe(&chosen.arms).contains("decides"));
}

#[test]
fn similar_wall_times_are_warned_of_if_the_throughput_differs() {
    use study::metric::{Direction, Metric, Observation, Unit};
    let with = |wall_s: fn(u32) -> f64, rate: fn(u32) -> f64, direction: Direction, primary: &str| {
        let mut all = trials(2, 8, |_, block| wall_s(block));
        for record in &mut all {
            record.observations.push(Observation::measured("tps", rate(record.trial.block)));
        }
        let mut metrics = Metric::of_every_trial();
        metrics.push(Metric::new("tps", Unit::Custom, direction));
        let design = study::comparison::Design { metrics, primary: primary.into(), ..design(&["default", "thp"], 1) };
        analysis(&design, &all).warnings
    };
    // Runs of pgbench -T 3 take 3.01 to 3.05 s.
    let fixed: fn(u32) -> f64 = |block| 3.01 + 0.02 * f64::from(block % 3);
    let rate: fn(u32) -> f64 = |block| 12_000.0 + 500.0 * f64::from(block % 4);
    let warned = with(fixed, rate, Direction::Higher, names::WALL_S);
    assert!(matches!(&warned[..], [Warning::FixedTime { metric, .. }] if metric == "tps"), "{warned:?}");
    assert_eq!(warned[0].remedy(), "then compare what it prints: --primary tps");
    assert_eq!(with(fixed, rate, Direction::Higher, "tps"), []);
    assert_eq!(with(fixed, |_| 12_000.0, Direction::Higher, names::WALL_S), [], "nothing differs");
    assert_eq!(with(fixed, rate, Direction::Lower, names::WALL_S), [], "a latency can differ by itself");
    let of_fixed_work: fn(u32) -> f64 = |block| 36_000.0 / (3.01 + 0.02 * f64::from(block % 3));
    assert_eq!(with(fixed, of_fixed_work, Direction::Higher, names::WALL_S), [], "a fixed amount of work");
    assert_eq!(with(|block| 3.0 + 0.1 * f64::from(block % 3), rate, Direction::Higher, names::WALL_S), []);
}

#[test]
fn much_shared_memory_is_warned_of() {
    let design = design(&["default", "thp"], 1);
    let with = |shared_bytes: u64, concerned_bytes: u64| {
        let mut all = trials(2, 8, |_, _| 1.0);
        for record in &mut all {
            let observation = study::metric::Observation::measured(names::SHARED_BYTES, shared_bytes as f64);
            record.observations.push(observation);
            record.verdict.concerned_bytes = concerned_bytes;
        }
        analysis(&design, &all).warnings
    };
    let postgres = with(390 << 20, 38 << 20);
    assert_eq!(postgres, [Warning::SharedMemory { bytes: 390 << 20, concerned_bytes: 38 << 20 }]);
    assert_eq!(
        postgres[0].describe(&design.arms),
        "390M of the memory is shared: its page size is set by the program (PostgreSQL: huge_pages) or by shmem_enabled, and no \
         policy chooses it; the verdicts cover only the other memory"
    );
    assert_eq!((with(1 << 19, 0), with(2 << 20, 38 << 20)), (vec![], vec![]));
    assert_eq!(with(2 << 20, 0).len(), 1);
}

#[test]
fn free_page_reporting_of_a_guest_is_warned_of() {
    let design = design(&["default", "thp"], 1);
    let mut all = trials(2, 8, |_, _| 1.0);
    assert_eq!(analysis(&design, &all).warnings, []);
    all[3].state_before.reported_block = Some(PageSize::M2);
    let warnings = analysis(&design, &all).warnings;
    assert_eq!(warnings, [Warning::FreeMemoryReported { block: PageSize::M2, explained_by: None }]);
    assert!(warnings[0].describe(&design.arms).contains("is on (blocks of 2M): "));
}

#[test]
fn warnings_name_the_arm_and_the_figures() {
    let design = design(&["default", "thp"], 1);
    let bimodal = Warning::Bimodal { arm: 1, low: 0.0123456, high: 1236.0 };
    let text = bimodal.describe(&design.arms);
    assert!(text.starts_with("the samples of thp fall into two groups, around 0.01235 and 1236 "), "{text}");
    let rejected = Warning::Rejected { count: 1, path: "/x".into() };
    assert!(rejected.describe(&design.arms).starts_with("1 trial was rejected and repeated"));
    assert_eq!(
        Warning::Drift { ratio: 0.95 }.describe(&[]),
        "the baseline drifted by -5.0 % from the first block to the last"
    );
}
