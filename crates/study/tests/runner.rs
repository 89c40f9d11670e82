//! The loop on a fake machine: order, repetition, stopping, failure.

mod common;

use common::{Fake, Noise, design};
use policy::cause::Cause;
use policy::verdict::Holding;
use policy::{Admission, Unsupported};
use study::comparison::{Design, Ended};
use study::runner::{Event, MAX_ATTEMPTS, Run, compare};
use study::stats::{Outcome, Warning};
use study::trial::Trial;

fn run(design: &Design, fake: &mut Fake) -> Run {
    compare(design, fake, &mut |_| ())
}

fn quiet(design: &Design, ratios: &[f64]) -> Fake {
    Fake::new(design, ratios, Noise::quiet(), 1)
}

fn message(run: &Run) -> &str {
    match &run.ended {
        Ended::Failed { message } => message,
        other => panic!("expected a failure, found {other:?}"),
    }
}

#[test]
fn every_block_runs_every_arm_once_in_another_order() {
    let design = design(&["default", "base", "thp", "mthp-64k"], 5);
    let run = run(&design, &mut quiet(&design, &[1.0; 4]));
    let mut orders = std::collections::BTreeSet::new();
    for (block, trials) in run.trials.chunks(4).enumerate() {
        let order: Vec<usize> = trials.iter().map(|record| record.trial.arm).collect();
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, [0, 1, 2, 3]);
        for (position, record) in trials.iter().enumerate() {
            assert_eq!((record.trial.block, record.trial.position), (block as u32, position as u32));
        }
        orders.insert(order);
    }
    assert!(orders.len() > 4, "{orders:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let orders = |seed| {
        let design = design(&["default", "base", "thp"], seed);
        run(&design, &mut quiet(&design, &[1.0; 3])).trials.iter().map(|record| record.trial.arm).collect::<Vec<_>>()
    };
    assert_eq!(orders(1), orders(1));
    assert_ne!(orders(1), orders(2));
}

#[test]
fn a_quiet_machine_stops_at_the_minimum_number_of_blocks() {
    let design = design(&["default", "thp"], 1);
    let run = run(&design, &mut quiet(&design, &[1.0, 0.9]));
    assert_eq!(run.ended, Ended::Precise);
    let analysis = run.analysis.unwrap();
    assert_eq!(analysis.blocks, 8);
    assert_eq!(run.trials.len(), 2 * 9, "block 0 is kept and does not count");
    assert_eq!(analysis.arms[1].outcome, Outcome::Better { best: true });
    assert_eq!(analysis.winner(), Some(1));
}

#[test]
fn a_significant_difference_does_not_stop_the_run() {
    let mut design = design(&["default", "thp"], 1);
    design.max_blocks = 20;
    let noise = Noise { trial: 0.05, ..Noise::quiet() };
    let mut significant = 0;
    let run = compare(&design, &mut Fake::new(&design, &[1.0, 0.5], noise, 1), &mut |event| {
        if let Event::Block(analysis) = event {
            significant += u32::from(matches!(analysis.arms[1].outcome, Outcome::Better { .. }));
        }
    });
    assert_eq!(run.ended, Ended::Blocks);
    assert_eq!(run.analysis.unwrap().blocks, 20);
    assert!(significant >= 10, "{significant}");
}

#[test]
fn an_arm_whose_policy_does_not_hold_must_be_precise_too() {
    let design = design(&["default", "thp"], 1);
    let mut fake = Fake::new(&design, &[1.0, 1.0], Noise { trial: 0.02, ..Noise::quiet() }, 3);
    fake.arms[1].holding = Holding::NotHeld;
    let run = run(&design, &mut fake);
    let analysis = run.analysis.unwrap();
    assert!(analysis.blocks > 15, "{}", analysis.blocks);
    assert!(matches!(analysis.arms[1].outcome, Outcome::Equivalent | Outcome::Undecided { .. }));
}

