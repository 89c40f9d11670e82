//! Runs the program of `pagelab limits` once, in a control group of its own ([`Run`]).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use platform::{Charges, MemoryGroup, MemoryGroupError};
use policy::Exit;
use tracer::{Ended, Launch, Leftovers, Rewriting, User, Witness, signals};

use crate::failure::Failure;

/// The interval between two readings of what is charged to the group.
const INTERVAL: Duration = Duration::from_millis(2);
/// How long processes that outlive the command may be idle before they are killed.
const GRACE: Duration = Duration::from_millis(200);

/// A command to run, with its user and its environment.
pub struct Program {
    pub command: Vec<std::ffi::OsString>,
    /// The user that the command runs as.
    pub user: Option<User>,
    /// Variables added to the command's environment.
    pub variables: tracer::environment::Variables,
}

/// How a run ended, and the memory that it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// How the command ended.
    pub exit: Exit,
    /// Whether the command was killed because it took too long.
    pub is_too_slow: bool,
    /// Processes that the kernel killed because the limit was reached.
    pub oom_kills: u64,
    /// Time from the first instruction of the command to its end, in seconds.
    pub wall_s: f64,
    /// The largest amount that was charged to the group, in bytes.
    pub peak_bytes: u64,
    /// What the memory consisted of when the sampled total was largest.
    pub at_peak: Charges,
    /// How often groups above this one reached their own limits during the run.
    pub limits_reached_above: u64,
    /// Whether a process of the command left the group, so that its memory was not limited.
    pub has_left: bool,
}

impl Run {
    /// Whether the run ended in the same way as the run without a limit.
    pub fn ended_like(&self, unlimited: &Run) -> bool {
        self.exit == unlimited.exit && !self.is_too_slow && self.oom_kills == 0
    }

    /// How it ended, in words.
    pub fn outcome(&self) -> String {
        match self {
            Run { oom_kills: 1.., .. } => "out of memory".to_owned(),
            Run { is_too_slow: true, .. } => "too slow".to_owned(),
            Run { exit, .. } => exit.to_string(),
        }
    }
}

/// Runs the program with a limit, or without one.
///
/// # Errors
/// The group cannot be made, the program cannot be started, or a signal stopped pagelab.
pub fn run(
    program: &Program,
    rewriting: &Rewriting,
    limit_bytes: Option<u64>,
    time_limit: Option<Duration>,
) -> Result<Run, Failure> {
    let group = MemoryGroup::with_limit(limit_bytes).map_err(Failure::input)?;
    let reached_before = group.limits_reached_above().map_err(Failure::input)?;
    let mut launch = Launch {
        command: program.command.clone(),
        user: program.user.clone(),
        variables: program.variables.clone(),
        stdin: Some(null()?),
        stdout: Some(null()?),
        stderr: Some(null()?),
        disable_thp: rewriting.disable_thp,
        own_session: None,
        control_group: Some(group.entry().map_err(Failure::input)?),
        limit: time_limit,
    };
    let has_left = AtomicBool::new(false);
    let samples = Samples { group: &group, most: Mutex::new(Ok(Charges::default())), has_left: &has_left };
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|threads| {
        let sampler = std::thread::Builder::new().name("charges".into());
        let sample = || {
            while !over.load(Ordering::SeqCst) {
                samples.take();
                std::thread::sleep(INTERVAL);
            }
        };
        sampler.spawn_scoped(threads, sample).map_err(Failure::input)?;
        let ended = tracer::run(&launch, rewriting, Some(&mut &samples), Leftovers::KillAfter(GRACE));
        launch.control_group = None;
        over.store(true, Ordering::SeqCst);
        Ok::<_, Failure>(ended)
    })?;
    let at_peak = samples.most.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(Failure::input)?;
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the command was stopped too"));
    }
    let peak_bytes = group.peak_bytes().map_err(Failure::input)?.unwrap_or(0).max(at_peak.total_bytes);
    let oom_kills = group.oom_kills().map_err(Failure::input)?;
    let limits_reached_above = group.limits_reached_above().map_err(Failure::input)?.saturating_sub(reached_before);
    let has_left = has_left.into_inner();
    Ok(match ended {
        Ok(Ended { exit, time_was_up, wall_s, .. }) => Run {
            exit,
            is_too_slow: time_was_up,
            oom_kills,
            wall_s,
            peak_bytes,
            at_peak,
            limits_reached_above,
            has_left,
        },
        // The new process is charged even before its exec, so the kernel may kill it there.
        Err(_) if oom_kills > 0 => {
            let exit = Exit::Signal(Signal::SIGKILL as i32);
            Run {
                exit,
                is_too_slow: false,
                oom_kills,
                wall_s: 0.0,
                peak_bytes,
                at_peak,
                limits_reached_above,
                has_left,
            }
        }
        Err(error) => return Err(Failure::launch(&error)),
    })
}

/// The sample with the largest total charge so far.
struct Samples<'a> {
    group: &'a MemoryGroup,
    most: Mutex<Result<Charges, MemoryGroupError>>,
    has_left: &'a AtomicBool,
}

impl Samples<'_> {
    fn take(&self) {
        let charges = self.group.charges();
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = &*most else { return };
        if charges.as_ref().map_or(true, |charges| charges.total_bytes > before.total_bytes) {
            *most = charges;
        }
    }
}

/// Memory is largest just before some of it is given back, so a sample is taken there.
impl Witness for &Samples<'_> {
    fn begins(&mut self, _process: i32) {}

    fn ends(&mut self, task: i32) {
        self.take();
        if !self.group.has_process(task) {
            self.has_left.store(true, Ordering::SeqCst);
        }
    }

    fn unmaps(&mut self, _task: i32, _start: u64, _end: u64) {
        self.take();
    }
}

#[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
fn null() -> Result<OwnedFd, Failure> {
    let file = File::options().read(true).write(true).open("/dev/null");
    file.map(OwnedFd::from).map_err(Failure::input)
}
