//! Definition of a study: the question, and everything that is run to answer it.
//!
//! A file ([`Wire`], parsed by the program) becomes a [`Definition`] of one size ([`Wire::of_size`]): axes are
//! multiplied out, parameters filled in, and the workloads of suites ([`WireSuite`]) added. The existing policies and
//! machines are not known here.

mod boot;
mod counted;
mod error;
mod extent;
mod form;
mod input;
mod listed;
mod names;
mod placeholder;
mod published;
mod series;
mod slurm;
mod suite;
pub mod variant;
mod wire;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

pub use boot::{Boot, Guest};
pub use counted::CountedError;
pub use error::DefinitionError;
pub use extent::MAX_TRIALS;
pub use form::{Form, FormRow};
pub use input::Input;
pub use placeholder::PlaceholderError;
pub use published::{Measure, Published, Suite};
pub use slurm::Slurm;
pub use variant::Variant;
pub use wire::{SCHEMA, SUITE_SCHEMA, Wire, WireSuite};
pub use workload::Workload;

use crate::counted::Counted;
use crate::series::Series;
use extent::{Extent, Room, rows};
use names::{Names, distinct};
use policy::Policy;
use wire::{WireSize, WireUse, WireVariant};
use workload::{Shared, inputs, multiplied};

/// The name of the machine that runs pagelab.
pub const HOST: &str = "host";

/// How much of a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As much as is needed to answer the question.
    #[default]
    Full,
    /// A short run of minutes, which shows that everything can be run.
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
    /// The name of the study, a valid file name.
    pub name: String,
    /// The question that the study answers.
    pub question: String,
    /// The size of this definition.
    pub size: Size,
    /// Distinct names of the policies.
    pub policies: Vec<String>,
    /// The policy with which the others are compared.
    pub baseline: String,
    /// Distinct names of the machines; [`HOST`] is the one that runs pagelab.
    pub machines: Vec<String>,
    /// The workloads that are run.
    pub workloads: Vec<Workload>,
    /// The primary metric on measured machines, in the syntax of `compare --primary`.
    pub primary: String,
    /// The simulated figure that replaces the primary metric on model machines.
    pub model_primary: String,
    /// Changes that do not matter, in the syntax of `compare --band`.
    pub band: Option<String>,
    /// Seed of all random orders.
    pub seed: Option<u64>,
    /// When the trials of a workload end.
    pub stopping: Stopping,
    /// Memory sizes of small machines, ascending; for models it is reported into which of them a workload fits.
    pub memory_sizes_bytes: Vec<u64>,
    /// Published figures to compare with.
    pub published: Vec<Published>,
    /// The origin's own form, if it differs from one row per workload.
    pub form: Option<Form>,
    /// Work that is counted and weighted, in addition to what is run.
    pub counted: Option<Counted>,
    /// Series of sizes; the workloads that measure them are in `workloads`.
    pub series: Vec<Series>,
    /// How free memory is fragmented during measurements, in the syntax of `compare --fragmented`.
    pub fragmented: Option<String>,
    /// Requirements of the boots of the host to be measured.
    pub boots: Vec<Boot>,
    /// Resources requested from Slurm.
    pub slurm: Slurm,
}

impl Definition {
    /// Whether boots of one host with different memory sizes are compared, that is, whether its boots specify several sizes.
    pub fn compares_memory(&self) -> bool {
        let said: BTreeSet<u64> = self.boots.iter().filter_map(Boot::says_memory_bytes).collect();
        said.len() > 1
    }

    /// Whether a workload measures a series: its figures are shown there, and not in the matrix.
    pub fn is_of_series(&self, workload: &Workload) -> bool {
        self.series.iter().any(|series| series.name == workload.name)
    }
}

/// When the trials of a workload end, in the syntax of the options of `compare`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// Maximum number of counted blocks.
    pub blocks: Option<u32>,
    /// Minimum number of counted blocks.
    pub min_blocks: Option<u32>,
    /// Boots of each guest.
    pub boots: Option<u32>,
    /// Half width of an interval at which to stop.
    pub precision: Option<String>,
    /// Time limit of a workload.
    pub max_time: Option<String>,
    /// Time limit of a trial.
    pub trial_time: Option<String>,
    /// Instructions of each thread to record for model machines.
    pub recorded: Option<u64>,
}

