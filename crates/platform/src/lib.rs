//! The running host as a platform: one trial after the other, each with its proof.

mod awake;
pub mod counters;
pub mod direct_map;
mod helper;
mod kernel_proof;
mod khugepaged;
mod look_budget;
mod memory;
mod output;
mod preparation;
mod proof;
mod registrable;
mod server;
mod session;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use census::Observer;
use host::{COLLAPSE_ALLOCATIONS, COLLAPSED, Counters, HostError};
use lease::LeaseError;
use policy::judge::{Evidence, SlotCounts};
use study::census::Census;
use study::comparison::{Admission, Unsupported};
use study::control::Role;
use study::machine::State;
use study::metric::{Observation, names};
use study::policy::{Granularity, Modifier, Policy};
use study::runner::Platform;
use study::trial::{Answer, Arm, Exit, Trial, TrialRecord};
use study::verdict::Verdict;
use tracer::environment::Variables;
use tracer::{Ended, Launch, LaunchError, Leftovers, Looks, Pace, Rewriting, Usage, User, signals};

use kernel_proof::DirectMapBefore;
use look_budget::LookBudget;
use output::{Capture, Captured};
use proof::TrialWitness;
use server::{Client, Driven};

pub use awake::{Awake, AwakeError};
pub use server::Server;
pub use session::{Session, wait_for_lease};

/// How long processes that outlive the command may do nothing before they are killed.
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
    /// Variables on top of what the environment of each of these commands is ([`environment::of`](tracer::environment::of)).
    pub variables: Variables,
    /// Standard input, opened anew for every trial; `None`: /dev/null.
    pub input: Option<PathBuf>,
    /// Whether the hash of standard output is part of the answer.
    pub check_output: bool,
    /// How long a trial may take, and what is run before it; then it is ended with all that it started. `None`: as long as
    /// it likes.
    pub trial_time: Option<Duration>,
    /// Whether all memory is looked at before it goes ([`study::comparison::Design::prove_all`]).
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
    /// The command's first process ended and others went on for too long.
    #[error(
        "the command's first process ended, and others were still at work a minute later, when they were killed; run it in \
         the foreground, or as a server with a client that drives it (--server, --ready)"
    )]
    CutShort,
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
    /// khugepaged does not sleep.
    #[error(
        "khugepaged was still at work after {patience_s} s; see /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan, \
         or leave --khugepaged off out"
    )]
    Restless {
        /// How long it had.
        patience_s: f64,
    },
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
    /// What is to be run before each trial took too long.
    #[error("--prepare: {command:?} took longer than {limit_s} s (--trial-time), and was ended")]
    PreparationTooSlow {
        /// The command line.
        command: String,
        /// How long it had.
        limit_s: f64,
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

/// What is to blame for a trial that could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The command, its server or its preparation: it failed.
    Command,
    /// Settings and files of the system.
    System,
    /// One of the commands cannot be run at all.
    Unrunnable {
        /// What a shell says then: 127 where it is not there, 126 where it is.
        exit_code: u8,
    },
}

impl PlatformError {
    /// What is to blame.
    pub fn blame(&self) -> Blame {
        use PlatformError::{Helper, Host, Io, Launch, Lease, NotRestored, Restless, Unsupported};
        let exit_code = match self {
            Lease(_) | Host(_) | Io(_) | Unsupported(..) | NotRestored(_) | Restless { .. } => return Blame::System,
            Launch(error) => error.exit_code(),
            Helper { program, error } => helper::exit_code(program, error),
            _ => None,
        };
        exit_code.map_or(Blame::Command, |exit_code| Blame::Unrunnable { exit_code })
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
    blame: Blame,
    /// How the calls that stopped were last served under each policy.
    paces: BTreeMap<Policy, Pace>,
}

/// What a trial gave, before it is a record.
struct Run {
    ended: Ended,
    driven: Option<Driven>,
    output: Captured,
    errors: Captured,
}

/// What a trial showed.
struct Shown {
    observations: Vec<Observation>,
    census: Census,
    verdict: Verdict,
    answer: Answer,
    state_after: State,
    /// The end of what the command wrote to standard error.
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
            blame: Blame::Command,
            paces: BTreeMap::new(),
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

    /// What is to blame where the last trial could not be run.
    pub fn blame(&self) -> Blame {
        self.blame
    }