#[test]
fn no_block_begins_after_the_time_limit() {
    let mut design = design(&["default", "thp"], 1);
    design.max_time_s = Some(5.2);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    let run = run(&design, &mut fake);
    assert_eq!(run.ended, Ended::Time);
    // Two runs of half a second per block: the block that begins at 5 s is the last.
    assert_eq!(run.trials.len(), 12);
    assert_eq!(run.analysis.unwrap().blocks, 5);
}

/// The comparison measures nothing while it waits for the lease.
#[test]
fn the_time_limit_counts_from_the_first_trial() {
    let mut design = design(&["default", "thp"], 1);
    design.max_time_s = Some(5.2);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    fake.waits_s = 600.0;
    let run = run(&design, &mut fake);
    assert_eq!((run.ended, run.trials.len()), (Ended::Time, 12));
}

#[test]
fn an_arm_that_takes_too_long_is_dropped_and_the_rest_continues() {
    let mut design = design(&["default", "base", "thp"], 1);
    design.trial_time_s = Some(30.0);
    for block in [0, 3] {
        let mut fake = quiet(&design, &[1.0, 0.5, 0.9]);
        fake.slow = Box::new(move |arm, of| (arm, of) == (1, block));
        let run = run(&design, &mut fake);
        assert_eq!(run.ended, Ended::Precise);
        assert_eq!(run.trials.iter().filter(|record| record.trial.arm == 1).count(), block as usize + 1);
        let analysis = run.analysis.unwrap();
        let message = format!("took longer than 30 s (--trial-time) in block {block}, and was ended");
        assert_eq!(analysis.arms[1].outcome, Outcome::TooSlow { message });
        assert!(analysis.arms[1].effects.is_empty());
        assert_eq!((analysis.blocks, analysis.winner()), (8, Some(2)));
    }
}

#[test]
fn without_the_baseline_or_the_last_other_arm_there_is_nothing_to_compare() {
    let mut design = design(&["default", "thp"], 1);
    design.trial_time_s = Some(0.5);
    for (slow, words) in [(0, "trial of default took longer than 0.5 s"), (1, "no other arm is left")] {
        let mut fake = quiet(&design, &[1.0, 0.9]);
        fake.slow = Box::new(move |arm, block| (arm, block) == (slow, 2));
        let run = run(&design, &mut fake);
        let Ended::TooSlow { message } = &run.ended else { panic!("{:?}", run.ended) };
        assert!(message.contains(words) && message.contains("in block 2"), "{message}");
        assert_eq!(run.trials.last().unwrap().trial.arm, slow);
        let outcome = run.analysis.map(|analysis| analysis.arms[1].outcome.clone());
        assert_eq!(slow == 1, matches!(outcome, Some(Outcome::TooSlow { .. })), "block 1 is complete");
    }
}

/// The setting change may be the reason.
#[test]
fn a_rejected_trial_that_took_too_long_is_repeated() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.rejected = Box::new(|number| number == 2);
    fake.slow = Box::new(|_, block| block == 1);
    let run = run(&design, &mut fake);
    assert_eq!(run.trials[3].trial, Trial { attempt: 1, ..run.trials[2].trial });
}

#[test]
fn an_interruption_keeps_finished_trials() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.interrupt_before = 7;
    let run = run(&design, &mut fake);
    assert_eq!(run.ended, Ended::Interrupted);
    assert_eq!(run.trials.len(), 7);
    assert_eq!(run.analysis.unwrap().blocks, 2, "the seventh trial's block is not complete");
}

#[test]
fn a_rejected_trial_is_repeated_in_its_place() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.rejected = Box::new(|number| number == 5 || number == 6);
    let run = run(&design, &mut fake);
    let places: Vec<Trial> = run.trials[5..8].iter().map(|record| record.trial).collect();
    assert_eq!(places.iter().map(|trial| trial.attempt).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(places.iter().all(|trial| (trial.arm, trial.block) == (places[0].arm, places[0].block)));
    assert_eq!(run.ended, Ended::Precise);
    assert_eq!(run.trials.len(), 2 * 9 + 2);
    let analysis = run.analysis.unwrap();
    let path = "/sys/kernel/mm/transparent_hugepage/enabled".to_string();
    assert!(analysis.warnings.contains(&Warning::Rejected { count: 2, path }));
}

