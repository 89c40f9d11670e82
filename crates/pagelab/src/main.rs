//! pagelab: which page size should this memory be mapped with, what does it gain, what does it cost, and why?
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod labs;

fn main() -> std::process::ExitCode {
    verbs::run_command_line(labs::all())
}
