//! Comparisons that are interrupted and continued, on a fake machine.

mod common;

use common::{Fake, Noise, design};
use study::comparison::{Design, Ended};
use study::runner::{Earlier, Run, compare, go_on};
use study::trial::Trial;

fn run(design: &Design, fake: &mut Fake) -> Run {
    compare(design, fake, &mut |_| ())
}

fn quiet(design: &Design, ratios: &[f64]) -> Fake {
    Fake::new(design, ratios, Noise::quiet(), 1)
}

/// The trials, reduced to their positions.
fn places(run: &Run) -> Vec<Trial> {
    run.trials.iter().map(|record| record.trial).collect()
}

#[test]
fn an_interrupted_run_goes_on_where_it_was_wherever_that_is() {
    let design = design(&["default", "base", "thp"], 7);
    let whole = run(&design, &mut quiet(&design, &[1.0, 1.0, 0.8]));
    for stop in 0..whole.trials.len() as u32 {
        let mut fake = quiet(&design, &[1.0, 1.0, 0.8]);
        fake.interrupt_before = stop;
        let begun = run(&design, &mut fake);
        assert_eq!((&begun.ended, begun.trials.len()), (&Ended::Interrupted, stop as usize));
        fake.interrupt_before = u32::MAX;
        let earlier = Earlier { trials: begun.trials, is_of_other_boot: false };
        let resumed = go_on(&design, earlier, &mut fake, &mut |_| ());
        assert_eq!(places(&resumed), places(&whole), "stopped before trial {stop}");
        assert_eq!(resumed.trials, whole.trials, "the fake machine went on as well");
        assert_eq!((resumed.ended, resumed.analysis), (whole.ended.clone(), whole.analysis.clone()));
    }
}

#[test]
fn a_run_that_has_ended_runs_nothing_when_it_goes_on() {
    let design = design(&["default", "thp"], 7);
    let whole = run(&design, &mut quiet(&design, &[1.0, 0.8]));
    let mut idle = quiet(&design, &[1.0, 0.8]);
    let earlier = Earlier { trials: whole.trials.clone(), is_of_other_boot: false };
    let again = go_on(&design, earlier, &mut idle, &mut |_| ());
    assert_eq!((idle.runs, again), (0, whole));
}

#[test]
fn after_a_reboot_caches_are_warmed_again_and_the_parted_block_does_not_count() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    // Two of block 0, two of block 1, one of block 2.
    fake.interrupt_before = 5;
    let begun = run(&design, &mut fake);
    fake.interrupt_before = u32::MAX;
    let earlier = Earlier { trials: begun.trials.clone(), is_of_other_boot: true };
    let resumed = go_on(&design, earlier, &mut fake, &mut |_| ());
    assert_eq!(resumed.trials[..5], begun.trials);
    let of = |range: std::ops::Range<usize>| {
        resumed.trials[range].iter().map(|record| record.trial.block).collect::<Vec<_>>()
    };
    assert_eq!(of(5..7), [0, 0], "warmed up");
    assert!(resumed.trials[5..7].iter().all(|record| record.trial.attempt == 1), "each trial has a place of its own");
    assert_eq!(of(7..9), [3, 3], "block 2 was parted by the reboot");
    assert_eq!(resumed.analysis.unwrap().blocks, 8);
}

#[test]
fn a_block_that_a_reboot_parted_stays_so_when_the_run_goes_on_again() {
    let mut design = design(&["default", "thp"], 7);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = quiet(&design, &[1.0, 0.8]);
    fake.interrupt_before = 5;
    let begun = run(&design, &mut fake);
    fake.interrupt_before = 8;
    let rebooted = Earlier { trials: begun.trials, is_of_other_boot: true };
    let again = go_on(&design, rebooted, &mut fake, &mut |_| ());
    assert_eq!(again.trials.len(), 8, "warmed up, and one of block 3");
    fake.interrupt_before = u32::MAX;
    let earlier = Earlier { trials: again.trials, is_of_other_boot: false };
    let resumed = go_on(&design, earlier, &mut fake, &mut |_| ());
    let of_block = |block| resumed.trials.iter().filter(|record| record.trial.block == block).count();
    assert_eq!([0, 1, 2, 3, 4].map(of_block), [4, 2, 1, 2, 2]);
    assert_eq!(resumed.analysis.unwrap().blocks, 8);
}

#[test]
fn what_left_the_race_stays_out_of_it() {
    let design = design(&["default", "base", "thp", "mthp-64k"], 7);
    let mut fake = quiet(&design, &[1.0, 0.9, 0.8, 0.9]);
    fake.arms[1].exits = vec![1];
    fake.slow = Box::new(|arm, block| arm == 2 && block == 2);
    fake.interrupt_before = 13;
    let begun = run(&design, &mut fake);
    assert_eq!(begun.trials.len(), 13);
    fake.interrupt_before = u32::MAX;
    let earlier = Earlier { trials: begun.trials, is_of_other_boot: false };
    let resumed = go_on(&design, earlier, &mut fake, &mut |_| ());
    assert!(resumed.trials[13..].iter().all(|record| [0, 3].contains(&record.trial.arm)));
    assert_eq!(resumed.ended, Ended::Precise);
}
