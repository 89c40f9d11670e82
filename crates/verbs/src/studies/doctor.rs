//! `pagelab study doctor`: lists which workloads of suites and studies can run here, what the others lack, and how to get it.

use std::collections::BTreeSet;

use results::grid;
use serde_json::{Value, json};
use study_files::definition::{Size, Workload};

use super::arguments::Doctor;
use super::lacking::{MissingDependency, lacking};
use super::{inputs, source};
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// A workload and its missing dependencies.
struct Examined {
    /// The suite or study of the workload.
    owner: String,
    workload: Workload,
    lacks: Vec<MissingDependency>,
}

/// Runs `pagelab study doctor`.
///
/// # Errors
/// The study does not exist or is invalid.
pub fn doctor(arguments: &Doctor) -> Result<(), Failure> {
    let all = if arguments.studies.is_empty() { everything()? } else { of_studies(&arguments.studies)? };
    if arguments.json { print(&format!("{:#}", document(&all)), true) } else { print(&text(&all), false) }
}

/// All suites, and the workloads of studies that are in no suite.
fn everything() -> Result<Vec<Examined>, Failure> {
    let mut all = Vec::new();
    for suite in source::suites()? {
        let workloads = suite.as_suite()?.of_size(Size::Standard);
        let workloads = workloads.map_err(|error| Failure::Input(format!("suite {}: {error}", suite.name)))?;
        all.extend(workloads.into_iter().map(|workload| examine(&suite.name, workload)));
    }
    for study in source::all()? {
        let workloads =
            study.of_size(Size::Standard)?.workloads.into_iter().filter(|workload| workload.suite.is_none());
        all.extend(workloads.map(|workload| examine(&study.name, workload)));
    }
    Ok(all)
}

fn of_studies(names: &[String]) -> Result<Vec<Examined>, Failure> {
    let mut all = Vec::new();
    for name in names {
        let definition = source::named(name)?.of_size(Size::Standard)?;
        all.extend(definition.workloads.into_iter().map(|workload| examine(&definition.name, workload)));
    }
    Ok(all)
}

fn examine(owner: &str, workload: Workload) -> Examined {
    let runs = workload.missing.is_none() && workload.trace.is_none();
    let command = if workload.command.is_empty() { workload.recorded.as_ref() } else { Some(&workload.command) };
    let lacks = command.filter(|_| runs).map(|command| lacking(&workload, command)).unwrap_or_default();
    Examined { owner: owner.to_owned(), workload, lacks }
}

impl Examined {
    fn state(&self) -> &'static str {
        match (&self.workload.missing, self.lacks.is_empty()) {
            (Some(_), _) => "none",
            (None, true) => "here",
            (None, false) => "lacking",
        }
    }

    fn why(&self) -> String {
        let unmade = || inputs::has_unmade(&self.workload);
        match (&self.workload.missing, self.lacks.is_empty()) {
            (Some(why), _) => why.clone(),
            (None, true) if unmade() => "its input is made when it is first run".to_owned(),
            (None, true) => String::new(),
            (None, false) => {
                let lacks: Vec<&str> = self.lacks.iter().map(|lack| lack.what.as_str()).collect();
                lacks.join("; ")
            }
        }
    }
}

/// The packages that contain what is missing, without duplicates.
fn packages<'a>(all: impl IntoIterator<Item = &'a Examined>) -> Vec<String> {
    let names: BTreeSet<&String> = all.into_iter().flat_map(|one| &one.lacks).flat_map(|lack| &lack.packages).collect();
    names.into_iter().cloned().collect()
}

fn text(all: &[Examined]) -> String {
    let row = |one: &Examined| {
        let packages = packages([one]).join(", ");
        [one.owner.clone(), one.workload.name.clone(), one.state().to_owned(), packages, one.why()]
    };
    let header = ["suite or study", "workload", "", "packages", "why"];
    let table = grid::last_folded(header, all.iter().map(row), terminal_width());
    let packages = packages(all);
    let get = if packages.is_empty() {
        "every program is here".to_owned()
    } else {
        format!(
            "on Debian: apt-get install --no-install-recommends {}\n\
         elsewhere: the packages that bring the same programs",
            packages.join(" ")
        )
    };
    let place = inputs::directory()
        .map_or_else(|error| error.to_string(), |directory| format!("inputs are kept in {}", directory.display()));
    format!("{table}\n{get}\n{place}")
}

fn document(all: &[Examined]) -> Value {
    let one = |one: &Examined| {
        json!({
            "of": one.owner,
            "workload": one.workload.name,
            "stands_for": one.workload.stands_for,
            "state": one.state(),
            "lacks": one.lacks.iter().map(|lack| &lack.what).collect::<Vec<_>>(),
            "packages": packages([one]),
            "why": one.why(),
        })
    };
    json!({
        "schema": "pagelab.study-doctor/1",
        "workloads": all.iter().map(one).collect::<Vec<_>>(),
        "packages": packages(all),
        "inputs": inputs::directory().ok(),
    })
}
