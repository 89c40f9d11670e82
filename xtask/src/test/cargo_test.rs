//! Runs tests with `cargo test`, which runs all tests of a program in one process, and sets the signal dispositions with
//! which tests start.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use super::tally::Tally;
use super::{libtest, modules};

/// The variable that names the file in which tests record that they were skipped (`testing::SKIPS`).
pub const SKIPS: &str = "PAGELAB_TEST_SKIPS";

/// Runs tests of the workspace. Their output is shown as it comes.
pub fn cargo_test(root: &Path, options: &[&str], modules: Option<&Path>, skips: &Path) -> Result<Tally, String> {
    let io = |error: std::io::Error| format!("cannot run cargo test: {error}");
    let (reader, writer) = std::io::pipe().map_err(io)?;
    let mut command = crate::cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]).args(options).env(SKIPS, skips);
    command.envs(modules.map(|directory| (modules::MODULES, directory)));
    let mut command = answering_signals(command);
    command.stdout(writer.try_clone().map_err(io)?).stderr(writer);
    let mut child = command.spawn().map_err(io)?;
    // The command also holds the write end of the pipe. After it is dropped, reading ends when the tests end.
    drop(command);
    let mut output = libtest::Output::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(io)?;
        let line = String::from_utf8_lossy(&line);
        output.read(&line);
        println!("{line}");
    }
    Ok(output.end(child.wait().map_err(io)?.success()))
}

/// The command, changed so that it has the default actions for SIGHUP, SIGINT and SIGTERM, which tests send. A shell ignores
/// signals in processes that it starts in the background, and ignored signals are inherited. The command is unchanged if `env` does
/// not have this option (coreutils before 8.31).
pub fn answering_signals(command: Command) -> Command {
    const DEFAULT: &str = "--default-signal=HUP,INT,TERM";
    if !Command::new("env").args([DEFAULT, "true"]).status().is_ok_and(|status| status.success()) {
        return command;
    }
    let mut outer = Command::new("env");
    outer.arg(OsStr::new(DEFAULT)).arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.get_current_dir().map(|directory| outer.current_dir(directory));
    outer
}
