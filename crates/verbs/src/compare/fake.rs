//! `--fake-platform FILE`: reads trials from a file, for pagelab's own tests of its output.
//!
//! Nothing is run and nothing is changed, so a test with this option needs no lease, no root and no time, and its figures are
//! the same everywhere. Three safeguards keep the figures from being taken for measured ones: only builds with debug
//! assertions have the option (the released program refuses it), and it prints a warning in capitals on standard error; its
//! observations have the provenance `modelled`, which the first line of every table names; and the machine is called
//! `FAKE PLATFORM: NOTHING WAS MEASURED` in every document and on every page.
//!
//! The file is TOML; `fixtures/platform` has examples. Unknown keys are refused:
//!
//! ```toml
//! host = "../host/x86_64-6.18"    # a captured tree, from the file's own directory: page sizes, settings, admission
//!
//! [arm.thp]                       # by policy, or by label; a control arm without a section is as `default`
//! wall_s = [0.81, 0.80, 0.82]     # one figure per trial, beginning with the discarded one; the list is repeated
//! figures = { minor_faults = [40.0] }
//! exit = [0]                      # exit statuses, in the same way
//! holding = "held"                # a verdict, as in JSON
//! mapped = { "2M" = "24M" }       # anonymous memory by leaf
//! causes = [{ cause = { code = "not_advised" }, bytes = 4096 }]
//! unsupported = { reason = "no THP in this kernel", remedy = "boot another one" }
//! too_slow = false                # ended because it took too long
//! fails = "the disk is full"      # the reason why its trials fail
//!
//! [contention]                    # the load on the processors before the first block; optional
//! cpus = 2
//! window_s = 0.2
//! share_ratio = 0.5
//! busy_cpus = 2.0
//! runnable_tasks = 4.0
//! steal_ratio = 0.12
//! decides = false                 # --primary decides
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host::Host;
use model::toml_file::{self, TomlError};
use platform::{Blame, Heat};
use policy::Exit;
use policy::Policy;
use policy::cause::CauseShare;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::machine::State;
use policy::size::{PageSize, parse_bytes};
use policy::verdict::{Holding, Verdict};
use policy::windows::Windows;
use policy::{Admission, Unsupported};
use results::input;
use serde::Deserialize;
use study::comparison::{Comparison, Contention};
use study::control::Role;
use study::metric::{Observation, Provenance, names};
use study::runner::Platform;
use study::trial::{Answer, Arm, Stated, Trial, TrialRecord};
use tracer::signals;

use super::trials::Trials;
use crate::failure::{Failure, report};

/// The machine name in a comparison with fake figures.
const NAME: &str = "FAKE PLATFORM: NOTHING WAS MEASURED";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    host: PathBuf,
    arm: BTreeMap<String, WireArm>,
    contention: Option<Contention>,
}

/// An arm as the file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireArm {
    #[serde(default = "one_second")]
    wall_s: Vec<f64>,
    #[serde(default)]
    figures: BTreeMap<String, Vec<f64>>,
    #[serde(default)]
    exit: Vec<i32>,
    #[serde(default = "not_asked")]
    holding: Holding,
    #[serde(default)]
    mapped: BTreeMap<String, String>,
    #[serde(default)]
    causes: Vec<CauseShare>,
    unsupported: Option<Unsupported>,
    #[serde(default)]
    too_slow: bool,
    fails: Option<String>,
}

fn one_second() -> Vec<f64> {
    vec![1.0]
}

fn not_asked() -> Holding {
    Holding::NotAsked
}

/// The file does not describe a fake platform, or it declares that a trial fails.
#[derive(Debug, thiserror::Error)]
pub enum FakeError {
    /// The file is not valid TOML of this form.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// A leaf size cannot be parsed.
    #[error(transparent)]
    Size(#[from] policy::size::SizeError),
    /// The file describes neither the arm nor `default`.
    #[error("the file has no arm {0:?}")]
    Arm(String),
    #[error("the arm {arm:?} has no figure of {metric}")]
    Empty {
        /// The label of the arm.
        arm: String,
        metric: String,
    },
    #[error("{0}")]
    Fails(String),
}

/// An arm whose lists and sizes have been checked.
#[derive(Clone, Debug)]
struct FakeArm {
    /// For each metric one figure per trial, repeated cyclically. No list is empty.
    figures: BTreeMap<String, Vec<f64>>,
    exit: Vec<i32>,
    census: Census,
    verdict: Verdict,
    unsupported: Option<Unsupported>,
    too_slow: bool,
    fails: Option<String>,
    /// The number of trials that this arm has had.
    trials: usize,
}

/// A platform that runs nothing and reports figures from a file.
#[derive(Debug)]
pub struct Fake {
    file: PathBuf,
    host: PathBuf,
    arms: BTreeMap<String, FakeArm>,
    contention: Option<Contention>,
    state: State,
    clock_s: f64,
}

impl Fake {
    /// Reads and checks the file of a fake platform.
    ///
    /// # Errors
    /// The file or the captured host cannot be read, or has the wrong format.
    pub fn read(file: &Path) -> Result<Fake, Failure> {
        let text = input::read_definition(file).map_err(|error| Failure::about(file, error))?;
        let wire: Wire = toml_file::read(&text).map_err(|error| Failure::about(file, error))?;
        let host = file.parent().unwrap_or(Path::new(".")).join(wire.host);
        let state = Host::open(&host).and_then(|host| host.state()).map_err(Failure::input)?;
        let arms = wire.arm.into_iter().map(|(label, arm)| Ok((label.clone(), FakeArm::of(&label, arm)?)));
        let arms = arms.collect::<Result<_, FakeError>>().map_err(|error| Failure::about(file, error))?;
        Ok(Fake { file: file.to_path_buf(), host, arms, contention: wire.contention, state, clock_s: 0.0 })
    }

