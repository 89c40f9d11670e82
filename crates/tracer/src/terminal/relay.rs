//! A [`Relay`] copies data between a command's terminal and pagelab's. A thread of its own does so, so that the tracer can
//! wait undisturbed. The relay also stops and resumes the command together with pagelab, as the shell does for pagelab.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread::JoinHandle;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::CommandTerminal;
use super::message::{Channel, Message, Modes};
use super::outer::{self, PagelabTerminal};

/// Bytes copied at a time, and the limit of pending bytes in each direction.
const CHUNK_BYTES: usize = 4096;

/// Signals that the relay handles instead of pagelab's other threads: those of the terminal and of the shell.
const HANDLED_SIGNALS: [Signal; 5] =
    [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// A running relay of a command's terminal. Dropping it before the command has ended kills the command.
pub struct Relay {
    thread: Option<JoinHandle<()>>,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    /// Signal mask of the calling thread, to be restored.
    before: SigSet,
}

impl Relay {
    /// Starts relaying. Call it on the thread that waits for the command.
    pub fn start(command_terminal: CommandTerminal) -> io::Result<Relay> {
        let handled = SigSet::from_iter(HANDLED_SIGNALS);
        let before = handled.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let started = spawn(command_terminal, handled);
        if started.is_err() {
            before.thread_set_mask()?;
        }
        let (thread, stop) = started?;
        Ok(Relay { thread: Some(thread), stop: Some(stop), before })
    }

    /// Waits until the command has ended and all its output is relayed.
    pub fn finish(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the relay of a terminal does not panic");
            let _ = self.before.thread_set_mask();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.take();
        self.join();
    }
}

fn spawn(command_terminal: CommandTerminal, handled: SigSet) -> io::Result<(JoinHandle<()>, OwnedFd)> {
    let (stopped, stop) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let signals = SignalFd::with_flags(&handled, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let CommandTerminal { ours, pty, outer, .. } = command_terminal;
    let in_foreground = outer.starts_in_foreground();
    let mut relaying = RelayThread {
        channel: ours,
        pty,
        outer,
        signals,
        stopped,
        in_foreground,
        modes_copied: false,
        raw: None,
        keys: Vec::new(),
        output: Vec::new(),
        has_keys: true,
        ended: false,
    };
    relaying.copy_modes();
    if in_foreground {
        relaying.enter_foreground(); // before the command begins; the monitor undoes it if the thread cannot start
    }
    let thread = std::thread::Builder::new().name("terminal".into()).spawn(move || relaying.run())?;
    Ok((thread, stop))
}

/// State of the relay's thread.
struct RelayThread {
    channel: Channel,
    pty: OwnedFd,
    outer: PagelabTerminal,
    signals: SignalFd,
    stopped: OwnedFd,
    /// Whether the command may read. Then pagelab's terminal is raw, and keys are passed to the command.
    in_foreground: bool,
    /// Whether the modes of pagelab's terminal were copied to the command's terminal.
    modes_copied: bool,
    /// While pagelab's terminal is raw: its modes before and after the change.
    raw: Option<Modes>,
    /// Keys typed that the command's terminal has not accepted yet.
    keys: Vec<u8>,
    /// Output of the command that was not written yet.
    output: Vec<u8>,
    /// Whether more keys can arrive.
    has_keys: bool,
    ended: bool,
}

/// The sources that the thread polls; each is an index into the polled list.
#[derive(Clone, Copy)]
enum Awaited {
    Channel,
    Signals,
    Stopped,
    Pty,
    Input,
    Output,
}

impl RelayThread {
    fn run(&mut self) {
        while !self.ended && !self.serve() {}
        if self.ended {
            self.drain();
        }
        self.leave_foreground();
    }

    /// Waits for one round of events and handles them. Returns whether to end.
    fn serve(&mut self) -> bool {
        let polled = self.poll();
        let ready = |at: Awaited, events: libc::c_short| polled[at as usize].revents & events != 0;
        let any = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
        if ready(Awaited::Stopped, any) {
            return true;
        }
        if ready(Awaited::Output, libc::POLLOUT | libc::POLLHUP | libc::POLLERR) {
            self.write_output();
        }
        if ready(Awaited::Pty, libc::POLLIN) {
            self.read_output();
        }
        if ready(Awaited::Pty, libc::POLLOUT) {
            self.write_keys();
        }
        if ready(Awaited::Input, any) {
            self.read_keys();
        }
        if ready(Awaited::Signals, libc::POLLIN)
            && let Ok(Some(signal)) = self.signals.read_signal()
        {
            self.handle_signal(signal.ssi_signo.cast_signed());
        }
        if ready(Awaited::Channel, any) {
            match self.channel.receive() {
                Some(Message::Stopped(signal)) => self.command_stopped(signal),
                Some(Message::Ended) | None => self.ended = true,
                Some(_) => {}
            }
        }
        false
    }

    fn poll(&self) -> [libc::pollfd; 6] {
        const NOTHING: RawFd = -1;
        let awaited = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let wants_keys = self.in_foreground && self.has_keys && self.keys.is_empty();
        let wants_output = self.output.is_empty();
        let pty = if wants_output { libc::POLLIN } else { 0 } | if self.keys.is_empty() { 0 } else { libc::POLLOUT };
        let input = self.outer.input().filter(|_| wants_keys).unwrap_or(NOTHING);
        let output = self.outer.output().filter(|_| !wants_output).unwrap_or(NOTHING);
        let mut polled = [
            awaited(self.channel.descriptor(), libc::POLLIN),
            awaited(self.signals.as_raw_fd(), libc::POLLIN),
            awaited(self.stopped.as_raw_fd(), libc::POLLIN),
            awaited(if pty == 0 { NOTHING } else { self.pty.as_raw_fd() }, pty),
            awaited(input, libc::POLLIN),
            awaited(output, libc::POLLOUT),
        ];
        // SAFETY: the list is live. If a signal interrupts the call, no event is set.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        polled
    }

    // ---- copying ----

    fn read_output(&mut self) {
        let mut buffer = [0; CHUNK_BYTES];
        let count = read(self.pty.as_raw_fd(), &mut buffer).unwrap_or(0);
        self.output.extend_from_slice(&buffer[..count]);
        if self.outer.output().is_none() {
            self.output.clear();
        }
    }

    fn write_output(&mut self) {
        let Some(output) = self.outer.output() else { return };
        match write(output, &self.output) {
            Ok(count) => drop(self.output.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.output.clear(), // pagelab's terminal no longer exists; the command need not wait for it
        }
    }

    fn read_keys(&mut self) {
        let Some(input) = self.outer.input() else { return };
        let mut buffer = [0; CHUNK_BYTES];
        match read(input, &mut buffer) {
            Ok(count) => {
                self.keys.extend_from_slice(&buffer[..count]);
                self.has_keys = count > 0;
            }
            Err(error) if is_temporary(&error) => {}
            // The kernel returns the same error if the terminal no longer exists and if pagelab is in the background.
            Err(_) if !self.outer.may_use() => self.in_foreground = false,
            Err(_) => self.has_keys = false,
        }
        self.write_keys();
    }

    fn write_keys(&mut self) {
        match write(self.pty.as_raw_fd(), &self.keys) {
            Ok(count) => drop(self.keys.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.keys.clear(),
        }
    }

    /// Relays the last output of the command, which is still in its terminal.
    fn drain(&mut self) {
        loop {
            while !self.output.is_empty() {
                self.wait_for_room();
                self.write_output();
            }
            self.read_output();
            if self.output.is_empty() {
                return;
            }
        }
    }

    fn wait_for_room(&self) {
        let output = self.outer.output().unwrap_or(-1);
        let mut polled = libc::pollfd { fd: output, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live structure.
        unsafe { libc::poll(&raw mut polled, 1, -1) };
    }

    // ---- foreground and background ----

    /// Copies the modes of pagelab's terminal to the command's terminal, once. Does nothing while pagelab may not use its
    /// terminal: while a shell is in the foreground, the modes are those in which the shell edits its lines.
    fn copy_modes(&mut self) {
        if !self.modes_copied
            && self.outer.may_use()
            && let Some(modes) = self.outer.modes()
        {
            // SAFETY: the modes are live. Setting them at pagelab's end sets them for the command's terminal.
            unsafe { libc::tcsetattr(self.pty.as_raw_fd(), libc::TCSANOW, &raw const modes) };
            self.modes_copied = true;
        }
    }

    /// Puts the command in the foreground: makes pagelab's terminal raw, so that keys pass to the command unchanged. Informs
    /// the monitor first, which restores the terminal's modes if pagelab dies.
    fn enter_foreground(&mut self) {
        self.in_foreground = true;
        self.copy_modes();
        self.outer.copy_size_to(self.pty.as_raw_fd());
        if let (None, Some(before)) = (self.raw, self.outer.modes()) {
            let wanted = Modes { before, raw: outer::raw(&before) };
            self.channel.send(Message::Raw(wanted));
            self.outer.set_modes(&wanted.raw);
            // The terminal may not accept all of the modes, so those in force are read back.
            let modes = Modes { before, raw: self.outer.modes().unwrap_or(wanted.raw) };
            self.channel.send(Message::Raw(modes));
            self.raw = Some(modes);
        }
    }

    /// Restores the terminal's modes. If another process group is in the foreground by now, it has set its own.
    fn leave_foreground(&mut self) {
        if let Some(modes) = self.raw.take() {
            if self.outer.may_use() {
                self.outer.set_modes(&modes.before);
            }
            self.channel.send(Message::NothingToRestore);
        }
    }

    fn handle_signal(&mut self, signal: libc::c_int) {
        match signal {
            libc::SIGWINCH => self.outer.copy_size_to(self.pty.as_raw_fd()),
            // pagelab is to stop. It asks the command to stop first, and follows if the command does.
            libc::SIGTSTP => self.channel.send(Message::Stop),
            libc::SIGCONT => self.resumed(),
            _ => {}
        }
    }

    /// Handles a stop of the command. If it needed the terminal in the background (SIGTTIN, SIGTTOU) and pagelab may use its
    /// own terminal, the command gets the foreground. Otherwise pagelab stops too.
    fn command_stopped(&mut self, signal: libc::c_int) {
        let wants_terminal = matches!(signal, libc::SIGTTIN | libc::SIGTTOU);
        if wants_terminal && self.outer.may_use() {
            self.enter_foreground();
        } else {
            let was_in_foreground = self.in_foreground;
            self.leave_foreground();
            stop_own_group(if wants_terminal { signal } else { libc::SIGTSTP });
            self.in_foreground = false;
            if (was_in_foreground || wants_terminal) && self.outer.may_use() {
                self.enter_foreground();
            }
        }
        self.channel.send(Message::Continue { in_foreground: self.in_foreground });
    }

    /// Handles the resumption of pagelab, perhaps after a stop that no handler saw (SIGSTOP). Meanwhile the shell has set its
    /// own modes, and may have moved pagelab between foreground and background.
    fn resumed(&mut self) {
        let is_raw = |modes: &Modes| self.outer.modes().is_some_and(|now| outer::are_equal(&now, &modes.raw));
        let was_in_foreground = self.in_foreground;
        if !self.outer.may_use() {
            (self.in_foreground, self.raw) = (false, None);
            self.channel.send(Message::NothingToRestore);
        } else if self.in_foreground || self.outer.starts_in_foreground() {
            self.raw = self.raw.filter(is_raw);
            self.enter_foreground();
        }
        if self.in_foreground != was_in_foreground {
            self.channel.send(Message::Continue { in_foreground: self.in_foreground });
        }
    }
}

/// Stops pagelab's process group until it is resumed. An orphaned process group, which no process could resume, is not stopped.
fn stop_own_group(signal: libc::c_int) {
    let Ok(signal) = Signal::try_from(signal) else { return };
    let only = SigSet::from(signal);
    // Every other thread that could take the signal blocks it, so this thread stops before the call returns.
    let _ = only.thread_unblock();
    // SAFETY: a plain system call.
    unsafe { libc::kill(0, signal as libc::c_int) };
    let _ = only.thread_block();
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn read(from: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is live and its length is given; the descriptor is the caller's.
    let count = unsafe { libc::read(from, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn write(to: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are live and their length is given; the descriptor is the caller's.
    let count = unsafe { libc::write(to, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
