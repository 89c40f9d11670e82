//! [`HostPlatform`]: the running host as a platform. It runs the trials of a comparison one after the other.
//!
//! A *trial* is one run of the command for one *arm* of the comparison: a policy, or a variant under a policy. While the tracer
//! applies the policy, a *witness* examines the memory of the program before the program unmaps it, and when a process ends. From
//! these examinations it adds up the *census*: how many bytes each leaf and folio size maps, as the kernel reports them. The
//! *evidence* consists of the census, the kernel's counters and what the tracer did. The *verdict* concludes from the evidence
//! whether the policy was in force, and if not, why.
//!
//! The *lease* lets only one pagelab process at a time change system settings, and restores them when that process ends.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod awake;
mod contention;
pub mod counters;
mod cpu_time;
mod direct_map_before;
mod error;
mod examination_budget;
mod fragmented;
mod heat;
mod helper;
mod khugepaged;
mod making;
mod memory;
mod memory_group;
mod new_leaves;
mod observed;
mod output;
mod preparation;
mod registrable;
mod running;
mod server;
mod session;
mod witness;
mod work;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use census::Observer;
use lease::{Lease, LeaseError};
use policy::Admission;
use policy::census::Census;
use policy::judge::{Evidence, SlotCounts};
use policy::machine::State;
use policy::verdict::Verdict;
use policy::windows::Windows;
use policy::{Granularity, Modifier, Policy};
use study::comparison::Fragmented as Fragmentation;
use study::control::Role;
use study::metric::{Observation, names};
use study::runner::Platform;
use study::trial::{Answer, Arm, Trial, TrialRecord};
use tracer::{Pace, Rewriting, signals};

use direct_map_before::DirectMapBefore;
use examination_budget::ExaminationBudget;
use fragmented::Fragmented;
use heat::HeatWitness;
use observed::{observed, of_the_host};
use output::Captured;
use running::{GRACE, Run, answer, run, run_traced};
use witness::TrialWitness;

pub use awake::{Awake, AwakeError};
pub use contention::observe_contention;
pub use error::{Blame, PlatformError};
pub use heat::{Heat, MIN_PASSES};
pub use khugepaged::KhugepagedHold;
pub use making::make;
pub use memory_group::{Charges, MemoryGroup, MemoryGroupError};
pub use running::{Once, run_once};
pub use server::Server;
pub use session::{Session, wait_for_lease};
pub use work::{Extract, Open, Select, Work};

/// Runs trials on the running host.
pub struct HostPlatform {
    session: Session,
    observer: Observer,
    work: Work,
    /// The work of the variants that do not run `work`, by variant name.
    variants: BTreeMap<String, Work>,
    clock_began: Instant,
    /// The reading of the clock at `clock_began`, in seconds. It is above 0 if the comparison continues an earlier one.
    clock_start_s: f64,
    last_words: String,
    blame: Blame,
    /// For each variant and policy: how often the policy made further calls at a stopped call. Sham trials imitate this pace.
    paces: BTreeMap<(Option<String>, Policy), Pace>,
    fragmenting: Option<Fragmenting>,
    /// System settings by variant name. If present, trials of policies run without the tracer.
    settings: Option<BTreeMap<String, Settings>>,
    /// Whether [`HostPlatform::finish`] keeps the lease for later use instead of releasing it.
    pub keeps_lease: bool,
    /// The lease that [`HostPlatform::finish`] has kept.
    pub kept_lease: Option<Lease>,
}

/// Paths of system settings and the values to write.
pub type Settings = Vec<(String, String)>;

/// Returns a command that fragments free memory as requested, and keeps it fragmented until its standard input is closed.
pub type Fragmenter = Box<dyn Fn(Fragmentation) -> Command>;

/// The fragmentation of free memory during trials.
struct Fragmenting {
    /// The fragmentation for arms whose variant does not request one.
    default_request: Option<Fragmentation>,
    fragmenter: Fragmenter,
    /// The fragmentation that is in force, and the process that maintains it.
    held: Option<(Fragmentation, Fragmented)>,
}

/// The results of a trial, from which its record is made.
struct TrialResults {
    observations: Vec<Observation>,
    census: Census,
    verdict: Verdict,
    answer: Answer,
    state_after: State,
    /// The end of the command's standard error.
    errors: Captured,
}

