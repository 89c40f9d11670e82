//! The running host as a platform: runs trials one after the other, each with its evidence.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod awake;
mod contention;
pub mod counters;
pub mod direct_map;
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
use lease::Lease;
use policy::census::Census;
use policy::judge::{Evidence, SlotCounts};
use policy::verdict::Verdict;
use policy::windows::Windows;
use policy::{Granularity, Modifier, Policy};
use study::comparison::{Admission, Fragmented as Fragmentation};
use study::control::Role;
use study::machine::State;
use study::metric::Observation;
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
    /// The work of variants that run something else, by variant name.
    variants: BTreeMap<String, Work>,
    began: Instant,
    /// The clock of an earlier run in seconds, for a comparison that is continued.
    before_s: f64,
    last_words: String,
    blame: Blame,
    /// The measured handling times of stopped calls in each variant under each policy.
    paces: BTreeMap<(Option<String>, Policy), Pace>,
    fragmenting: Option<Fragmenting>,
    /// System settings by variant name, if trials run untraced.
    settings: Option<BTreeMap<String, Settings>>,
    /// Whether the lease is kept when all trials are done.
    pub keeps_lease: bool,
    /// The lease that was kept.
    pub kept_lease: Option<Lease>,
}

/// Paths of system settings and the values to write.
pub type Settings = Vec<(String, String)>;

/// Makes the command that fragments memory in the given way and holds it (`Fragmented::hold`).
pub type Fragmenter = Box<dyn Fn(Fragmentation) -> Command>;

/// How free memory is fragmented, and the command for it.
struct Fragmenting {
    /// For trials of arms that do not specify one.
    of_all: Option<Fragmentation>,
    by: Fragmenter,
    held: Option<(Fragmentation, Fragmented)>,
}

