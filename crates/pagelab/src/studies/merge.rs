//! `pagelab study merge`: merges the results of several hosts into one store. It can be repeated: existing results are
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use results::store::{Meeting, OfStudy, Resumption, Simulation, Store};
use study::comparison::Comparison;

use super::arguments::Merge;
use super::known::nearest;
use super::model::Outcome;
use crate::failure::{Failure, error_chain, report};
use crate::output::{open_store, print, read_store};

/// Runs `pagelab study merge`.
/// # Errors
/// A store cannot be read or written, or two stores have different results for the same comparison.
pub fn merge(arguments: &Merge) -> Result<(), Failure> {
    if let (Some(first), false) = (arguments.stores.first(), arguments.stores.iter().any(|path| !is_missing(path))) {
        return Err(absent(first));
    }
    let store = open_store(arguments.store.as_deref())?;
    let counted = into(&arguments.stores, arguments.study.as_deref(), &store);
    print(&counted.told(store.path()), false)?;
    counted.ending()?;
    match &arguments.study {
        Some(study) if !counted.studies.contains(study) => Err(not_there(study, &counted.studies)),
        _ => Ok(()),
    }
}

/// The error if no store has results of a study.
fn not_there(study: &str, known: &BTreeSet<String>) -> Failure {
    let known: Vec<String> = known.iter().cloned().collect();
    let nearest = nearest(study, &known).map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
    let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::Input(format!("--study: no store has anything of {study:?}; they have {there}{nearest}"))
}

/// Merges stores into one. An error in one of them is reported, and the others are still merged.
pub fn into(stores: &[PathBuf], study: Option<&str>, into: &Store) -> Counted {
    let (mut counted, mut known) = (Counted::default(), Known::default());
    for path in stores {
        let from = read_store(path).and_then(|store| different(store.ok_or_else(|| absent(path))?, into));
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

/// Other errors of this check also occur when the store is opened, which reports them.
fn is_missing(store: &Path) -> bool {
    matches!(store.try_exists(), Ok(false))
}

fn absent(store: &Path) -> Failure {
    Failure::Input(format!("{}: there is no such store", store.display()))
}

impl Counted {
    /// A summary of the merge, with the path of the resulting store.
    pub fn told(&self, store: &Path) -> String {
        let Counted { added, grown, there, simulated, simulated_there, .. } = self;
        format!(
            "{added} comparisons added, {grown} completed, {there} there already; {simulated} simulations added, \
             {simulated_there} there already; {}",
            store.display()
        )
    }

    /// The failure of the merge, if any.
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
pub struct Counted {
    added: usize,
    grown: usize,
    there: usize,
    simulated: usize,
    simulated_there: usize,
    simulated_otherwise: usize,
    conflicts: usize,
    unread: usize,
    /// The studies that the source stores contain.
    studies: BTreeSet<String>,
}

fn different(from: Store, into: &Store) -> Result<Store, Failure> {
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
    counted: &mut Counted,
) -> Result<(), Failure> {
    let studies = from.studies().map_err(Failure::input)?;
    counted.studies.extend(studies.iter().cloned());
    for study in studies.iter().filter(|name| study.is_none_or(|wanted| wanted == *name)) {
        if !known.contains_key(study) {
            known.insert(study.clone(), loaded(into, study)?);
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
        let met = into.add_simulations(&simulations, &met).map_err(Failure::input)?;
        for (simulation, met) in simulations.iter().zip(met) {
            match met {
                None | Some(Meeting::GivesWay) => counted.simulated += 1,
                Some(Meeting::There) => counted.simulated_there += 1,
                Some(Meeting::Conflict) => {
                    say_conflict(from, into, simulation);
                    counted.simulated_otherwise += 1;
                }
            }
        }
    }
    Ok(())
}

/// Decides what to do about an existing simulation. A failed one is replaced by a successful one.
fn met(there: &str, new: &str) -> Meeting {
    let (there_read, new_read) = (Outcome::read(there), Outcome::read(new));
    let failed = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|outcome| outcome.failure().is_some());
    let agree = || there_read.as_ref().zip(new_read.as_ref()).is_some_and(|(one, two)| one.agrees(two));
    if there == new || failed(&new_read) {
        Meeting::There
    } else if failed(&there_read) {
        Meeting::GivesWay
    } else if agree() {
        Meeting::There
    } else {
        Meeting::Conflict
    }
}

fn say_conflict(from: &Store, into: &Store, Simulation { of, machine, policy, .. }: &Simulation) {
    let what = format!("{} on {machine} under {policy}", of.workload);
    report(format_args!(
        "pagelab: {}: the simulation of {} conflicts with that of {}: the same was simulated, and the figures differ",
        from.path().display(),
        results::printable(&what),
        into.path().display()
    ));
}

fn loaded(into: &Store, study: &str) -> Result<Vec<(OfStudy, Comparison)>, Failure> {
    let all = into.comparisons_of(study).map_err(Failure::input)?.into_iter();
    all.map(|(of, id)| Ok((of, into.load(id).map_err(Failure::input)?))).collect()
}

/// Copies a comparison, only its new trials, or nothing.
fn take(
    from: &Store,
    into: &Store,
    of: &OfStudy,
    mut comparison: Comparison,
    known: &mut Vec<(OfStudy, Comparison)>,
    counted: &mut Counted,
) -> Result<(), Failure> {
    let resumptions = from.resumptions(comparison.id).map_err(Failure::input)?;
    let Some((_, there)) =
        known.iter_mut().find(|(known, there)| known.subject == of.subject && is_same(there, &comparison))
    else {
        let id = into.begin_of_study(&comparison, of).map_err(Failure::input)?;
        resumptions.iter().try_for_each(|one| into.add_resumption(id, one)).map_err(Failure::input)?;
        counted.added += 1;
        comparison.id = id;
        known.push((of.clone(), comparison));
        return Ok(());
    };
    let (old, new) = (&there.trials, &comparison.trials);
    if old.starts_with(new) {
        counted.there += 1
    } else if new.starts_with(old) {
        grow(into, there, &comparison, &resumptions)?;
        *there = Comparison { id: there.id, ..comparison };
        counted.grown += 1;
    } else {
        report(format_args!(
            "pagelab: {}: comparison {} of {} conflicts with comparison {} of {}: their first trials are the same, and the others differ",
            from.path().display(),
            comparison.id,
            results::printable(&of.workload),
            there.id,
            into.path().display()
        ));
        counted.conflicts += 1;
    }
    Ok(())
}

/// Whether two comparisons are the same: started in the same second of the same boot, with the same seed.
fn is_same(one: &Comparison, other: &Comparison) -> bool {
    let key =
        |of: &Comparison| (of.started_unix_s, of.machine.boot_id.clone(), of.machine.host_id.clone(), of.design.seed);
    key(one) == key(other)
}

/// Appends the new trials.
fn grow(into: &Store, there: &Comparison, new: &Comparison, resumptions: &[Resumption]) -> Result<(), Failure> {
    let grown = new.trials[there.trials.len()..].iter().try_for_each(|record| into.append(there.id, record));
    let known = into.resumptions(there.id).map_err(Failure::input)?.len();
    let added = resumptions.iter().skip(known).try_for_each(|one| into.add_resumption(there.id, one));
    let ended = into.finish(there.id, new.analysis.as_ref(), &new.ended);
    grown.and(added).and(ended).map_err(Failure::input)
}