impl HostPlatform {
    /// A platform that runs this work. `session` applies the system settings of the policies.
    pub fn new(session: Session, work: Work) -> Result<HostPlatform, PlatformError> {
        Ok(HostPlatform {
            session,
            observer: Observer::open()?,
            work,
            variants: BTreeMap::new(),
            clock_began: Instant::now(),
            clock_start_s: 0.0,
            last_words: String::new(),
            blame: Blame::Command,
            paces: BTreeMap::new(),
            fragmenting: None,
            settings: None,
            keeps_lease: false,
            kept_lease: None,
        })
    }

    /// Runs every trial of a policy without the tracer, under the settings of its variant. The keys are names of variants.
    pub fn untraced_with(self, settings: BTreeMap<String, Settings>) -> HostPlatform {
        HostPlatform { settings: Some(settings), ..self }
    }

    /// Sets the clock to `clock_s` seconds, for a comparison that continues an earlier one.
    pub fn with_clock_at(self, clock_s: f64) -> HostPlatform {
        HostPlatform { clock_start_s: clock_s, ..self }
    }

    /// Lets some variants run other work. The keys are names of variants.
    pub fn with_variants(self, variants: BTreeMap<String, Work>) -> HostPlatform {
        HostPlatform { variants, ..self }
    }

    /// Fragments free memory during each trial as its variant requests, or as `default_request` if the variant requests nothing.
    /// The same fragmentation stays in force between consecutive trials with the same request.
    pub fn with_fragments(self, default_request: Option<Fragmentation>, fragmenter: Fragmenter) -> HostPlatform {
        HostPlatform { fragmenting: Some(Fragmenting { default_request, fragmenter, held: None }), ..self }
    }

    /// Waits until no other pagelab process measures or changes settings. Only root can keep other processes out. The clock of
    /// the comparison starts after the wait.
    ///
    /// # Errors
    /// Another process did not release the settings in time, or a signal ended the wait. Other problems are those of the first trial.
    pub fn wait_for_others(&mut self) -> Result<(), LeaseError> {
        let waited = self.session.restore_under_lease();
        self.clock_began = Instant::now();
        match waited {
            Err(PlatformError::Lease(error)) if error.is_end_of_wait() => Err(error),
            _ => Ok(()),
        }
    }

    fn work(&self, arm: &Arm) -> &Work {
        arm.variant.as_ref().and_then(|variant| self.variants.get(&variant.name)).unwrap_or(&self.work)
    }

    /// Brings the fragmentation that the arm requests into force, unless it is already. Takes the lease before it fragments
    /// memory, because that would disturb the measurements of another pagelab process.
    fn fragment(&mut self, arm: &Arm) -> Result<(), PlatformError> {
        let Some(fragmenting) = &mut self.fragmenting else { return Ok(()) };
        let requested = arm.variant.as_ref().and_then(|variant| variant.fragmented).or(fragmenting.default_request);
        match (&mut fragmenting.held, requested) {
            (Some((held, fragmented)), Some(requested)) if *held == requested => return fragmented.check(),
            (None, None) => return Ok(()),
            _ => {}
        }
        fragmenting.held = None;
        if let Some(requested) = requested {
            self.session.restore_under_lease()?;
            fragmenting.held = Some((requested, Fragmented::hold((fragmenting.fragmenter)(requested))?));
        }
        Ok(())
    }

    /// Restores the settings of the host and ends the fragmentation. Releases the lease, unless `keeps_lease` is set.
    pub fn finish(&mut self) -> Result<(), PlatformError> {
        self.fragmenting = None;
        if self.keeps_lease {
            self.kept_lease = self.session.hand_over()?;
            return Ok(());
        }
        self.session.finish()
    }

    /// The last lines of the command's standard error in the last trial that failed. Empty if no trial failed.
    pub fn last_words(&self) -> &str {
        &self.last_words
    }

    /// Whether the command or the system is to blame for the last error of a trial or its preparation.
    pub fn blame(&self) -> Blame {
        self.blame
    }

    /// Stores who is to blame for an error, and returns the result unchanged.
    fn record_blame<T>(&mut self, result: Result<T, PlatformError>) -> Result<T, PlatformError> {
        self.blame = result.as_ref().err().map_or(Blame::Command, PlatformError::blame);
        result
    }

