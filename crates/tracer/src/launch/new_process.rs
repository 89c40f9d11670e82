//! The code that a new process runs between its fork and its exec. [`Prepared`] has everything that it needs.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use libc::sock_filter;

use super::error::{EXECUTE, LaunchError};
use super::resolve::resolve;
use super::{Launch, ThpSetting};
use crate::autogroup::{self, SessionWeight};
use crate::ptrace::Tid;
use crate::subreaper::Subreaper;
use crate::terminal::{self, MonitorSetup};
use crate::user::{self, User};
use crate::{environment, signals};

/// Everything that the new process needs, allocated before the fork: after it, only system calls are safe.
pub(super) struct Prepared {
    pub(super) path: CString,
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) stdio: [Option<RawFd>; 3],
    pub(super) control_group: Option<RawFd>,
    pub(super) filter: Vec<sock_filter>,
    pub(super) session: OwnSession,
    pub(super) session_weight: SessionWeight,
    pub(super) no_new_privileges: bool,
    pub(super) dies_with_parent: bool,
    pub(super) thp: Option<ThpSetting>,
    pub(super) user: Option<User>,
    pub(super) go: RawFd,
    /// pagelab's ends of the two pipes, which the new process inherits and closes.
    pub(super) parent_ends: [RawFd; 2],
    pub(super) report: RawFd,
}

/// The session of the new process.
#[derive(Clone, Copy)]
pub(super) enum OwnSession {
    /// The new process stays in pagelab's session.
    None,
    /// A new session without a terminal.
    Bare,
    /// A new session on a terminal, led by a monitor.
    OnTerminal(MonitorSetup),
}

/// Allocates everything that the new process needs.
pub(super) fn prepare(
    launch: &Launch,
    go: RawFd,
    parent_ends: [RawFd; 2],
    report: RawFd,
) -> Result<Prepared, LaunchError> {
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
        control_group: raw(&launch.control_group),
        filter: Vec::new(),
        session: OwnSession::None,
        session_weight: launch.own_session.unwrap_or(SessionWeight::Usual),
        no_new_privileges: user::must_not_gain_privileges(launch.user.as_ref()),
        dies_with_parent: false,
        thp: None,
        user: launch.user.clone(),
        go,
        parent_ends,
        report,
    })
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Forks the new process under a subreaper.
pub(super) fn fork_below_subreaper(prepared: &Prepared, limit: Option<Duration>) -> io::Result<(Subreaper, Tid)> {
    let (arguments, environment) = (pointers(&prepared.arguments), pointers(&prepared.environment));
    let restores_terminal = matches!(prepared.session, OwnSession::OnTerminal(_));
    // SAFETY: the child only makes system calls on memory that was prepared above, until it executes
    // another program or exits; it allocates nothing and takes no lock.
    unsafe { Subreaper::start(limit, restores_terminal, || become_program(prepared, &arguments, &environment)) }
}

/// Forks the new process as a child of pagelab.
pub(super) fn fork_child(prepared: &Prepared) -> io::Result<Tid> {
    let (arguments, environment) = (pointers(&prepared.arguments), pointers(&prepared.environment));
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => become_program(prepared, &arguments, &environment),
        tid => Ok(tid),
    }
}

/// The code of the new process up to its exec. It makes only system calls.
fn become_program(prepared: &Prepared, arguments: &[*const libc::c_char], environment: &[*const libc::c_char]) -> ! {
    // SAFETY: plain system calls on prepared memory; `_exit` runs none of the atexit handlers inherited from pagelab.
    unsafe {
        reset_handlers();
        match &prepared.session {
            OwnSession::None => {}
            OwnSession::Bare => check(libc::setsid(), 5, prepared.report),
            OwnSession::OnTerminal(monitor_setup) => {
                check(if terminal::insert_monitor(monitor_setup).is_ok() { 0 } else { -1 }, 5, prepared.report);
            }
        }
        check(if autogroup::weigh_session(prepared.session_weight).is_ok() { 0 } else { -1 }, 6, prepared.report);
        // With a copy of the write end of `go`, the read below would not see end of file when pagelab dies. This process would wait
        // forever and hold the lease's lock, which it inherited: no tracer would kill it, because it is not traced yet.
        for end in prepared.parent_ends {
            libc::close(end);
        }
        let parent = libc::getppid();
        let mut byte = 0u8;
        if libc::read(prepared.go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        if let Some(file) = prepared.control_group {
            // Process 0 is the writer itself.
            let written = libc::write(file, c"0".as_ptr().cast(), 1);
            check(if written == 1 { 0 } else { -1 }, 7, prepared.report);
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
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL); // after the change of the user, which clears it
            if libc::getppid() != parent {
                libc::_exit(127); // the parent died before the line above
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

/// Resets the signals that pagelab catches to SIG_DFL, so that they kill this process until its exec. Ignored signals stay ignored.
///
/// # Safety
/// Only between fork and exec.
unsafe fn reset_handlers() {
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

/// Gives the program the signal state that it would get from a shell: Rust's runtime ignores SIGPIPE, and pagelab may
/// have blocked signals.
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