#[test]
fn every_trial_is_prepared_including_discarded_and_repeated_ones() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.rejected = Box::new(|number| number == 5);
    let run = run(&design, &mut fake);
    assert_eq!(run.ended, Ended::Precise);
    let expected: Vec<Option<Trial>> = run.trials.iter().flat_map(|record| [None, Some(record.trial)]).collect();
    assert_eq!(fake.asked, expected);
    assert_eq!(run.trials.len(), 2 * 9 + 1, "block 0 and the rejected trial are among them");
}

#[test]
fn a_failed_preparation_ends_the_run_and_keeps_earlier_trials() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.unprepared = Some(7);
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("block 3") && message(&run).contains("there is no wood"), "{}", message(&run));
    assert_eq!((run.trials.len(), fake.runs), (7, 7), "the trial was not run");
    assert_eq!(run.analysis.unwrap().blocks, 2);
}

#[test]
fn a_trial_that_is_always_rejected_ends_the_run_and_names_the_setting() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.rejected = Box::new(|number| number >= 6);
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("transparent_hugepage/enabled from always to never"), "{}", message(&run));
    assert_eq!(run.trials.len(), 6 + MAX_ATTEMPTS as usize);
    assert_eq!(run.analysis.unwrap().blocks, 2);
}

#[test]
fn an_unsupported_arm_is_reported_and_not_run() {
    let design = design(&["default", "hugetlb-1g", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.5, 0.9]);
    let unsupported = Unsupported { reason: "the pool is empty".into(), remedy: "fill it".into() };
    fake.arms[1].unsupported = Some(unsupported.clone());
    let mut admitted = Vec::new();
    let run = compare(&design, &mut fake, &mut |event| {
        if let Event::Admitted(admissions) = event {
            admitted = admissions.to_vec();
        }
    });
    assert_eq!(run.admissions, admitted);
    assert_eq!(run.admissions[1], Admission::Unsupported(unsupported));
    assert!(run.trials.iter().all(|record| record.trial.arm != 1));
    let analysis = run.analysis.unwrap();
    assert_eq!(analysis.arms[1].outcome, Outcome::Unsupported);
    assert!(analysis.arms[1].effects.is_empty());
    assert_eq!(analysis.winner(), Some(2));
}

#[test]
fn reports_that_nothing_can_be_compared_before_anything_runs() {
    let design = design(&["default", "thp"], 1);
    for arm in [0, 1] {
        let mut fake = quiet(&design, &[1.0, 1.0]);
        fake.arms[arm].unsupported = Some(Unsupported { reason: "no".into(), remedy: "none".into() });
        let run = run(&design, &mut fake);
        assert_eq!((run.ended, run.trials.len(), run.analysis), (Ended::NothingAdmitted, 0, None));
    }
}

#[test]
fn a_trial_that_cannot_run_ends_the_run_and_is_named() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    fake.broken = Some(9);
    let run = run(&design, &mut fake);
    assert!(message(&run).contains(" failed in block 4: the machine is on fire"), "{}", message(&run));
    assert_eq!(run.trials.len(), 9);
}

#[test]
fn a_command_that_always_fails_is_not_measured() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    fake.arms.iter_mut().for_each(|arm| arm.exits = vec![2]);
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("fails under every policy: exit status 2"), "{}", message(&run));
    assert_eq!(run.trials.len(), 2);
}

/// The command would not fail by itself, so the advice to run it by itself would not help.
#[test]
fn advice_for_a_command_that_fails_because_of_tracing_is_not_to_run_it_by_itself() {
    let design = design(&["default", "thp"], 1);
    for (cause, remedy) in [(Cause::Debugger, "without the debugger"), (Cause::PrivilegeNotGained, "as root")] {
        let mut fake = quiet(&design, &[1.0, 1.0]);
        fake.arms.iter_mut().for_each(|arm| arm.exits = vec![1]);
        fake.cause = Some(cause.clone());
        let run = run(&design, &mut fake);
        let message = message(&run);
        assert!(message.contains(&cause.describe()) && message.contains(remedy), "{message}");
        assert!(!message.contains("by itself to see why"), "{message}");
    }
}

