//! The command line of pagelab and its verbs, one folder for each verb. This is a library, so that its code can be optimised for size
//! although the rest of the program (`crates/pagelab`) is optimised for speed.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod advice;
mod advise;
mod capabilities;
mod cli;
mod compare;
mod demo;
mod direct_map;
mod doctor;
mod exec;
mod executed;
mod failure;
mod generate;
mod guest_arguments;
mod hashed;
mod hints;
mod inspect;
mod kernels;
pub mod lab;
mod lab_command;
mod limits;
mod list;
mod locale;
mod looks;
mod merge;
mod metrics;
mod output;
mod progress_line;
mod publish;
mod record;
mod required;
mod restore;
mod separator;
mod series;
mod short;
mod show;
mod sim;
mod sizes;
mod status_line;
mod studies;
mod table;
mod tail;
mod top;
mod trace_file;
mod user;
mod waiting;
mod welcome;
mod words;
mod workload;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::{CommandFactory, Parser};

use cli::{Cli, Verb};
use failure::{Failure, error_chain, report};

/// Runs the verb that the arguments of this process name; `labs` are part of the program.
pub fn run_command_line(labs: Vec<lab::Lab>) -> ExitCode {
    lab::install(labs);
    kernels::session::run_if_first();
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.len() == 1 {
        return output::print(welcome::WELCOME, false)
            .map_or_else(|failure| complain(&failure), |()| ExitCode::SUCCESS);
    }
    match Cli::try_parse_from(&words) {
        Ok(cli) => run_to_exit_code(cli),
        Err(error) if !error.use_stderr() => error.exit(),
        Err(_) => match separator::insert(&words, Cli::command()) {
            Some(Ok(words)) => Cli::try_parse_from(&words).map_or_else(|_| refuse(&words), run_to_exit_code),
            Some(Err(failure)) => complain(&failure),
            None => refuse(&words),
        },
    }
}

fn run_to_exit_code(Cli { verb }: Cli) -> ExitCode {
    run(verb).map_or_else(|failure| complain(&failure), |()| ExitCode::SUCCESS)
}

/// Reports an error in the command line. The message contains user input, so clap's styling is disabled.
fn refuse(words: &[OsString]) -> ExitCode {
    let plain = Cli::command().styles(Styles::plain());
    let Err(error) = plain.try_get_matches_from(words) else { return ExitCode::from(2) };
    let message = error.render().ansi().to_string();
    report(message.trim_end());
    if let Some(hint) = hints::of(error.kind(), words) {
        report(format_args!("\n{hint}"));
    }
    ExitCode::from(2)
}

fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Compare(arguments) if !arguments.guests.kernels.is_empty() => kernels::run(&arguments),
        Verb::Compare(arguments) => compare::run(*arguments),
        Verb::Advise(arguments) => advise::run(*arguments),
        Verb::Show(arguments) => show::run(&arguments),
        Verb::Merge(arguments) => merge::run(&arguments),
        Verb::Study(arguments) => studies::run(&arguments),
        Verb::Exec(arguments) => exec::run(arguments),
        Verb::Inspect(arguments) => inspect::run(&arguments),
        Verb::Limits(arguments) => limits::run_limits(arguments),
        Verb::Capabilities(arguments) => capabilities::run(&arguments),
        Verb::Series(arguments) => series::run(&arguments),
        Verb::CapabilityProbe(arguments) => capabilities::probe::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::Metrics(arguments) => metrics::run(&arguments),
        Verb::Record(arguments) => record::run(&arguments),
        Verb::Trace(arguments) => trace_file::run(&arguments),
        Verb::Sim(arguments) => sim::run(&arguments),
        Verb::Table(arguments) => table::run(&arguments),
        Verb::DirectMap(arguments) => direct_map::run(&arguments),
        Verb::List(arguments) => list::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Restore(arguments) => restore::run(&arguments),
        Verb::Workload(arguments) => run_workload(arguments),
        Verb::GuestSession => kernels::session::run(),
        Verb::Completions(arguments) => generate::completions(&arguments, &Cli::command()),
        Verb::Man(arguments) => generate::man(&arguments, Cli::command()),
        Verb::Generate(arguments) => generate::run(&arguments, Cli::command()),
    }
}

fn complain(failure: &Failure) -> ExitCode {
    report(format_args!("pagelab: {}", results::printable(&failure.to_string())));
    failure.code()
}

fn run_workload(arguments: workload::WorkloadArguments) -> Result<(), Failure> {
    let report = workload::run(arguments)
        .map_err(|error| Failure::Workload { message: error_chain(&error), code: error.exit_code() })?;
    output::print(&report.to_string(), false)?;
    report.wait().map_err(Failure::input)
}
