//! The trials of a comparison: run, kept, and everything put back.

use std::time::{SystemTime, UNIX_EPOCH};

use host::admit;
use platform::{Awake, Blame, HostPlatform, Session};
use results::store::Store;
use study::comparison::{Comparison, Design, Ended};
use study::runner;
use tracer::signals::{self, PassOn};

use super::ground::Ground;
use super::keeper::Keeper;
use super::progress::Progress;
use super::request::Setup;
use super::trials::Trials;
use super::{fragmented, khugepaged, work};
use crate::failure::{Failure, say};
use crate::waiting::say_who_holds_the_lease;

/// A comparison that was run.
pub struct Measured {
    /// What came of it.
    pub comparison: Comparison,
    /// What is to blame where it failed.
    pub blame: Blame,
    /// What could not be put back or kept.
    pub troubles: Vec<Failure>,
}

/// Runs a comparison and keeps it in the store.
///
/// # Errors
/// It cannot begin. What goes wrong later is in what comes back.
pub fn measure(setup: Setup, store: &Store) -> Result<Measured, Failure> {
    signals::catch(PassOn::Kill).map_err(Failure::input)?;
    let comparison = begun(&setup)?;
    let _awake = setup.awake.then(Awake::hold).transpose().map_err(Failure::input)?;
    match setup.ground {
        Ground::Host => {
            let session = Session::new(setup.host)
                .with_hugetlb_pool(setup.hugetlb_pool)
                .with_patience(setup.patience, say_who_holds_the_lease);
            let session = khugepaged::held(session, setup.design.khugepaged)?;
            let fragments = setup.design.fragmented.map(fragmented::command).transpose()?;
            let mut platform = HostPlatform::new(session, setup.work).with_fragments(fragments);
            Ok(run(&mut platform, comparison, setup.arm_of_boot, store))
        }
        #[cfg(debug_assertions)]
        Ground::Fake(mut fake) => {
            let comparison = fake.marked(comparison);
            Ok(run(&mut fake, comparison, setup.arm_of_boot, store))
        }
    }
}

/// A comparison before its first trial.
fn begun(setup: &Setup) -> Result<Comparison, Failure> {
    let (host, design) = (&setup.host, &setup.design);
    let invocation = work::invocation(&setup.work);
    Ok(Comparison {
        id: 0,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64),
        machine: host.machine().map_err(Failure::input)?,
        adoptions: design.arms.iter().map(|arm| admit::adoption(&arm.policy, host, &invocation.command)).collect(),
        invocation,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: None,
        ended: Ended::NotEnded,
        design: design.clone(),
    })
}

/// Runs the trials of a comparison.
fn run<T: Trials>(trials: &mut T, mut comparison: Comparison, arm_of_boot: bool, store: &Store) -> Measured {
    let design: Design = comparison.design.clone();
    let progress = Progress::new(&design);
    let runner = if arm_of_boot { runner::arm_of_boot } else { runner::compare };
    let mut keeper = Keeper::new(store, &mut comparison);
    let run = runner(&design, trials, &mut |event| {
        keeper.hear(&event);
        progress.hear(&event);
    });
    let restored = trials.finish();
    if matches!(run.ended, Ended::Failed { .. }) && !trials.last_words().is_empty() {
        say("the command's last words:");
        trials.last_words().lines().for_each(|line| say(results::printable(line)));
    }
    let lost = keeper.finish(run);
    let rejected = comparison.trials.last().is_some_and(|record| !record.rejected.is_empty());
    let blame = if rejected { Blame::System } else { trials.blame() };
    // Everything is given back and kept: whoever cannot wait for the reports need not.
    signals::release();
    Measured { comparison, blame, troubles: restored.err().into_iter().chain(lost).collect() }
}
