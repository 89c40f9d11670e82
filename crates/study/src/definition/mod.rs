//! What a study is: the question, and everything that is run to answer it, before any of it is run.
//!
//! A file ([`Wire`], read by the program) becomes a [`Definition`] of one size ([`Wire::of_size`]): axes are
//! multiplied out, parameters filled in, and the workloads of suites ([`WireSuite`]) among its own. Which policies and machines there are is not known here.

mod boot;
mod counted;
mod error;
mod form;
mod input;
mod placeholder;
mod published;
mod slurm;
mod suite;
pub mod variant;
mod wire;
mod workload;

use std::collections::BTreeSet;

pub use boot::{Boot, Guest};
pub use counted::CountedError;
pub use error::DefinitionError;
pub use form::{Form, FormRow};
pub use input::Input;
pub use placeholder::PlaceholderError;
pub use published::{Measure, Published, Suite};
pub use slurm::Slurm;
pub use variant::Variant;
pub use wire::{SCHEMA, SUITE_SCHEMA, Wire, WireSuite};
pub use workload::Workload;

use crate::counted::Counted;
use policy::Policy;
use wire::WireSize;
use workload::{inputs, multiplied};

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
    /// Sizes of the memory of small machines, rising: into which of them a workload fits is told of models.
    pub memory_sizes_bytes: Vec<u64>,
    /// What others have published.
    pub published: Vec<Published>,
    /// The origin's own form, where it is another one than a row for each workload.
    pub form: Option<Form>,
    /// What is counted and weighed, beside what is run.
    pub counted: Option<Counted>,
    /// How free memory is fragmented while anything is measured, as `compare --fragmented` takes it.
    pub fragmented: Option<String>,
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
    /// Boots of each guest.
    pub boots: Option<u32>,
    /// Half width of an interval.
    pub precision: Option<String>,
    /// The longest time of a workload.
    pub max_time: Option<String>,
    /// The longest time of a trial.
    pub trial_time: Option<String>,
    /// Instructions of each thread that are recorded for model machines.
    pub recorded: Option<u64>,
}

impl Wire {
    /// The names of the suites that it has workloads of.
    pub fn suites(&self) -> impl Iterator<Item = &str> {
        self.suite.iter().map(|used| used.name.as_str())
    }

    /// The study of one size, which names no suite.
    ///
    /// # Errors
    /// As [`Wire::with_suites`].
    pub fn of_size(&self, size: Size) -> Result<Definition, DefinitionError> {
        self.with_suites(size, &[])
    }

