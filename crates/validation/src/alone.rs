//! The lock of tests that need the whole host for themselves ([`Alone`]).

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write as _};

/// The lock file that all test programs share.
const LOCK: &str = "/run/pagelab-test.lock";

thread_local! {
    /// Whether this thread has the lock.
    static HAS_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// While this exists, no other test compares, changes settings, or drops the page cache. If the same thread makes a second one, that one
/// does nothing.
#[derive(Debug)]
pub struct Alone(Option<File>);

impl Alone {
    /// Waits for the lock. Processes get it in the order of their requests. Without write access to `/run` there is no lock, but then
    /// no test can change a setting either.
    pub fn wait() -> Alone {
        let lock = |file: &File| loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                locked => return locked.is_ok(),
            }
        };
        Alone::lock(lock).unwrap_or_else(|| panic!("{LOCK} cannot be locked"))
    }

    /// The lock, if it is free now.
    pub(crate) fn try_now() -> Option<Alone> {
        Alone::lock(|file| file.try_lock().is_ok())
    }

    fn lock(lock: impl FnOnce(&File) -> bool) -> Option<Alone> {
        if HAS_LOCK.get() {
            return Some(Alone(None));
        }
        let Ok(mut file) = File::options().create(true).append(true).open(LOCK) else { return Some(Alone(None)) };
        if !lock(&file) {
            return None;
        }
        // The name of the test in the lock file is for people who want to know what another test waits for.
        let test = std::thread::current().name().unwrap_or_default().to_string();
        let _ = file.set_len(0);
        let _ = write!(file, "the test {test} of process {}", std::process::id());
        HAS_LOCK.set(true);
        Some(Alone(Some(file)))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.0.is_some() {
            HAS_LOCK.set(false);
        }
    }
}
