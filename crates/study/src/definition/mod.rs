//! What a study is: the question, and everything that is run to answer it, before any of it is run.
//!
//! A file ([`Wire`], read by the program) becomes a [`Definition`] of one size ([`Wire::of_size`]): axes are
//! multiplied out, parameters filled in. Which policies and machines there are is not known here.

mod boot;
mod placeholder;
mod published;
mod slurm;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

pub use boot::Boot;
pub use placeholder::PlaceholderError;
pub use published::{Measure, Published};
pub use slurm::Slurm;
pub use wire::{SCHEMA, Wire};

use placeholder::{choices, filled};
use policy::size::SizeError;
use wire::{Value, WireSize, WireWorkload};

/// The name of the machine that runs pagelab.
pub const HOST: &str = "host";

/// How much of a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// What answers the question.
    #[default]
    Full,
    /// What shows in minutes that all of it can be run.
    Quick,
}

impl Size {
    /// Its key in the file.
    pub fn name(self) -> &'static str {
        match self {
            Size::Full => "full",
            Size::Quick => "quick",
        }
    }
}

/// A study of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name, which is one for a file.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// Which size of it this is.
    pub size: Size,
    /// The policies by name, each once.
    pub policies: Vec<String>,
    /// The one that the others are compared with.
    pub baseline: String,
    /// The machines by name, each once; [`HOST`] is the one that runs pagelab.
    pub machines: Vec<String>,
    /// What is run.
    pub workloads: Vec<Workload>,
    /// The metric that answers the question where it is measured, as `compare --primary` takes it.
    pub primary: String,
    /// The figure of a simulation that stands for it.
    pub model_primary: String,
    /// What does not matter, as `compare --band` takes it.
    pub band: Option<String>,
    /// The seed of every order.
    pub seed: Option<u64>,
    /// When the trials of a workload end.
    pub stopping: Stopping,
    /// What others have published.
    pub published: Vec<Published>,
    /// What boots of the host must have been measured.
    pub boots: Vec<Boot>,
    /// What Slurm is asked for.
    pub slurm: Slurm,
}

/// When the trials of a workload end, in the words of `compare`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// Blocks that count, at most.
    pub blocks: Option<u32>,
    /// Blocks that count, at least.
    pub min_blocks: Option<u32>,
    /// Half width of an interval.
    pub precision: Option<String>,
    /// The longest time of a workload.
    pub max_time: Option<String>,
    /// The longest time of a trial.
    pub trial_time: Option<String>,
    /// Instructions of each thread that are recorded for model machines.
    pub recorded: Option<u64>,
}

/// What is run: one row of the matrix on each machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Its name with the values of its axes, unique in the study: `gups`, `gups threads=2`.
    pub name: String,
    /// The program of the origin that it stands for.
    pub stands_for: Option<String>,
    /// Why there is none: then it is a row that says so.
    pub missing: Option<String>,
    /// Where its program comes from.
    pub package: Option<String>,
    /// The command, or with a server the client. `pagelab` as its first word is this program.
    pub command: Vec<String>,
    /// What is recorded for model machines, where that is not the command.
    pub recorded: Option<Vec<String>>,
    /// Variables of the environment.
    pub env: BTreeMap<String, String>,
    /// A server's command line.
    pub server: Option<String>,
    /// Succeeds as soon as the server is ready.
    pub ready: Option<String>,
    /// Is run before every trial.
    pub prepare: Option<String>,
    /// Standard input.
    pub input: Option<String>,
    /// Figures that the command prints, as `compare --metric` takes them.
    pub metrics: Vec<String>,
    /// The metric that decides, where it is another one than the study's.
    pub primary: Option<String>,
    /// Whether its output must be the same under every policy.
    pub check_output: bool,
    /// Whether all memory is looked at before it goes.
    pub prove_all: bool,
    /// Memory for the hugetlb pool.
    pub hugetlb_pool: Option<String>,
    /// A trace of it, for model machines.
    pub trace: Option<String>,
}

