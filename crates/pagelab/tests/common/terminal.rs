//! A terminal with somebody who types and reads: the other end of a pseudo-terminal.
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

/// How long an answer may take, on the slowest machine, after somebody else's lease.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A terminal at which one command runs, as the leader of its session.
pub struct Typist {
    screen: File,
    shown: Receiver<Vec<u8>>,
    unread: String,
    pub command: Running,
}

impl Typist {
    /// Runs a command at a new terminal.
    pub fn at(command: &Command) -> Typist {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        for end in [&pair.master, &pair.slave] {
            // A program that had this end open too would never see that the typist has gone.
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag of a descriptor");
        }
        let terminal = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut session = Command::new("setsid");
        session.arg("--ctty");
        wrap(&mut session, command);
        let command = session.stdin(terminal()).stdout(terminal()).stderr(terminal()).begin();
        drop(session); // with the terminal's end that it has open
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

    /// Types these characters.
    pub fn types(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is shown; what was shown until then, with it.
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

    /// Waits for the end of the command; what it showed until then, but for whom pagelab waited.
    pub fn sees_the_end(&mut self) -> String {
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.unread.push_str(&String::from_utf8_lossy(&bytes));
        }
        let lines = self.unread.split_inclusive('\n');
        lines.filter(|line| !line.starts_with("pagelab: waiting for the lease")).collect()
    }

    /// Gives the terminal another size.
    pub fn resizes(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows, "cols", &columns]).stdin(self.screen.try_clone().unwrap());
        assert!(stty.status().unwrap().success());
    }

    /// Whether lines are edited and shown as they are typed: a terminal's usual state.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.screen).unwrap().local_flags;
        modes.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }
}
