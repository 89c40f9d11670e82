//! Connects SQLite to a file that another user may have written.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::bound::Bound;

/// Features of SQLite that stores do not need, and that an attacker could use in a store.
const OFF: [DbConfig; 6] = [
    DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
    DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
    DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA,
    DbConfig::SQLITE_DBCONFIG_DQS_DML,
    DbConfig::SQLITE_DBCONFIG_DQS_DDL,
];
/// SQLite's limits, reduced to values that are still far above those of any store (<https://sqlite.org/limits.html>).
const LIMITS: [(Limit, i32); 8] = [
    (Limit::SQLITE_LIMIT_LENGTH, 256 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 64 << 10),
    (Limit::SQLITE_LIMIT_COLUMN, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 50),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 10),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// SQLite instructions between two checks of the clock: some tens of microseconds.
const INSTRUCTIONS_BETWEEN_CHECKS: i32 = 1000;
/// How long SQLite itself waits for a lock. Then the time limit of the operation is checked again.
pub(super) const BUSY: Duration = Duration::from_millis(200);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// For reading and writing.
    Write,
    /// For reading, with locks that prevent changes meanwhile.
    Read,
    /// For reading, without locks and without the write-ahead log. The caller must check whether the file changes meanwhile.
    Immutable,
}

/// Opens a file that any user may have written. The path must have no links.
pub(super) fn connect(path: &Path, access: Access, bound: Arc<Bound>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let read_only = flags | OpenFlags::SQLITE_OPEN_READ_ONLY;
    let mut connection = match access {
        Access::Write => Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        Access::Read => Connection::open_with_flags(path, read_only)?,
        Access::Immutable => Connection::open_with_flags(immutable(path), read_only | OpenFlags::SQLITE_OPEN_URI)?,
    };
    connection.busy_timeout(BUSY)?;
    connection.progress_handler(INSTRUCTIONS_BETWEEN_CHECKS, Some(move || bound.is_over()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    OFF.into_iter().try_for_each(|config| connection.set_db_config(config, false).map(drop))?;
    LIMITS.into_iter().try_for_each(|(limit, most)| connection.set_limit(limit, most).map(drop))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

/// The URI of a file that SQLite opens as immutable (<https://sqlite.org/uri.html>).
fn immutable(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    let escaped: String = bytes
        .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("file:{escaped}?immutable=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_add_to_the_uri() {
        assert_eq!(
            immutable(Path::new("/a b/c?mode=rw#%.sqlite")),
            "file:/a%20b/c%3Fmode%3Drw%23%25.sqlite?immutable=1"
        );
    }
}
