//! Runs the trials of a comparison, stores them, and restores all settings ([`measure`]).

use std::time::{SystemTime, UNIX_EPOCH};

use host::Host;
use lease::{Lease, LeaseError};
use platform::{Awake, Blame, HostPlatform, Session, observe_contention};
use results::store::Store;
use study::comparison::{Comparison, Design, Ended, Invocation};
use study::runner::{self, EarlierParts, Event, Pause};
use tracer::signals::{self, Forward};

use super::backend::Backend;
use super::progress::Progress;
use super::recorder::{Destination, Recorder};
use super::request::Setup;
use super::resumed::{InStudy, Resumed};
use super::server_hint::{self, ServerHint};
use super::time_limit::TimeLimit;
use super::trials::Trials;
use super::{fragmented, khugepaged, shares, work};
use crate::failure::{Failure, report};
use crate::waiting::report_lease_holder;

/// The outcome of running a comparison.
pub struct Measured {
    /// The comparison with its trials.
    pub comparison: Comparison,
    /// Whether the command or the system caused a failure.
    pub blame: Blame,
    /// The lease, if the caller wants to keep it: all settings are restored, and no other pagelab has changed them
    /// since.
    pub lease: Option<Lease>,
    /// Errors in restoring settings and in storing results.
    pub troubles: Vec<Failure>,
}

/// Runs a comparison and stores it.
///
/// # Errors
/// The comparison cannot begin. Later errors are in the returned value.
pub fn measure(setup: Setup, store: &Store) -> Result<Measured, Failure> {
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let (of, resumed, pause) = match setup.in_study {
        Some(InStudy { of, resumed, pause }) => (Some(of), resumed, pause),
        None => (None, None, None),
    };
    let resumption = resumed.as_ref().map(|before| before.resumption.clone());
    let destination = Destination { store, of, resumption };
    let mut comparison = match &resumed {
        Some(Resumed { comparison, .. }) => comparison.clone(),
        None => new_comparison(&setup.host, &setup.design, work::invocation(&setup.work))?,
    };
    if resumed.is_none() {
        server_hint::of_command(&comparison.invocation.command, &comparison.design).into_iter().for_each(report);
    }
    let earlier = resumed.as_ref().map(Resumed::earlier).unwrap_or_default();
    let clock_s = resumed.as_ref().map_or(0.0, Resumed::clock_s);
    let end = End { pause, max_time_s: setup.design.max_time_s, clock_s };
    let mode = if setup.arm_of_boot { RunMode::ArmOfBoot } else { RunMode::Compare(earlier, end) };
    let _awake = setup.awake.then(Awake::hold).transpose().map_err(Failure::input)?;
    match setup.backend {
        Backend::Host => {
            let observed = setup.host.clone();
            let session = Session::new(setup.host)
                .with_hugetlb_pool(setup.hugetlb_pool)
                .with_patience(setup.patience, report_lease_holder);
            let session = khugepaged::with_khugepaged(session, setup.design.khugepaged)?;
            let platform = HostPlatform::new(session, setup.work).map_err(Failure::input)?;
            let mut platform = platform.with_variants(setup.variants).with_clock_at(clock_s);
            if let Some(settings) = setup.settings {
                platform = platform.untraced_with(settings);
            }
            if let Some(fragmenter) = fragmented::fragmenter(&setup.design)? {
                platform = platform.with_fragments(setup.design.fragmented, fragmenter);
            }
            platform.wait_for_others().map_err(not_begun)?;
            if setup.primary.depends_on_load(&comparison.design) {
                let load = observe_contention(&observed, comparison.machine.cpus);
                setup.primary.choose(&mut comparison.design, load.map_err(Failure::input)?);
            }
            shares::choose(&mut comparison.design, &mut platform)?;
            platform.keeps_lease = setup.keeps_lease;
            let measured = run(&mut platform, comparison, mode, destination);
            Ok(Measured { lease: platform.kept_lease.take(), ..measured })
        }
        #[cfg(debug_assertions)]
        Backend::Fake(fake) => {
            let mut fake = fake.advanced_past(&comparison, clock_s);
            if let Some(load) = fake.contention().filter(|_| setup.primary.depends_on_load(&comparison.design)) {
                setup.primary.choose(&mut comparison.design, load);
            }
            shares::choose(&mut comparison.design, &mut fake)?;
            let comparison = fake.marked(comparison);
            Ok(run(&mut fake, comparison, mode, destination))
        }
    }
}

/// The error if no trial was run, because another pagelab measured for longer than this one waits, or a signal ended
/// the wait. Nothing is stored.
fn not_begun(error: LeaseError) -> Failure {
    match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "nothing was measured yet"),
        None => Failure::input(error),
    }
}

/// How much of a design is run.
enum RunMode {
    /// Only the arm that matches this boot.
    ArmOfBoot,
    /// The whole design to its end, except trials that were run earlier.
    Compare(EarlierParts, End),
}

/// When a comparison ends or pauses.
#[derive(Clone, Copy)]
struct End {
    pause: Option<Pause>,
    /// The current time limit. The study file may have raised it since the earlier trials.
    max_time_s: Option<f64>,
    /// The comparison's clock, in seconds, when this process begins.
    clock_s: f64,
}

impl End {
    /// The design with the remaining time in place of its time limit, for the progress display.
    fn shown(&self, design: &Design) -> Design {
        let limit_s = self.pause.map(|pause| pause.after_s).or(self.max_time_s);
        Design { max_time_s: limit_s.map(|limit_s| (limit_s - self.clock_s).max(1.0)), ..design.clone() }
    }
}

/// Makes a comparison without trials.
fn new_comparison(host: &Host, design: &Design, invocation: Invocation) -> Result<Comparison, Failure> {
    Ok(Comparison {
        id: 0,
        started_unix_s: unix_s(),
        machine: host.machine().map_err(Failure::input)?,
        invocation,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: None,
        advice: None,
        ended: Ended::NotEnded,
        design: design.clone(),
    })
}

pub fn unix_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn run<T: Trials>(trials: &mut T, mut comparison: Comparison, mode: RunMode, destination: Destination<'_>) -> Measured {
    let mut design: Design = comparison.design.clone();
    let mut shown = design.clone();
    if let RunMode::Compare(_, end) = &mode {
        (design.max_time_s, shown) = (end.max_time_s, end.shown(&design));
    }
    let progress = Progress::new(&shown);
    // A study divides its time itself, so its limits are not checked here.
    let mut limit = destination.of.is_none().then(|| TimeLimit::of(&design));
    let mut server_hint = comparison.invocation.client.is_none().then(ServerHint::default);
    let mut recorder = Recorder::new(destination, &mut comparison);
    let listener = &mut |event: Event<'_>| {
        recorder.on_event(&event);
        progress.on_event(&event);
        server_hint.iter_mut().for_each(|hint| hint.on_event(&event));
        if let Some(line) = limit.as_mut().and_then(|limit| limit.on_event(&event)) {
            report(format_args!("pagelab: {line}"));
        }
    };
    let run = match mode {
        RunMode::ArmOfBoot => runner::arm_of_boot(&design, trials, listener),
        RunMode::Compare(earlier, end) => runner::resume(&design, earlier, end.pause, trials, listener),
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
    signals::restore_defaults();
    Measured { comparison, blame, lease: None, troubles: restored.err().into_iter().chain(lost).collect() }
}
