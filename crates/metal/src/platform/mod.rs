//! The running host as a platform: one trial after the other, each with its proof.

mod awake;
mod helper;
mod kernel_proof;
mod minder;
mod output;
mod preparation;
mod proof;
mod server;
mod session;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use study::cause::Cause;
use study::comparison::{Admission, Unsupported};
use study::metric::{Observation, names};
use study::policy::{Granularity, Modifier, Policy};
use study::runner::Platform;
use study::trial::{Answer, Arm, Exit, Trial, TrialRecord};
use study::verdict::AnsweredCall;

use crate::census::Observer;
use crate::environment::Variables;
use crate::host::HostError;
use crate::lease::LeaseError;
use crate::signals;
use crate::tracer::{self, Ended, Launch, LaunchError, Leftovers, Looks, Rewriting, Usage, User};

use kernel_proof::KernelProof;
use output::{Capture, Captured};
use proof::Proof;
use server::{Client, Driven};

pub use awake::{Awake, AwakeError};
pub use server::Server;
pub use session::{Session, wait_for_lease};

/// How long processes that outlive the command have to end by themselves.
const GRACE: Duration = Duration::from_millis(200);

/// Reads figures off what a command printed; the error is a sentence.
pub type Extract = Box<dyn Fn(&[u8]) -> Result<Vec<Observation>, String>>;

/// What is measured.
pub struct Work {
    /// The command; with a server, the client that drives it.
    pub command: Vec<OsString>,
    /// The server that the policy applies to, if there is one.
    pub server: Option<Server>,
    /// Run before each trial, with no policy in force; nothing of it is measured.
    pub prepare: Option<Vec<OsString>>,
    /// The user to run as; `None`: the one who runs pagelab.
    pub user: Option<User>,
    /// Variables on top of what the environment of each of these commands is ([`environment::of`](crate::environment::of)).
    pub variables: Variables,
    /// Standard input, opened anew for every trial; `None`: /dev/null.
    pub input: Option<PathBuf>,
    /// Whether the hash of standard output is part of the answer.
    pub check_output: bool,
    /// Whether every large range is looked at before it goes ([`study::comparison::Design::prove_all`]).
    pub prove_all: bool,
    /// Reads figures off standard output; `None`: nothing is read.
    pub extract: Option<Extract>,
}

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The settings could not be changed or put back.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A pipe or a file could not be opened.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The policy cannot be given now.
    #[error("{0} cannot be given: {1}")]
    Unsupported(Policy, Unsupported),
    /// pagelab was told to stop meanwhile, and perhaps the command too: whatever it answered does not count.
    #[error("the trial was cut short because pagelab was told to stop")]
    Interrupted,
    /// Settings that have another value than before.
    #[error("not every setting could be put back: {0}")]
    NotRestored(String),
    /// A figure that the command was to print.
    #[error("{0}")]
    Extract(String),
    /// The server ended before its client.
    #[error("the server ended by itself ({exit}); {}", why_a_server_ended(*exit, printed))]
    ServerDied {
        /// How.
        exit: Exit,
        /// What it last printed.
        printed: String,
    },
    /// The server was gone before it was ready.
    #[error("the server ended before it was ready")]
    ServerEnded,
    /// The server did not become ready.
    #[error("the server was not ready after {patience_s} s; see --ready and --ready-time")]
    NotReady {
        /// How long it had.
        patience_s: f64,
    },
    /// What is to be run before each trial failed.
    #[error("--prepare: {command:?} failed ({exit}); {last_words}")]
    Unprepared {
        /// The command line.
        command: String,
        /// How it ended.
        exit: Exit,
        /// What it last wrote to standard error, as a part of a sentence.
        last_words: String,
    },
    /// A client, a probe or a preparation could not be run.
    #[error("{program:?} could not be run: {error}")]
    Helper {
        /// The program.
        program: OsString,
        /// What the kernel answered.
        error: io::Error,
    },
}

impl PlatformError {
    /// Whether no command is to blame, but settings and files of the system.
    fn is_of_the_system(&self) -> bool {
        use PlatformError::{Host, Io, Lease, NotRestored, Unsupported};
        matches!(self, Lease(_) | Host(_) | Io(_) | Unsupported(..) | NotRestored(_))
    }
}

/// What is known of why a server ended. One that forks and lets its first process end, as daemons do, is
/// over for the tracer.
fn why_a_server_ended(exit: Exit, printed: &str) -> String {
    match (printed.is_empty(), exit) {
        (true, Exit::Code(0)) => last_words(printed) + "; if it goes to the background, tell it not to",
        _ => last_words(printed),
    }
}

/// What a program printed last, as a part of a sentence.
fn last_words(printed: &str) -> String {
    if printed.is_empty() { "it printed nothing".into() } else { format!("its last words: {printed}") }
}

