//! `pagelab study`: a question, workloads, policies and machines in one file; runs, resumes, merges and reports them.

mod arguments;
mod counted;
mod doctor;
mod gathered;
mod guest_boots;
mod guests;
mod inputs;
mod known;
mod lacking;
mod lowered;
mod measured;
mod measuring;
mod merge;
mod model;
mod outlook;
mod over_boots;
mod over_variants;
mod partial;
mod plan;
mod programs;
mod report;
mod rounds;
mod run;
mod series;
mod slurm;
mod source;
mod status;

use crate::failure::Failure;
pub use arguments::StudyArguments;
use arguments::{SizeArgument, StudyVerb, Which};
use slurm::arguments::On;

/// Runs `pagelab study`.
///
/// # Errors
/// The study does not exist or is invalid, or an error of the verb.
pub fn run(arguments: &StudyArguments) -> Result<(), Failure> {
    match &arguments.verb {
        StudyVerb::List { json } => status::list(*json),
        StudyVerb::Run(arguments) => match (arguments.place.task, arguments.place.on) {
            (Some(number), _) => slurm::task(arguments, number),
            (None, On::Slurm) => slurm::submit(arguments),
            (None, On::Here) => run::run(arguments),
        },
        StudyVerb::Status(arguments) => status::status(arguments),
        StudyVerb::Report(arguments) => report::report(arguments),
        StudyVerb::Doctor(arguments) => doctor::doctor(arguments),
        StudyVerb::Export(arguments) => report::export(arguments),
        StudyVerb::Merge(arguments) => match arguments.shards.clone() {
            Some(study) => slurm::collect(&Which {
                study,
                size: SizeArgument { size: arguments.size.unwrap_or_default() },
                store: arguments.store.clone(),
            }),
            None => merge::merge(arguments),
        },
    }
}
