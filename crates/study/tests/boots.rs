//! Arms over boots: one arm measured per boot, and the merged result.

mod common;

use common::{Fake, Noise, comparison, design, machine, normal, record};
use policy::machine::Machine;
use policy::size::PageSize;
use policy::verdict::Holding;
use policy::{Admission, Unsupported};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::comparison::{Comparison, Design, Ended};
use study::metric::names;
use study::runner::{self, Event, Run};
use study::stats::Outcome;
use study::stats::boots::{Limitation, MeasuredBoots, MergeError, Merged, merge};
use study::trial::Trial;

const ARMS: [&str; 3] = ["direct-map-1g", "direct-map-2m", "direct-map-4k"];

/// A boot that measured one arm in `trials` trials around `wall_s`.
fn boot(design: &Design, machine: Machine, arm: usize, wall_s: f64, trials: u32) -> Comparison {
    let trial = |block| {
        let wobble = 1.0 + f64::from(block % 3) * 0.001;
        record(Trial { arm, block, position: 0, attempt: 0 }, Holding::Held, &[(names::WALL_S, wall_s * wobble)])
    };
    let run =
        Run { admissions: vec![], trials: (0..=trials).map(trial).collect(), analysis: None, ended: Ended::Blocks };
    comparison(1, machine, design.clone(), run)
}

/// `boots` boots of each arm on each of `hosts` hosts; times consist of `ratios`, host effects and boot noise.
fn many(hosts: u32, boots: u32, ratios: &[f64], noise: f64, seed: u64) -> Merged {
    let mut random = Pcg64::seed_from_u64(seed);
    let design = design(&ARMS[..ratios.len()], 1);
    let mut parts = Vec::new();
    for host in 0..hosts {
        for number in 0..boots {
            for (arm, ratio) in ratios.iter().enumerate() {
                let wall_s = ratio * f64::from(1 + host) * (noise * normal(&mut random)).exp();
                let machine = machine(host, u64::from(number * 10 + arm as u32));
                parts.extend(MeasuredBoots::of(&boot(&design, machine, arm, wall_s, 3)));
            }
        }
    }
    merge(&parts).unwrap()
}

#[test]
fn a_boot_measures_its_own_arm() {
    let design = design(&ARMS, 1);
    let mut fake = Fake::new(&design, &[1.0, 1.2, 1.5], Noise::quiet(), 1);
    for arm in [0, 2] {
        fake.arms[arm].unsupported = Some(Unsupported { reason: "another boot".into(), remedy: "reboot".into() });
    }
    let (mut stored, mut admissions) = (Vec::new(), 0);
    let run = runner::arm_of_boot(&design, &mut fake, &mut |event| match event {
        Event::Finished(record) => stored.push(record.clone()),
        Event::Admitted(all) => admissions = all.len(),
        _ => {}
    });
    assert_eq!(run.ended, Ended::Blocks);
    assert_eq!((run.trials.len() as u32, admissions), (design.min_blocks + 1, 3), "block 0 is kept and does not count");
    assert!(run.trials.iter().all(|record| record.trial.arm == 1));
    assert_eq!(stored, run.trials, "listeners get the index of the arm in the design");
    assert!(matches!(run.admissions[0], Admission::Unsupported(_)));
}

#[test]
fn a_boot_without_any_arm_measures_nothing() {
    let design = design(&ARMS, 1);
    let mut fake = Fake::new(&design, &[1.0; 3], Noise::quiet(), 1);
    fake.arms.iter_mut().for_each(|arm| {
        arm.unsupported = Some(Unsupported { reason: "mixed".into(), remedy: "reboot".into() });
    });
    let run = runner::arm_of_boot(&design, &mut fake, &mut |_| {});
    assert_eq!((run.ended, run.trials.len(), fake.runs), (Ended::NothingAdmitted, 0, 0));
}

