//! Definition of a study: the question, and everything that is run to answer it.
//!
//! A file ([`Wire`], parsed by the program) becomes a [`Definition`] of one size ([`Wire::of_size`]): axes are multiplied out,
//! parameters filled in, and the workloads of suites ([`WireSuite`]) added. The caller checks whether the policies and machines
//! exist.

mod boot;
mod counted;
mod error;
mod extent;
mod form;
mod input;
mod listed;
mod names;
mod omitted;
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
use extent::{Extent, TextBudget, rows};
use names::{Names, distinct};
use policy::Policy;
use wire::{WireSize, WireUse, WireVariant};
use workload::{Shared, expanded, inputs};

/// The name of the machine that runs pagelab.
pub const HOST: &str = "host";

/// How much of a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// A short run of minutes, which shows that everything can be run.
    Quick,
    /// Enough to decide or bound the answer on two processors with 16 GB.
    #[default]
    Standard,
    /// For large machines: the sizes of the publication that the study repeats (its origin).
    Full,
}

impl Size {
    /// All sizes, the smallest first.
    pub const ALL: [Size; 3] = [Size::Quick, Size::Standard, Size::Full];

    /// Its key in the file.
    pub fn name(self) -> &'static str {
        match self {
            Size::Quick => "quick",
            Size::Standard => "standard",
            Size::Full => "full",
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
    /// Memory sizes of small machines, ascending. The results of model machines name the sizes into which a workload fits.
    pub memory_sizes_bytes: Vec<u64>,
    /// Published figures to compare with.
    pub published: Vec<Published>,
    /// The form of the origin's table, if that is not one row per workload.
    pub form: Option<Form>,
    /// Work that is counted and weighted, in addition to what is run.
    pub counted: Option<Counted>,
    /// Series of sizes; the workloads that measure them are in `workloads`.
    pub series: Vec<Series>,
    /// The fragmentation of free memory during measurements, in the syntax of `compare --fragmented`.
    pub fragmented: Option<String>,
    /// Whether every run gets its own session, as with `compare --own-session`.
    pub own_session: bool,
    /// Whether effects are split into reach and placement, as with `compare --explain`.
    pub explain: bool,
    /// The boots to be measured, by their requirements.
    pub boots: Vec<Boot>,
    /// Resources requested from Slurm.
    pub slurm: Slurm,
}

impl Definition {
    /// Whether the study compares memory sizes of one host, that is, whether its boots specify several sizes.
    pub fn compares_memory(&self) -> bool {
        self.boots.iter().filter_map(Boot::required_memory_bytes).collect::<BTreeSet<u64>>().len() > 1
    }

    /// Whether a workload measures a series. Its figures are then shown with the series, and not in the matrix.
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
    pub fn of_size(&self, size: Size) -> Result<Definition, DefinitionError> {
        self.with_suites(size, &[])
    }