    /// The root of the captured host that supplies page sizes and settings.
    pub fn host_root(&self) -> &Path {
        &self.host
    }

    /// The load on the processors before the first block.
    pub fn contention(&self) -> Option<Contention> {
        self.contention
    }

    /// Marks a comparison as not measured, and prints a warning to that effect.
    pub fn marked(&self, mut comparison: Comparison) -> Comparison {
        report(format_args!(
            "pagelab: FAKE PLATFORM: NOTHING IS MEASURED. Every figure is one of {}",
            results::printable(&self.file.display().to_string())
        ));
        NAME.clone_into(&mut comparison.machine.name);
        NAME.clone_into(&mut comparison.machine.cpu_model);
        comparison
    }

    /// Continues after the trials of an earlier comparison, and sets the platform's clock.
    pub fn advanced_past(mut self, comparison: &Comparison, clock_s: f64) -> Fake {
        let arms = comparison.trials.iter().filter_map(|record| comparison.design.arms.get(record.trial.arm));
        for arm in arms {
            if let Ok(fake) = self.arm(arm) {
                fake.trials += 1;
            }
        }
        Fake { clock_s, ..self }
    }

    fn arm(&mut self, arm: &Arm) -> Result<&mut FakeArm, FakeError> {
        let unknown = || FakeError::Arm(arm.label.clone());
        if !self.arms.contains_key(&arm.label) {
            let like = if arm.role == Role::Policy { arm.policy.to_string() } else { Policy::DEFAULT.to_string() };
            let like = self.arms.get(&like).cloned().ok_or_else(unknown)?;
            self.arms.insert(arm.label.clone(), FakeArm { trials: 0, ..like });
        }
        self.arms.get_mut(&arm.label).ok_or_else(unknown)
    }
}

impl FakeArm {
    fn of(label: &str, wire: WireArm) -> Result<FakeArm, FakeError> {
        let mut figures = wire.figures;
        figures.insert(names::WALL_S.to_owned(), wire.wall_s);
        if let Some((metric, _)) = figures.iter().find(|(_, values)| values.is_empty()) {
            return Err(FakeError::Empty { arm: label.to_owned(), metric: metric.clone() });
        }
        let mut census = Census::default();
        for (leaf, bytes) in &wire.mapped {
            let leaf: PageSize = leaf.parse()?;
            census.add(Mapping { backing: Backing::Anonymous, leaf, folio: Folio::Whole(leaf) }, parse_bytes(bytes)?);
        }
        let concerned_bytes = census.concerned_bytes();
        let named: u64 = wire.causes.iter().filter_map(|share| share.bytes).sum();
        let verdict = Verdict {
            holding: wire.holding,
            concerned_bytes,
            covered_bytes: concerned_bytes.saturating_sub(named),
            peak: None,
            causes: wire.causes,
            answered: Vec::new(),
        };
        Ok(FakeArm {
            figures,
            exit: wire.exit,
            census,
            verdict,
            unsupported: wire.unsupported,
            too_slow: wire.too_slow,
            fails: wire.fails,
            trials: 0,
        })
    }

    /// The observations and the exit of the next trial.
    fn next(&mut self) -> (Vec<Observation>, Exit) {
        let at = self.trials;
        self.trials += 1;
        let figure = |(metric, values): (&String, &Vec<f64>)| Observation {
            metric: metric.clone(),
            value: values[at % values.len()],
            provenance: Provenance::Modelled,
        };
        let exit = self.exit.iter().cycle().nth(at).copied().unwrap_or(0);
        (self.figures.iter().map(figure).collect(), Exit::Code(exit))
    }
}

impl Platform for Fake {
    type Error = FakeError;

    fn admit(&mut self, arm: &Arm) -> Admission {
        match self.arm(arm) {
            Ok(FakeArm { unsupported: Some(why), .. }) => Admission::Unsupported(why.clone()),
            Ok(_) => Admission::Admitted { mechanism: NAME.to_owned() },
            Err(error) => Admission::Unsupported(Unsupported {
                reason: error.to_string(),
                remedy: "write it into the file".into(),
            }),
        }
    }

    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, FakeError> {
        let (started_s, state) = (self.clock_s, self.state.clone());
        let fake = self.arm(arm)?;
        if let Some(why) = &fake.fails {
            return Err(FakeError::Fails(why.clone()));
        }
        let (observations, exit) = fake.next();
        let record = TrialRecord {
            trial,
            started_s,
            observations,
            census: fake.census.clone(),
            verdict: fake.verdict.clone(),
            answer: Answer { exit, stdout_sha256: None, too_slow: fake.too_slow, stated: Stated::Nothing },
            state_before: state.clone(),
            state_after: state,
            rejected: Vec::new(),
        };
        self.clock_s += record.value(names::WALL_S).unwrap_or_default();
        Ok(record)
    }

    fn elapsed_s(&self) -> f64 {
        self.clock_s
    }

    fn interrupted(&self) -> bool {
        signals::arrived().is_some()
    }
}

impl Trials for Fake {
    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn heat(&mut self, _arm: &Arm, _windows: Windows) -> Result<Heat, String> {
        Err("a fake platform accesses nothing".into())
    }

    fn last_words(&self) -> &str {
        ""
    }

    fn blame(&self) -> Blame {
        Blame::Command
    }
}
