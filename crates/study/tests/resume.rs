//! Comparisons that are interrupted and resumed, on a fake machine.

mod common;

use common::{Fake, Noise, design};
use study::comparison::{Design, Ended};
use study::runner::{EarlierParts, Gap, Pause, Platform, Run, compare, resume};
use study::trial::{Trial, TrialRecord};

fn run(design: &Design, fake: &mut Fake) -> Run {
    compare(design, fake, &mut |_| ())
}

fn quiet(design: &Design, ratios: &[f64]) -> Fake {
    Fake::new(design, ratios, Noise::quiet(), 1)
}

/// The run until an interruption before this trial. From then on nothing interrupts the machine.
fn interrupted(design: &Design, fake: &mut Fake, before: u32) -> Run {
    fake.interrupt_before = before;
    let begun = run(design, fake);
    fake.interrupt_before = u32::MAX;
    begun
}

/// The rest of a run, to its end.
fn resumed(design: &Design, fake: &mut Fake, trials: Vec<TrialRecord>, gap: Gap) -> Run {
    resume(design, EarlierParts { trials, gap }, None, fake, &mut |_| ())
}

/// The trials, reduced to their positions.
fn places(run: &Run) -> Vec<Trial> {
    run.trials.iter().map(|record| record.trial).collect()
}

#[test]
fn an_interrupted_run_resumes_where_it_stopped() {
    let design = design(&["default", "base", "thp"], 7);
    let whole = run(&design, &mut quiet(&design, &[1.0, 1.0, 0.8]));
    for stop in 0..whole.trials.len() as u32 {
        let mut fake = quiet(&design, &[1.0, 1.0, 0.8]);
        let begun = interrupted(&design, &mut fake, stop);
        assert_eq!((&begun.ended, begun.trials.len()), (&Ended::Interrupted, stop as usize));
        let resumed = resumed(&design, &mut fake, begun.trials, Gap::Nothing);
        assert_eq!(places(&resumed), places(&whole), "stopped before trial {stop}");
        assert_eq!(resumed.trials, whole.trials, "the fake machine continued too");
        assert_eq!((resumed.ended, resumed.analysis), (whole.ended.clone(), whole.analysis.clone()));
    }
}

#[test]
fn resuming_an_ended_run_runs_nothing() {
    let design = design(&["default", "thp"], 7);
    let whole = run(&design, &mut quiet(&design, &[1.0, 0.8]));
    let mut idle = quiet(&design, &[1.0, 0.8]);
    let again = resumed(&design, &mut idle, whole.trials.clone(), Gap::Nothing);
    assert_eq!((idle.runs, again), (0, whole));
}

#[test]
fn after_a_reboot_caches_are_warmed_again_and_the_split_block_does_not_count() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    // Two of block 0, two of block 1, one of block 2.
    let begun = interrupted(&design, &mut fake, 5);
    let resumed = resumed(&design, &mut fake, begun.trials.clone(), Gap::Reboot);
    assert_eq!(resumed.trials[..5], begun.trials);
    let of = |range: std::ops::Range<usize>| {
        resumed.trials[range].iter().map(|record| record.trial.block).collect::<Vec<_>>()
    };
    assert_eq!(of(5..7), [0, 0], "warmed up");
    assert!(resumed.trials[5..7].iter().all(|record| record.trial.attempt == 1), "each attempt has its own number");
    assert_eq!(of(7..9), [3, 3], "block 2 was split by the reboot");
    assert_eq!(resumed.analysis.unwrap().blocks, 8);
}

#[test]
fn a_block_split_by_a_reboot_stays_split_when_the_run_resumes_again() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    let begun = interrupted(&design, &mut fake, 5);
    fake.interrupt_before = 8;
    let rebooted = EarlierParts { trials: begun.trials, gap: Gap::Reboot };
    let again = resume(&design, rebooted, None, &mut fake, &mut |_| ());
    assert_eq!(again.trials.len(), 8, "warmed up, and one of block 3");
    fake.interrupt_before = u32::MAX;
    let resumed = resumed(&design, &mut fake, again.trials, Gap::Nothing);
    let of_block = |block| resumed.trials.iter().filter(|record| record.trial.block == block).count();
    assert_eq!([0, 1, 2, 3, 4].map(of_block), [4, 2, 1, 2, 2]);
    assert_eq!(resumed.analysis.unwrap().blocks, 8);
}

#[test]
fn dropped_arms_stay_dropped() {
    let design = design(&["default", "base", "thp", "mthp-64k"], 7);
    let mut fake = quiet(&design, &[1.0, 0.9, 0.8, 0.9]);
    fake.arms[1].exits = vec![1];
    fake.slow = Box::new(|arm, block| arm == 2 && block == 2);
    let begun = interrupted(&design, &mut fake, 13);
    assert_eq!(begun.trials.len(), 13);
    let resumed = resumed(&design, &mut fake, begun.trials, Gap::Nothing);
    assert!(resumed.trials[13..].iter().all(|record| [0, 3].contains(&record.trial.arm)));
    assert_eq!(resumed.ended, Ended::Precise);
}

#[test]
fn a_pause_waits_for_the_minimum_number_of_blocks_and_loses_no_block() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks, design.precision_ratio) = (8, 30, 1e-9);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    // A block takes 0.9 s.
    let mut pause = Pause { after_s: 3.0, latest_s: 60.0 };
    let mut earlier = EarlierParts::default();
    let mut blocks = Vec::new();
    loop {
        let part = resume(&design, earlier, Some(pause), &mut fake, &mut |_| ());
        blocks.push(part.analysis.as_ref().unwrap().blocks);
        earlier = EarlierParts { trials: part.trials, gap: Gap::Others };
        if part.ended != Ended::Interrupted {
            assert_eq!(part.ended, Ended::Blocks);
            break;
        }
        pause.after_s = fake.elapsed_s() + 4.5;
    }
    assert_eq!(blocks[0], 8, "the minimum, although it takes longer than the pause");
    assert!(blocks.len() > 3 && *blocks.last().unwrap() == 30, "{blocks:?}");
    let discarded = earlier.trials.iter().filter(|record| record.trial.block == 0).count();
    assert_eq!(discarded, 2 * blocks.len(), "each part begins with a block that is discarded");
}

#[test]
fn the_latest_time_pauses_a_comparison_with_few_blocks_and_replaces_its_time_limit() {
    let mut design = design(&["default", "thp"], 7);
    design.max_time_s = Some(1.0);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    let pause = Pause { after_s: 1.0, latest_s: 3.0 };
    let run = resume(&design, EarlierParts::default(), Some(pause), &mut fake, &mut |_| ());
    assert_eq!((run.ended, run.analysis.unwrap().blocks), (Ended::Interrupted, 3));
}

#[test]
fn a_block_split_by_other_programs_is_completed_after_a_warm_up() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    let begun = interrupted(&design, &mut fake, 5);
    let resumed = resumed(&design, &mut fake, begun.trials, Gap::Others);
    let of_block = |block| resumed.trials.iter().filter(|record| record.trial.block == block).count();
    assert_eq!([0, 1, 2, 3].map(of_block), [4, 2, 2, 2]);
    assert_eq!(resumed.trials.len(), 20, "no other trial runs");
}