#[test]
fn a_command_that_fails_under_the_baseline_alone_is_not_measured() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    fake.arms[0].exits = vec![3];
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("fails under the baseline default: exit status 3"), "{}", message(&run));
}

#[test]
fn an_arm_with_a_wrong_answer_is_dropped_and_the_rest_continues() {
    let design = design(&["default", "base", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.5, 0.9]);
    fake.arms[1].exits = vec![0, 0, 0, 139];
    let run = run(&design, &mut fake);
    assert_eq!(run.ended, Ended::Precise);
    assert_eq!(run.trials.iter().filter(|record| record.trial.arm == 1).count(), 4);
    let analysis = run.analysis.unwrap();
    assert_eq!(analysis.blocks, 8);
    let message = "exit status 139 instead of exit status 0 in block 3".to_string();
    assert_eq!(analysis.arms[1].outcome, Outcome::WrongAnswer { message });
    assert!(analysis.arms[1].effects.is_empty());
    assert_eq!(analysis.winner(), Some(2));
}

#[test]
fn a_wrong_answer_in_the_discarded_block_counts() {
    let design = design(&["default", "base", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.5, 0.9]);
    fake.arms[1].exits = vec![1, 0];
    let run = run(&design, &mut fake);
    assert_eq!(run.ended, Ended::Precise);
    assert!(matches!(run.analysis.unwrap().arms[1].outcome, Outcome::WrongAnswer { .. }));
}

#[test]
fn a_comparison_ends_if_only_the_baseline_remains() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.5]);
    fake.arms[1].exits = vec![1];
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("no other arm gave the baseline's answer"), "{}", message(&run));
    assert_eq!(run.trials.len(), 4);
    assert!(matches!(run.analysis.unwrap().arms[1].outcome, Outcome::WrongAnswer { .. }));
}

#[test]
fn a_baseline_whose_answer_changes_ends_the_run() {
    let design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 0.9]);
    fake.arms[0].exits = vec![0, 0, 0, 1];
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("changes from one trial to another"), "{}", message(&run));
    assert_eq!(run.analysis.unwrap().blocks, 2);
}

#[test]
fn a_primary_metric_that_is_absent_or_zero_ends_the_run() {
    let mut absent = design(&["default", "thp"], 1);
    absent.metrics[0].name = "tps".into();
    absent.primary = "tps".into();
    let run = compare(&absent, &mut quiet(&absent, &[1.0, 1.0]), &mut |_| ());
    assert!(message(&run).contains("tps was not observed"), "{}", message(&run));

    let zero = design(&["default", "thp"], 1);
    let mut fake = quiet(&zero, &[1.0, 0.0]);
    let run = compare(&zero, &mut fake, &mut |_| ());
    assert!(message(&run).contains("wall_s is 0 in the trial of thp"), "{}", message(&run));
}

#[test]
fn an_invalid_design_runs_nothing() {
    let mut design = design(&["default", "thp"], 1);
    let mut fake = quiet(&design, &[1.0, 1.0]);
    design.baseline = 7;
    let run = run(&design, &mut fake);
    assert!(message(&run).contains("arm number 7"), "{}", message(&run));
    assert_eq!((run.trials.len(), run.admissions.len(), run.analysis), (0, 0, None));
}

#[test]
fn events_come_in_the_order_of_the_run() {
    let mut design = design(&["default", "thp"], 1);
    design.min_blocks = 1;
    design.max_blocks = 1;
    let mut seen = String::new();
    compare(&design, &mut quiet(&design, &[1.0, 1.0]), &mut |event| {
        seen.push(match event {
            Event::Admitted(_) => 'a',
            Event::Started(_) => 's',
            Event::Finished(_) => 'f',
            Event::Block(_) => 'b',
            Event::Ended(_) => 'e',
        });
    });
    assert_eq!(seen, "asfsfsfsfbe");
}
