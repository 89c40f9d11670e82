//! Starting the measured program: found, prepared, traced from its first instruction on.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libc::sock_filter;
use study::trial::Exit;

use super::obstacle::Obstacle;
use super::ptrace::{self, Tid};
use super::rewriting::Rewriting;
use super::{filter, thp_disable};
use crate::environment;
use crate::minder::Minder;
use crate::signals::{self, Session};
use crate::terminal::{self, Relay, Terminal, Wiring};
use crate::user::{self, User};

/// A program to start and how.
#[derive(Debug)]
pub struct Launch {
    /// The program as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    /// The user to become; `None`: the one who runs pagelab. Another one's program has a session of its own, and what of
    /// its standard streams is a terminal is a relayed one.
    pub user: Option<User>,
    /// Variables on top of what its environment is ([`environment::of`]).
    pub variables: environment::Variables,
    /// Standard input; `None`: pagelab's own.
    pub stdin: Option<OwnedFd>,
    /// Standard output; `None`: pagelab's own.
    pub stdout: Option<OwnedFd>,
    /// Standard error; `None`: pagelab's own.
    pub stderr: Option<OwnedFd>,
    /// Whether transparent huge pages are disabled for the program and all that it starts
    /// (PR_SET_THP_DISABLE, kept over fork and exec).
    pub disable_thp: bool,
    /// How long the program may take; then it is killed with its tree. `None`: as long as it likes.
    pub limit: Option<Duration>,
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such file, or no such name in PATH.
    #[error("the command {0:?} was not found; give its path, or check PATH")]
    NotFound(OsString),
    /// It is there but cannot be executed.
    #[error("{0:?} is not executable: {1}")]
    NotExecutable(PathBuf, Obstacle),
    /// A part of the command line has a zero byte.
    #[error("an argument of the command holds a zero byte")]
    ZeroByte,
    /// ptrace is forbidden.
    #[error("tracing the command is forbidden ({0}); {1}")]
    PtraceForbidden(io::Error, String),
    /// A step of the preparation failed in the new process.
    #[error("{step} failed for the command: {error}; {remedy}")]
    Prepare {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        error: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The new process ended before it executed the program: a signal came first.
    #[error("the command was interrupted before it began")]
    Interrupted,
    /// The tracer could not go on with the tree, and killed it.
    #[error(
        "the kernel refused the tracer a request on the running command ({0}), which was killed; try without the policy, or report this"
    )]
    GivenUp(io::Error),
    /// Processes of the tree that do not die.
    #[error(
        "the command was killed, and of its processes {0:?} do not die; the kernel does not let them hear signals while they          wait for a device or a file server (state D), or their cgroup is frozen: look at /proc/PID/stack, or thaw it"
    )]
    Immortal(Vec<Tid>),
    /// The kernel has no resources.
    #[error("the command could not be started: {0}")]
    Resources(#[from] io::Error),
}

impl LaunchError {
    /// The exit status that a shell has for a command that it cannot run: 127 where it is not there, 126 where it is
    /// and cannot be executed. `None` where that is not the reason.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            LaunchError::NotFound(_) => Some(127),
            LaunchError::NotExecutable(..) => Some(126),
            LaunchError::Prepare { step, .. } if *step == STEPS[EXECUTE].0 => Some(126),
            _ => None,
        }
    }
}

/// Steps of the preparation, numbered for the pipe through which the new process reports.
const STEPS: [(&str, &str); 7] = [
    ("redirecting its input and output", "this is a fault of pagelab's"),
    ("prctl(PR_SET_THP_DISABLE)", "it needs Linux 3.15 with CONFIG_TRANSPARENT_HUGEPAGE"),
    ("prctl(PR_SET_NO_NEW_PRIVS)", "it needs Linux 3.5"),
    ("installing the seccomp filter", "it needs CONFIG_SECCOMP_FILTER and no sandbox that forbids seccomp"),
    ("becoming the user", "only root can run a command as another user"),
    ("giving it a session of its own", "this is a fault of pagelab's"),
    ("executing it", "execve(2) says what this error means"),
];
/// The number of the last one.
const EXECUTE: usize = STEPS.len() - 1;

/// Everything that the new process needs, made before the fork: after it, only system calls are safe.
struct Prepared {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    stdio: [Option<RawFd>; 3],
    filter: Vec<sock_filter>,
    session: OwnSession,
    no_new_privileges: bool,
    dies_with_parent: bool,
    thp: Option<ThpSetting>,
    user: Option<User>,
    go: RawFd,
    /// pagelab's ends of the two pipes, which the new process has too until it closes them.
    foreign: [RawFd; 2],
    report: RawFd,
}