    /// Applies the settings that an arm needs, runs its trial, and returns the record.
    fn run_trial(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        self.fragment(arm)?;
        let variant = arm.variant.as_ref().map(|variant| &variant.name);
        match self.settings.as_ref().and_then(|settings| settings.get(variant?)) {
            Some(settings) => self.session.apply_settings(settings)?,
            // If the kernel gives a pool no pages now, although it did when the arm was admitted, the verdict reports it.
            None => drop(self.session.apply(&arm.policy)?),
        }
        let started_s = self.elapsed_s();
        let state_before = self.session.host().state()?;
        let results = match &arm.role {
            Role::Policy if self.settings.is_some() => self.run_setting(arm, &state_before)?,
            Role::Policy | Role::Frames { .. } | Role::Share { .. } => self.run_under_policy(arm, &state_before)?,
            Role::Bare => self.run_bare(arm)?,
            Role::Sham { stops, .. } => self.run_sham(stops, arm, &state_before)?,
        };
        let TrialResults { observations, census, verdict, answer, state_after, errors } = results;
        if !answer.succeeded() {
            self.last_words = errors.tail_text();
        }
        let rejected = state_before.changes(&state_after);
        Ok(TrialRecord { trial, started_s, observations, census, verdict, answer, state_before, state_after, rejected })
    }

    /// Runs a trial under a policy, with a witness.
    fn run_under_policy(&mut self, arm: &Arm, state: &State) -> Result<TrialResults, PlatformError> {
        let policy = &arm.policy;
        let page_sizes = self.session.host().page_sizes().clone();
        let counters = self.session.host().counters()?;
        let direct_map = policy.direct_map().map(|leaf| DirectMapBefore::read(leaf, self.session.host()));
        let timed = AtomicBool::new(false);
        let mut witness =
            TrialWitness::new(&self.observer, policy, &page_sizes, state, self.examination_budget(arm, &timed));
        witness.reads_frames = self.work.reads_frames;
        let rewriting = Rewriting::of(policy, &page_sizes);
        let run = run_traced(self.work(arm), &rewriting, &mut witness, &timed)?;
        let (state_after, answer) = self.after(arm, &run)?;
        let counters_after = self.session.host().counters()?;
        let mut observations = observed(self.work(arm), &run, &answer, Some(&mut witness))?;
        if !answer.too_slow {
            observations.extend(of_the_host(&counters, &counters_after));
        }
        let need_bytes = witness.memory.needed_bytes();
        let evidence = Evidence {
            slots: SlotCounts {
                faulted_bytes: witness.faulted_bytes(),
                refaulted_bytes: witness.refaulted_bytes(),
                ..SlotCounts::of_kernel(&counters.delta(&counters_after), policy.target(&page_sizes))
            },
            large_share: policy.windows().map(|windows| windows.share_of(run.ended.advised_bytes)),
            advised_bytes: rewriting.wants_large().then(|| rewriting.advised_bytes()),
            noted: run.ended.all_causes(),
            answered: run.ended.answered,
            is_without_guards: policy.has(Modifier::NoGuards),
            direct_map: direct_map.map(|direct_map| direct_map.and_after(self.session.host())),
            ..witness.evidence()
        };
        let census = evidence.examination.census.clone();
        let verdict = evidence.verdict();
        self.session.note_need(need_bytes);
        self.paces.insert(pace_key(arm, policy), run.ended.pace);
        Ok(TrialResults { observations, census, verdict, answer, state_after, errors: run.errors })
    }

    /// Runs the work of an arm once with base pages, and counts the bytes that it accesses in each window of its memory.
    ///
    /// # Errors
    /// The settings cannot be applied, or the run fails.
    pub fn heat(&mut self, arm: &Arm, windows: Windows) -> Result<Heat, PlatformError> {
        self.session.apply(&Policy::plain(Granularity::Base))?;
        let rewriting = Rewriting::heat(windows, self.session.host().page_sizes());
        let mut witness = HeatWitness::default();
        run_once(self.work(arm), &rewriting, &mut witness)?;
        Ok(witness.heat())
    }

    /// Runs a trial without seccomp filter, tracer and census.
    fn run_bare(&mut self, arm: &Arm) -> Result<TrialResults, PlatformError> {
        self.run_untraced(arm).map(|(results, _)| results)
    }

    /// Runs a trial of a setting like a bare one. Its peak of resident memory is the kernel's, of the largest process.
    fn run_setting(&mut self, arm: &Arm, state: &State) -> Result<TrialResults, PlatformError> {
        let own_peak_bytes = memory::own_peak_bytes();
        let (mut results, peak_bytes) = self.run_untraced(arm)?;
        let is_of_a_process = own_peak_bytes.is_some_and(|own_bytes| peak_bytes > own_bytes);
        // The kernel's peak leaves out pages of a pool.
        let is_pool = |path: &str| path.ends_with("/nr_hugepages") || path.ends_with("/nr_overcommit_hugepages");
        let has_pool = state.settings.iter().any(|(path, value)| is_pool(path) && value != "0");
        if is_of_a_process && !has_pool {
            results.observations.push(Observation::measured(names::PEAK_RESIDENT_BYTES, peak_bytes as f64));
        }
        Ok(results)
    }