#[test]
fn a_command_that_fails_ends_the_arm() {
    let design = design(&ARMS, 1);
    let mut fake = Fake::new(&design, &[1.0; 3], Noise::quiet(), 1);
    fake.arms[0].exits = vec![0, 0, 3];
    let run = runner::arm_of_boot(&design, &mut fake, &mut |_| {});
    assert!(matches!(run.ended, Ended::Failed { .. }), "{:?}", run.ended);
}

#[test]
fn six_boots_of_each_arm_show_a_difference() {
    let merged = many(1, 6, &[1.0, 1.08, 1.2], 0.01, 3);
    assert_eq!(merged.arms[0].outcome, Outcome::Baseline);
    assert_eq!((&merged.arms[1].outcome, &merged.arms[2].outcome), (&Outcome::Worse, &Outcome::Worse));
    let effect = merged.arms[2].effects[names::WALL_S];
    assert_eq!(effect.blocks, 6, "boots, not trials");
    assert!((effect.ratio - 1.2).abs() < 0.02 && effect.low.unwrap() > 1.1 && effect.high.unwrap() < 1.3, "{effect:?}");
    assert!(merged.limits.is_empty(), "{:?}", merged.limits);
}

#[test]
fn hosts_are_strata_and_not_noise() {
    let merged = many(3, 2, &[1.0, 0.9], 0.01, 5);
    let effect = merged.arms[1].effects[names::WALL_S];
    assert!((effect.ratio - 0.9).abs() < 0.02, "{effect:?}");
    assert_eq!((merged.arms[1].hosts, merged.arms[1].boots), (3, 6));
    assert!(matches!(merged.arms[1].outcome, Outcome::Better { best: true }), "{:?}", merged.arms[1].outcome);
}

#[test]
fn one_boot_concludes_nothing_however_many_trials_it_has() {
    let design = design(&ARMS[..2], 1);
    let mut parts: Vec<MeasuredBoots> =
        (0..40).filter_map(|number| MeasuredBoots::of(&boot(&design, machine(0, number), 0, 1.0, 3))).collect();
    parts.extend(MeasuredBoots::of(&boot(&design, machine(0, 99), 1, 2.0, 500)));
    let merged = merge(&parts).unwrap();
    assert_eq!(merged.arms[1].outcome, Outcome::Undecided { blocks_needed: None });
    let effect = merged.arms[1].effects[names::WALL_S];
    assert!((effect.ratio - 2.0).abs() < 0.01 && effect.low.is_none() && effect.p_adjusted.is_none());
    assert_eq!(merged.limits, [Limitation::OneBoot { arm: 1 }]);
    assert!(merged.limits[0].describe(&merged.design.arms).contains("direct-map-2m was measured in one boot only"));
}

#[test]
fn reports_why_boots_allow_no_conclusion() {
    let design = design(&ARMS, 1);
    let of = |host, number, arm| MeasuredBoots::of(&boot(&design, machine(host, number), arm, 1.0, 3)).unwrap();
    // 1G twice on one host, 2M twice on another one, 4K never.
    let apart = merge(&[of(0, 1, 0), of(0, 2, 0), of(1, 3, 1), of(1, 4, 1)]).unwrap();
    assert_eq!(apart.limits, [Limitation::OtherHost { arm: 1 }, Limitation::NoBoot { arm: 2 }]);
    assert_eq!(apart.arms[2].outcome, Outcome::NotMeasured);
    // Twice each: no order of four boots is significant.
    let few = merge(&[of(0, 1, 0), of(0, 2, 0), of(0, 3, 1), of(0, 4, 1)]).unwrap();
    assert_eq!(few.limits[0], Limitation::TooFewBoots { arm: 1, needed: 4 });
    // Demoted in the boot that had measured the baseline.
    let mut demoted = boot(&design, machine(0, 1), 1, 1.0, 3);
    demoted.started_unix_s = 100;
    demoted.trials.iter_mut().for_each(|record| record.state_after.demoted_to = Some(PageSize::M2));
    demoted.machine.kernel = "6.19.0 #1".into();
    demoted.machine.kernel_command_line = "quiet debug_pagealloc=on".into();
    let merged = merge(&[of(0, 1, 0), MeasuredBoots::of(&demoted).unwrap()]).unwrap();
    for limit in [
        Limitation::SeveralArmsInABoot { arm: 1 },
        Limitation::Demoted { arm: 1, boots: 1 },
        Limitation::Kernels { host: "host-0, 8G".into() },
        Limitation::CostlyOption { arm: 1, option: "debug_pagealloc=on".into() },
    ] {
        assert!(merged.limits.contains(&limit), "{limit:?} is not in {:?}", merged.limits);
    }
}

