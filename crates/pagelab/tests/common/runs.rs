//! Runs commands for the tests ([`Runs`]), and gives their results ([`Ran`]).

use std::io::{ErrorKind, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use super::processes::descendants;
use super::{LIMIT, has, is_root, send, within};

/// The ID of the user without privileges.
const NOBODY: &str = "65534";

/// Runs commands. Each has a timeout, and no command outlives its test.
pub trait Runs {
    /// Runs the command until it ends, without input.
    fn ran(&mut self) -> Ran;
    fn begin(&mut self) -> Running;
    /// The same command, as the user without privileges. Needs root.
    fn as_nobody(&self) -> Command;
}

impl Runs for Command {
    fn ran(&mut self) -> Ran {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin().ran()
    }

    fn begin(&mut self) -> Running {
        let busy = |error: &std::io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
        // Executing the program may fail for a moment: if another test has just forked, its child can still have a
        // bench's copy of the program open for writing.
        let child = (0..50).find_map(|_| match self.spawn() {
            Err(error) if busy(&error) => {
                std::thread::sleep(Duration::from_millis(100));
                None
            }
            spawned => Some(spawned),
        });
        let child = child.unwrap_or_else(|| self.spawn()).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        Running { child, command: format!("{self:?}") }
    }

    fn as_nobody(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        wrap(&mut command, self);
        command
    }
}

/// Appends a command to another one, which gets its environment and directory.
pub fn wrap(outer: &mut Command, inner: &Command) {
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.current_dir(inner.get_current_dir().expect("the bench's directory"));
}

/// Runs a comparison, without privileges if the test has any. Then a comparison that changes no setting does not wait for the
/// lease.
pub fn ran_freely(mut command: Command) -> Ran {
    if is_root() && has("setpriv") { command.as_nobody().ran() } else { command.ran() }
}

/// A started program. If the program still runs when this is dropped, because the test failed, it is killed together with
/// its descendants. Its watchdog is not a descendant, and restores the settings.
pub struct Running {
    child: Child,
    command: String,
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe to its standard input")
    }

    pub fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("a pipe from its standard output")
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the program ends.
    pub fn wait(&mut self) -> ExitStatus {
        let is_over = within(LIMIT, || self.is_over());
        assert!(is_over, "it still runs after {LIMIT:?}: {}", self.command);
        self.child.wait().unwrap()
    }

    /// Kills only this process, and waits until it has exited.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    /// Waits until the program has ended and its output is closed.
    pub fn ran(mut self) -> Ran {
        let (stdout, stderr) = (drain(self.child.stdout.take()), drain(self.child.stderr.take()));
        let status = self.wait();
        let whole = |output: Receiver<Vec<u8>>| match output.recv_timeout(LIMIT) {
            Ok(bytes) => bytes,
            Err(_) => panic!("it ended, and {LIMIT:?} later somebody still had its output open: {}", self.command),
        };
        Ran::of(&Output { status, stdout: whole(stdout), stderr: whole(stderr) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let tree = descendants(self.id());
        let _ = self.child.kill();
        tree.into_iter().for_each(|pid| send("KILL", pid));
        within(LIMIT, || self.child.try_wait().map_or(true, |status| status.is_some()));
    }
}

/// Reads a pipe until its end in a thread, so that a test can wait for it with a timeout.
fn drain(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, output) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        let _ = done.send(bytes);
    });
    output
}

/// The result of a run of the program.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: &Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Checks the exit code, and that the message contains all of these parts.
    pub fn assert_exit(&self, code: i32, parts: &[&str]) -> &Ran {
        assert_eq!(self.code, Some(code), "{self}");
        let message = words(&self.stderr);
        parts.iter().for_each(|part| assert!(message.contains(part), "no {part:?} in {self}"));
        assert!(!message.contains("panicked"), "{self}");
        self
    }

    /// Checks that standard output contains all of these parts, wherever its lines are wrapped.
    pub fn assert_stdout(&self, parts: &[&str]) -> &Ran {
        let printed = words(&self.stdout);
        parts.iter().for_each(|part| assert!(printed.contains(part), "no {part:?} in {self}"));
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// The words of a text, separated by one space each.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
