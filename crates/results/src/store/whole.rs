//! A store as one file that can be copied, and the full check of such a copy before its data is used.

use std::path::PathBuf;

use super::{Error, Store};

impl Store {
    /// Moves everything from the write-ahead log into the file, and closes the store. The file at the returned path is then
    /// complete. Fails with [`Error::Busy`] if another process has the store open.
    pub fn close(self) -> Result<PathBuf, Error> {
        self.patiently(|| {
            let is_busy: bool = self
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
                .map_err(|error| Error::from_sqlite(&self.path, error))?;
            if is_busy { Err(Error::Busy { path: self.path.clone(), waited_s: 0.0 }) } else { Ok(()) }
        })?;
        Ok(self.path)
    }

    /// Checks every page of the file, which detects a truncated or incomplete copy. The error is the first problem
    /// ([`Error::Damaged`]).
    pub fn check(&self) -> Result<(), Error> {
        let found: String =
            self.read(|transaction| transaction.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)))?;
        if found == "ok" {
            Ok(())
        } else {
            Err(Error::Damaged { path: self.path.clone(), detail: found.replace('\n', " ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_closed_store_is_one_file_and_half_of_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let (path, copy) = (directory.path().join("results.sqlite"), directory.path().join("copy.sqlite"));
        let store = Store::open(&path).unwrap();
        let id = store.begin(&sample::comparison()).unwrap();
        let closed = store.close().unwrap();
        assert!(!directory.path().join("results.sqlite-wal").exists());
        std::fs::copy(&closed, &copy).unwrap();
        let whole = Store::open(&copy).unwrap();
        whole.check().unwrap();
        assert_eq!(whole.load(id).unwrap().trials, sample::comparison().trials);
        drop(whole);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&copy, &bytes[..bytes.len() / 2 / 4096 * 4096]).unwrap();
        let checked = Store::open(&copy).and_then(|store| store.check());
        assert!(matches!(checked, Err(Error::Damaged { .. })), "{checked:?}");
    }
}
