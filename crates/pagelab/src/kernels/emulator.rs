//! Runs a QEMU that boots a guest, reads its output until it ends, and cleans up in all cases.
//!
//! QEMU is killed when the thread that started it ends (PR_SET_PDEATHSIG), and none of its temporary files has a name that
//! could be left over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use guest::{Machine, SAYS};
use tracer::child::die_with_parent;
use tracer::signals;

use super::job::Said;
use crate::tail::Tail;

/// The number of bytes kept from the end of the console output.
const KEPT_BYTES: usize = 4 << 20;

/// How a guest ended.
#[derive(Debug)]
pub enum End {
    /// The guest reported that it was done.
    Done,
    /// The guest or QEMU ended without reporting that it was done.
    Early,
    /// The time limit was reached.
    TooSlow {
        /// Whether the guest had begun its job.
        is_ready: bool,
    },
    /// pagelab was stopped by this signal.
    Interrupted(i32),
}

/// The result of a guest that has ended.
pub struct Ended {
    /// How it ended.
    pub end: End,
    /// The end of its console output, and of QEMU's messages.
    pub console: String,
}

/// Time limits of a guest, from its start.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The limit until it begins its job.
    pub ready: Duration,
    /// The limit until it ends.
    pub end: Duration,
}

/// Why no guest can be started.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    #[error("a guest is run by {program}, which cannot be run: {error}; install it (Debian: {package})")]
    NotRun {
        /// The name of QEMU's program.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A thread or the file for the initramfs could not be created.
    #[error("a guest cannot be made: {0}")]
    System(#[from] std::io::Error),
}

/// QEMU's process. Signals that stop pagelab also kill it. Dropping it kills and reaps it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        signals::unleash();
    }
}

/// Boots a guest and passes its messages to `hear` until it ends.
///
/// # Errors
/// The guest cannot be started.
pub fn boot(
    machine: &Machine,
    kernel: &str,
    initrd: &[u8],
    limits: Limits,
    hear: &mut dyn FnMut(Said),
) -> Result<Ended, EmulatorError> {
    let (program, package) = machine.architecture.emulator();
    let mut command = Command::new(program);
    command.args(machine.words(kernel)).stdin(nameless(initrd)?).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = die_with_parent(&mut command).spawn();
    let mut process = Process(spawned.map_err(|error| EmulatorError::NotRun { program, package, error })?);
    signals::leash(process.0.id().cast_signed());
    let (Some(port), Some(errors)) = (process.0.stdout.take(), process.0.stderr.take()) else {
        unreachable!("both are piped")
    };
    let console = Tail::of(errors, KEPT_BYTES)?;
    let end = heard(&lines(port)?, limits, hear);
    drop(process);
    // The reader thread may not have read the last output yet; `whole` waits for it.
    let console = console.whole();
    let end = signals::arrived().map_or(end, End::Interrupted);
    Ok(Ended { end, console })
}

/// An unnamed file with this content, positioned at its beginning.
fn nameless(content: &[u8]) -> std::io::Result<File> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Reads messages from the port until the guest is done, has ended, or reaches its time limit.
fn heard(lines: &Receiver<Vec<u8>>, limits: Limits, hear: &mut dyn FnMut(Said)) -> End {
    let start = Instant::now();
    let mut is_ready = false;
    loop {
        let limit = if is_ready { limits.end } else { limits.ready.min(limits.end) };
        let Some(left) = limit.checked_sub(start.elapsed()) else { return End::TooSlow { is_ready } };
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return End::TooSlow { is_ready },
            Err(RecvTimeoutError::Disconnected) => return End::Early,
        };
        // Lines that are not messages come from programs that wrote to the port, and are ignored.
        match serde_json::from_slice(&line) {
            Ok(Said::Done) => return End::Done,
            Ok(Said::Ready) => is_ready = true,
            Ok(said) => hear(said),
            Err(_) => {}
        }
    }
}

/// A channel with the lines that are read, until end of file.
fn lines(from: impl Read + Send + 'static) -> std::io::Result<Receiver<Vec<u8>>> {
    let (sender, lines) = sync_channel(16);
    std::thread::Builder::new().name("port".into()).spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    })?;
    Ok(lines)
}

impl Ended {
    /// The most useful part of the console to explain why a guest ended: the message of its first process, a panic, or the
    /// last line.
    pub fn last_words(&self) -> String {
        let lines: Vec<&str> = self.console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines.iter().rev().find_map(|line| line.split_once(SAYS).map(|(_, said)| said));
        let panic = || lines.iter().rev().find(|line| line.contains("Kernel panic")).copied();
        said.or_else(panic).or_else(|| lines.last().copied()).unwrap_or("it printed nothing").to_owned()
    }

    /// Writes the console output to a log file, and returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_log(&self, file: PathBuf) -> Result<PathBuf, results::output::Error> {
        results::files::write(&file, self.console.as_bytes())?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(console: &str) -> Ended {
        Ended { end: End::Early, console: console.to_owned() }
    }

    #[test]
    fn the_last_words_are_those_that_tell_most() {
        assert_eq!(ended("a\npagelab guest: no port\nKernel panic - x\nend").last_words(), "no port");
        assert_eq!(ended("a\n[1] Kernel panic - x\nend").last_words(), "[1] Kernel panic - x");
        assert_eq!(ended("a\n\n b \n").last_words(), "b");
        assert_eq!(ended("").last_words(), "it printed nothing");
    }

    #[test]
    fn a_guest_is_heard_until_it_is_done_or_ends_or_its_time_is_over() {
        let limits = Limits { ready: Duration::from_millis(100), end: Duration::from_millis(300) };
        let hear = |text: &'static str| {
            let mut said = 0;
            let end = heard(&lines(text.as_bytes()).unwrap(), limits, &mut |_| said += 1);
            (end, said)
        };
        let failed = "\"ready\"\nnoise\n{\"failed\":{\"code\":1,\"message\":\"x\"}}\n\"done\"\n";
        assert!(matches!(hear(failed), (End::Done, 1)));
        assert!(matches!(hear("\"ready\"\n"), (End::Early, 0)));
        let (_kept, silent) = sync_channel(1);
        assert!(matches!(heard(&silent, limits, &mut |_| ()), End::TooSlow { is_ready: false }));
    }
}
