//! Runs the trials of a comparison, stores them, and restores all settings.

use std::time::{SystemTime, UNIX_EPOCH};

use host::{Host, admit};
use platform::{Awake, Blame, HostPlatform, Session};
use results::store::Store;
use study::comparison::{Adoption, Comparison, Design, Ended, Invocation};
use study::runner::{self, Earlier, Event};
use study::trial::Arm;
use tracer::signals::{self, PassOn};

use super::backend::Backend;
use super::progress::Progress;
use super::recorder::{Kept, Recorder};
use super::request::Setup;
use super::resumed::Resumed;
use super::trials::Trials;
use super::{fragmented, khugepaged, work};
use crate::failure::{Failure, report};
use crate::waiting::say_who_holds_the_lease;

/// The outcome of running a comparison.
pub struct Measured {
    /// The comparison with its trials.
    pub comparison: Comparison,
    /// What caused a failure: the command or the system.
    pub blame: Blame,
    /// Errors in restoring settings and in storing results.
    pub troubles: Vec<Failure>,
}

/// Runs a comparison and stores it.
///
/// # Errors
/// The comparison cannot begin. Later errors are in the returned value.
pub fn measure(setup: Setup, store: &Store) -> Result<Measured, Failure> {
    signals::catch(PassOn::Kill).map_err(Failure::input)?;
    let (of, resumed) = setup.in_study.map(|study| (study.of, study.resumed)).unzip();
    let resumed = resumed.flatten();
    let resumption = resumed.as_ref().map(|before| before.resumption.clone());
    let kept = Kept { store, of, resumption };
    let begun = match &resumed {
        Some(Resumed { comparison, .. }) => comparison.clone(),
        None => begun(&setup.host, &setup.design, work::invocation(&setup.work))?,
    };
    let earlier = resumed.as_ref().map(Resumed::earlier).unwrap_or_default();
    let clock_s = resumed.as_ref().map_or(0.0, Resumed::clock_s);
    let way = if setup.arm_of_boot { RunMode::ArmOfBoot } else { RunMode::Compare(earlier) };
    let _awake = setup.awake.then(Awake::hold).transpose().map_err(Failure::input)?;
    match setup.backend {
        Backend::Host => {
            let session = Session::new(setup.host)
                .with_hugetlb_pool(setup.hugetlb_pool)
                .with_patience(setup.patience, say_who_holds_the_lease);
            let session = khugepaged::held(session, setup.design.khugepaged)?;
            let platform = HostPlatform::new(session, setup.work).map_err(Failure::input)?;
            let mut platform = platform.with_variants(setup.variants).with_clock_at(clock_s);
            if let Some(fragmenter) = fragmented::fragmenter(&setup.design)? {
                platform = platform.with_fragments(setup.design.fragmented, fragmenter);
            }
            Ok(run(&mut platform, begun, way, kept))
        }
        #[cfg(debug_assertions)]
        Backend::Fake(fake) => {
            let mut fake = fake.going_on(&begun, clock_s);
            let begun = fake.marked(begun);
            Ok(run(&mut fake, begun, way, kept))
        }
    }
}

/// The part of a design that is run.
enum RunMode {
    /// The one arm that matches this boot.
    ArmOfBoot,
    /// All of it, except the trials that were run earlier.
    Compare(Earlier),
}

/// Makes a comparison without trials.
fn begun(host: &Host, design: &Design, invocation: Invocation) -> Result<Comparison, Failure> {
    Ok(Comparison {
        id: 0,
        started_unix_s: unix_s(),
        machine: host.machine().map_err(Failure::input)?,
        adoptions: design.arms.iter().map(|arm| adoption(arm, host, &invocation)).collect(),
        invocation,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: None,
        ended: Ended::NotEnded,
        design: design.clone(),
    })
}

fn adoption(arm: &Arm, host: &Host, invocation: &Invocation) -> Vec<Adoption> {
    let command = arm.variant.as_ref().map_or(&invocation.command, |variant| &variant.command);
    admit::adoption(&arm.policy, host, command)
}

fn unix_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn run<T: Trials>(trials: &mut T, mut comparison: Comparison, way: RunMode, kept: Kept<'_>) -> Measured {
    let design: Design = comparison.design.clone();
    let progress = Progress::new(&design);
    let mut recorder = Recorder::new(kept, &mut comparison);
    let listener = &mut |event: Event<'_>| {
        recorder.hear(&event);
        progress.hear(&event);
    };
    let run = match way {
        RunMode::ArmOfBoot => runner::arm_of_boot(&design, trials, listener),
        RunMode::Compare(earlier) => runner::go_on(&design, earlier, trials, listener),
    };
    let restored = trials.finish();
    if matches!(run.ended, Ended::Failed { .. }) && !trials.last_words().is_empty() {
        report("the command's last words:");
        trials.last_words().lines().for_each(|line| report(results::printable(line)));
    }
    let lost = recorder.finish(run);
    let rejected = comparison.trials.last().is_some_and(|record| !record.rejected.is_empty());
    let blame = if rejected { Blame::System } else { trials.blame() };
    // All settings are restored and all results stored: a signal may end the process while reports are written.
    signals::release();
    Measured { comparison, blame, troubles: restored.err().into_iter().chain(lost).collect() }
}
