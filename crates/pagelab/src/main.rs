//! pagelab: which page size should this memory be mapped with, what does it gain, what does it cost, and why?
#![forbid(unsafe_code)]

mod workload;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "pagelab", about, version)]
enum Verb {
    /// A built-in workload, a command like any other
    Workload(workload::WorkloadArguments),
}

fn main() -> ExitCode {
    let Verb::Workload(arguments) = Verb::parse();
    match workload::run(arguments) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pagelab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
