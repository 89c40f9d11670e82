//! [`observed`]: the observations of a run, for its record.

use host::{COLLAPSE_ALLOCATIONS, COLLAPSED, COMPACTED, COMPACTIONS, Counters, FALLBACKS};
use study::metric::{Observation, names};
use study::trial::Answer;
use tracer::{InspectionTimes, Usage};

use crate::error::PlatformError;
use crate::running::Run;
use crate::witness::TrialWitness;
use crate::work::Work;

/// The activity of khugepaged, the allocator and compaction on the host during a trial, from the kernel's counters.
pub fn of_the_host(before: &Counters, after: &Counters) -> impl Iterator<Item = Observation> {
    let counts = [
        (names::HOST_COLLAPSES, COLLAPSED),
        (names::HOST_COLLAPSE_ALLOCATIONS, COLLAPSE_ALLOCATIONS),
        (names::HOST_FALLBACKS, FALLBACKS),
        (names::HOST_COMPACTIONS, COMPACTIONS),
        (names::HOST_COMPACTED, COMPACTED),
    ];
    let moved = |(metric, counter)| Some(Observation::measured(metric, before.increase(after, counter)? as f64));
    counts.into_iter().filter_map(moved)
}

/// The observations, including the figures read from the command's output. Empty for a trial that was ended at its time limit:
/// how long it would have taken is not known.
pub fn observed(
    work: &Work,
    run: &Run,
    answer: &Answer,
    witness: Option<&mut TrialWitness>,
) -> Result<Vec<Observation>, PlatformError> {
    let mut observed = if answer.too_slow { Vec::new() } else { observations(run, witness) };
    if let (Some(extract), true) = (&work.extract, answer.succeeded()) {
        observed.extend(extract(&run.output.start).map_err(PlatformError::Extract)?);
    }
    Ok(observed)
}

/// The observations of the run, and those of the tracer and the witness if there is a witness: a run without one had no
/// tracer either.
fn observations(run: &Run, witness: Option<&mut TrialWitness>) -> Vec<Observation> {
    let Usage { user_s, system_s, minor_faults, major_faults, .. } = run.ended.usage;
    // The times are those in which the client runs, as its wall time is.
    let before = run.driven.map(|driven| driven.before).unwrap_or_default();
    let (user_s, system_s) = ((user_s - before.user_s).max(0.0), (system_s - before.system_s).max(0.0));
    let mut observations = vec![
        Observation::measured(names::WALL_S, run.driven.map_or(run.ended.wall_s, |driven| driven.wall_s)),
        Observation::measured(names::CPU_S, user_s + system_s),
        Observation::measured(names::USER_S, user_s),
        Observation::measured(names::SYSTEM_S, system_s),
        Observation::measured(names::MINOR_FAULTS, minor_faults as f64),
        Observation::measured(names::MAJOR_FAULTS, major_faults as f64),
    ];
    if run.driven.is_none() {
        observations.push(Observation::measured(names::OUTLIVED_S, run.ended.outlived_s));
        observations.push(Observation::measured(names::OUTLIVED_CPU_S, run.ended.outlived_cpu_s));
    }
    let Some(witness) = witness else { return observations };
    let InspectionTimes { excluded_s, included_s, after_root_s } = run.ended.inspection_times;
    // With a server, the client's time counts, and the client waits while the server is stopped.
    let (looks_s, untimed_s) = match run.driven {
        Some(_) => (witness.budget.timed_s(), witness.budget.untimed_s()),
        None => (included_s, excluded_s + after_root_s),
    };
    observations.extend([
        Observation::measured(names::TRACER_S, (run.ended.tracer_s - untimed_s).max(0.0)),
        Observation::measured(names::TRACER_STOPS, run.ended.stops as f64),
        Observation::measured(names::LOOKS_S, looks_s),
    ]);
    if run.ended.advised_bytes > 0 {
        observations.push(Observation::measured(names::ADVISED_BYTES, run.ended.advised_bytes as f64));
    }
    observations.extend(witness.observations());
    observations
}