    fn blamed<T>(&mut self, result: Result<T, PlatformError>) -> Result<T, PlatformError> {
        self.blame = result.as_ref().err().map_or(Blame::Command, PlatformError::blame);
        result
    }

    fn trial(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        // A pool that the kernel gave when the arm was admitted and does not give now is the verdict's to name.
        let _ = self.session.apply(&arm.policy)?;
        let started_s = self.elapsed_s();
        let state_before = self.session.host().state()?;
        let shown = match &arm.role {
            Role::Policy => self.under_policy(&arm.policy, &state_before)?,
            Role::Bare => self.bare(&arm.policy)?,
            Role::Sham { stops, .. } => self.sham(stops, &arm.policy, &state_before)?,
        };
        let Shown { observations, census, verdict, answer, state_after, errors } = shown;
        if !answer.succeeded() {
            self.last_words = errors.tail_text();
        }
        let rejected = state_before.changes(&state_after);
        Ok(TrialRecord { trial, started_s, observations, census, verdict, answer, state_before, state_after, rejected })
    }

    /// A trial under a policy, with its witness.
    fn under_policy(&mut self, policy: &Policy, state: &State) -> Result<Shown, PlatformError> {
        let geometry = self.session.host().geometry().clone();
        let counters = self.session.host().counters()?;
        let direct_map = policy.direct_map().map(|leaf| DirectMapBefore::read(leaf, self.session.host()));
        let timed = AtomicBool::new(false);
        let mut witness = TrialWitness::new(&self.observer, policy, &geometry, state, self.look_budget(&timed));
        let rewriting = Rewriting::of(policy, &geometry);
        let run = run_traced(&self.work, &rewriting, &mut witness, &timed)?;
        let (state_after, answer) = self.after(&run)?;
        let counters_after = self.session.host().counters()?;
        let mut observations = observed(&self.work, &run, &answer, Some(&mut witness))?;
        if !answer.too_slow {
            observations.extend(of_the_host(&counters, &counters_after));
        }
        let need_bytes = witness.memory.needed_bytes();
        let evidence = Evidence {
            slots: SlotCounts::of_kernel(&counters.delta(&counters_after), policy.target(&geometry)),
            advised_bytes: rewriting.wants_large().then(|| rewriting.advised_bytes()),
            noted: run.ended.causes,
            answered: run.ended.answered,
            is_without_guards: policy.has(Modifier::NoGuards),
            direct_map: direct_map.map(|direct_map| direct_map.and_after(self.session.host())),
            ..witness.evidence()
        };
        let census = evidence.examination.census.clone();
        let verdict = evidence.verdict();
        self.session.note_need(need_bytes);
        self.paces.insert(policy.clone(), run.ended.pace);
        Ok(Shown { observations, census, verdict, answer, state_after, errors: run.errors })
    }

    /// A trial without filter, tracer and census.
    fn bare(&mut self, ground: &Policy) -> Result<Shown, PlatformError> {
        let disable_thp = Rewriting::of(ground, self.session.host().geometry()).disable_thp;
        let timed = AtomicBool::new(false);
        let run = run(&self.work, disable_thp, &timed, |launch| tracer::run_bare(launch, GRACE))?;
        let (state_after, answer) = self.after(&run)?;
        let observations = observed(&self.work, &run, &answer, None)?;
        Ok(Shown {
            observations,
            census: Census::default(),
            verdict: Evidence::default().verdict(),
            answer,
            state_after,
            errors: run.errors,
        })
    }

    /// A trial with the stops of a policy and nothing of what it does. The looks are those of the policy too.
    fn sham(&mut self, stops: &Policy, ground: &Policy, state: &State) -> Result<Shown, PlatformError> {
        let geometry = self.session.host().geometry().clone();
        let pace = self.paces.get(stops).copied().unwrap_or_default();
        let timed = AtomicBool::new(false);
        let mut witness = TrialWitness::new(&self.observer, stops, &geometry, state, self.look_budget(&timed));
        let run = run_traced(&self.work, &Rewriting::sham(stops, ground, &geometry, pace), &mut witness, &timed)?;
        let (state_after, answer) = self.after(&run)?;
        let observations = observed(&self.work, &run, &answer, Some(&mut witness))?;
        Ok(Shown {
            observations,
            census: witness.evidence().examination.census,
            verdict: Evidence::default().verdict(),
            answer,
            state_after,
            errors: run.errors,
        })
    }