    /// The study in one size, with the given suites.
    pub fn with_suites(&self, size: Size, suites: &[WireSuite]) -> Result<Definition, DefinitionError> {
        if self.schema != SCHEMA {
            return Err(DefinitionError::Schema { found: self.schema.clone() });
        }
        let is_plain = |name: char| name.is_ascii_alphanumeric() || name == '-' || name == '_';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(DefinitionError::Name { found: self.name.clone() });
        }
        let wire_size = self.wire_size(size)?;
        let machines = if self.machines.is_empty() { vec![HOST.to_owned()] } else { self.machines.clone() };
        let used = self.used(suites)?;
        let variants = variant::study_variants(self)?;
        self.extent(wire_size, &machines, &used, variants.len())?.check()?;
        let (series, of_series) = self.series(wire_size)?;
        let all = [self.workloads(size, wire_size, &used, &variants)?, of_series].concat();
        let workloads = omitted::remaining(&all, &wire_size.without)?;
        let has_variants = workloads.iter().any(|workload| !workload.variants.is_empty());
        if has_variants {
            at_least("policies", "one or more", 1, self.policies.len())?
        } else {
            at_least("policies", "two or more", 2, self.policies.len())?
        }
        at_least("workload", "one or more", 1, workloads.len())?;
        distinct("policies", self.policies.iter())?;
        check_policies(&self.policies)?;
        distinct("machines", machines.iter())?;
        distinct("workload", all.iter().map(|workload| &workload.name))?;
        let baseline = self.baseline.clone().unwrap_or_else(|| self.policies[0].clone());
        self.policies.iter().collect::<Names<'_>>().check("baseline", &baseline)?;
        let primary = self.primary.clone().unwrap_or_else(|| "wall".to_owned());
        let primary_of = |workload: &Workload| workload.primary.clone().unwrap_or_else(|| primary.clone());
        workloads.iter().try_for_each(|workload| workload.check_metric(&primary_of(workload)))?;
        let boots = self.boots.iter().map(|(name, boot)| Boot::of(name, boot)).collect::<Result<Vec<_>, _>>()?;
        check_guests_or_host(&boots)?;
        boot::check_single_baseline(&boots)?;
        check_memory_sizes(&boots)?;
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
            stopping: Stopping::of(wire_size),
            memory_sizes_bytes: wire_size.memory_sizes.clone(),
            published: self.published(&all, &workloads)?,
            form: self.form.as_ref().map(|form| Form::of(form, &all, &workloads, &self.policies)).transpose()?,
            counted: self.counted(wire_size)?,
            series,
            workloads,
            fragmented: variant::common_fragmentation(self),
            own_session: self.own_session,
            explain: self.explain,
            boots,
            slurm: Slurm::of(&self.slurm)?,
        })
    }

    fn wire_size(&self, size: Size) -> Result<&WireSize, DefinitionError> {
        self.sizes.get(size.name()).ok_or_else(|| DefinitionError::no_size(size, self.sizes.keys()))
    }

    /// The suites that the study names, with its selection from each.
    fn used<'a>(&'a self, suites: &'a [WireSuite]) -> Result<Vec<(&'a WireUse, &'a WireSuite)>, DefinitionError> {
        distinct("suite.name", self.suite.iter().map(|used| &used.name))?;
        let names: Names<'_> = suites.iter().map(|suite| &suite.name).collect();
        self.suite.iter().try_for_each(|used| names.check("suite.name", &used.name))?;
        let suite = |used: &WireUse| suites.iter().find(|suite| suite.name == used.name);
        Ok(self.suite.iter().filter_map(|used| Some((used, suite(used)?))).collect())
    }

    /// The total number of trials.
    fn extent(
        &self,
        wire_size: &WireSize,
        machines: &[String],
        used: &[(&WireUse, &WireSuite)],
        variants: usize,
    ) -> Result<Extent, DefinitionError> {
        let of_suites = used.iter().map(|(used, suite)| {
            let chosen = suite.chosen(used).map_err(|error| error.in_suite(suite.name()))?;
            Ok(rows(chosen, variants))
        });
        let all = of_suites
            .collect::<Result<Vec<u128>, DefinitionError>>()?
            .into_iter()
            .fold(rows(&self.workload, variants), u128::saturating_add);
        Ok(Extent::new(all, self.policies.len(), machines, wire_size, self.boots.len()))
    }

    /// Workloads of the suites, in the order in which the suites are named, and those of the file itself.
    fn workloads(
        &self,
        size: Size,
        wire_size: &WireSize,
        used: &[(&WireUse, &WireSuite)],
        variants: &BTreeMap<String, WireVariant>,
    ) -> Result<Vec<Workload>, DefinitionError> {
        let values = wire_size.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let budget = TextBudget::new();
        let of_suites = used.iter().map(|(used, suite)| suite.of_study(size, &values, used, variants, &budget));
        let inputs = inputs(&self.input, &values)?;
        let shared = Shared { values: &values, inputs: &inputs, variants, budget: &budget };
        let own = self.workload.iter().map(|workload| expanded(workload, &shared));
        Ok(of_suites.chain(own).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The published figures. `all` are the workloads of every size; figures for workloads that this size leaves out are dropped.
    fn published(&self, all: &[Workload], workloads: &[Workload]) -> Result<Vec<Published>, DefinitionError> {
        let [known, run] = [all, workloads].map(|workloads| workloads.iter().flat_map(Workload::all_names).collect());
        let (known, run): (Vec<String>, BTreeSet<String>) = (known, Vec::into_iter(run).collect());
        let names: Names<'_> = known.iter().collect();
        let suites: Names<'_> = self.suite.iter().map(|used| &used.name).collect();
        let policies: Names<'_> = self.policies.iter().collect();
        let variants = all.iter().flat_map(|workload| &workload.variants).map(|variant| &variant.name);
        let variants: Names<'_> = variants.collect();
        let boots: Names<'_> = self.boots.keys().collect();
        let measured = self.published.iter().filter(|one| one.counted.is_none());
        let published = measured.map(|one| {
            one.workload.iter().try_for_each(|name| names.check("published.workload", name))?;
            one.suite.iter().try_for_each(|name| suites.check("published.suite", name))?;
            one.policy.iter().try_for_each(|name| policies.check("published.policy", name))?;
            one.boot.iter().try_for_each(|name| boots.check("published.boot", name))?;
            one.variant.iter().try_for_each(|name| variants.check("published.variant", name))?;
            Published::of(one, all)
        });
        let mut published = published.collect::<Result<Vec<Published>, _>>()?;
        published.retain(|one| one.workload.as_ref().is_none_or(|name| run.contains(name)));
        Ok(published)
    }
}

impl Wire {
    fn series(&self, wire_size: &WireSize) -> Result<(Vec<Series>, Vec<Workload>), DefinitionError> {
        let values = wire_size.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        distinct("series", self.series.iter().map(|series| &series.name))?;
        let read: Vec<(Series, Workload)> =
            self.series.iter().map(|series| series.to_series(&values)).collect::<Result<_, _>>()?;
        Ok(read.into_iter().unzip())
    }

    fn counted(&self, wire_size: &WireSize) -> Result<Option<Counted>, DefinitionError> {
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
        for one in counted.kernels.iter().flat_map(|kernels| &kernels.changes) {
            variants.check("counted.kernels.changes.variant", &one.variant)?;
            published::ratio("counted.kernels.changes.change", &one.change)?;
        }
        let figures = figures.map(|(one, saving)| {
            variants.check("published.counted.variant", &saving.variant)?;
            published::figure(one, saving)
        });
        let figures = figures.collect::<Result<_, _>>()?;
        let values = wire_size.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let bytes = placeholder::filled(&counted.bytes, &values).map_err(DefinitionError::CountedPlaceholder)?;
        Ok(Some(counted.read(&bytes, figures)?))
    }
}

impl Stopping {
    fn of(wire_size: &WireSize) -> Stopping {
        let WireSize { blocks, min_blocks, boots, precision, max_time, trial_time, recorded, .. } = wire_size.clone();
        Stopping { blocks, min_blocks, boots, precision, max_time, trial_time, recorded }
    }
}

fn at_least(key: &'static str, expected: &'static str, min: usize, found: usize) -> Result<(), DefinitionError> {
    if found < min { Err(DefinitionError::Count { key, expected, found }) } else { Ok(()) }
}

/// Refuses two names of one policy, and policies of boots together with policies of programs. Names that are not policies
/// of a host are ignored.
fn check_policies(names: &[String]) -> Result<(), DefinitionError> {
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
fn check_guests_or_host(boots: &[Boot]) -> Result<(), DefinitionError> {
    let guest = boots.iter().find(|boot| boot.guest.is_some());
    match guest.zip(boots.iter().find(|boot| boot.guest.is_none())) {
        Some((guest, host)) => {
            Err(DefinitionError::GuestAndHost { guest: guest.name.clone(), host: host.name.clone() })
        }
        None => check_clocks(boots),
    }
}

/// Refuses a boot without a memory size if other boots have one, because it would pool measurements under different memory
/// sizes.
fn check_memory_sizes(boots: &[Boot]) -> Result<(), DefinitionError> {
    let has_size = |boot: &&Boot| boot.required_memory_bytes().is_some();
    let without = boots.iter().find(|boot| boot.guest.is_none() && !has_size(boot));
    match boots.iter().find(has_size).zip(without) {
        Some((boot, other)) => {
            Err(DefinitionError::MissingMemory { boot: boot.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}

/// Refuses guests whose clock counts instructions together with guests whose clock does not.
fn check_clocks(boots: &[Boot]) -> Result<(), DefinitionError> {
    let counts = |boot: &&Boot| boot.guest.as_ref().is_some_and(|guest| guest.icount);
    match boots.iter().find(counts).zip(boots.iter().find(|boot| !counts(boot))) {
        Some((counts, other)) => {
            Err(DefinitionError::GuestClocks { counts: counts.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}
