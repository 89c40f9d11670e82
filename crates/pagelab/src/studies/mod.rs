//! `pagelab study`: a question, workloads, policies and machines in one file; run, resumed, merged and reported.

mod arguments;
mod gathered;
mod lowered;
mod merge;
mod model;
mod plan;
mod report;
mod run;
mod source;
mod status;

use crate::failure::Failure;
pub use arguments::StudyArguments;
use arguments::StudyVerb;

/// Runs `pagelab study`.
///
/// # Errors
/// A study that there is not or that makes no sense; what its verb says.
pub fn run(arguments: &StudyArguments) -> Result<(), Failure> {
    match &arguments.verb {
        StudyVerb::List { json } => status::list(*json),
        StudyVerb::Run(arguments) => run::run(arguments),
        StudyVerb::Status(arguments) => status::status(arguments),
        StudyVerb::Report(arguments) => report::report(arguments),
        StudyVerb::Export(arguments) => report::export(arguments),
        StudyVerb::Merge(arguments) => merge::merge(arguments),
    }
}