    /// The time of looks in a trial; the client of a server is timed only while the flag is set.
    fn look_budget<'t>(&self, timed: &'t AtomicBool) -> LookBudget<'t> {
        LookBudget::new(self.work.server.as_ref().map(|_| timed), self.work.prove_all)
    }

    /// What is there to be seen when a run is over.
    fn after(&self, run: &Run) -> Result<(State, Answer), PlatformError> {
        if signals::arrived().is_some() {
            // A terminal tells every process of its group: any of them may have ended early, with any exit.
            return Err(PlatformError::Interrupted);
        }
        if run.driven.is_none() && run.ended.cut_short {
            return Err(PlatformError::CutShort);
        }
        Ok((self.session.host().state()?, answer(&self.work, run)))
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
        let Work { user, variables, trial_time, .. } = &self.work;
        let prepared = rested.and_then(|()| preparation::run(command, user, variables, *trial_time));
        self.blamed(prepared)
    }

    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        let ran = self.trial(arm, trial);
        self.blamed(ran)
    }

    fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn interrupted(&self) -> bool {
        signals::arrived().is_some()
    }
}

/// Runs the command, or the server with its client, under the tracer.
fn run_traced(
    work: &Work,
    rewriting: &Rewriting,
    witness: &mut TrialWitness,
    timed: &AtomicBool,
) -> Result<Run, PlatformError> {
    let traced = |launch: &Launch| tracer::run(launch, rewriting, Some(witness), Leftovers::KillAfter(GRACE));
    run(work, rewriting.disable_thp, timed, traced)
}

/// Runs the command, or the server with its client, by `start`. `timed` is set while the client runs.
fn run(
    work: &Work,
    disable_thp: bool,
    timed: &AtomicBool,
    start: impl FnOnce(&Launch) -> Result<Ended, LaunchError>,
) -> Result<Run, PlatformError> {
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
        disable_thp,
        limit: work.trial_time,
    };
    let Some(server) = &work.server else {
        (launch.stdout, launch.stderr) = (Some(stdout), Some(stderr));
        let ended = start(&launch);
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
        let ended = start(&launch);
        over.store(true, Ordering::SeqCst);
        Ok::<_, PlatformError>((ended, driver.join().expect("the driver of a server does not panic")))
    })?;
    drop(launch);
    let (ended, server_errors) = (ended?, server_errors.finish());
    if ended.time_was_up {
        return Ok(Run { ended, driven: None, output: output.finish(), errors: server_errors });
    }
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
        too_slow: run.ended.time_was_up,
    }
}

/// What khugepaged did on the host during a trial, as far as the kernel counts it.
fn of_the_host(before: &Counters, after: &Counters) -> impl Iterator<Item = Observation> {
    let counts = [(names::HOST_COLLAPSES, COLLAPSED), (names::HOST_COLLAPSE_ALLOCATIONS, COLLAPSE_ALLOCATIONS)];
    let moved = |(metric, counter)| Some(Observation::measured(metric, before.moved(after, counter)? as f64));
    counts.into_iter().filter_map(moved)
}

/// What was observed, and what was read off what the command printed. Of a trial that was ended for its time there is nothing: how
/// long it would have taken is not known.
fn observed(
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

/// A run without a witness had no tracer either.
fn observations(run: &Run, witness: Option<&mut TrialWitness>) -> Vec<Observation> {
    let Usage { user_s, system_s, minor_faults, major_faults } = run.ended.usage;
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
    let Looks { apart_s, within_s, after_s } = run.ended.looks;
    // A client waits for its server however still that stands.
    let (looks_s, untimed_s) = match run.driven {
        Some(_) => (witness.budget.timed_s(), witness.budget.untimed_s()),
        None => (within_s, apart_s + after_s),
    };
    observations.extend([
        Observation::measured(names::TRACER_S, (run.ended.tracer_s - untimed_s).max(0.0)),
        Observation::measured(names::TRACER_STOPS, run.ended.stops as f64),
        Observation::measured(names::LOOKS_S, looks_s),
    ]);
    observations.extend(witness.observations());
    observations
}