/// The session of the new process.
#[derive(Clone, Copy)]
enum OwnSession {
    /// pagelab's.
    None,
    /// Its own, without a terminal.
    Bare,
    /// Its own, on a terminal, led by a monitor.
    OnTerminal(Wiring),
}

/// What PR_SET_THP_DISABLE is set to before the program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpSetting {
    /// Disabled.
    Disabled,
    /// Not disabled, whatever was inherited (from systemd's `MemoryTHP=`, a container, an outer pagelab).
    Enabled,
}

impl ThpSetting {
    /// What a policy needs; `None`: as it was inherited.
    pub fn of(launch: &Launch, rewriting: &Rewriting) -> Option<ThpSetting> {
        match (launch.disable_thp, rewriting.wants_large()) {
            (true, _) => Some(ThpSetting::Disabled),
            (false, true) => Some(ThpSetting::Enabled),
            (false, false) => None,
        }
    }
}

/// A program that waits to be let go.
pub struct Started {
    /// Its process id.
    pub tid: Tid,
    /// How keys of pagelab's terminal reach it.
    pub session: Session,
    /// The program, or the monitor of its terminal.
    child: Tid,
    /// Whether that is a child of pagelab's, and not of a minder.
    is_own_child: bool,
    relay: Option<Relay>,
    go: File,
    report: File,
}

/// Starts a program under the filter, attached to the calling thread, up to just before its exec.
/// The minder says when its tree has ended.
pub fn start(
    launch: &Launch,
    filter: Vec<sock_filter>,
    thp: Option<ThpSetting>,
) -> Result<(Minder, Started), LaunchError> {
    let mut minder = None;
    let fork = |prepared: &Prepared| {
        let (its_minder, child) = fork_minded(prepared, launch.limit)?;
        minder = Some(its_minder);
        Ok(child)
    };
    let begun = begin(launch, |prepared| Prepared { filter, thp, ..prepared }, fork);
    let begun = begun.and_then(|started| match ptrace::seize(started.tid) {
        Ok(()) => Ok(started),
        Err(error) => {
            drop(started); // end of file on `go`: the process ends by itself
            Err(LaunchError::PtraceForbidden(error, ptrace_remedy()))
        }
    });
    match (begun, minder) {
        (Ok(started), Some(minder)) => Ok((minder, started)),
        (Ok(_), None) => Err(LaunchError::Interrupted),
        (Err(error), minder) => {
            minder.iter().for_each(Minder::wait);
            Err(error)
        }
    }
}

/// Starts a program that nothing is asked of but to end no later than pagelab, up to just before its exec.
/// Where it disables transparent huge pages, a filter answers the program's own PR_SET_THP_DISABLE.
pub fn start_untraced(launch: &Launch) -> Result<Started, LaunchError> {
    let (thp, filter) = match launch.disable_thp {
        true => (Some(ThpSetting::Disabled), filter::program(&thp_disable::watches_without_tracer())),
        false => (None, Vec::new()),
    };
    let complete = |prepared| Prepared { dies_with_parent: true, thp, filter, ..prepared };
    let mut started = begin(launch, complete, fork_child)?;
    started.is_own_child = true;
    Ok(started)
}

fn begin(
    launch: &Launch,
    complete: impl FnOnce(Prepared) -> Prepared,
    fork: impl FnOnce(&Prepared) -> io::Result<Tid>,
) -> Result<Started, LaunchError> {
    let (go_read, go_write) = pipe()?;
    let (report_read, report_write) = pipe()?;
    let foreign = [go_write.as_raw_fd(), report_read.as_raw_fd()];
    let is_apart = launch.user.as_ref().is_some_and(User::is_another);
    let terminal = terminal(launch)?;
    let session = match &terminal {
        Some(terminal) => OwnSession::OnTerminal(terminal.wiring()),
        None if is_apart => OwnSession::Bare,
        None => OwnSession::None,
    };
    let mut prepared =
        complete(Prepared { session, ..prepare(launch, go_read.as_raw_fd(), foreign, report_write.as_raw_fd())? });
    // Without CAP_SYS_ADMIN the kernel takes no filter of a process that could gain a privilege.
    prepared.no_new_privileges |= !prepared.filter.is_empty() && !may_filter_with_privileges();
    if let Some(terminal) = &terminal {
        terminal.streams().iter().zip(&mut prepared.stdio).for_each(|(new, stream)| *stream = new.or(*stream));
    }
    if is_apart {
        terminal::keep_from_commands();
    }
    let child = fork(&prepared)?;
    drop((go_read, report_write));
    let (go, mut report) = (File::from(go_write), File::from(report_read));
    let Some(terminal) = terminal else {
        let session = if is_apart { Session::Own } else { Session::Shared };
        return Ok(Started { tid: child, session, child, is_own_child: false, relay: None, go, report });
    };
    let attended = terminal.started().map_err(|error| {
        let failure = reported(&mut report);
        failure.map_or(LaunchError::Resources(error), |(step, error)| unprepared(step, error))
    })?;
    let tid = attended.command;
    let relay = Relay::start(attended)?;
    Ok(Started { tid, session: Session::OnTerminal, child, is_own_child: false, relay: Some(relay), go, report })
}

