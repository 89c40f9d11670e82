//! The rows of a study on this host ([`HostRow`]): each workload, its stored comparisons, and whether it is done.

use std::collections::{BTreeMap, BTreeSet};

use host::Host;
use policy::machine::Machine;
use results::store::{OfStudy, Resumption, Store};
use study::comparison::{Comparison, Ended};
use study::metric::names;
use study::runner::Gap;
use study_files::definition::{Definition, HOST, Workload};
use study_files::matrix::RowSource;

use super::lacking::check_dependencies;
use super::lowered::{CompareArguments, compare_arguments, is_over_boots};
use super::programs::{FileHashes, HostSubject, Programs, rebuilt};
use super::{guest_boots, inputs};
use crate::compare::in_study;
use crate::compare::resumed::{Resumed, time_s};
use crate::failure::Failure;

/// A workload on the host.
pub struct HostRow<'a> {
    pub workload: &'a Workload,
    /// The arguments of `compare` that measure the workload, or why this host cannot.
    pub compare_arguments: Result<CompareArguments, String>,
    /// The stored comparisons of the workload on all hosts, oldest first.
    pub stored: Vec<Comparison>,
    /// The programs that each comparison ran, by the comparison's number.
    pub ran: BTreeMap<i64, Programs>,
    /// The programs that would run now and that this host has.
    pub programs: Programs,
    /// Whether no stored comparison is from this boot.
    pub is_new_boot: bool,
    /// The state of the workload on this host.
    pub progress: Progress,
}

/// The state of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The row cannot be run, for this reason.
    Refused(String),
    /// The row has not been run.
    Missing,
    /// An input could not be made at the last attempt, for this reason, so the row has not been run.
    Unmade(String),
    /// The comparison with this number measured another build of this program.
    Rebuilt { id: i64, program: String },
    /// The comparison with this number was interrupted after this number of trials.
    Interrupted { id: i64, trials: usize },
    /// The comparison with this number is complete.
    Done { id: i64 },
    /// The comparison with this number has no result, for this reason.
    Failed { id: i64, why: String },
}

impl Progress {
    /// Whether part of the row remains to be run.
    pub fn is_unfinished(&self) -> bool {
        match self {
            Progress::Missing | Progress::Unmade(_) | Progress::Rebuilt { .. } | Progress::Interrupted { .. } => true,
            Progress::Refused(_) | Progress::Done { .. } | Progress::Failed { .. } => false,
        }
    }

    /// Why a row has no figure. Used if no other text gives a reason.
    pub fn why(&self) -> String {
        match self {
            Progress::Refused(why) | Progress::Unmade(why) | Progress::Failed { why, .. } => why.clone(),
            Progress::Missing | Progress::Rebuilt { .. } | Progress::Interrupted { .. } | Progress::Done { .. } => {
                "it has not been run here".to_owned()
            }
        }
    }
}

/// Every workload on this host.
///
/// # Errors
/// The store or the host cannot be read, or `compare` rejects the arguments of a workload.
pub fn host_rows<'a>(definition: &'a Definition, store: Option<&Store>) -> Result<Vec<HostRow<'a>>, Failure> {
    if !definition.machines.iter().any(|machine| machine == HOST) {
        return Ok(Vec::new());
    }
    let machine = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?;
    let all: Vec<Result<CompareArguments, String>> =
        definition.workloads.iter().map(|workload| compare_arguments(definition, workload)).collect();
    let wanted: BTreeSet<Vec<String>> = all.iter().flatten().map(|one| identity(definition, &one.subject)).collect();
    let mut stored = by_arguments(definition, store, &wanted)?;
    let mut files = FileHashes::default();
    let rows = definition.workloads.iter().zip(all.iter().cloned()).map(|(workload, compare_arguments)| {
        if let Ok(compare_arguments) = &compare_arguments {
            in_study::check(&compare_arguments.words)
                .map_err(|error| Failure::Input(format!("workload {:?}: {error}", workload.name)))?;
        }
        let subject = compare_arguments
            .as_ref()
            .map(|compare_arguments| identity(definition, &compare_arguments.subject))
            .unwrap_or_default();
        let (stored, ran) = stored.remove(&subject).unwrap_or_default();
        let programs = files.of(workload);
        let is_new_boot = stored.iter().all(|one| one.machine.boot_id != machine.boot_id);
        let compare_arguments = compare_arguments
            .and_then(|compare_arguments| check_dependencies(workload, &workload.command).map(|()| compare_arguments));
        let progress = match &compare_arguments {
            Err(why) => Progress::Refused(why.clone()),
            Ok(_) if guest_boots::are_guests(definition) => {
                guest_boots::done(definition, &stored).map_or(Progress::Missing, |id| Progress::Done { id })
            }
            Ok(_) if is_over_boots(definition) => in_boot(&stored, &machine),
            Ok(_) => progress(&stored, &machine),
        };
        let progress = match of_this_build(progress, &ran, &programs) {
            Progress::Missing => inputs::failure(workload).map_or(Progress::Missing, Progress::Unmade),
            progress => progress,
        };
        Ok(HostRow { workload, compare_arguments, stored, ran, programs, is_new_boot, progress })
    });
    rows.collect()
}