/// A study that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// Another kind of file, or another version of it.
    #[error("schema: found {found:?}, expected {SCHEMA:?}")]
    Schema {
        /// What was found.
        found: String,
    },
    /// A name that cannot be that of a file.
    #[error("name: expected letters, digits, - and _, found {found:?}")]
    Name {
        /// What was found.
        found: String,
    },
    /// A size that the file does not have.
    #[error("there is no [sizes.{wanted}]; there are {known}")]
    Size {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// Nothing to run, or nothing to compare.
    #[error("{key}: expected {expected}, found {found}")]
    Count {
        /// Which list.
        key: &'static str,
        /// How many.
        expected: &'static str,
        /// What was found.
        found: usize,
    },
    /// A name that is there twice.
    #[error("{key}: {name:?} is there twice")]
    Twice {
        /// Which list.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// A name that is not in the list that it is from.
    #[error("{key}: there is no {name:?}; there are {known}")]
    Unknown {
        /// The key.
        key: String,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// A workload with nothing to run, and no reason for it.
    #[error("workload {name:?}: expected a command, a trace, or `missing` with the reason why there is neither")]
    Empty {
        /// The workload.
        name: String,
    },
    /// A word with a placeholder that has no value.
    #[error("workload {workload:?}: {error}")]
    Placeholder {
        /// The workload.
        workload: String,
        /// What is wrong.
        error: PlaceholderError,
    },
    /// A change that is none.
    #[error("published.change: expected a signed percentage such as -33.1% or +250%, found {found:?}")]
    Change {
        /// What was found.
        found: String,
    },
    /// A share of wins that is none.
    #[error(
        "published.wins: expected a percentage of workloads such as 45%, with a policy and no workload; found {found:?}"
    )]
    Wins {
        /// What was found.
        found: String,
    },
    /// A published figure with no figure, or with two.
    #[error("published {what:?}: expected `change` or `wins`")]
    Figure {
        /// What it says.
        what: String,
    },
    /// What is no word or no number for Slurm.
    #[error("slurm.{key}: expected {expected}, found {found:?}")]
    Slurm {
        /// The key.
        key: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A size that is none.
    #[error("boots.{boot}.base_page: {error}")]
    BasePage {
        /// The boot.
        boot: String,
        /// What is wrong.
        error: SizeError,
    },
}

impl Wire {
    /// The study of one size.
    ///
    /// # Errors
    /// Whatever is wrong with it first.
    pub fn of_size(&self, size: Size) -> Result<Definition, DefinitionError> {
        if self.schema != SCHEMA {
            return Err(DefinitionError::Schema { found: self.schema.clone() });
        }
        let is_plain = |name: char| name.is_ascii_alphanumeric() || name == '-' || name == '_';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(DefinitionError::Name { found: self.name.clone() });
        }
        let amount = self.amount(size)?;
        let workloads = self.workload.iter().map(|workload| multiplied(workload, amount));
        let workloads: Vec<Workload> = workloads.collect::<Result<Vec<_>, _>>()?.concat();
        let machines = if self.machines.is_empty() { vec![HOST.to_owned()] } else { self.machines.clone() };
        let count = |key, expected, found, is_right| match is_right {
            true => Ok(()),
            false => Err(DefinitionError::Count { key, expected, found }),
        };
        count("policies", "two or more", self.policies.len(), self.policies.len() > 1)?;
        count("workload", "one or more", workloads.len(), !workloads.is_empty())?;
        distinct("policies", self.policies.iter())?;
        distinct("machines", machines.iter())?;
        distinct("workload", workloads.iter().map(|workload| &workload.name))?;
        let baseline = self.baseline.clone().unwrap_or_else(|| self.policies[0].clone());
        one_of("baseline", &baseline, &self.policies)?;
        let boots = self.boots.iter().map(|(name, boot)| Boot::of(name, boot)).collect::<Result<_, _>>()?;
        Ok(Definition {
            name: self.name.clone(),
            question: self.question.clone(),
            size,
            policies: self.policies.clone(),
            baseline,
            machines,
            primary: self.primary.clone().unwrap_or_else(|| "wall".to_owned()),
            model_primary: self.model_primary.clone().unwrap_or_else(|| "walks".to_owned()),
            band: self.band.clone(),
            seed: self.seed,
            stopping: Stopping::of(amount),
            published: self.published(&workloads)?,
            workloads,
            boots,
            slurm: Slurm::of(&self.slurm)?,
        })
    }

    fn amount(&self, size: Size) -> Result<&WireSize, DefinitionError> {
        self.sizes.get(size.name()).ok_or_else(|| {
            let known: Vec<String> = self.sizes.keys().map(|name| format!("[sizes.{name}]")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            DefinitionError::Size { wanted: size.name().to_owned(), known }
        })
    }

    fn published(&self, workloads: &[Workload]) -> Result<Vec<Published>, DefinitionError> {
        let names: Vec<String> = workloads.iter().map(|workload| workload.name.clone()).collect();
        let boots: Vec<String> = self.boots.keys().cloned().collect();
        let published = self.published.iter().map(|one| {
            one.workload.iter().try_for_each(|name| one_of("published.workload", name, &names))?;
            one.policy.iter().try_for_each(|name| one_of("published.policy", name, &self.policies))?;
            one.boot.iter().try_for_each(|name| one_of("published.boot", name, &boots))?;
            Published::of(one)
        });
        published.collect()
    }
}

impl Stopping {
    fn of(amount: &WireSize) -> Stopping {
        let WireSize { blocks, min_blocks, precision, max_time, trial_time, recorded, .. } = amount.clone();
        Stopping { blocks, min_blocks, precision, max_time, trial_time, recorded }
    }
}

fn distinct<'a>(key: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), DefinitionError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(DefinitionError::Twice { key, name: name.clone() });
        }
    }
    Ok(())
}

