//! A replacement for a store that cannot take results any more: a new store next to it, or in a private directory for
//! temporary files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, Store};
use crate::files;

/// Number of names tried next to a store.
const MAX_NAMES: u32 = 1000;

impl Store {
    /// Creates a new store for results that this one cannot take any more: `NAME-set-aside-N.sqlite` in the same directory, or if
    /// that is impossible, `results.sqlite` in a private directory for temporary files. If neither can be created, the error is
    /// that of the second.
    pub fn set_aside(&self) -> Result<Store, Error> {
        aside_path(&self.path)
            .map_or(Err(()), |path| self.another(&path).map_err(|_| ()))
            .or_else(|()| self.another(&in_private()?))
    }

    fn another(&self, path: &Path) -> Result<Store, Error> {
        // If the new file did not become a store, it is removed.
        Store::open_until(path, self.must_stop).inspect_err(|_| drop(files::remove_file(path)))
    }
}

/// An unused name in the directory of a store; `None` if the directory does not exist any more.
fn aside_path(store: &Path) -> Option<PathBuf> {
    let (directory, name) = (store.parent()?, store.file_stem()?);
    let named = |number: u32| {
        let mut name = OsString::from(name);
        name.push(format!("-set-aside-{number}.sqlite"));
        directory.join(name)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    directory.is_dir().then(|| (1..=MAX_NAMES).map(named).find(is_free)).flatten()
}

fn in_private() -> Result<PathBuf, Error> {
    let failed = |source| Error::Directory { path: std::env::temp_dir(), source };
    let directory = files::temporary_directory(&std::env::temp_dir(), "pagelab-set-aside-").map_err(failed)?;
    Ok(directory.keep().join("results.sqlite"))
}