#[test]
fn a_demotion_of_little_memory_is_not_reported() {
    let design = design(&ARMS, 1);
    let of = |small_mib: u64| {
        let mut demoted = boot(&design, machine(0, 2), 1, 1.0, 3);
        for state in demoted.trials.iter_mut().flat_map(|record| [&mut record.state_before, &mut record.state_after]) {
            state.demoted_to = Some(PageSize::K4);
            state.direct_map_bytes = [("4K".into(), small_mib << 20), ("2M".into(), (1000 - small_mib) << 20)].into();
        }
        let parts = [
            MeasuredBoots::of(&boot(&design, machine(0, 1), 0, 1.0, 3)).unwrap(),
            MeasuredBoots::of(&demoted).unwrap(),
        ];
        merge(&parts).unwrap().limits.contains(&Limitation::Demoted { arm: 1, boots: 1 })
    };
    assert_eq!([1, 9, 10, 900].map(of), [false, false, true, true]);
}

#[test]
fn a_policy_that_did_not_hold_is_marked() {
    let design = design(&ARMS[..2], 1);
    let mut parts = Vec::new();
    for number in 0..6 {
        parts.extend(MeasuredBoots::of(&boot(&design, machine(0, number), 0, 1.0, 3)));
        let mut split = boot(&design, machine(0, 10 + number), 1, 2.0, 3);
        split.trials.iter_mut().for_each(|record| record.verdict.holding = Holding::Partly);
        parts.extend(MeasuredBoots::of(&split));
    }
    let arm = &merge(&parts).unwrap().arms[1];
    assert_eq!((&arm.outcome, arm.is_held), (&Outcome::Worse, false));
}

#[test]
fn the_same_boot_twice_is_one_observation() {
    let design = design(&ARMS[..2], 1);
    let part = |wall_s, trials| MeasuredBoots::of(&boot(&design, machine(0, 1), 0, wall_s, trials)).unwrap();
    let merged = merge(&[part(1.0, 3), part(2.0, 5), part(1.0, 3)]).unwrap();
    assert_eq!((merged.boots.len(), merged.boots[0].trials), (1, 5));
}

/// As measured by `compare --arm-of-boot -p direct-map-2m`.
#[test]
fn arms_measured_alone_are_merged() {
    let part = |arms: &[&str], arm, number, wall_s| {
        MeasuredBoots::of(&boot(&design(arms, 1), machine(0, number), arm, wall_s, 3)).unwrap()
    };
    let alone = [part(&ARMS[2..], 0, 0, 3.0), part(&ARMS[..1], 0, 1, 1.0), part(&ARMS[1..2], 0, 2, 2.0)];
    let both = part(&ARMS[1..], 1, 3, 3.0);
    for (parts, labels, walls_s) in [
        (&alone[..], &ARMS[..], &[1.0, 2.0, 3.0][..]),
        (&alone[..1], &ARMS[2..], &[3.0]),
        (&[alone[2].clone(), both.clone()], &ARMS[1..], &[2.0, 3.0]),
        (&[alone[1].clone(), both.clone()], &[ARMS[1], ARMS[2], ARMS[0]], &[f64::NAN, 3.0, 1.0]),
    ] {
        let merged = merge(parts).unwrap();
        let found: Vec<&str> = merged.design.arms.iter().map(|arm| arm.label.as_str()).collect();
        assert_eq!((found.as_slice(), merged.design.baseline), (labels, 0));
        for (arm, wall_s) in merged.arms.iter().zip(walls_s) {
            let median = arm.medians.get(names::WALL_S).copied().unwrap_or(f64::NAN);
            assert!((median.is_nan() && wall_s.is_nan()) || (median / wall_s - 1.0).abs() < 0.01, "{merged:?}");
        }
    }
    let message = merge(&[both, part(&ARMS[..2], 0, 4, 1.0)]).unwrap_err().to_string();
    assert!(message.contains("the list of arms differs"), "{message}");
}

