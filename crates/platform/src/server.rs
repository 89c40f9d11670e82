//! A server under the policy, and the client that drives it.
//!
//! The tracer keeps the first thread busy while the server runs. A second thread waits until the server is ready, runs the
//! client, and ends the server. If pagelab is killed, no process of a client is left ([`tracer::subreaper`]); the tracer is
//! responsible for the server.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use policy::Exit;
use tracer::environment::Variables;
use tracer::{SessionWeight, User, signals};

use super::cpu_time::{self, CpuTime};
use super::error::PlatformError;
use super::helper::{command, kill_if, wait};

/// A server, and how to find out that it is ready.
#[derive(Clone, Debug)]
pub struct Server {
    pub command: Vec<OsString>,
    /// Variables added to the server's environment alone.
    pub variables: Variables,
    /// A command that succeeds as soon as the server is ready.
    pub ready: Vec<OsString>,
    /// How long it may take to become ready, and to end.
    pub patience: Duration,
}

/// A client to be run.
pub struct Client {
    pub command: Vec<OsString>,
    /// The user to run it as.
    pub user: Option<User>,
    /// Variables added to its environment, and to that of the probes.
    pub variables: Variables,
    /// Its own session, and that of each probe ([`Work::own_session`](crate::Work::own_session)).
    pub own_session: Option<SessionWeight>,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// The result of running the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientRun {
    pub exit: Exit,
    /// Its run time in seconds.
    pub wall_s: f64,
    /// The CPU time that the server had used when the client started: to start, and to load data.
    pub before: CpuTime,
    /// Whether the server was still running when the client ended.
    pub server_survived: bool,
}

/// The interval at which a server is checked for being ready and for having ended.
const POLL: Duration = Duration::from_millis(10);

/// Waits for the server, runs the client, ends the server. Must be called while another thread traces the server and sets `over`
/// when the server has ended or could not be started. Sets `timed` while the client runs.
pub fn drive(
    server: &Server,
    client: Client,
    over: &AtomicBool,
    timed: &AtomicBool,
) -> Result<ClientRun, PlatformError> {
    let has_begun = || signals::target().is_some_and(executes_its_program) || over.load(Ordering::SeqCst);
    wait_for(server.patience, has_begun);
    let result = match signals::target() {
        Some(_) => wait_until_ready(server, &client).and_then(|()| run(client, timed)),
        None => Err(PlatformError::ServerEnded),
    };
    terminate(server.patience);
    result
}

/// Whether a new process executes its program. Until then it has the command line of pagelab, and a signal would end it before the server
/// began. If the command line cannot be read, the process has ended.
fn executes_its_program(process: libc::pid_t) -> bool {
    let command_line = |process: &str| std::fs::read(format!("/proc/{process}/cmdline")).ok();
    command_line(&process.to_string()) != command_line("self")
}

fn wait_until_ready(server: &Server, client: &Client) -> Result<(), PlatformError> {
    let failed = |error| PlatformError::Helper { program: server.ready[0].clone(), error };
    let deadline = Instant::now() + server.patience;
    loop {
        if signals::target().is_none() {
            return Err(PlatformError::ServerEnded);
        }
        let mut probe = command(&server.ready, &client.user, &client.variables, client.own_session).map_err(failed)?;
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let probe = probe.spawn().map_err(failed)?;
        kill_if(&probe, || is_pointless() || Instant::now() > deadline);
        if wait(probe).map_err(failed)? == Exit::Code(0) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(PlatformError::NotReady { patience_s: server.patience.as_secs_f64() });
        }
        std::thread::sleep(POLL);
    }
}

fn run(client: Client, timed: &AtomicBool) -> Result<ClientRun, PlatformError> {
    let failed = |error| PlatformError::Helper { program: client.command[0].clone(), error };
    let mut program = command(&client.command, &client.user, &client.variables, client.own_session).map_err(failed)?;
    program.stdin(Stdio::null()).stdout(client.stdout).stderr(client.stderr);
    let before = signals::target().map_or_else(CpuTime::default, |server| cpu_time::of_tree(server as u32));
    timed.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let child = program.spawn().map_err(failed)?;
    drop(program); // the pipe's ends that it holds would keep the output open
    kill_if(&child, is_pointless);
    let exit = wait(child).map_err(failed)?;
    let wall_s = start.elapsed().as_secs_f64();
    timed.store(false, Ordering::SeqCst);
    Ok(ClientRun { exit, wall_s, before, server_survived: signals::target().is_some() })
}

/// Whether a client need not continue: the server has ended, or a signal stopped pagelab.
fn is_pointless() -> bool {
    signals::target().is_none() || signals::arrived().is_some()
}

/// Sends SIGTERM to the server, and kills it if it does not end.
fn terminate(patience: Duration) {
    signals::send(libc::SIGTERM);
    if !wait_for(patience, || signals::target().is_none()) {
        signals::send(libc::SIGKILL);
    }
}

fn wait_for(patience: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}