/// The results of a trial.
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
    /// A platform that runs this work under policies that the session applies.
    pub fn new(session: Session, work: Work) -> Result<HostPlatform, PlatformError> {
        Ok(HostPlatform {
            session,
            observer: Observer::open()?,
            work,
            variants: BTreeMap::new(),
            began: Instant::now(),
            before_s: 0.0,
            last_words: String::new(),
            blame: Blame::Command,
            paces: BTreeMap::new(),
            fragmenting: None,
            settings: None,
            keeps_lease: false,
            kept_lease: None,
        })
    }

    /// Runs every trial untraced, each variant under the settings for its name.
    pub fn untraced_with(self, settings: BTreeMap<String, Settings>) -> HostPlatform {
        HostPlatform { settings: Some(settings), ..self }
    }

    /// The same platform, whose clock continues from `before_s` seconds.
    pub fn with_clock_at(self, before_s: f64) -> HostPlatform {
        HostPlatform { before_s, ..self }
    }

    /// Lets variants run other work, by the variant's name.
    pub fn with_variants(self, variants: BTreeMap<String, Work>) -> HostPlatform {
        HostPlatform { variants, ..self }
    }

    /// Lets commands fragment free memory: for each trial as its variant specifies, otherwise as `of_all` does. Fragmentation
    /// that consecutive trials share is held from the first to the last (`Fragmented::hold`).
    pub fn with_fragments(self, of_all: Option<Fragmentation>, by: Fragmenter) -> HostPlatform {
        HostPlatform { fragmenting: Some(Fragmenting { of_all, by, held: None }), ..self }
    }

    /// Waits until no other pagelab measures or changes settings, as far as this user can keep others out. The wait is not part of
    /// the comparison's time. If it fails, the first trial reports why.
    pub fn wait_for_others(&mut self) {
        if self.session.rest().is_err() {
            self.session.wait_no_longer();
        }
        self.began = Instant::now();
    }

    fn work(&self, arm: &Arm) -> &Work {
        arm.variant.as_ref().and_then(|variant| self.variants.get(&variant.name)).unwrap_or(&self.work)
    }

    /// Fragments memory as the arm specifies, if it is not already, once no other process measures: it would affect the other
    /// measurement.
    fn fragment(&mut self, arm: &Arm) -> Result<(), PlatformError> {
        let Some(fragmenting) = &mut self.fragmenting else { return Ok(()) };
        let wish = arm.variant.as_ref().and_then(|variant| variant.fragmented).or(fragmenting.of_all);
        match (&mut fragmenting.held, wish) {
            (Some((held, fragmented)), Some(wish)) if *held == wish => return fragmented.check(),
            (None, None) => return Ok(()),
            _ => {}
        }
        fragmenting.held = None;
        if let Some(wish) = wish {
            self.session.rest()?;
            fragmenting.held = Some((wish, Fragmented::hold((fragmenting.by)(wish))?));
        }
        Ok(())
    }

    /// Restores the host's settings, and gives back held memory.
    pub fn finish(&mut self) -> Result<(), PlatformError> {
        self.fragmenting = None;
        if self.keeps_lease {
            self.kept_lease = self.session.hand_over()?;
            return Ok(());
        }
        self.session.finish()
    }

    /// The end of the command's standard error in the last trial that failed; empty where none did.
    pub fn last_words(&self) -> &str {
        &self.last_words
    }

    /// The cause if the last trial could not be run.
    pub fn blame(&self) -> Blame {
        self.blame
    }

    fn blamed<T>(&mut self, result: Result<T, PlatformError>) -> Result<T, PlatformError> {
        self.blame = result.as_ref().err().map_or(Blame::Command, PlatformError::blame);
        result
    }

    fn trial(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, PlatformError> {
        self.fragment(arm)?;
        let variant = arm.variant.as_ref().map(|variant| &variant.name);
        match self.settings.as_ref().and_then(|settings| settings.get(variant?)) {
            Some(settings) => self.session.apply_settings(settings)?,
            // If a pool was available when the arm was admitted but is not now, the verdict reports it.
            None => drop(self.session.apply(&arm.policy)?),
        }
        let started_s = self.elapsed_s();
        let state_before = self.session.host().state()?;
        let shown = match &arm.role {
            Role::Policy if self.settings.is_some() => self.bare(arm)?,
            Role::Policy | Role::Frames { .. } | Role::Share { .. } => self.under_policy(arm, &state_before)?,
            Role::Bare => self.bare(arm)?,
            Role::Sham { stops, .. } => self.sham(stops, arm, &state_before)?,
        };
        let TrialResults { observations, census, verdict, answer, state_after, errors } = shown;
        if !answer.succeeded() {
            self.last_words = errors.tail_text();
        }
        let rejected = state_before.changes(&state_after);
        Ok(TrialRecord { trial, started_s, observations, census, verdict, answer, state_before, state_after, rejected })
    }

    /// A trial under a policy, with a witness.
    fn under_policy(&mut self, arm: &Arm, state: &State) -> Result<TrialResults, PlatformError> {
        let policy = &arm.policy;
        let page_sizes = self.session.host().page_sizes().clone();
        let counters = self.session.host().counters()?;
        let direct_map = policy.direct_map().map(|leaf| DirectMapBefore::read(leaf, self.session.host()));
        let timed = AtomicBool::new(false);
        let mut witness =
            TrialWitness::new(&self.observer, policy, &page_sizes, state, self.examination_budget(&timed));
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
        self.paces.insert(pace_of(arm, policy), run.ended.pace);
        Ok(TrialResults { observations, census, verdict, answer, state_after, errors: run.errors })
    }

    /// Runs the work once with base pages, and counts what it accesses of each window.
    ///
    /// # Errors
    /// The run fails.
    pub fn heat(&mut self, arm: &Arm, windows: Windows) -> Result<Heat, PlatformError> {
        self.session.apply(&Policy::plain(Granularity::Base))?;
        let rewriting = Rewriting::heat(windows, self.session.host().page_sizes());
        let mut witness = HeatWitness::default();
        run_once(self.work(arm), &rewriting, &mut witness)?;
        Ok(witness.heat())
    }

    /// A trial without seccomp filter, tracer and census.
    fn bare(&mut self, arm: &Arm) -> Result<TrialResults, PlatformError> {
        let disable_thp = Rewriting::of(&arm.policy, self.session.host().page_sizes()).disable_thp;
        let timed = AtomicBool::new(false);
        let run = run(self.work(arm), disable_thp, &timed, |launch| tracer::run_bare(launch, GRACE))?;
        let (state_after, answer) = self.after(arm, &run)?;
        let observations = observed(self.work(arm), &run, &answer, None)?;
        Ok(TrialResults {
            observations,
            census: Census::default(),
            verdict: Evidence::default().verdict(),
            answer,
            state_after,
            errors: run.errors,
        })
    }

    /// A trial with the stops of a policy but without its effects. Examinations are made as under the policy.
    fn sham(&mut self, stops: &Policy, arm: &Arm, state: &State) -> Result<TrialResults, PlatformError> {
        let own_policy = &arm.policy;
        let page_sizes = self.session.host().page_sizes().clone();
        let pace = self.paces.get(&pace_of(arm, stops)).copied().unwrap_or_default();
        let timed = AtomicBool::new(false);
        let mut witness = TrialWitness::new(&self.observer, stops, &page_sizes, state, self.examination_budget(&timed));
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

    /// The time budget for examinations in a trial; with a server, the client is timed only while the flag is set.
    fn examination_budget<'t>(&self, timed: &'t AtomicBool) -> ExaminationBudget<'t> {
        ExaminationBudget::new(self.work.server.as_ref().map(|_| timed), self.work.prove_all)
    }

    /// The state and the answer after a run.
    fn after(&self, arm: &Arm, run: &Run) -> Result<(State, Answer), PlatformError> {
        if signals::arrived().is_some() {
            // A terminal signals every process of its group: any of them may have ended early, with any exit code.
            return Err(PlatformError::Interrupted);
        }
        if run.driven.is_none() && run.ended.cut_short {
            return Err(PlatformError::CutShort);
        }
        Ok((self.session.host().state()?, answer(self.work(arm), run)))
    }
}

/// The key of a pace.
fn pace_of(arm: &Arm, stops: &Policy) -> (Option<String>, Policy) {
    (arm.variant.as_ref().map(|variant| variant.name.clone()), stops.clone())
}

impl Platform for HostPlatform {
    type Error = PlatformError;

    fn admit(&mut self, arm: &Arm) -> Admission {
        let admission = self.session.admit(&arm.policy);
        let (Admission::Admitted { .. }, Granularity::Hugetlb(_)) = (&admission, arm.policy.granularity) else {
            return admission;
        };
        // Whether the kernel finds contiguous memory for a pool only shows when it is asked. Other failures are reported by the
        // first trial.
        let _ = self.fragment(arm);
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
        self.before_s + self.began.elapsed().as_secs_f64()
    }

    fn interrupted(&self) -> bool {
        signals::arrived().is_some()
    }
}
