//! `--shares`: adds arms in which only a share of the memory is large, and chooses which windows of the memory are large
//! in them.

use host::Host;
use platform::MIN_PASSES;
use policy::Admission;
use policy::windows::Windows;
use policy::{Granularity, Policy};
use study::comparison::Design;
use study::metric::names;
use study::shares::WindowOrder;
use study::trial::{Arm, Trial};

use super::arguments::Compare;
use super::explain::hold_khugepaged;
use super::trials::Trials;
use crate::failure::Failure;

/// The policies of `--shares` without `-p`.
pub fn policies() -> Vec<Policy> {
    [Granularity::Base, Granularity::Thp].map(Policy::plain).to_vec()
}

/// The design with its share arms, if any are asked for. As root, khugepaged sleeps during the comparison, because it would
/// collapse windows that must stay small.
///
/// # Errors
/// No policy can be divided.
pub fn divided(mut design: Design, arguments: &Compare, host: &Host) -> Result<Design, Failure> {
    if arguments.shares.is_empty() {
        return Ok(design);
    }
    if let Some(why) = design.shares_obstacle() {
        return Err(Failure::Input(format!("--shares: {why}")));
    }
    if host.page_sizes().pmd.is_none() {
        return Err(Failure::Input("--shares: this kernel has no transparent huge pages".into()));
    }
    if arguments.shares.iter().all(|share| share.is_none_or_all()) {
        return Err(Failure::Input("--shares: 0 and 1 are measured anyway; add one between them, such as 1/2".into()));
    }
    for (at, share) in arguments.shares.iter().enumerate() {
        if let Some(same) = arguments.shares[..at].iter().find(|other| other.ratio() == share.ratio()) {
            return Err(Failure::Input(format!("--shares: {same} and {share} are the same share; name it once")));
        }
    }
    hold_khugepaged(&mut design, host);
    Ok(design.with_shares(&arguments.shares, arguments.order.into(), host.page_sizes()))
}

/// Runs the program once, if windows must still be chosen, and chooses them according to the memory that the program
/// asks for.
///
/// # Errors
/// The run fails, or the program asks for no memory that a policy concerns.
pub fn choose(design: &mut Design, trials: &mut impl Trials) -> Result<(), Failure> {
    let Some(arm) = design.sizing_arm() else { return Ok(()) };
    // If the policy is not admitted, the comparison reports why.
    let Admission::Admitted { .. } = trials.admit(&arm) else { return Ok(()) };
    let trial = Trial { arm: 0, block: 0, position: 0, attempt: 0 };
    let record = trials.prepare().and_then(|()| trials.run(&arm, trial)).map_err(|error| error.to_string());
    let advised = record.and_then(|record| record.value(names::ADVISED_BYTES).ok_or_else(|| NO_MEMORY.to_owned()));
    let chosen = advised.and_then(|bytes| {
        let accessed = accessed(design, bytes as u64, &arm, trials)?;
        design.choose_windows(bytes as u64, &accessed);
        Ok(())
    });
    if let Err(why) = chosen {
        trials.finish()?;
        return Err(Failure::Input(format!("--shares: before the first block: {why}")));
    }
    Ok(())
}

/// How much the program accesses each window, determined by one more run; empty if the order of windows does not depend
/// on it.
fn accessed(design: &Design, advised_bytes: u64, arm: &Arm, trials: &mut impl Trials) -> Result<Vec<u64>, String> {
    let is_needed = design.window_order().is_some_and(WindowOrder::is_by_accesses);
    let Some(open) = arm.policy.windows().filter(|_| is_needed) else { return Ok(Vec::new()) };
    let heat = trials.heat(arm, Windows::of(advised_bytes, open.block))?;
    if heat.passes < MIN_PASSES {
        return Err(format!(
            "the program ended after {} looks at what it accesses, and fewer than {MIN_PASSES} rank windows wrongly; a longer run \
             has more (at most 100 a second), or take --order growing",
            heat.passes
        ));
    }
    Ok(heat.accessed_bytes.to_vec())
}

/// The error if the program has no windows to choose from.
const NO_MEMORY: &str =
    "the program asked for no memory that large pages could map, neither heap nor a mapping that is large enough";
