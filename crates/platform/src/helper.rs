//! A program next to the measured one: a client, a probe, a preparation. It is not traced, and no process of it outlives pagelab.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command};

use policy::Exit;
use tracer::environment::{self, Variables};
use tracer::{SessionWeight, User, subreaper, terminal, user};

/// The interval at which `pointless` is checked.
const CHECK_INTERVAL_MS: libc::c_int = 100;

/// A command line to run as a user, with these variables added to the environment, under a subreaper ([`subreaper`]). A command
/// of another user, and one with `own_session`, gets a session of its own, without a terminal.
pub fn command(
    argv: &[OsString],
    user: &Option<User>,
    variables: &Variables,
    own_session: Option<SessionWeight>,
) -> io::Result<Command> {
    // The program is looked up like the measured command: in pagelab's PATH and not in the PATH that the program gets.
    let program = tracer::resolve(&argv[0]).map_or_else(|_| argv[0].clone(), PathBuf::into_os_string);
    let mut command = Command::new(program);
    command.arg0(&argv[0]).args(&argv[1..]);
    command.env_clear().envs(environment::of(user.as_ref(), variables));
    let pagelab = std::process::id() as libc::pid_t;
    let user = user.clone();
    let is_apart = user.as_ref().is_some_and(User::is_another);
    let no_new_privileges = user::must_not_gain_privileges(user.as_ref());
    if is_apart {
        terminal::set_cloexec_on_terminals()?;
    }
    let session = own_session.or(is_apart.then_some(SessionWeight::Usual));
    let prepare = move || {
        // SAFETY: this is a process that fork has just made, with one thread.
        unsafe {
            session.map_or(Ok(()), |weight| tracer::begin_session(weight))?;
            if no_new_privileges && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 {
                return Err(io::Error::last_os_error());
            }
            user.as_ref().map_or(Ok(()), |user| user.assume())?;
            subreaper::insert_subreaper(pagelab)
        }
    };
    // SAFETY: the closure only makes system calls. The parent is the thread that waits for the child.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

/// Waits until the child has ended. If the wait becomes pointless, asks the child's subreaper to kill it. Before Linux 5.3, which
/// has no pidfd_open(2), the end is noticed only at the next check.
pub fn kill_if(child: &Child, mut pointless: impl FnMut() -> bool) {
    // SAFETY: a plain system call; the child was not reaped, so its PID is not reused.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as i32;
    // SAFETY: the descriptor is new and has no other owner.
    let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) });
    // poll(2) ignores a negative descriptor.
    let number = descriptor.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut end = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    while unsafe { libc::poll(&raw mut end, 1, CHECK_INTERVAL_MS) } != 1 && !has_ended(child) {
        if pointless() {
            let subreaper = child.id() as libc::pid_t;
            // SAFETY: plain system calls. The child may be stopped by a signal, hence SIGCONT.
            unsafe {
                libc::kill(subreaper, subreaper::END);
                libc::kill(subreaper, libc::SIGCONT);
            }
            return;
        }
    }
}

/// Whether a child has ended; it is not reaped.
fn has_ended(child: &Child) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo is plain data, and the pointer is valid; the child's PID is not reused.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, child.id(), &raw mut info, flags) == 0 && info.si_pid() != 0
    }
}

/// Waits for a child that is about to end.
pub fn wait(mut child: Child) -> io::Result<Exit> {
    let status = child.wait()?;
    Ok(match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().unwrap_or(0)),
    })
}

/// The exit code that a shell returns for a program that cannot be started for this reason: 127 where it does not exist, 126
/// where it does; `None` where the system lacks resources.
pub fn exit_code(program: &OsStr, error: &io::Error) -> Option<u8> {
    match error.raw_os_error()? {
        // The interpreter may be the missing file.
        libc::ENOENT => Some(tracer::resolve(program).err().and_then(|error| error.exit_code()).unwrap_or(126)),
        libc::ENOTDIR => Some(127),
        libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::EISDIR | libc::ELOOP | libc::ETXTBSY | libc::E2BIG => {
            Some(126)
        }
        _ => None,
    }
}
