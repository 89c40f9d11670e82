//! A program beside the measured one: a client, a probe, a preparation. Not traced, and it outlives nobody.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use study::trial::Exit;

use super::minder;
use crate::environment::{self, Variables};
use crate::terminal;
use crate::tracer::{self, Usage, User};
use crate::user;

/// How often it is looked whether there still is a reason to wait for it. Its end is seen at once.
const LOOK_AGAIN_MS: libc::c_int = 100;

/// A command line that is to be run as a user, with these variables on top of the environment, under a minder
/// ([`minder`]). Another user's has a session of its own, without a terminal.
pub fn command(words: &[OsString], user: &Option<User>, variables: &Variables) -> Command {
    // Found as the measured command is, and not in the PATH that it gets.
    let program = tracer::resolve(&words[0]).map_or_else(|_| words[0].clone(), PathBuf::into_os_string);
    let mut command = Command::new(program);
    command.arg0(&words[0]).args(&words[1..]);
    command.env_clear().envs(environment::of(user.as_ref(), variables));
    let pagelab = std::process::id() as libc::pid_t;
    let user = user.clone();
    let is_apart = user.as_ref().is_some_and(User::is_another);
    let gains_nothing = user::gains_no_privilege(user.as_ref());
    if is_apart {
        terminal::keep_from_commands();
    }
    let prepare = move || {
        // SAFETY: this is a process that fork has just made, of one thread.
        unsafe {
            if is_apart && libc::setsid() == -1
                || gains_nothing && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
            {
                return Err(io::Error::last_os_error());
            }
            user.as_ref().map_or(Ok(()), |user| user.assume())?;
            minder::step_between(pagelab)
        }
    };
    // SAFETY: the closure makes system calls only. The parent is the thread that waits for the child.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Returns when the child has ended, which is seen at once, or kills it when there is no more reason to
/// wait. Before Linux 5.3, which has no pidfd_open(2), it returns immediately and the child may take its
/// time.
pub fn kill_if(child: &Child, pointless: impl Fn() -> bool) {
    // SAFETY: a plain system call; the child was not waited for, so the id is its own.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as i32;
    if descriptor < 0 {
        return;
    }
    // SAFETY: the descriptor is new and nobody else's.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut end = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    while unsafe { libc::poll(&raw mut end, 1, LOOK_AGAIN_MS) } != 1 {
        if pointless() {
            // SAFETY: a plain system call.
            unsafe { libc::kill(child.id() as libc::pid_t, minder::END) };
            return;
        }
    }
}

/// Waits for a child and adds what it used.
pub fn wait(child: Child, usage: &mut Usage) -> io::Result<Exit> {
    let mut status = 0;
    // SAFETY: the status and the usage are live plain data; the child is this thread's own and is waited
    // for here only.
    let raw = unsafe {
        let mut raw: libc::rusage = std::mem::zeroed();
        while libc::wait4(child.id() as libc::pid_t, &mut status, 0, &raw mut raw) == -1 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        raw
    };
    *usage = usage.plus(&Usage::from(raw));
    Ok(match libc::WIFEXITED(status) {
        true => Exit::Code(libc::WEXITSTATUS(status)),
        false => Exit::Signal(libc::WTERMSIG(status)),
    })
}
