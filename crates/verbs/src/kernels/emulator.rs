//! Runs a QEMU that boots a guest, reads the guest's messages until it ends, and cleans up in all cases ([`boot`]).
//!
//! QEMU is killed when the thread that started it ends (PR_SET_PDEATHSIG). Its temporary file has no name, so nothing
//! can be left over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use guest::{Architecture, Machine, SAYS};
use tracer::child::die_with_parent;
use tracer::signals;

use super::job::Message;
use crate::tail::Tail;

/// The number of bytes kept from the end of the console output.
const KEPT_BYTES: usize = 4 << 20;

/// How a guest ended.
#[derive(Debug)]
pub enum GuestEnd {
    /// The guest reported [`Message::Done`].
    Done,
    /// The guest or QEMU ended before [`Message::Done`].
    Early,
    /// The time limit was reached.
    TooSlow {
        /// Whether the guest had reported [`Message::Ready`].
        is_ready: bool,
    },
    /// pagelab was stopped by this signal.
    Interrupted(i32),
}

/// How a guest ended, and what its console showed.
pub struct GuestResult {
    pub end: GuestEnd,
    /// The end of the console output and of QEMU's messages.
    pub console: String,
}

/// Time limits of a guest, from its start.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time within which the guest must report [`Message::Ready`].
    pub ready: Duration,
    /// Time within which the guest must report [`Message::Done`].
    pub end: Duration,
}

/// Why no guest can be started.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    #[error("guests need {program}, which cannot be run: {error}{}", installation(error, package))]
    CannotRun {
        /// The name of QEMU's program.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
        error: std::io::Error,
    },
    /// A thread or the file for the initramfs could not be created.
    #[error("a guest cannot be started: {0}")]
    System(#[from] std::io::Error),
}

/// How to install a program if it is missing; empty for other errors.
fn installation(error: &std::io::Error, package: &str) -> String {
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    if is_missing { format!("; install it (Debian: {package})") } else { String::new() }
}

/// QEMU's process. Signals that stop pagelab also kill it. Dropping it kills and reaps it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        signals::stop_forwarding();
    }
}

/// The version that the system emulator for this architecture reports: `QEMU emulator version 7.2.22 (Debian ...)`. `None` if the
/// emulator cannot be run.
pub fn version(architecture: Architecture) -> Option<String> {
    let output = Command::new(architecture.emulator().0).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_once(" version ")?.1.split_whitespace().next()?;
    version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+~".contains(c)).then(|| version.to_owned())
}

/// Boots a guest and passes its messages to `receive` until it ends.
pub fn boot(
    machine: &Machine,
    kernel: &str,
    initrd: &[u8],
    limits: Limits,
    receive: &mut dyn FnMut(Message),
) -> Result<GuestResult, EmulatorError> {
    let (program, package) = machine.architecture.emulator();
    let mut command = Command::new(program);
    command.args(machine.words(kernel)).stdin(unnamed_file(initrd)?).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = die_with_parent(&mut command).spawn();
    let mut process = Process(spawned.map_err(|error| EmulatorError::CannotRun { program, package, error })?);
    signals::forward_to(process.0.id().cast_signed());
    let (Some(port), Some(errors)) = (process.0.stdout.take(), process.0.stderr.take()) else {
        unreachable!("both are piped")
    };
    let console = Tail::of(errors, KEPT_BYTES)?;
    let end = receive_until_end(&lines(port)?, limits, receive);
    drop(process);
    // The reader thread may not have read the last output yet; `wait` waits for it.
    let console = console.wait();
    let end = signals::arrived().map_or(end, GuestEnd::Interrupted);
    Ok(GuestResult { end, console })
}

/// An unnamed file with this content, positioned at its beginning.
fn unnamed_file(content: &[u8]) -> std::io::Result<File> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Receives messages from the guest's port until the guest is done, has ended, or reaches its time limit.
fn receive_until_end(lines: &Receiver<Vec<u8>>, limits: Limits, receive: &mut dyn FnMut(Message)) -> GuestEnd {
    let start = Instant::now();
    let mut is_ready = false;
    loop {
        let limit = if is_ready { limits.end } else { limits.ready.min(limits.end) };
        let Some(left) = limit.checked_sub(start.elapsed()) else { return GuestEnd::TooSlow { is_ready } };
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return GuestEnd::TooSlow { is_ready },
            Err(RecvTimeoutError::Disconnected) => return GuestEnd::Early,
        };
        // Lines that are not messages come from programs that wrote to the port, and are ignored.
        match serde_json::from_slice(&line) {
            Ok(Message::Done) => return GuestEnd::Done,
            Ok(Message::Ready) => is_ready = true,
            Ok(message) => receive(message),
            Err(_) => {}
        }
    }
}

/// Starts a thread that reads lines until end of file, and returns the channel on which they arrive.
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

impl GuestResult {
    /// The part of the console that best explains why a guest ended: init's message, a panic, or the last line; `None` if the
    /// console is empty.
    pub fn last_words(&self) -> Option<&str> {
        let lines: Vec<&str> = self.console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let message = lines.iter().rev().find_map(|line| line.split_once(SAYS).map(|(_, message)| message));
        let panic = || lines.iter().rev().find(|line| line.contains("Kernel panic")).copied();
        message.or_else(panic).or_else(|| lines.last().copied())
    }

    /// Writes the console output to a log file, and returns its path.
    pub fn write_log(&self, file: PathBuf) -> Result<PathBuf, results::output::Error> {
        results::files::write(&file, self.console.as_bytes())?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(console: &str) -> GuestResult {
        GuestResult { end: GuestEnd::Early, console: console.to_owned() }
    }

    #[test]
    fn last_words_prefer_inits_message_then_a_panic() {
        assert_eq!(ended("a\npagelab guest: no port\nKernel panic - x\nend").last_words(), Some("no port"));
        assert_eq!(ended("a\n[1] Kernel panic - x\nend").last_words(), Some("[1] Kernel panic - x"));
        assert_eq!(ended("a\n\n b \n").last_words(), Some("b"));
        assert_eq!(ended("").last_words(), None);
    }

    #[test]
    fn receives_until_the_guest_is_done_or_ends_or_times_out() {
        let limits = Limits { ready: Duration::from_secs(20), end: Duration::from_secs(20) };
        let received = |text: &'static str| {
            let mut messages = 0;
            let end = receive_until_end(&lines(text.as_bytes()).unwrap(), limits, &mut |_| messages += 1);
            (end, messages)
        };
        let failed = "\"ready\"\nnoise\n{\"failed\":{\"task\":0,\"code\":1,\"message\":\"x\"}}\n\"done\"\n";
        assert!(matches!(received(failed), (GuestEnd::Done, 1)));
        assert!(matches!(received("\"ready\"\n"), (GuestEnd::Early, 0)));
        let limits = Limits { ready: Duration::from_millis(100), end: Duration::from_millis(300) };
        let (_sender, silent) = sync_channel(1);
        assert!(matches!(receive_until_end(&silent, limits, &mut |_| ()), GuestEnd::TooSlow { is_ready: false }));
    }
}
