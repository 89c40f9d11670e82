//! pagelab: which page size should this memory be mapped with, what does it gain, what does it cost, and why?
#![forbid(unsafe_code)]

mod cli;
mod compare;
mod demo;
mod direct_map;
mod doctor;
mod exec;
mod failure;
mod list;
mod merge;
mod output;
mod record;
mod restore;
mod sim;
mod table;
mod tcg;
mod trace_file;
mod user;
mod words;
mod workload;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};
use failure::{Failure, say};

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Compare(arguments) => compare::run(*arguments),
        Verb::Exec(arguments) => exec::run(arguments),
        Verb::Record(arguments) => record::run(&arguments),
        Verb::Trace(arguments) => trace_file::run(&arguments),
        Verb::Sim(arguments) => sim::run(&arguments),
        Verb::Table(arguments) => table::run(&arguments),
        Verb::DirectMap(arguments) => direct_map::run(&arguments),
        Verb::List(arguments) => list::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Restore(arguments) => restore::run(&arguments),
        Verb::Workload(arguments) => return work(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure),
    }
}

fn complain(failure: &Failure) -> ExitCode {
    say(format_args!("pagelab: {}", results::printable(&failure.to_string())));
    failure.code()
}

fn work(arguments: workload::WorkloadArguments) -> ExitCode {
    match workload::run(arguments) {
        Ok(report) => {
            let printed = output::ignore_closed_pipe(writeln!(std::io::stdout(), "{report}"));
            printed.map_or_else(|failure| complain(&failure), |()| ExitCode::SUCCESS)
        }
        Err(error) => {
            say(format_args!("pagelab: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
