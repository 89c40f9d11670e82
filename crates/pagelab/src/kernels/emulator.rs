//! A QEMU that boots a guest, is heard to its end, and is gone then whatever happens.
//!
//! It is killed when the thread that started it ends (PR_SET_PDEATHSIG), and no file that it uses has a name that would stay.

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

/// So many of the last bytes of the console are kept.
const KEPT_BYTES: usize = 4 << 20;

/// How a guest ended.
#[derive(Debug)]
pub enum End {
    /// It said that it was done.
    Done,
    /// It ended, or QEMU did, and had not said so.
    Early,
    /// Its time was over. Whether it had come so far as to begin its job.
    TooSlow {
        /// It had begun.
        is_ready: bool,
    },
    /// pagelab was told to stop.
    Interrupted(i32),
}

/// What is known of a guest that has ended.
pub struct Ended {
    /// How.
    pub end: End,
    /// What it said on its console, and QEMU with it: the last of it.
    pub console: String,
}

/// How long a guest may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until it begins its job.
    pub ready: Duration,
    /// Until its end.
    pub end: Duration,
}

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// There is no QEMU.
    #[error("a guest is run by {program}, which cannot be run: {error}; install it (Debian: {package})")]
    NotRun {
        /// QEMU's program.
        program: &'static str,
        /// Debian's package that has it.
        package: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// A thread, or a file for the first file system.
    #[error("a guest cannot be made: {0}")]
    System(#[from] std::io::Error),
}

/// QEMU's process, on the leash of signals. Dropped, it is killed.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        signals::unleash();
    }
}

/// Boots a guest and hears it to its end.
///
/// # Errors
/// It cannot be begun.
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
    // Its last words are on their way.
    let console = console.whole();
    let end = signals::arrived().map_or(end, End::Interrupted);
    Ok(Ended { end, console })
}

/// A file without a name that holds this, to be read from its beginning.
fn nameless(content: &[u8]) -> std::io::Result<File> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Hears the lines of the port until the guest is done, has ended, or its time is over.
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
        // What is no line of ours is something that a program wrote to the port, and says nothing.
        match serde_json::from_slice(&line) {
            Ok(Said::Done) => return End::Done,
            Ok(Said::Ready) => is_ready = true,
            Ok(said) => hear(said),
            Err(_) => {}
        }
    }
}

/// The lines that come, until there are no more.
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
    /// What tells most of why a guest ended: what its first process said, a panic, or its last line.
    pub fn last_words(&self) -> String {
        let lines: Vec<&str> = self.console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines.iter().rev().find_map(|line| line.split_once(SAYS).map(|(_, said)| said));
        let panic = || lines.iter().rev().find(|line| line.contains("Kernel panic")).copied();
        said.or_else(panic).or_else(|| lines.last().copied()).unwrap_or("it said nothing").to_owned()
    }

    /// Writes the console's log, and returns where it is.
    ///
    /// # Errors
    /// It cannot be written.
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
        assert_eq!(ended("").last_words(), "it said nothing");
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