fn one_of(key: &str, name: &str, known: &[String]) -> Result<(), DefinitionError> {
    match known.iter().any(|known| known == name) {
        true => Ok(()),
        false => Err(DefinitionError::Unknown { key: key.to_owned(), name: name.to_owned(), known: known.join(", ") }),
    }
}

/// A workload for every choice of values on its axes.
fn multiplied(wire: &WireWorkload, amount: &WireSize) -> Result<Vec<Workload>, DefinitionError> {
    if wire.command.is_empty() && wire.trace.is_none() && wire.missing.is_none() {
        return Err(DefinitionError::Empty { name: wire.name.clone() });
    }
    let text = |values: &Vec<Value>| values.iter().map(Value::to_string).collect();
    let axes = wire.axes.iter().map(|(name, values)| (name.clone(), text(values))).collect();
    choices(&axes).iter().map(|choice| of_choice(wire, choice, amount)).collect()
}

fn of_choice(
    wire: &WireWorkload,
    choice: &BTreeMap<String, String>,
    amount: &WireSize,
) -> Result<Workload, DefinitionError> {
    let parameters = amount.parameters.iter().map(|(name, value)| (name.clone(), value.to_string()));
    let values: BTreeMap<String, String> = parameters.chain(choice.clone()).collect();
    let wrong = |error| DefinitionError::Placeholder { workload: wire.name.clone(), error };
    let fill = |word: &String| filled(word, &values).map_err(wrong);
    let fill_if_there = |word: &Option<String>| word.as_ref().map(fill).transpose();
    let fill_all = |words: &Vec<String>| words.iter().map(fill).collect::<Result<Vec<String>, _>>();
    let axes = choice.iter().map(|(name, value)| format!(" {name}={value}"));
    let env = wire.env.iter().map(|(name, value)| Ok((name.clone(), fill(value)?)));
    Ok(Workload {
        name: wire.name.clone() + &axes.collect::<String>(),
        stands_for: wire.stands_for.clone(),
        missing: wire.missing.clone(),
        package: wire.package.clone(),
        command: fill_all(&wire.command)?,
        recorded: wire.recorded.as_ref().map(fill_all).transpose()?,
        env: env.collect::<Result<_, DefinitionError>>()?,
        server: fill_if_there(&wire.server)?,
        ready: fill_if_there(&wire.ready)?,
        prepare: fill_if_there(&wire.prepare)?,
        input: fill_if_there(&wire.input)?,
        metrics: wire.metrics.clone(),
        primary: wire.primary.clone(),
        check_output: wire.check_output,
        prove_all: wire.prove_all,
        hugetlb_pool: fill_if_there(&wire.hugetlb_pool)?,
        trace: fill_if_there(&wire.trace)?,
    })
}
