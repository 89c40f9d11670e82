//! SQLite's index of the write-ahead log (`-shm`), which root may have created next to another user's store.
//!
//! When root opens a store that has no index, SQLite first creates the index as root and then gives it to the store's
//! owner (`unixOpenSharedMemory` in os_unix.c of SQLite). If the owner opens the store between these two steps, the
//! owner may only read the index, and that connection could never write the store.

use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, eaccess};
use rusqlite::TransactionBehavior;

use super::{Error, Store};

/// SQLite changes the owner of the index within this time; if it has not by then, the index stays the other user's.
const OWNER_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before a store is opened again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Opens a store. Retries while the caller may write the store but not its index.
pub(super) fn open_with_own_index(open: impl Fn() -> Result<Store, Error>) -> Result<Store, Error> {
    let mut since = None;
    loop {
        let store = open()?;
        if !is_foreign(&store) || since.get_or_insert_with(Instant::now).elapsed() > OWNER_TIMEOUT {
            return Ok(store);
        }
        // SQLite keeps the index open while a connection of this process uses it, so the connection must be closed
        // first.
        drop(store);
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn is_foreign(store: &Store) -> bool {
    let is_read_only =
        || matches!(store.begin_transaction(TransactionBehavior::Immediate), Err(Error::ReadOnly { .. }));
    eaccess(&store.path, AccessFlags::W_OK).is_ok() && is_read_only()
}