/// Runs trials on the running host.
pub struct HostPlatform {
    session: Session,
    observer: Observer,
    work: Work,
    began: Instant,
    last_words: String,
    system_failed: bool,
}

/// What a trial gave, before it is a record.
struct Run {
    ended: Ended,
    driven: Option<Driven>,
    output: Captured,
    errors: Captured,
}

impl HostPlatform {
    /// A platform that runs this work under policies that the session applies.
    pub fn new(session: Session, work: Work) -> HostPlatform {
        HostPlatform {
            session,
            observer: Observer::open(),
            work,
            began: Instant::now(),
            last_words: String::new(),
            system_failed: false,
        }
    }

    /// Puts the host's settings back.
    ///
    /// # Errors
    /// See [`Session::finish`].
    pub fn finish(&mut self) -> Result<(), PlatformError> {
        self.session.finish()
    }

    /// The end of what the command last wrote to standard error in a trial that failed; empty where none did.
    pub fn last_words(&self) -> &str {
        &self.last_words
    }

    /// Whether the last trial could not be run for what the system did, and not the command.
    pub fn system_failed(&self) -> bool {
        self.system_failed
    }

    fn trial(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        // A pool that the kernel gave when the arm was admitted and does not give now is the verdict's to name.
        let _ = self.session.apply(&arm.policy)?;
        let geometry = self.session.host().geometry().clone();
        let started_s = self.elapsed_s();
        let counters = self.session.host().counters()?;
        let state_before = self.session.host().state()?;
        let direct_map = arm.policy.direct_map().map(|leaf| KernelProof::before(leaf, self.session.host()));
        let mut proof = Proof::new(&self.observer, &arm.policy, &geometry, &state_before).of_all(self.work.prove_all);
        let timed = AtomicBool::new(false);
        if self.work.server.is_some() {
            proof = proof.timed_while(&timed);
        }
        let run = run(&self.work, &Rewriting::of(&arm.policy, &geometry), &mut proof, &timed)?;
        if signals::arrived().is_some() {
            // A terminal tells every process of its group: any of them may have ended early, with any exit.
            return Err(PlatformError::Interrupted);
        }
        let state_after = self.session.host().state()?;
        let moved = counters.delta(&self.session.host().counters()?);
        let answer = answer(&self.work, &run);
        if !answer.succeeded() {
            self.last_words = run.errors.tail_text();
        }
        let mut observations = observations(&run, &mut proof);
        if let (Some(extract), true) = (&self.work.extract, answer.succeeded()) {
            observations.extend(extract(&run.output.start).map_err(PlatformError::Extract)?);
        }
        let need_bytes = proof.needed_bytes();
        let Proof { mut examination, unseen_unmapped_bytes, .. } = proof;
        if unseen_unmapped_bytes > examination.concerned_bytes {
            examination.note(Cause::FreedBeforeExit, unseen_unmapped_bytes);
        }
        run.ended.findings().for_each(|(cause, bytes)| examination.note(cause, bytes));
        if arm.policy.has(Modifier::NoGuards)
            && !run.ended.answered.keys().any(|call| call.to_ascii_lowercase().contains("guard"))
        {
            examination.note(Cause::NoGuardSeen, 0);
        }
        examination.count_fallbacks(&moved);
        let census = examination.census.clone();
        let mut verdict = examination.into_verdict();
        verdict.answered = run.ended.answered.into_iter().map(|(call, times)| AnsweredCall { call, times }).collect();
        if let Some(direct_map) = direct_map {
            direct_map.conclude(self.session.host(), &mut verdict);
        }
        let rejected = state_before.changes(&state_after);
        self.session.note_need(need_bytes);
        Ok(TrialRecord { trial, started_s, observations, census, verdict, answer, state_before, state_after, rejected })
    }
}

impl Platform for HostPlatform {
    type Error = PlatformError;

    fn admit(&mut self, arm: &Arm) -> Admission {
        let admission = self.session.admit(&arm.policy);
        let (Admission::Admitted { .. }, Granularity::Hugetlb(_)) = (&admission, arm.policy.granularity) else {
            return admission;
        };
        // Whether the kernel finds contiguous memory for a pool is known when it was asked to. What else fails is for
        // the first trial to say.
        let refused = self.session.apply(&arm.policy).ok().flatten();
        refused.map_or(admission, Admission::Unsupported)
    }

    fn prepare(&mut self) -> Result<(), PlatformError> {
        let Some(command) = &self.work.prepare else { return Ok(()) };
        let rested = self.session.rest();
        let prepared = rested.and_then(|()| preparation::run(command, &self.work.user, &self.work.variables));
        self.system_failed = prepared.as_ref().is_err_and(PlatformError::is_of_the_system);
        prepared
    }

    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        let ran = self.trial(arm, trial);
        self.system_failed = ran.as_ref().is_err_and(PlatformError::is_of_the_system);
        ran
    }

    fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn interrupted(&self) -> bool {
        signals::arrived().is_some()
    }
}

