//! The monitor: leader of the session that contains a command's terminal, and parent of the command.
//!
//! It reports to pagelab when the command stops and ends, sets the foreground process group, and restores the modes of
//! pagelab's terminal if pagelab has died without doing so. It keeps pagelab's user, so the command cannot signal
//! or trace it. It is a fork of a program that may have other threads, so it makes only system calls and does not
//! allocate.

use std::io;
use std::os::fd::RawFd;

use super::message::{Message, Modes, receive, send};
use super::outer::{are_equal, modes};
use crate::child;

/// The descriptors with which a monitor is started; each is above 2 and close-on-exec.
#[derive(Clone, Copy)]
pub struct MonitorSetup {
    /// The command's end of the pseudo-terminal.
    pub terminal: RawFd,
    /// pagelab's terminal.
    pub outer: RawFd,
    /// The monitor's end of the channel to pagelab.
    pub channel: RawFd,
    /// Whether the command starts in the foreground, and so may read.
    pub in_foreground: bool,
}

/// The monitor's only descriptors after startup.
const CHANNEL: RawFd = 0;
const TERMINAL: RawFd = 1;
const OUTER: RawFd = 2;

/// Forks in a process that is about to execute its program. The calling process becomes the monitor and does not return. The
/// function returns in its child, which has a process group of its own.
///
/// # Safety
/// Only in a process that fork has just made and that has one thread.
pub unsafe fn insert_monitor(setup: &MonitorSetup) -> io::Result<()> {
    // SAFETY: plain system calls on memory of this function; the child continues as the caller's process.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        check(libc::setsid())?;
        check(libc::ioctl(setup.terminal, libc::TIOCSCTTY, 0))?;
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::setpgid(0, 0);
                if setup.in_foreground {
                    libc::tcsetpgrp(setup.terminal, libc::getpid());
                }
                check(libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()))
            }
            command => {
                libc::setpgid(command, command); // parent and child both set it; either may be first
                send(setup.channel, Message::Started(command));
                libc::dup2(setup.channel, CHANNEL);
                libc::dup2(setup.terminal, TERMINAL);
                libc::dup2(setup.outer, OUTER);
                child::close_from(OUTER as libc::c_uint + 1);
                run_monitor(command)
            }
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Main loop of the monitor, with every signal blocked.
///
/// # Safety
/// As for [`insert_monitor`].
unsafe fn run_monitor(command: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        let child_signals = libc::signalfd(-1, &raw const children, 0);
        let mut ended = None;
        let mut changed = None;
        loop {
            if ended.is_none() {
                ended = check_command(command);
            }
            let awaited = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut both = [awaited(CHANNEL), awaited(child_signals)];
            libc::poll(both.as_mut_ptr(), both.len() as libc::nfds_t, -1);
            if both[1].revents != 0 {
                let mut signal: libc::signalfd_siginfo = std::mem::zeroed();
                libc::read(child_signals, (&raw mut signal).cast(), size_of_val(&signal));
            }
            if both[0].revents == 0 {
                continue;
            }
            match receive(CHANNEL) {
                Some(Message::Continue { in_foreground }) if ended.is_none() => resume_command(command, in_foreground),
                Some(Message::Stop) if ended.is_none() => signal_group(command, libc::SIGTSTP),
                Some(Message::Raw(modes)) => changed = Some(modes),
                Some(Message::NothingToRestore) => changed = None,
                Some(_) => {}
                None => end_monitor(command, ended, changed),
            }
        }
    }
}

/// Reports what the command did. Returns its status if it has ended.
///
/// # Safety
/// Called in the monitor only, a process of one thread that shares nothing with its parent.
unsafe fn check_command(command: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    // SAFETY: the status is live; the command is this process's own and was not waited for.
    unsafe {
        while libc::waitpid(command, &raw mut status, libc::WUNTRACED | libc::WNOHANG) == command {
            if !libc::WIFSTOPPED(status) {
                send(CHANNEL, Message::Ended);
                return Some(status);
            }
            // Makes the monitor's own group the foreground group: the command's group must not read what is typed meanwhile.
            libc::tcsetpgrp(TERMINAL, libc::getpgrp());
            send(CHANNEL, Message::Stopped(libc::WSTOPSIG(status)));
        }
    }
    None
}

/// Resumes the command.
///
/// # Safety
/// As for [`check_command`].
unsafe fn resume_command(command: libc::pid_t, in_foreground: bool) {
    // SAFETY: plain system calls; the command was not waited for, so the id is its own.
    unsafe {
        if in_foreground && libc::tcgetpgrp(TERMINAL) == libc::getpgrp() {
            libc::tcsetpgrp(TERMINAL, libc::getpgid(command));
        }
        signal_group(command, libc::SIGCONT);
    }
}

/// Sends a signal to the command's process group.
///
/// # Safety
/// As for [`check_command`].
unsafe fn signal_group(command: libc::pid_t, signal: libc::c_int) {
    // SAFETY: plain system calls; the command was not waited for, so its id and its group are valid.
    unsafe { libc::kill(-libc::getpgid(command), signal) };
}

/// Ends the monitor when pagelab has finished or died: kills the command if it still runs, and restores the modes of pagelab's
/// terminal, unless they were changed since.
///
/// # Safety
/// As for [`check_command`].
unsafe fn end_monitor(command: libc::pid_t, ended: Option<libc::c_int>, changed: Option<Modes>) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        if let Some(Modes { before, raw }) = changed
            && modes(OUTER).is_some_and(|now| are_equal(&now, &raw))
        {
            libc::tcsetattr(OUTER, libc::TCSANOW, &raw const before);
        }
        let Some(status) = ended else {
            libc::kill(command, libc::SIGKILL);
            libc::_exit(libc::EXIT_FAILURE)
        };
        child::exit_as(status)
    }
}
