//! SQLite's index of the write-ahead log (`-shm`), which root may have made beside somebody's store.
//!
//! Root that looks at a store makes the index where there is none, and only then gives it to the store's owner
//! (`unixOpenSharedMemory` in os_unix.c of SQLite). The owner who opens it between the two may only read it, and could never
//! write the store by that connection.

use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, eaccess};
use rusqlite::TransactionBehavior;

use super::{Error, Store};

/// How soon the index is the owner's, unless it is somebody else's for good.
const GIVEN_SOON: Duration = Duration::from_secs(1);
/// How long to wait before a store is opened again.
const AGAIN: Duration = Duration::from_millis(10);

/// Opens a store, and opens it again while the caller may write it but not its index.
///
/// # Errors
/// Those of `open`.
pub(super) fn awaited(open: impl Fn() -> Result<Store, Error>) -> Result<Store, Error> {
    let since = Instant::now();
    loop {
        let store = open()?;
        if !is_foreign(&store) || since.elapsed() > GIVEN_SOON {
            return Ok(store);
        }
        // SQLite keeps the index as long as a connection of this process has it.
        drop(store);
        std::thread::sleep(AGAIN);
    }
}

fn is_foreign(store: &Store) -> bool {
    let is_read_only =
        || matches!(store.begin_transaction(TransactionBehavior::Immediate), Err(Error::ReadOnly { .. }));
    eaccess(&store.path, AccessFlags::W_OK).is_ok() && is_read_only()
}
