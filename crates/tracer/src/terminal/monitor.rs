//! The monitor: leader of the session that contains a command's terminal, and parent of the command.
//!
//! It tells pagelab when the command stops and ends, sets the foreground process group, and restores the modes of
//! pagelab's terminal if pagelab is gone without having done so. It keeps pagelab's user, so the command cannot signal
//! or trace it. It is a fork of a program that may have other threads, so it makes only system calls and does not
//! allocate.

use std::io;
use std::os::fd::RawFd;

use super::message::{Message, Modes, receive, send};
use super::outer::{are_same, modes};
use crate::child;

/// The descriptors with which a monitor is started; each is above 2 and close-on-exec.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// The command's end of the pseudo-terminal.
    pub terminal: RawFd,
    /// pagelab's terminal.
    pub outer: RawFd,
    /// The monitor's end of the channel to pagelab.
    pub channel: RawFd,
    /// Whether the command starts in the foreground, and so may read.
    pub in_front: bool,
}

/// The monitor's only descriptors after startup.
const CHANNEL: RawFd = 0;
const TERMINAL: RawFd = 1;
const OUTER: RawFd = 2;

/// Splits a process that is about to execute its program. The calling process stays as the monitor, and the function
/// returns in its child, which has a process group of its own.
///
/// # Errors
/// Those of setsid(2), of ioctl(TIOCSCTTY), and of fork(2).
///
/// # Safety
/// Only in a process that fork has just made and that has one thread.
pub unsafe fn step_between(wiring: &Wiring) -> io::Result<()> {
    // SAFETY: plain system calls on memory of this function; the child goes on as the caller's process.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        done(libc::setsid())?;
        done(libc::ioctl(wiring.terminal, libc::TIOCSCTTY, 0))?;
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::setpgid(0, 0);
                if wiring.in_front {
                    libc::tcsetpgrp(wiring.terminal, libc::getpid());
                }
                done(libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()))
            }
            command => {
                libc::setpgid(command, command); // parent and child both set it; either may be first
                send(wiring.channel, Message::Started(command));
                libc::dup2(wiring.channel, CHANNEL);
                libc::dup2(wiring.terminal, TERMINAL);
                libc::dup2(wiring.outer, OUTER);
                child::close_from(OUTER as libc::c_uint + 1);
                attend(command)
            }
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Main loop of the monitor, with every signal blocked.
///
/// # Safety
/// As for [`step_between`].
unsafe fn attend(command: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        let told = libc::signalfd(-1, &raw const children, 0);
        let mut ended = None;
        let mut changed = None;
        loop {
            if ended.is_none() {
                ended = look_after(command);
            }
            let awaited = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut both = [awaited(CHANNEL), awaited(told)];
            libc::poll(both.as_mut_ptr(), both.len() as libc::nfds_t, -1);
            if both[1].revents != 0 {
                let mut signal: libc::signalfd_siginfo = std::mem::zeroed();
                libc::read(told, (&raw mut signal).cast(), size_of_val(&signal));
            }
            if both[0].revents == 0 {
                continue;
            }
            match receive(CHANNEL) {
                Some(Message::Continue { in_front }) if ended.is_none() => go_on(command, in_front),
                Some(Message::Stop) if ended.is_none() => signal_group(command, libc::SIGTSTP),
                Some(Message::Raw(modes)) => changed = Some(modes),
                Some(Message::Restored) => changed = None,
                Some(_) => {}
                None => part(command, ended, changed),
            }
        }
    }
}

/// Reports what the command did. Returns its status if it has ended.
///
/// # Safety
/// Called in the monitor only, a process of one thread that shares nothing with its parent.
unsafe fn look_after(command: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    // SAFETY: the status is live; the command is this process's own and was not waited for.
    unsafe {
        while libc::waitpid(command, &raw mut status, libc::WUNTRACED | libc::WNOHANG) == command {
            if !libc::WIFSTOPPED(status) {
                send(CHANNEL, Message::Ended);
                return Some(status);
            }
            // A background group cannot read what is typed meanwhile.
            libc::tcsetpgrp(TERMINAL, libc::getpgrp());
            send(CHANNEL, Message::Stopped(libc::WSTOPSIG(status)));
        }
    }
    None
}

/// Resumes the command.
///
/// # Safety
/// As for [`look_after`].
unsafe fn go_on(command: libc::pid_t, in_front: bool) {
    // SAFETY: plain system calls; the command was not waited for, so the id is its own.
    unsafe {
        if in_front && libc::tcgetpgrp(TERMINAL) == libc::getpgrp() {
            libc::tcsetpgrp(TERMINAL, libc::getpgid(command));
        }
        signal_group(command, libc::SIGCONT);
    }
}

/// Sends a signal to the command's process group.
///
/// # Safety
/// As for [`look_after`].
unsafe fn signal_group(command: libc::pid_t, signal: libc::c_int) {
    // SAFETY: plain system calls; the command was not waited for, so its id and its group are valid.
    unsafe { libc::kill(-libc::getpgid(command), signal) };
}

/// Ends the monitor when pagelab is done or gone: kills the command and restores the modes of pagelab's terminal,
/// unless they were changed since.
///
/// # Safety
/// As for [`look_after`].
unsafe fn part(command: libc::pid_t, ended: Option<libc::c_int>, changed: Option<Modes>) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        if let Some(Modes { before, raw }) = changed
            && modes(OUTER).is_some_and(|now| are_same(&now, &raw))
        {
            libc::tcsetattr(OUTER, libc::TCSANOW, &raw const before);
        }
        let Some(status) = ended else {
            libc::kill(command, libc::SIGKILL);
            libc::_exit(libc::EXIT_FAILURE)
        };
        child::end_as(status)
    }
}