/// A terminal for a program of another user, where one of its streams is a terminal.
fn terminal(launch: &Launch) -> Result<Option<Terminal>, LaunchError> {
    let Some(user) = launch.user.as_ref().filter(|user| user.is_another()) else { return Ok(None) };
    let stream = |fd: &Option<OwnedFd>, own| fd.as_ref().map_or(own, AsRawFd::as_raw_fd);
    let streams = [
        stream(&launch.stdin, libc::STDIN_FILENO),
        stream(&launch.stdout, libc::STDOUT_FILENO),
        stream(&launch.stderr, libc::STDERR_FILENO),
    ];
    Ok(Terminal::in_place_of(streams, user)?)
}

impl Started {
    /// Lets the process go on to its exec.
    pub fn release(&mut self) -> io::Result<()> {
        self.go.write_all(&[1])
    }

    /// Why the process ended before its exec; `None` where it did execute the program.
    pub fn failure(&mut self, path: &Path) -> Option<LaunchError> {
        Some(match reported(&mut self.report)? {
            (step, error) if step < EXECUTE => unprepared(step, error),
            (_, error) => not_executed(path, error),
        })
    }

    /// Waits for the end of an untraced program, and stops with it.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            let mut status = 0;
            // SAFETY: the status is live.
            if unsafe { libc::waitpid(self.child, &raw mut status, libc::WUNTRACED) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            } else if libc::WIFSTOPPED(status) {
                signals::program_stopped();
            } else if libc::WIFEXITED(status) {
                return Ok(Exit::Code(libc::WEXITSTATUS(status)));
            } else {
                return Ok(Exit::Signal(libc::WTERMSIG(status)));
            }
        }
    }

    fn reap(&self) {
        if self.is_own_child {
            reap(self.child);
        }
    }

    /// After the program's end: until its terminal has shown everything, and is pagelab's again.
    pub fn finish(&mut self) {
        if let Some(relay) = self.relay.take() {
            relay.finish();
            self.reap();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(relay) = self.relay.take() {
            drop(relay); // the monitor kills what still runs
            self.reap();
        }
    }
}

/// The step at which the process failed before its exec, and the kernel's answer.
fn reported(report: &mut File) -> Option<(usize, io::Error)> {
    let mut message = [0u8; 8];
    report.read_exact(&mut message).ok()?;
    let error = i32::from_le_bytes(message[4..].try_into().expect("4 bytes"));
    Some((usize::from(message[0]), io::Error::from_raw_os_error(error)))
}

pub(super) fn unprepared(step: usize, error: io::Error) -> LaunchError {
    let (step, remedy) = STEPS[step];
    LaunchError::Prepare { step, error, remedy }
}

pub(super) fn not_executed(path: &Path, error: io::Error) -> LaunchError {
    match Obstacle::of(path, &error) {
        Some(obstacle) => LaunchError::NotExecutable(path.to_path_buf(), obstacle),
        None => unprepared(EXECUTE, error),
    }
}

/// Finds the program as the shell would.
pub fn resolve(program: &OsStr) -> Result<PathBuf, LaunchError> {
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program));
    }
    if program.is_empty() {
        return Err(LaunchError::NotFound(OsString::new()));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    let mut refused = None;
    for candidate in candidates {
        match executable(&candidate) {
            Ok(found) => return Ok(found),
            Err(LaunchError::NotExecutable(_, Obstacle::Directory)) => {}
            Err(error @ LaunchError::NotExecutable(..)) => refused = refused.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| LaunchError::NotFound(program.to_os_string())))
}