/// Runs the command, or the server with its client, under the tracer. `timed` is set while the client runs.
fn run(work: &Work, rewriting: &Rewriting, proof: &mut Proof, timed: &AtomicBool) -> Result<Run, PlatformError> {
    let (stdout, output) = stdout(work)?;
    let (stderr, errors) = Capture::start()?;
    let traced = work.server.as_ref().map_or(&work.command, |server| &server.command);
    let mut launch = Launch {
        command: traced.clone(),
        user: work.user.clone(),
        variables: work.variables.clone(),
        stdin: Some(stdin(work)?),
        stdout: None,
        stderr: None,
        disable_thp: rewriting.disable_thp,
    };
    let Some(server) = &work.server else {
        (launch.stdout, launch.stderr) = (Some(stdout), Some(stderr));
        let ended = tracer::run(&launch, rewriting, Some(proof), Leftovers::KillAfter(GRACE));
        drop(launch); // our ends of the pipes, so that the readers come to an end
        return Ok(Run { ended: ended?, driven: None, output: output.finish(), errors: errors.finish() });
    };
    let (server_stderr, server_errors) = Capture::start()?;
    (launch.stdout, launch.stderr) = (Some(server_stderr.try_clone()?), Some(server_stderr));
    let (user, variables) = (work.user.clone(), work.variables.clone());
    let client = Client { command: work.command.clone(), user, variables, stdout, stderr };
    let over = AtomicBool::new(false);
    let (ended, driven) = std::thread::scope(|threads| {
        let driver = std::thread::Builder::new().name("client".into());
        let driver = driver.spawn_scoped(threads, || server::drive(server, client, &over, timed))?;
        let ended = tracer::run(&launch, rewriting, Some(proof), Leftovers::KillAfter(GRACE));
        over.store(true, Ordering::SeqCst);
        Ok::<_, PlatformError>((ended, driver.join().expect("the driver of a server does not panic")))
    })?;
    drop(launch);
    let (ended, server_errors) = (ended?, server_errors.finish());
    let driven = driven.map_err(|error| match error {
        PlatformError::ServerEnded => {
            PlatformError::ServerDied { exit: ended.exit, printed: server_errors.tail_text() }
        }
        other => other,
    })?;
    if !driven.server_survived {
        return Err(PlatformError::ServerDied { exit: ended.exit, printed: server_errors.tail_text() });
    }
    Ok(Run { ended, driven: Some(driven), output: output.finish(), errors: errors.finish() })
}

/// Where standard output goes. Nobody reads it unless asked to; then the reader costs a little time.
fn stdout(work: &Work) -> io::Result<(OwnedFd, Capture)> {
    let (pipe, capture) = Capture::start()?;
    if work.check_output || work.extract.is_some() {
        return Ok((pipe, capture));
    }
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    Ok((nowhere.into(), capture))
}

fn stdin(work: &Work) -> io::Result<OwnedFd> {
    let path = work.input.clone().unwrap_or_else(|| "/dev/null".into());
    Ok(std::fs::File::open(path)?.into())
}

fn answer(work: &Work, run: &Run) -> Answer {
    Answer {
        exit: run.driven.map_or(run.ended.exit, |driven| driven.exit),
        stdout_sha256: work.check_output.then(|| run.output.sha256.clone()),
    }
}

fn observations(run: &Run, proof: &mut Proof) -> Vec<Observation> {
    let usage = match run.driven {
        // The client and its probes are children of this process too.
        Some(driven) => run.ended.usage.since(&driven.usage),
        None => run.ended.usage,
    };
    let Usage { user_s, system_s, minor_faults, major_faults } = usage;
    let Looks { apart_s, within_s, after_s } = run.ended.looks;
    // A client waits for its server however still that stands.
    let (wall_s, looks_s, untimed_s) = match run.driven {
        Some(driven) => (driven.wall_s, proof.timed_s(), proof.untimed_s()),
        None => (run.ended.wall_s, within_s, apart_s + after_s),
    };
    let mut observations = vec![
        Observation::measured(names::WALL_S, wall_s),
        Observation::measured(names::CPU_S, user_s + system_s),
        Observation::measured(names::USER_S, user_s),
        Observation::measured(names::SYSTEM_S, system_s),
        Observation::measured(names::MINOR_FAULTS, minor_faults as f64),
        Observation::measured(names::MAJOR_FAULTS, major_faults as f64),
        Observation::measured(names::TRACER_S, (run.ended.tracer_s - untimed_s).max(0.0)),
        Observation::measured(names::LOOKS_S, looks_s),
    ];
    observations.extend(proof.observations());
    observations
}