    /// Runs a trial without seccomp filter, tracer and census. Returns also the peak of resident memory of its processes, in bytes.
    fn run_untraced(&mut self, arm: &Arm) -> Result<(TrialResults, u64), PlatformError> {
        let disable_thp = Rewriting::of(&arm.policy, self.session.host().page_sizes()).disable_thp;
        let timed = AtomicBool::new(false);
        let run = run(self.work(arm), disable_thp, &timed, |launch| tracer::run_bare(launch, GRACE))?;
        let (state_after, answer) = self.after(arm, &run)?;
        let observations = observed(self.work(arm), &run, &answer, None)?;
        let peak_bytes = run.ended.usage.max_resident_bytes;
        let results = TrialResults {
            observations,
            census: Census::default(),
            verdict: Evidence::default().verdict(),
            answer,
            state_after,
            errors: run.errors,
        };
        Ok((results, peak_bytes))
    }

    /// Runs a trial with the stops and examinations of the policy `stops`, but without its effects.
    fn run_sham(&mut self, stops: &Policy, arm: &Arm, state: &State) -> Result<TrialResults, PlatformError> {
        let own_policy = &arm.policy;
        let page_sizes = self.session.host().page_sizes().clone();
        let pace = self.paces.get(&pace_key(arm, stops)).copied().unwrap_or_default();
        let timed = AtomicBool::new(false);
        let mut witness =
            TrialWitness::new(&self.observer, stops, &page_sizes, state, self.examination_budget(arm, &timed));
        let run =
            run_traced(self.work(arm), &Rewriting::sham(stops, own_policy, &page_sizes, pace), &mut witness, &timed)?;
        let (state_after, answer) = self.after(arm, &run)?;
        let observations = observed(self.work(arm), &run, &answer, Some(&mut witness))?;
        Ok(TrialResults {
            observations,
            census: witness.evidence().examination.census,
            verdict: Evidence::default().verdict(),
            answer,
            state_after,
            errors: run.errors,
        })
    }

    /// The time budget of the witness in a trial. With a server, the client is being timed only while `timed` is set.
    fn examination_budget<'t>(&self, arm: &Arm, timed: &'t AtomicBool) -> ExaminationBudget<'t> {
        ExaminationBudget::new(self.work(arm).server.as_ref().map(|_| timed), self.work.prove_all)
    }

    /// The state of the host after a run, and the answer of the command. Fails if a signal has interrupted the run, or if
    /// processes that outlived the command were killed while still at work.
    fn after(&self, arm: &Arm, run: &Run) -> Result<(State, Answer), PlatformError> {
        if signals::arrived().is_some() {
            // A terminal sends the signal to every process of its group, so the command may have ended early, with any exit code.
            return Err(PlatformError::Interrupted);
        }
        if run.driven.is_none() && run.ended.cut_short {
            return Err(PlatformError::CutShort);
        }
        Ok((self.session.host().state()?, answer(self.work(arm), run)))
    }
}

/// The key of [`HostPlatform::paces`].
fn pace_key(arm: &Arm, stops: &Policy) -> (Option<String>, Policy) {
    (arm.variant.as_ref().map(|variant| variant.name.clone()), stops.clone())
}

impl Platform for HostPlatform {
    type Error = PlatformError;

    fn admit(&mut self, arm: &Arm) -> Admission {
        let admission = self.session.admit(&arm.policy);
        let (Admission::Admitted { .. }, Granularity::Hugetlb(_)) = (&admission, arm.policy.granularity) else {
            return admission;
        };
        // Only the attempt shows whether the kernel finds contiguous memory for the pool. The first trial reports any other
        // failure.
        let _ = self.fragment(arm);
        let refused = self.session.apply(&arm.policy).ok().flatten();
        refused.map_or(admission, Admission::Unsupported)
    }

    fn prepare(&mut self) -> Result<(), PlatformError> {
        let Some(command) = &self.work.prepare else { return Ok(()) };
        let restored = self.session.restore_under_lease();
        let Work { user, variables, trial_time, .. } = &self.work;
        let prepared = restored.and_then(|()| preparation::run(command, user, variables, *trial_time));
        self.record_blame(prepared)
    }

    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        let record = self.run_trial(arm, trial);
        self.record_blame(record)
    }

    fn elapsed_s(&self) -> f64 {
        self.clock_start_s + self.clock_began.elapsed().as_secs_f64()
    }

    fn interrupted(&self) -> bool {
        signals::arrived().is_some()
    }
}