impl Wire {
    /// Distinct names of the suites from which the study takes workloads.
    pub fn suites(&self) -> impl Iterator<Item = &str> {
        self.suite.iter().map(|used| used.name.as_str()).collect::<BTreeSet<&str>>().into_iter()
    }

    /// The study in one size; for a study that uses no suite.
    ///
    /// # Errors
    /// See [`Wire::with_suites`].
    pub fn of_size(&self, size: Size) -> Result<Definition, DefinitionError> {
        self.with_suites(size, &[])
    }

    /// The study in one size, with the given suites.
    ///
    /// # Errors
    /// The first error in the study or in a suite.
    pub fn with_suites(&self, size: Size, suites: &[WireSuite]) -> Result<Definition, DefinitionError> {
        if self.schema != SCHEMA {
            return Err(DefinitionError::Schema { found: self.schema.clone() });
        }
        let is_plain = |name: char| name.is_ascii_alphanumeric() || name == '-' || name == '_';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(DefinitionError::Name { found: self.name.clone() });
        }
        let amount = self.amount(size)?;
        let machines = if self.machines.is_empty() { vec![HOST.to_owned()] } else { self.machines.clone() };
        let used = self.used(suites)?;
        let variants = variant::of_study(self)?;
        self.extent(size, amount, &machines, &used, variants.len())?.check()?;
        let (series, of_series) = self.series(amount)?;
        let workloads = [self.workloads(size, amount, &used, &variants)?, of_series].concat();
        let has_variants = workloads.iter().any(|workload| !workload.variants.is_empty());
        if has_variants {
            at_least("policies", "one or more", 1, self.policies.len())?
        } else {
            at_least("policies", "two or more", 2, self.policies.len())?
        }
        at_least("workload", "one or more", 1, workloads.len())?;
        distinct("policies", self.policies.iter())?;
        in_harmony(&self.policies)?;
        distinct("machines", machines.iter())?;
        distinct("workload", workloads.iter().map(|workload| &workload.name))?;
        let baseline = self.baseline.clone().unwrap_or_else(|| self.policies[0].clone());
        self.policies.iter().collect::<Names<'_>>().check("baseline", &baseline)?;
        let primary = self.primary.clone().unwrap_or_else(|| "wall".to_owned());
        let decides = |workload: &Workload| workload.primary.clone().unwrap_or_else(|| primary.clone());
        workloads.iter().try_for_each(|workload| workload.has_metric(&decides(workload)))?;
        let boots = self.boots.iter().map(|(name, boot)| Boot::of(name, boot)).collect::<Result<Vec<_>, _>>()?;
        of_one_kind(&boots)?;
        of_one_baseline(&boots)?;
        of_all_memory(&boots)?;
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
            series,
            workloads,
            fragmented: variant::of_all(self),
            boots,
            slurm: Slurm::of(&self.slurm)?,
        })
    }

    fn amount(&self, size: Size) -> Result<&WireSize, DefinitionError> {
        self.sizes.get(size.name()).ok_or_else(|| DefinitionError::no_size(size, self.sizes.keys()))
    }

    /// The suites that the study names, with its selection from each.
    fn used<'a>(&'a self, suites: &'a [WireSuite]) -> Result<Vec<(&'a WireUse, &'a WireSuite)>, DefinitionError> {
        distinct("suite.name", self.suite.iter().map(|used| &used.name))?;
        let names: Names<'_> = suites.iter().map(|suite| &suite.name).collect();
        self.suite.iter().try_for_each(|used| names.check("suite.name", &used.name))?;
        let suite = |used| suites.iter().find(|suite| suite.name == used);
        Ok(self.suite.iter().filter_map(|used| Some((used, suite(used.name.as_str())?))).collect())
    }

    /// The number of trials to which everything multiplies out.
    fn extent(
        &self,
        size: Size,
        amount: &WireSize,
        machines: &[String],
        used: &[(&WireUse, &WireSuite)],
        variants: usize,
    ) -> Result<Extent, DefinitionError> {
        let of_suites = used.iter().map(|(used, suite)| {
            let chosen = suite.chosen(size, used).map_err(|error| error.in_suite(suite.name()))?;
            Ok(rows(chosen, variants))
        });
        let of_suites = of_suites.collect::<Result<Vec<u128>, DefinitionError>>()?;
        let all = of_suites.into_iter().fold(rows(&self.workload, variants), u128::saturating_add);
        Ok(Extent::new(all, self.policies.len(), machines, amount, self.boots.len()))
    }

    /// Workloads of the suites, in the order in which the suites are named, and those of the file itself.
    fn workloads(
        &self,
        size: Size,
        amount: &WireSize,
        used: &[(&WireUse, &WireSuite)],
        variants: &BTreeMap<String, WireVariant>,
    ) -> Result<Vec<Workload>, DefinitionError> {
        let values = amount.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let room = Room::new();
        let of_suites = used.iter().map(|(used, suite)| suite.of_study(size, &values, used, variants, &room));
        let inputs = inputs(&self.input, &values)?;
        let shared = Shared { values: &values, inputs: &inputs, variants, room: &room };
        let own = self.workload.iter().map(|workload| multiplied(workload, &shared));
        Ok(of_suites.chain(own).collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn published(&self, workloads: &[Workload]) -> Result<Vec<Published>, DefinitionError> {
        let rows = workloads.iter().flat_map(Workload::row_names);
        let names: Vec<String> = workloads.iter().map(|workload| workload.name.clone()).chain(rows).collect();
        let names: Names<'_> = names.iter().collect();
        let suites: Names<'_> = self.suite.iter().map(|used| &used.name).collect();
        let policies: Names<'_> = self.policies.iter().collect();
        let variants = workloads.iter().flat_map(|workload| &workload.variants).map(|variant| &variant.name);
        let variants: Names<'_> = variants.collect();
        let boots: Names<'_> = self.boots.keys().collect();
        let published = self.published.iter().filter(|one| one.counted.is_none()).map(|one| {
            one.workload.iter().try_for_each(|name| names.check("published.workload", name))?;
            one.suite.iter().try_for_each(|name| suites.check("published.suite", name))?;
            one.policy.iter().try_for_each(|name| policies.check("published.policy", name))?;
            one.boot.iter().try_for_each(|name| boots.check("published.boot", name))?;
            one.variant.iter().try_for_each(|name| variants.check("published.variant", name))?;
            Published::of(one, workloads)
        });
        published.collect()
    }
}

impl Wire {
    fn series(&self, amount: &WireSize) -> Result<(Vec<Series>, Vec<Workload>), DefinitionError> {
        let values = amount.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        distinct("series", self.series.iter().map(|series| &series.name))?;
        let read: Vec<(Series, Workload)> =
            self.series.iter().map(|series| series.read(&values)).collect::<Result<_, _>>()?;
        Ok(read.into_iter().unzip())
    }

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
        let variants: Names<'_> = counted.variants.iter().collect();
        let figures = figures.map(|(one, saving)| {
            variants.check("published.counted.variant", &saving.variant)?;
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

/// Refuses two names of one policy, and policies of boots together with policies of programs. Names that are no policy
/// of a host are ignored.
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

/// Refuses boots of the host together with guests.
fn of_one_kind(boots: &[Boot]) -> Result<(), DefinitionError> {
    let guest = boots.iter().find(|boot| boot.guest.is_some());
    match guest.zip(boots.iter().find(|boot| boot.guest.is_none())) {
        Some((guest, host)) => {
            Err(DefinitionError::GuestAndHost { guest: guest.name.clone(), host: host.name.clone() })
        }
        None => of_one_clock(boots),
    }
}

/// Refuses a boot without a memory size if others have one: its boots with different memory sizes would be pooled.
fn of_all_memory(boots: &[Boot]) -> Result<(), DefinitionError> {
    let says = |boot: &&Boot| boot.says_memory_bytes().is_some();
    let silent = boots.iter().find(|boot| boot.guest.is_none() && !says(boot));
    match boots.iter().find(says).zip(silent) {
        Some((boot, other)) => {
            Err(DefinitionError::MemoryOfSome { boot: boot.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}

/// Refuses two baseline boots.
fn of_one_baseline(boots: &[Boot]) -> Result<(), DefinitionError> {
    let mut all = boots.iter().filter(|boot| boot.is_baseline);
    match all.next().zip(all.next()) {
        Some((one, other)) => Err(DefinitionError::Baselines { one: one.name.clone(), other: other.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses guests whose clock counts instructions together with others.
fn of_one_clock(boots: &[Boot]) -> Result<(), DefinitionError> {
    let counts = |boot: &&Boot| boot.guest.as_ref().is_some_and(|guest| guest.icount);
    match boots.iter().find(counts).zip(boots.iter().find(|boot| !counts(boot))) {
        Some((counts, other)) => {
            Err(DefinitionError::GuestClocks { counts: counts.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}