fn executable(path: &Path) -> Result<PathBuf, LaunchError> {
    let refused = |obstacle| Err(LaunchError::NotExecutable(path.to_path_buf(), obstacle));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused(Obstacle::Unreachable),
        Err(_) => Err(LaunchError::NotFound(path.as_os_str().to_os_string())),
        Ok(meta) if meta.is_dir() => refused(Obstacle::Directory),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => refused(Obstacle::NoPermission),
        Ok(_) => Ok(path.to_path_buf()),
    }
}

fn prepare(launch: &Launch, go: RawFd, foreign: [RawFd; 2], report: RawFd) -> Result<Prepared, LaunchError> {
    let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| LaunchError::ZeroByte);
    let program = launch.command.first().ok_or_else(|| LaunchError::NotFound(OsString::new()))?;
    let path = text(resolve(program)?.into_os_string().into_vec())?;
    let arguments =
        launch.command.iter().map(|argument| text(argument.clone().into_vec())).collect::<Result<_, _>>()?;
    let environment = environment::of(launch.user.as_ref(), &launch.variables)
        .into_iter()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(name.into_vec())
        })
        .collect::<Result<_, _>>()?;
    let raw = |fd: &Option<OwnedFd>| fd.as_ref().map(AsRawFd::as_raw_fd);
    Ok(Prepared {
        path,
        arguments,
        environment,
        stdio: [raw(&launch.stdin), raw(&launch.stdout), raw(&launch.stderr)],
        filter: Vec::new(),
        session: OwnSession::None,
        no_new_privileges: user::gains_no_privilege(launch.user.as_ref()),
        dies_with_parent: false,
        thp: None,
        user: launch.user.clone(),
        go,
        foreign,
        report,
    })
}

/// Makes this process and all that it will be gain no privilege by exec.
pub(super) fn gain_no_privilege() -> Result<(), LaunchError> {
    // SAFETY: prctl with plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        -1 => Err(unprepared(2, io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// Disables transparent huge pages for this process and all that it will be, and lets nobody enable them again. Without
/// CAP_SYS_ADMIN that means that the program gains no privilege by exec.
pub(super) fn disable_thp_for_good() -> Result<(), LaunchError> {
    let filter = filter::program(&thp_disable::watches_without_tracer());
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    let step = |number: usize, result: libc::c_int| match result {
        -1 => Err(unprepared(number, io::Error::last_os_error())),
        _ => Ok(()),
    };
    // SAFETY: prctl with plain numbers, and with a filter that lives until the kernel has copied it.
    unsafe {
        step(1, libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0))?;
        if !may_filter_with_privileges() {
            gain_no_privilege()?;
        }
        step(3, libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program))
    }
}

/// With CAP_SYS_ADMIN a filter needs no PR_SET_NO_NEW_PRIVS, and setuid programs keep working.
fn may_filter_with_privileges() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> CAP_SYS_ADMIN & 1 == 1)
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// A process under a minder.
fn fork_minded(prepared: &Prepared, limit: Option<Duration>) -> io::Result<(Minder, Tid)> {
    let (arguments, environment) = (pointers(&prepared.arguments), pointers(&prepared.environment));
    let restores_terminal = matches!(prepared.session, OwnSession::OnTerminal(_));
    // SAFETY: the child only makes system calls on memory that was prepared above, until it executes
    // another program or exits; it allocates nothing and takes no lock.
    unsafe { Minder::start(limit, restores_terminal, || become_program(prepared, &arguments, &environment)) }
}

/// A child of pagelab's.
fn fork_child(prepared: &Prepared) -> io::Result<Tid> {
    let (arguments, environment) = (pointers(&prepared.arguments), pointers(&prepared.environment));
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => become_program(prepared, &arguments, &environment),
        tid => Ok(tid),
    }
}

