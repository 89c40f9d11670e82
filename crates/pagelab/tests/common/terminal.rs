//! A terminal with a user who types and reads ([`Typist`]): the master side of a pseudo-terminal.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::common::{Running, Runs, wrap};

/// The timeout for an answer, on the slowest machine, after another process has released the lease.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A terminal on which one command runs as session leader.
pub struct Typist {
    screen: File,
    shown: Receiver<Vec<u8>>,
    unread: String,
    pub command: Running,
}

impl Typist {
    /// Runs a command on a new terminal.
    pub fn at(command: &Command) -> Typist {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        for end in [&pair.master, &pair.slave] {
            // If a program inherited the master side, the terminal would stay open, and the program would never see a
            // hangup.
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag of a descriptor");
        }
        let terminal = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut session = Command::new("setsid");
        session.arg("--ctty");
        wrap(&mut session, command);
        let command = session.stdin(terminal()).stdout(terminal()).stderr(terminal()).begin();
        drop(session); // closes its copy of the terminal's other side
        let screen = File::from(pair.master);
        let (show, shown) = channel();
        let mut reader = screen.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 || show.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Typist { screen, shown, unread: String::new(), command }
    }

    pub fn types(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this text is shown. Returns the output up to and including it.
    pub fn sees(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.unread.find(text) {
                return self.unread.drain(..at + text.len()).collect();
            }
            match self.shown.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.unread.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("never saw {text:?}, but {:?}", self.unread),
            }
        }
    }

    /// Waits for the end of the command. Returns the output until then, without the lines that report waiting for another pagelab.
    pub fn sees_the_end(&mut self) -> String {
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.unread.push_str(&String::from_utf8_lossy(&bytes));
        }
        let lines = self.unread.split_inclusive('\n');
        lines.filter(|line| !line.starts_with("pagelab: waiting for the lease")).collect()
    }

    /// Changes the size of the terminal.
    pub fn resizes(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows, "cols", &columns]).stdin(self.screen.try_clone().unwrap());
        assert!(stty.status().unwrap().success());
    }

    /// Whether the terminal is in its usual mode: it edits lines and echoes typed characters.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.screen).unwrap().local_flags;
        modes.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }
}
