//! `pagelab study report` and `export`: the results of a study, and all its samples.

use std::io::Write;
use std::path::Path;

use results::matrix::{self as shown, CountedCosts, Report as Shown, SampleSource};
use study_files::definition::Definition;

use super::arguments::{Export, Report, Which};
use super::gathered::gathered;
use super::measured::label;
use crate::failure::Failure;
use crate::kernels::config;
use crate::output::{can_be_written, find_store, print, terminal_width, write, write_page};

/// Runs `pagelab study report`.
///
/// # Errors
/// The study does not exist, the store cannot be read, or an output cannot be written.
pub fn report(arguments: &Report) -> Result<(), Failure> {
    can_be_written(&arguments.html)?;
    let definition = arguments.which.definition()?;
    let store = find_store(arguments.which.store.as_deref())?.ok();
    let gathered = gathered(&definition, store.as_ref())?;
    let report = Shown {
        definition: &definition,
        matrix: &gathered.matrix,
        over_boots: gathered.over_boots.as_ref(),
        forms: gathered.forms,
        counted: gathered.counted.as_ref().map(|one| CountedCosts { counted: one.counted, table: one.table() }),
        series: gathered.series,
        explained: gathered.explained,
        over_variants: &gathered.over_variants,
        hosts: gathered.hosts,
        missing: gathered.missing,
        lacking: gathered.lacking,
        kernels_differ: config::differences(&definition.boots),
        command: measuring_command(&arguments.which),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let form = &arguments.form;
    let text = if form.json {
        format!("{:#}", shown::document(&report))
    } else if form.markdown {
        shown::markdown(&report)
    } else if form.mail {
        shown::mail(&report)
    } else {
        shown::render(&report, terminal_width())
    };
    // Output for other programs or for a mail does not depend on the terminal's width.
    let is_document = form.json || form.markdown || form.mail;
    print(text.trim_end(), is_document)?;
    match &arguments.html {
        Some(file) => write_page(file, &results::html::matrix::report(&report)),
        None => Ok(()),
    }
}

/// The command that measures what the report shows.
fn measuring_command(which: &Which) -> Vec<String> {
    let run = ["pagelab", "study", "run", &which.study].map(str::to_owned);
    let store = which.store.iter().flat_map(|store| ["--store".to_owned(), store.display().to_string()]);
    run.into_iter().chain(which.size.words()).chain(store).collect()
}

/// Runs `pagelab study export`.
///
/// # Errors
/// The study or the store does not exist, the store cannot be read or has no sample of the study, or the file cannot be
/// written.
pub fn export(arguments: &Export) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    can_be_written([&arguments.output])?;
    let path = find_store(arguments.which.store.as_deref())?;
    let store = path.map_err(|path| Failure::Input(format!("{}: there is no such store", path.display())))?;
    let gathered = gathered(&definition, Some(&store))?;
    let rows =
        gathered.on_hosts.iter().flat_map(|row| row.stored.iter().map(move |one| (row.workload.name.as_str(), one)));
    let labelled: Vec<_> = rows.map(|(workload, one)| (workload, label(&definition, &one.machine), one)).collect();
    let of = |(workload, machine, comparison)| SampleSource { workload, machine, comparison };
    let all: Vec<SampleSource<'_>> =
        labelled.iter().map(|(workload, machine, comparison)| of((*workload, machine.as_str(), *comparison))).collect();
    if all.is_empty() {
        let (name, store) = (&definition.name, store.path().display());
        let modelled = if gathered.on_models.is_empty() {
            ""
        } else {
            "; simulations have none, and `pagelab study report --json` has their figures"
        };
        return Err(Failure::Input(format!("{store}: there is no sample of the study {name}{modelled}")));
    }
    write_samples(&definition, &all, &arguments.output)
}

/// Writes samples in the format that the file name's extension selects.
fn write_samples(definition: &Definition, all: &[SampleSource<'_>], file: &Path) -> Result<(), Failure> {
    let name = definition.name.as_str();
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => write(file, &|to| shown::csv(name, all, to)),
        Some("json" | "jsonl") => write(file, &|to| shown::json_lines(name, all, to)),
        Some("parquet") => {
            let bytes = shown::parquet(name, all, Vec::new()).map_err(|error| Failure::about(file, error))?;
            write(file, &|to: &mut dyn Write| to.write_all(&bytes))
        }
        _ => Err(Failure::Input(format!("{}: expected a name with .csv, .jsonl or .parquet", file.display()))),
    }
}
