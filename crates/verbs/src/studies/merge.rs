//! `pagelab study merge`: merges the results of several hosts into one store. It can be repeated: existing results are
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use policy::similar::nearest;
use results::store::{OfStudy, Resolution, Resumption, Simulation, Store};
use study::comparison::Comparison;

use super::arguments::Merge;
use super::model::Outcome;
use crate::failure::{Failure, error_chain, report};
use crate::output::{open_store, print, read_store};

/// Runs `pagelab study merge`.
///
/// # Errors
/// A store cannot be read or written, or two stores have different results for the same comparison.
pub fn merge(arguments: &Merge) -> Result<(), Failure> {
    if let (Some(first), false) = (arguments.stores.first(), arguments.stores.iter().any(|path| !is_missing(path))) {
        return Err(absent(first));
    }
    let store = open_store(arguments.store.as_deref())?;
    let counted = into(&arguments.stores, arguments.study.as_deref(), &store);
    print(&counted.summary(store.path()), false)?;
    counted.ending()?;
    match &arguments.study {
        Some(study) if !counted.studies.contains(study) => Err(no_results_of(study, &counted.studies)),
        _ => Ok(()),
    }
}

/// The error if no store has results of the study.
fn no_results_of(study: &str, known: &BTreeSet<String>) -> Failure {
    let known: Vec<String> = known.iter().cloned().collect();
    let nearest = nearest(study, &known).map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
    let existing = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::Input(format!("--study: no store has anything of {study:?}; they have {existing}{nearest}"))
}

/// Merges stores into one. An error in a source store is reported, and the other stores are still merged.
pub fn into(stores: &[PathBuf], study: Option<&str>, into: &Store) -> MergeCounts {
    let (mut counted, mut known) = (MergeCounts::default(), Known::default());
    for path in stores {
        let from = read_store(path).and_then(|store| refuse_same_store(store.ok_or_else(|| absent(path))?, into));
        match from.and_then(|from| of_store(&from, into, study, &mut known, &mut counted)) {
            Ok(()) => {}
            Err(failure) => {
                report(format_args!("pagelab: {}", results::printable(&failure.to_string())));
                counted.unread += 1;
            }
        }
    }
    counted
}

/// Whether a store does not exist. If this cannot be determined, the answer is no, and opening the store reports the
/// error.
fn is_missing(store: &Path) -> bool {
    matches!(store.try_exists(), Ok(false))
}

fn absent(store: &Path) -> Failure {
    Failure::Input(format!("{}: there is no such store", store.display()))
}

impl MergeCounts {
    /// A summary of the merge, with the path of the resulting store.
    pub fn summary(&self, store: &Path) -> String {
        let MergeCounts { added, grown, existing, simulated, simulated_there, .. } = self;
        format!(
            "{added} comparisons added, {grown} completed, {existing} there already; {simulated} simulations added, \
             {simulated_there} there already; {}",
            store.display()
        )
    }

    /// The failure of the merge, if there is one.
    ///
    /// # Errors
    /// There were conflicts, or stores that could not be read.
    pub fn ending(&self) -> Result<(), Failure> {
        let conflicts = [(self.conflicts, "comparisons"), (self.simulated_otherwise, "simulations")];
        let conflicts = conflicts.into_iter().filter(|(count, _)| *count > 0);
        let conflicts = conflicts.map(|(count, what)| format!("{count} {what} conflict and were left as they are"));
        let unread = (self.unread > 0).then(|| format!("{} stores could not be read completely", self.unread));
        let wrong: Vec<String> = conflicts.chain(unread).collect();
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Input(wrong.join("; "))) }
    }
}

/// The content of the target store, by study.
type Known = BTreeMap<String, Vec<(OfStudy, Comparison)>>;

/// Counts of a merge.
#[derive(Default)]
pub struct MergeCounts {
    added: usize,
    grown: usize,
    existing: usize,
    simulated: usize,
    simulated_there: usize,
    simulated_otherwise: usize,
    conflicts: usize,
    unread: usize,
    /// The studies that the source stores contain.
    studies: BTreeSet<String>,
}

fn refuse_same_store(from: Store, into: &Store) -> Result<Store, Failure> {
    if from.path() == into.path() {
        Err(Failure::Input(format!("{} is the store to merge into; name other stores", from.path().display())))
    } else {
        Ok(from)
    }
}