#[test]
fn different_designs_and_empty_input_are_refused() {
    assert_eq!(merge(&[]).unwrap_err(), MergeError::Nothing);
    let one = boot(&design(&ARMS, 1), machine(0, 1), 0, 1.0, 3);
    let mut other = one.clone();
    other.invocation.command = vec!["play".into()];
    let parts = [MeasuredBoots::of(&one).unwrap(), MeasuredBoots::of(&other).unwrap()];
    let message = merge(&parts).unwrap_err().to_string();
    assert!(message.contains("the command differs: work and play"), "{message}");
    let with_arms = |arms| MeasuredBoots::of(&boot(&design(arms, 9), machine(0, 2), 0, 1.0, 3)).unwrap();
    assert!(merge(&[parts[0].clone(), with_arms(&ARMS[..2])]).is_ok(), "some of the arms, and the same baseline");
    let message = merge(&[parts[0].clone(), with_arms(&ARMS[1..])]).unwrap_err().to_string();
    assert!(message.contains("the list of arms differs"), "{message}");
    let reseeded = boot(&design(&ARMS, 77), machine(0, 2), 0, 1.0, 3);
    assert!(
        merge(&[parts[0].clone(), MeasuredBoots::of(&reseeded).unwrap()]).is_ok(),
        "another seed is not another design"
    );
    let mut proven = one.clone();
    proven.design.prove_all = true;
    let message = merge(&[parts[0].clone(), MeasuredBoots::of(&proven).unwrap()]).unwrap_err().to_string();
    assert!(
        message.contains("inspected before it is given back differs") && message.contains("--prove-all"),
        "{message}"
    );
    let mut prepared = one.clone();
    prepared.invocation.prepare = Some(vec!["warm".into(), "up".into()]);
    let message = merge(&[parts[0].clone(), MeasuredBoots::of(&prepared).unwrap()]).unwrap_err().to_string();
    assert!(message.contains("before each trial (--prepare) differs: nothing and warm up"), "{message}");
    let mut unfinished = one;
    unfinished.trials.truncate(1);
    assert_eq!(MeasuredBoots::of(&unfinished), None, "block 0 does not count");
}

/// If nothing differs, claims are as rare as requested.
#[test]
fn boots_that_differ_by_chance_rarely_show_a_difference() {
    let claims = (0..400).filter(|seed| {
        let merged = many(1, 6, &[1.0, 1.0, 1.0], 0.05, *seed);
        merged.arms.iter().any(|arm| matches!(arm.outcome, Outcome::Better { .. } | Outcome::Worse))
    });
    let claims = claims.count();
    assert!(claims <= 28, "{claims} of 400, at most 20 are expected");
}

proptest! {
    #![proptest_config(testing::properties(256))]
    #[test]
    fn a_part_with_any_arm_index_and_value_is_merged_or_refused(
        arms in prop::collection::vec((0usize..6, -1.0..3.0f64), 1..12)
    ) {
        let design = design(&ARMS, 1);
        let part = |(number, (arm, wall_s)): (usize, &(usize, f64))| {
            let mut part = MeasuredBoots::of(&boot(&design, machine(0, number as u64), 0, 1.0, 2)).unwrap();
            part.boots[0].arm = *arm;
            part.boots[0].medians.insert(names::WALL_S.into(), *wall_s);
            part
        };
        let parts: Vec<MeasuredBoots> = arms.iter().enumerate().map(part).collect();
        if let Ok(merged) = merge(&parts) {
            prop_assert_eq!(merged.arms.len(), 3);
        }
    }
}
