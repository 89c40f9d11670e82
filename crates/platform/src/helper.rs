//! A program beside the measured one: a client, a probe, a preparation. Not traced, and it outlives nobody.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command};

use study::trial::Exit;
use tracer::environment::{self, Variables};
use tracer::{User, subreaper, terminal, user};

/// How often it is looked whether there still is a reason to wait for it. Its end is seen at once.
const LOOK_AGAIN_MS: libc::c_int = 100;

/// A command line that is to be run as a user, with these variables on top of the environment, under a subreaper
/// ([`subreaper`]). Another user's has a session of its own, without a terminal.
///
/// # Errors
/// Which terminals pagelab has open cannot be read.
pub fn command(words: &[OsString], user: &Option<User>, variables: &Variables) -> io::Result<Command> {
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
        terminal::keep_from_commands()?;
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
            subreaper::step_between(pagelab)
        }
    };
    // SAFETY: the closure makes system calls only. The parent is the thread that waits for the child.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

/// Returns when the child has ended, which is seen at once, or tells its subreaper to kill it when there is no more reason
/// to wait. Before Linux 5.3, which has no pidfd_open(2), the end is seen when it is looked for.
pub fn kill_if(child: &Child, mut pointless: impl FnMut() -> bool) {
    // SAFETY: a plain system call; the child was not waited for, so the id is its own.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as i32;
    // SAFETY: the descriptor is new and nobody else's.
    let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) });
    // poll(2) ignores a negative descriptor.
    let number = descriptor.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut end = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    while unsafe { libc::poll(&raw mut end, 1, LOOK_AGAIN_MS) } != 1 && !has_ended(child) {
        if pointless() {
            let subreaper = child.id() as libc::pid_t;
            // SAFETY: plain system calls. Somebody may have stopped it.
            unsafe {
                libc::kill(subreaper, subreaper::END);
                libc::kill(subreaper, libc::SIGCONT);
            }
            return;
        }
    }
}

/// Whether a child has ended; it is not waited for.
fn has_ended(child: &Child) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo is plain data, and the pointer is live; the child's id is its own.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, child.id(), &raw mut info, flags) == 0 && info.si_pid() != 0
    }
}

/// Waits for a child, whose end is near.
pub fn wait(mut child: Child) -> io::Result<Exit> {
    let status = child.wait()?;
    Ok(match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().unwrap_or(0)),
    })
}

/// What a shell says of a program that cannot be started for this reason: 127 where it is not there, 126 where it is;
/// `None` where the system lacks resources.
pub fn exit_code(program: &OsStr, error: &io::Error) -> Option<u8> {
    match error.raw_os_error()? {
        // It may be the interpreter that is missing.
        libc::ENOENT => Some(tracer::resolve(program).err().and_then(|error| error.exit_code()).unwrap_or(126)),
        libc::ENOTDIR => Some(127),
        libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::EISDIR | libc::ELOOP | libc::ETXTBSY | libc::E2BIG => {
            Some(126)
        }
        _ => None,
    }
}