fn reap(tid: Tid) {
    while let Err(error) = ptrace::wait(tid) {
        if error.kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// What the new process does. Only system calls from here on.
fn become_program(prepared: &Prepared, arguments: &[*const libc::c_char], environment: &[*const libc::c_char]) -> ! {
    // SAFETY: plain system calls on prepared memory; `_exit` runs no handlers of the parent's.
    unsafe {
        forget_handlers();
        match &prepared.session {
            OwnSession::None => {}
            OwnSession::Bare => check(libc::setsid(), 5, prepared.report),
            OwnSession::OnTerminal(wiring) => {
                check(if terminal::step_between(wiring).is_ok() { 0 } else { -1 }, 5, prepared.report);
            }
        }
        // With its own copy of the other end it would never read that pagelab is gone, and wait for ever: not
        // traced yet, so that nobody kills it, and with the lock of the lease, which it has inherited.
        for end in prepared.foreign {
            libc::close(end);
        }
        let parent = libc::getppid();
        let mut byte = 0u8;
        if libc::read(prepared.go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        for (number, source) in prepared.stdio.into_iter().enumerate() {
            if let Some(fd) = source {
                check(libc::dup2(fd, number as i32), 0, prepared.report);
            }
        }
        if let Some(setting) = prepared.thp {
            let disabled = libc::c_ulong::from(setting == ThpSetting::Disabled);
            check(libc::prctl(libc::PR_SET_THP_DISABLE, disabled, 0, 0, 0), 1, prepared.report);
        }
        if prepared.no_new_privileges {
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 2, prepared.report);
        }
        if !prepared.filter.is_empty() {
            let program =
                libc::sock_fprog { len: prepared.filter.len() as u16, filter: prepared.filter.as_ptr().cast_mut() };
            let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
            check(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 3, prepared.report);
        }
        if let Some(user) = &prepared.user {
            check(if user.assume().is_ok() { 0 } else { -1 }, 4, prepared.report);
        }
        if prepared.dies_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL); // a change of the user takes it back, so not before that
            if libc::getppid() != parent {
                libc::_exit(127); // it died before the line above
            }
        }
        restore_signals();
        libc::execve(prepared.path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        check(-1, EXECUTE as u8, prepared.report);
        libc::_exit(127)
    }
}

/// Reports a failed step and ends the new process.
///
/// # Safety
/// Only between fork and exec.
unsafe fn check(result: libc::c_int, step: u8, report: RawFd) {
    if result != -1 {
        return;
    }
    // SAFETY: errno is the thread's own; the message is live.
    unsafe {
        let mut message = [step, 0, 0, 0, 0, 0, 0, 0];
        message[4..].copy_from_slice(&(*libc::__errno_location()).to_le_bytes());
        libc::write(report, message.as_ptr().cast(), message.len());
        libc::_exit(127);
    }
}

/// A signal that pagelab catches ends this process, which is not pagelab, before its exec.
///
/// # Safety
/// Only between fork and exec.
unsafe fn forget_handlers() {
    for number in signals::CAUGHT {
        // SAFETY: plain system calls on live memory.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &raw mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::signal(number, libc::SIG_DFL);
            }
        }
    }
}

/// Gives the program the signal state that a shell would: Rust's runtime ignores SIGPIPE, and pagelab
/// may have blocked signals.
///
/// # Safety
/// Only between fork and exec.
unsafe fn restore_signals() {
    // SAFETY: plain system calls on live memory.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?)
}

fn ptrace_remedy() -> String {
    if let Some(tracer) = host::outer_tracer() {
        return format!(
            "{tracer} already traces pagelab and what it starts, and a process has one tracer at most: run pagelab without it"
        );
    }
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").as_deref().map(str::trim) {
        Ok("3") => "kernel.yama.ptrace_scope is 3, which lasts until reboot".into(),
        Ok("2") => "kernel.yama.ptrace_scope is 2: run as root, or sysctl kernel.yama.ptrace_scope=1".into(),
        _ => "in a container allow it: docker run --cap-add SYS_PTRACE".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_ends_when_pagelab_is_gone_before_it_is_traced() {
        let launch = Launch {
            command: vec!["true".into()],
            user: None,
            variables: Vec::new(),
            stdin: None,
            stdout: None,
            stderr: None,
            disable_thp: false,
            limit: None,
        };
        let ((go_read, go_write), (report_read, report_write)) = (pipe().unwrap(), pipe().unwrap());
        let foreign = [go_write.as_raw_fd(), report_read.as_raw_fd()];
        let prepared = prepare(&launch, go_read.as_raw_fd(), foreign, report_write.as_raw_fd()).unwrap();
        // It waits for nobody else, and the minder for it.
        let (minder, tid) = fork_minded(&prepared, Some(Duration::from_secs(20))).unwrap();
        drop((go_read, go_write));
        minder.wait();
        assert!(tid > 0 && !minder.time_is_up(), "it still waits for a byte that nobody can send");
    }
}
