//! The counted part of a study ([`CountedState`]): numbers of events, weighed with the costs in the study's file.
//!
//! Counts are exact and equal on every machine, so they are made once and kept in the store, like simulations. The costs are
//! in the study's file, so changing a cost needs no new count.

use results::store::{OfStudy, Simulation, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use study_files::counted::{Case, Counted, Counts, Table};
use study_files::definition::Definition;

use crate::failure::{Failure, report};
use crate::lab::{self, EventCounts};

/// The counted part of a study: the cases in the store, and the granules that were not counted yet.
pub struct CountedState<'a> {
    /// The definition of the counted part.
    pub counted: &'a Counted,
    /// `None`: this pagelab was built without the lab that counts.
    counts: Option<&'static EventCounts>,
    /// The cases in the store.
    cases: Vec<Case>,
    /// Granules that have not been counted.
    missing: Vec<String>,
}

/// A case as the store keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredCase {
    visits: u64,
    counts: Counts,
}

impl<'a> CountedState<'a> {
    /// Loads the counts from a store; `None` if the study counts nothing.
    ///
    /// # Errors
    /// The file names something that cannot be counted, or the store cannot be read.
    pub fn of(definition: &'a Definition, store: Option<&Store>) -> Result<Option<CountedState<'a>>, Failure> {
        let Some(counted) = &definition.counted else { return Ok(None) };
        let counts = counts_of(counted).map_err(|what| Failure::Input(format!("study {}: {what}", definition.name)))?;
        let known = store.map(|store| store.simulations_of(&definition.name)).transpose().map_err(Failure::input)?;
        let stored: Vec<Simulation> = known.unwrap_or_default();
        let of_granule = |granule: &String| of_granule(counts?, counted, granule, &stored);
        let (cases, missing): (Vec<_>, Vec<_>) =
            counted.granules.iter().map(|granule| (granule, of_granule(granule))).partition(|(_, all)| all.is_some());
        let mut cases: Vec<Case> = cases.into_iter().filter_map(|(_, all)| all).flatten().collect();
        let order = counts.map(|counts| (counts.order)()).unwrap_or_default();
        let place = |case: &Case| order.iter().position(|at| *at == (case.phase.as_str(), case.backing.as_str()));
        cases.sort_by_key(place);
        let missing = missing.into_iter().map(|(granule, _)| granule.clone()).collect();
        Ok(Some(CountedState { counted, counts, cases, missing }))
    }

    /// The costs of the cases; empty if nothing has been counted.
    pub fn table(&self) -> Table {
        Table::of(self.counted, &self.cases)
    }

    /// The state in a word, and what is missing.
    pub fn state(&self) -> (&'static str, String) {
        if self.missing.is_empty() {
            ("done", String::new())
        } else if self.counts.is_none() {
            ("missing", "this pagelab was built without the lab that counts".to_owned())
        } else {
            ("missing", format!("granules {} not counted yet", self.missing.join(", ")))
        }
    }

    /// The name of the counted part in tables of rows.
    pub fn name(&self) -> String {
        format!("{} (counted)", self.counted.what)
    }

    /// Counts the missing granules.
    ///
    /// # Errors
    /// The formats cannot map the memory, or the store cannot be written.
    pub fn run(&self, definition: &Definition, store: &Store) -> Result<(), Failure> {
        let Some(counts) = self.counts else {
            report(format_args!("study {}: {} is not counted: {}", definition.name, self.counted.what, self.state().1));
            return Ok(());
        };
        for granule in &self.missing {
            report(format_args!("study {}: counting {} with pages of {granule}", definition.name, self.counted.what));
            let wrong = |error| Failure::Input(format!("study {}: counted: {granule}: {error}", definition.name));
            let cases = (counts.cases)(self.counted, granule).map_err(wrong)?;
            let kept: Vec<Simulation> = cases.iter().map(|case| self.kept(definition, case)).collect();
            store.store_simulations(&kept).map_err(Failure::input)?;
        }
        Ok(())
    }

    fn kept(&self, definition: &Definition, case: &Case) -> Simulation {
        Simulation {
            of: OfStudy {
                study: definition.name.clone(),
                workload: format!("{} {}", case.phase, case.backing),
                subject: subject(self.counted, &case.phase, &case.backing),
            },
            machine: case.granule.clone(),
            policy: case.variant.clone(),
            outcome: json!(StoredCase { visits: case.visits, counts: case.counts.clone() }).to_string(),
        }
    }
}

/// A key of everything that determines the counts, except the granule and the variant, for which the store has columns
/// of their own.
fn subject(counted: &Counted, phase: &str, backing: &str) -> String {
    let Counted { what, bytes, .. } = counted;
    let version = env!("CARGO_PKG_VERSION");
    json!({ "counted": what, "bytes": bytes, "phase": phase, "backing": backing, "pagelab": version }).to_string()
}

/// The counts of a lab that a study names, or what is unknown in its file. `None` in a program without labs.
fn counts_of(counted: &Counted) -> Result<Option<&'static EventCounts>, String> {
    if lab::installed().is_empty() {
        return Ok(None);
    }
    let known = || lab::installed().iter().flat_map(|lab| &lab.counts);
    let Some(counts) = known().find(|counts| counts.what == counted.what) else {
        let names: Vec<&str> = known().map(|counts| counts.what).collect();
        let what = &counted.what;
        return Err(format!("counted.what: there is no {what:?}; there are {}", names.join(", ")));
    };
    (counts.unknown)(counted).map_or(Ok(Some(counts)), Err)
}

/// All cases of a granule, in order; `None` if a case is missing.
fn of_granule(counts: &EventCounts, counted: &Counted, granule: &str, stored: &[Simulation]) -> Option<Vec<Case>> {
    let all = (counts.order)().into_iter().flat_map(|(phase, backing)| {
        let of = subject(counted, phase, backing);
        counted.variants.iter().map(move |variant| {
            let is_own = |one: &&Simulation| one.machine == granule && one.policy == *variant && one.of.subject == of;
            let kept: StoredCase = serde_json::from_str(&stored.iter().find(is_own)?.outcome).ok()?;
            Some(Case {
                phase: phase.to_owned(),
                backing: backing.to_owned(),
                granule: granule.to_owned(),
                variant: variant.clone(),
                visits: kept.visits,
                counts: kept.counts,
            })
        })
    });
    all.collect()
}