    /// The study of one size, and of the suites that it names.
    ///
    /// # Errors
    /// Whatever is wrong with it first.
    pub fn with_suites(&self, size: Size, suites: &[WireSuite]) -> Result<Definition, DefinitionError> {
        if self.schema != SCHEMA {
            return Err(DefinitionError::Schema { found: self.schema.clone() });
        }
        let is_plain = |name: char| name.is_ascii_alphanumeric() || name == '-' || name == '_';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(DefinitionError::Name { found: self.name.clone() });
        }
        let amount = self.amount(size)?;
        let workloads = self.workloads(size, amount, suites)?;
        let machines = if self.machines.is_empty() { vec![HOST.to_owned()] } else { self.machines.clone() };
        let has_variants = workloads.iter().any(|workload| !workload.variants.is_empty());
        match has_variants {
            true => at_least("policies", "one or more", 1, self.policies.len())?,
            false => at_least("policies", "two or more", 2, self.policies.len())?,
        }
        at_least("workload", "one or more", 1, workloads.len())?;
        distinct("policies", self.policies.iter())?;
        in_harmony(&self.policies)?;
        distinct("machines", machines.iter())?;
        distinct("workload", workloads.iter().map(|workload| &workload.name))?;
        let baseline = self.baseline.clone().unwrap_or_else(|| self.policies[0].clone());
        one_of("baseline", &baseline, &self.policies)?;
        let primary = self.primary.clone().unwrap_or_else(|| "wall".to_owned());
        let decides = |workload: &Workload| workload.primary.clone().unwrap_or_else(|| primary.clone());
        workloads.iter().try_for_each(|workload| workload.has_metric(&decides(workload)))?;
        let boots = self.boots.iter().map(|(name, boot)| Boot::of(name, boot)).collect::<Result<Vec<_>, _>>()?;
        of_one_kind(&boots)?;
        of_one_baseline(&boots)?;
        Ok(Definition {
            name: self.name.clone(),
            question: self.question.clone(),
            size,
            policies: self.policies.clone(),
            baseline,
            machines,
            primary,
            model_primary: self.model_primary.clone().unwrap_or_else(|| "walks".to_owned()),
            band: self.band.clone(),
            seed: self.seed,
            stopping: Stopping::of(amount),
            memory_sizes_bytes: amount.memory_sizes.clone(),
            published: self.published(&workloads)?,
            form: self.form.as_ref().map(|form| Form::of(form, &workloads, &self.policies)).transpose()?,
            counted: self.counted(amount)?,
            workloads,
            fragmented: variant::of_all(self),
            boots,
            slurm: Slurm::of(&self.slurm)?,
        })
    }

    fn amount(&self, size: Size) -> Result<&WireSize, DefinitionError> {
        self.sizes.get(size.name()).ok_or_else(|| DefinitionError::no_size(size, self.sizes.keys()))
    }

    /// Workloads of the suites, in the order in which they are named, and those of the file itself.
    fn workloads(&self, size: Size, amount: &WireSize, suites: &[WireSuite]) -> Result<Vec<Workload>, DefinitionError> {
        let values = amount.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let names: Vec<String> = suites.iter().map(|suite| suite.name().to_owned()).collect();
        let variants = variant::of_study(self)?;
        let of_suites = self.suite.iter().map(|used| {
            one_of("suite.name", &used.name, &names)?;
            let suite = suites.iter().filter(|suite| suite.name() == used.name);
            Ok(suite
                .map(|suite| suite.of_study(size, &values, used, &variants))
                .collect::<Result<Vec<_>, _>>()?
                .concat())
        });
        let inputs = inputs(&self.input, &values)?;
        let own = self.workload.iter().map(|workload| multiplied(workload, &values, &inputs, &variants));
        Ok(of_suites.chain(own).collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn published(&self, workloads: &[Workload]) -> Result<Vec<Published>, DefinitionError> {
        let rows = workloads.iter().flat_map(Workload::row_names);
        let names: Vec<String> = workloads.iter().map(|workload| workload.name.clone()).chain(rows).collect();
        let suites: Vec<String> = self.suites().map(str::to_owned).collect();
        let variants = workloads.iter().flat_map(|workload| &workload.variants).map(|variant| variant.name.clone());
        let variants: Vec<String> = variants.collect();
        let boots: Vec<String> = self.boots.keys().cloned().collect();
        let published = self.published.iter().filter(|one| one.counted.is_none()).map(|one| {
            one.workload.iter().try_for_each(|name| one_of("published.workload", name, &names))?;
            one.suite.iter().try_for_each(|name| one_of("published.suite", name, &suites))?;
            one.policy.iter().try_for_each(|name| one_of("published.policy", name, &self.policies))?;
            one.boot.iter().try_for_each(|name| one_of("published.boot", name, &boots))?;
            one.variant.iter().try_for_each(|name| one_of("published.variant", name, &variants))?;
            Published::of(one, workloads)
        });
        published.collect()
    }
}

impl Wire {
    fn counted(&self, amount: &WireSize) -> Result<Option<Counted>, DefinitionError> {
        let figures = self.published.iter().filter_map(|one| Some((one, one.counted.as_ref()?)));
        let Some(counted) = &self.counted else {
            let nothing = |what: &String| CountedError::NothingCounted { what: what.clone() };
            return figures.map(|(one, _)| Err(nothing(&one.what).into())).next().unwrap_or(Ok(None));
        };
        distinct("counted.granules", counted.granules.iter())?;
        distinct("counted.variants", counted.variants.iter())?;
        distinct("counted.cost", counted.events())?;
        at_least("counted.granules", "one or more", 1, counted.granules.len())?;
        at_least("counted.variants", "two or more", 2, counted.variants.len())?;
        let figures = figures.map(|(one, saving)| {
            one_of("published.counted.variant", &saving.variant, &counted.variants)?;
            published::figure(one, saving)
        });
        let figures = figures.collect::<Result<_, _>>()?;
        let values = amount.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let bytes = placeholder::filled(&counted.bytes, &values).map_err(DefinitionError::CountedPlaceholder)?;
        Ok(Some(counted.read(&bytes, figures)?))
    }
}

impl Stopping {
    fn of(amount: &WireSize) -> Stopping {
        let WireSize { blocks, min_blocks, boots, precision, max_time, trial_time, recorded, .. } = amount.clone();
        Stopping { blocks, min_blocks, boots, precision, max_time, trial_time, recorded }
    }
}

fn at_least(key: &'static str, expected: &'static str, least: usize, found: usize) -> Result<(), DefinitionError> {
    if found < least { Err(DefinitionError::Count { key, expected, found }) } else { Ok(()) }
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

/// Refuses two names of one policy, and policies of boots beside those of programs. What is no policy of a host is not looked at.
fn in_harmony(names: &[String]) -> Result<(), DefinitionError> {
    let known: Vec<(&String, Policy)> =
        names.iter().filter_map(|name| name.parse().ok().map(|policy| (name, policy))).collect();
    for (at, (one, policy)) in known.iter().enumerate() {
        if let Some((other, _)) = known[at + 1..].iter().find(|(_, other)| other == policy) {
            return Err(DefinitionError::SamePolicy { one: (*one).clone(), other: (*other).clone() });
        }
    }
    let is_of_boot = |(_, policy): &&(&String, Policy)| policy.direct_map().is_some();
    match (known.iter().find(is_of_boot), known.iter().find(|one| !is_of_boot(one))) {
        (Some((boot, _)), Some((program, _))) => {
            Err(DefinitionError::BootAndProgram { boot: (*boot).clone(), program: (*program).clone() })
        }
        _ => Ok(()),
    }
}

/// Refuses boots of the host beside guests.
fn of_one_kind(boots: &[Boot]) -> Result<(), DefinitionError> {
    let guest = boots.iter().find(|boot| boot.guest.is_some());
    match guest.zip(boots.iter().find(|boot| boot.guest.is_none())) {
        Some((guest, host)) => {
            Err(DefinitionError::GuestAndHost { guest: guest.name.clone(), host: host.name.clone() })
        }
        None => of_one_clock(boots),
    }
}

/// Refuses two boots that the others are compared with.
fn of_one_baseline(boots: &[Boot]) -> Result<(), DefinitionError> {
    let mut all = boots.iter().filter(|boot| boot.is_baseline);
    match all.next().zip(all.next()) {
        Some((one, other)) => Err(DefinitionError::Baselines { one: one.name.clone(), other: other.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses guests whose clock counts instructions beside others.
fn of_one_clock(boots: &[Boot]) -> Result<(), DefinitionError> {
    let counts = |boot: &&Boot| boot.guest.as_ref().is_some_and(|guest| guest.icount);
    match boots.iter().find(counts).zip(boots.iter().find(|boot| !counts(boot))) {
        Some((counts, other)) => {
            Err(DefinitionError::GuestClocks { counts: counts.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}

fn one_of(key: &str, name: &str, known: &[String]) -> Result<(), DefinitionError> {
    match known.iter().any(|known| known == name) {
        true => Ok(()),
        false => Err(DefinitionError::Unknown { key: key.to_owned(), name: name.to_owned(), known: known.join(", ") }),
    }
}
