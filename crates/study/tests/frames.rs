//! Arms with the frames of a policy (`Role::Frames`): which blocks run them, and that they are not compared as policies.

mod common;

use common::{Fake, Noise, controlled};
use policy::Admission;
use study::runner::{Run, compare};
use study::stats::Outcome;

#[test]
fn frames_run_in_every_block_of_their_policy_and_are_not_compared() {
    let design = controlled(&["base", "thp", "mthp-64k"], 1).with_frames();
    let arm = |label: &str| design.arms.iter().position(|arm| arm.label == label).unwrap();
    let effects = [(1.0, 1.0, 4.0), (0.8, 1.0, 4.0), (0.98, 1.0, 4.0)];
    let mut fake = Fake::traced(&design, &effects, Noise::quiet(), 1);
    let Run { trials, analysis, admissions, .. } = compare(&design, &mut fake, &mut |_| ());
    let blocks = |label: &str| -> Vec<u32> {
        let mut blocks: Vec<u32> =
            trials.iter().filter(|one| one.trial.arm == arm(label)).map(|one| one.trial.block).collect();
        blocks.sort_unstable();
        blocks
    };
    assert!(blocks("thp").len() > 8);
    assert_eq!(blocks("frames of thp"), blocks("thp"));
    assert_eq!(blocks("frames of mthp-64k"), blocks("mthp-64k"));
    let analysis = analysis.unwrap();
    assert_eq!(analysis.arms[arm("frames of thp")].outcome, Outcome::Control);
    assert_eq!(analysis.arms[arm("thp")].outcome, Outcome::Better { best: true });
    assert!(analysis.arms[arm("frames of thp")].effects.is_empty());
    assert!(admissions.iter().all(|one| matches!(one, Admission::Admitted { .. })));
    // This platform observes no user time, so there is nothing to split.
    assert!(analysis.arms.iter().all(|arm| arm.parts.is_none()));
}