fn of_store(
    from: &Store,
    into: &Store,
    study: Option<&str>,
    known: &mut Known,
    counted: &mut MergeCounts,
) -> Result<(), Failure> {
    let studies = from.studies().map_err(Failure::input)?;
    counted.studies.extend(studies.iter().cloned());
    for study in studies.iter().filter(|name| study.is_none_or(|wanted| wanted == *name)) {
        if !known.contains_key(study) {
            known.insert(study.clone(), load_study(into, study)?);
        }
        let known = known.entry(study.clone()).or_default();
        for (of, id) in from.comparisons_of(study).map_err(Failure::input)? {
            match from.load(id) {
                Ok(comparison) => take(from, into, &of, comparison, known, counted)?,
                Err(error) => {
                    let why = error_chain(&error);
                    report(format_args!(
                        "pagelab: {}: comparison {id}: {}",
                        from.path().display(),
                        results::printable(&why)
                    ));
                    counted.unread += 1;
                }
            }
        }
        let simulations = from.simulations_of(study).map_err(Failure::input)?;
        let resolutions = into.add_simulations(&simulations, &resolve).map_err(Failure::input)?;
        for (simulation, resolution) in simulations.iter().zip(resolutions) {
            match resolution {
                None | Some(Resolution::Replace) => counted.simulated += 1,
                Some(Resolution::Keep) => counted.simulated_there += 1,
                Some(Resolution::Conflict) => {
                    report_conflict(from, into, simulation);
                    counted.simulated_otherwise += 1;
                }
            }
        }
    }
    Ok(())
}

/// Decides which of two outcomes of the same simulation the store keeps. A successful outcome replaces a failed one.
fn resolve(existing: &str, new: &str) -> Resolution {
    let (existing_outcome, new_outcome) = (Outcome::read(existing), Outcome::read(new));
    let failed = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|outcome| outcome.failure().is_some());
    let agree = || existing_outcome.as_ref().zip(new_outcome.as_ref()).is_some_and(|(one, two)| one.agrees(two));
    if existing == new || failed(&new_outcome) {
        Resolution::Keep
    } else if failed(&existing_outcome) {
        Resolution::Replace
    } else if agree() {
        Resolution::Keep
    } else {
        Resolution::Conflict
    }
}

fn report_conflict(from: &Store, into: &Store, Simulation { of, machine, policy, .. }: &Simulation) {
    let what = format!("{} on {machine} under {policy}", of.workload);
    report(format_args!(
        "pagelab: {}: the simulation of {} conflicts with that of {}: the figures of the same simulation differ",
        from.path().display(),
        results::printable(&what),
        into.path().display()
    ));
}

fn load_study(into: &Store, study: &str) -> Result<Vec<(OfStudy, Comparison)>, Failure> {
    let all = into.comparisons_of(study).map_err(Failure::input)?.into_iter();
    all.map(|(of, id)| Ok((of, into.load(id).map_err(Failure::input)?))).collect()
}

/// Copies a comparison, or only its new trials, or nothing, depending on what the target store has.
fn take(
    from: &Store,
    into: &Store,
    of: &OfStudy,
    mut comparison: Comparison,
    known: &mut Vec<(OfStudy, Comparison)>,
    counted: &mut MergeCounts,
) -> Result<(), Failure> {
    let resumptions = from.resumptions(comparison.id).map_err(Failure::input)?;
    let Some((_, existing)) =
        known.iter_mut().find(|(known, existing)| known.subject == of.subject && is_same(existing, &comparison))
    else {
        let id = into.begin_of_study(&comparison, of).map_err(Failure::input)?;
        resumptions.iter().try_for_each(|one| into.add_resumption(id, one)).map_err(Failure::input)?;
        counted.added += 1;
        comparison.id = id;
        known.push((of.clone(), comparison));
        return Ok(());
    };
    let (old, new) = (&existing.trials, &comparison.trials);
    if old.starts_with(new) {
        counted.existing += 1
    } else if new.starts_with(old) {
        grow(into, existing, &comparison, &resumptions)?;
        *existing = Comparison { id: existing.id, ..comparison };
        counted.grown += 1;
    } else {
        report(format_args!(
            "pagelab: {}: comparison {} of {} conflicts with comparison {} of {}: their first trials are equal, later ones differ",
            from.path().display(),
            comparison.id,
            results::printable(&of.workload),
            existing.id,
            into.path().display()
        ));
        counted.conflicts += 1;
    }
    Ok(())
}

/// Whether both are the same comparison: started in the same second of the same boot, with the same seed.
fn is_same(one: &Comparison, other: &Comparison) -> bool {
    let key =
        |of: &Comparison| (of.started_unix_s, of.machine.boot_id.clone(), of.machine.host_id.clone(), of.design.seed);
    key(one) == key(other)
}

/// Appends the trials that the stored comparison lacks.
fn grow(into: &Store, existing: &Comparison, new: &Comparison, resumptions: &[Resumption]) -> Result<(), Failure> {
    let grown = new.trials[existing.trials.len()..].iter().try_for_each(|record| into.append(existing.id, record));
    let known = into.resumptions(existing.id).map_err(Failure::input)?.len();
    let added = resumptions.iter().skip(known).try_for_each(|one| into.add_resumption(existing.id, one));
    let ended = into.finish(existing.id, new.analysis.as_ref(), &new.ended);
    grown.and(added).and(ended).map_err(Failure::input)
}