/// The comparisons of a row, and the programs that each ran.
type Stored = (Vec<Comparison>, BTreeMap<i64, Programs>);

/// Whether the rows of a study share its time, and a comparison resumes if the file raises the time. Not for a study over boots,
/// whose comparisons are each one observation of a boot and end by themselves.
pub fn has_rounds(definition: &Definition) -> bool {
    !is_over_boots(definition) && definition.boots.is_empty()
}

/// The arguments that identify a measurement: all except the time limit, which a study file may raise later.
fn identity(definition: &Definition, words: &[String]) -> Vec<String> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let limit = words[..end].iter().position(|word| word == "--max-time");
    match limit.filter(|_| has_rounds(definition)) {
        Some(at) => [&words[..at], &words[at + 2..]].concat(),
        None => words.to_vec(),
    }
}

/// The comparisons of a study, by the arguments that they measured. Comparisons with arguments that the study does not
/// have now are not loaded.
fn by_arguments(
    definition: &Definition,
    store: Option<&Store>,
    wanted: &BTreeSet<Vec<String>>,
) -> Result<BTreeMap<Vec<String>, Stored>, Failure> {
    let mut all: BTreeMap<Vec<String>, Stored> = BTreeMap::new();
    let Some(store) = store else { return Ok(all) };
    for (OfStudy { subject, .. }, id) in store.comparisons_of(&definition.name).map_err(Failure::input)? {
        let Some(subject) = HostSubject::read(&subject) else { continue };
        let words = identity(definition, &subject.compare);
        if !wanted.contains(&words) {
            continue;
        }
        let (comparisons, ran) = all.entry(words).or_default();
        comparisons.push(store.load(id).map_err(Failure::input)?);
        ran.insert(id, subject.programs);
    }
    Ok(all)
}

/// Turns the state of a row that measured another build into [`Progress::Rebuilt`]. States without a comparison stay as
/// they are.
fn of_this_build(progress: Progress, ran: &BTreeMap<i64, Programs>, now: &Programs) -> Progress {
    let id = match &progress {
        Progress::Done { id } | Progress::Failed { id, .. } | Progress::Interrupted { id, .. } => *id,
        Progress::Refused(_) | Progress::Missing | Progress::Unmade(_) | Progress::Rebuilt { .. } => return progress,
    };
    match ran.get(&id).and_then(|before| rebuilt(before, now)) {
        Some(program) => Progress::Rebuilt { id, program },
        None => progress,
    }
}

/// The state in this boot, for a study over boots. A comparison that was interrupted in this boot counts as missing,
/// because the next one starts from the beginning.
fn in_boot(stored: &[Comparison], machine: &Machine) -> Progress {
    let in_this_boot = stored.iter().rev().find(|one| one.machine.boot_id == machine.boot_id);
    match in_this_boot.map(|one| (one.id, &one.ended)) {
        None | Some((_, Ended::NotEnded | Ended::Interrupted)) => Progress::Missing,
        Some((id, Ended::Blocks | Ended::Precise | Ended::Time)) => Progress::Done { id },
        Some((id, Ended::TooSlow { message } | Ended::Failed { message })) => {
            Progress::Failed { id, why: message.clone() }
        }
        Some((id, Ended::NothingAdmitted)) => {
            Progress::Failed { id, why: "this boot has none of the policies".to_owned() }
        }
    }
}

/// The state on a machine, according to its latest comparison there.
fn progress(stored: &[Comparison], machine: &Machine) -> Progress {
    stored.iter().rev().find(|one| is_of(one, machine)).map_or(Progress::Missing, ended)
}

/// The state of a row whose latest comparison is this one.
pub fn ended(comparison: &Comparison) -> Progress {
    let id = comparison.id;
    match &comparison.ended {
        Ended::NotEnded | Ended::Interrupted => Progress::Interrupted { id, trials: comparison.trials.len() },
        Ended::Precise | Ended::Blocks => Progress::Done { id },
        Ended::Time if comparison.analysis.is_some() => Progress::Done { id },
        Ended::Time => Progress::Failed { id, why: "the time was up before a block was complete".to_owned() },
        Ended::TooSlow { message } | Ended::Failed { message } => Progress::Failed { id, why: message.clone() },
        Ended::NothingAdmitted => Progress::Failed { id, why: "no policy could be given".to_owned() },
    }
}

/// Whether a comparison was measured on this machine. In tests, a comparison of a fake platform counts as this host's; it is
/// recognised by its name.
fn is_of(comparison: &Comparison, machine: &Machine) -> bool {
    let is_fake = cfg!(debug_assertions) && comparison.machine.name != machine.name;
    is_fake || comparison.machine.is_alike(machine)
}

/// The time limit of `compare`, in seconds, if the study gives none.
const MAX_TIME_S: f64 = 600.0;

/// The time that each workload adds to the study's, in seconds.
pub fn max_time_s(definition: &Definition) -> f64 {
    let given = definition.stopping.max_time.as_ref();
    given.and_then(|time| crate::words::parse_duration(time).ok()).unwrap_or(MAX_TIME_S)
}

impl HostRow<'_> {
    /// The origin of one of the row's comparisons: the command that reproduces it, and the programs that ran.
    pub fn origin(&self, comparison: &Comparison) -> RowSource {
        let again = self.compare_arguments.as_ref().map(|compare_arguments| {
            let words = ["pagelab", "compare"].map(str::to_owned);
            vec![words.into_iter().chain(compare_arguments.subject.iter().cloned()).collect()]
        });
        RowSource {
            commands: again.unwrap_or_else(|_| vec![comparison.invocation.pagelab.clone()]),
            programs: self.ran.get(&comparison.id).cloned().unwrap_or_default(),
            ..RowSource::of(comparison)
        }
    }

    /// The comparison on this host that is complete or interrupted.
    pub fn current(&self) -> Option<&Comparison> {
        let (Progress::Interrupted { id, .. } | Progress::Done { id }) = self.progress else { return None };
        self.stored.iter().find(|one| one.id == id)
    }

    /// The comparison that can take more blocks: it was interrupted, or it ended because its time was up.
    pub fn open(&self) -> Option<&Comparison> {
        self.current().filter(|one| matches!(one.ended, Ended::NotEnded | Ended::Interrupted | Ended::Time))
    }

    /// The seconds that the current comparison has taken.
    pub fn time_s(&self) -> f64 {
        self.current().map_or(0.0, time_s)
    }

    /// Adds the comparison that was just measured, or replaces the stored comparison that it continues.
    pub fn take(&mut self, comparison: Comparison) {
        self.progress = ended(&comparison);
        self.is_new_boot = false;
        self.ran.insert(comparison.id, self.programs.clone());
        match self.stored.iter_mut().find(|one| one.id == comparison.id) {
            Some(known) => *known = comparison,
            None => self.stored.push(comparison),
        }
    }

    /// How a comparison of the row resumes in this boot. `gap`: what happened since its last trial, if that was in the
    /// same boot.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn resumed(
        &self,
        comparison: Comparison,
        gap: Gap,
        store: &Store,
        started_unix_s: i64,
    ) -> Result<Resumed, Failure> {
        let boot_id = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?.boot_id;
        let resumptions = store.resumptions(comparison.id).map_err(Failure::input)?;
        let last = resumptions.last().map_or(&comparison.machine.boot_id, |resumption| &resumption.boot_id);
        Ok(Resumed {
            gap: if *last == boot_id { gap } else { Gap::Reboot },
            resumption: Resumption { trials: comparison.trials.len() as u64, started_unix_s, boot_id },
            comparison,
        })
    }

    /// The maximum remaining seconds: the rest of the time limit, or, if trials are known, the time of the remaining
    /// blocks.
    pub fn max_remaining_s(&self, definition: &Definition) -> f64 {
        if !self.progress.is_unfinished() {
            return 0.0;
        }
        let limit_s = max_time_s(definition);
        let known = self.stored.last().filter(|one| !one.trials.is_empty());
        let by_trials = known.map(|one| {
            let wall_s: f64 = one.trials.iter().filter_map(|record| record.value(names::WALL_S)).sum();
            let trials = f64::from(one.design.max_blocks + 1) * one.design.arms.len() as f64;
            wall_s / one.trials.len() as f64 * (trials - one.trials.len() as f64).max(0.0)
        });
        by_trials.map_or(limit_s, |by_trials| by_trials.min(limit_s))
    }
}
