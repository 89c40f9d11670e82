//! Names of temporary files, and the removal of temporary files that killed runs left.
//!
//! Never removed: files of a process that may still run, and files of another user. Root removes nothing in a directory
//! of another user.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::place::{self, Caller, Place};
use crate::writer::Writer;

/// Prefix of the names.
const PREFIX: &str = ".pagelab-";

/// Directories that this process has already cleaned.
static SEEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A name for a new temporary file, made of the identity of this process and a random number. If /proc cannot be read,
/// it contains only the random number, and no later run can remove the file.
pub fn new_name() -> String {
    let prefix = Writer::this_process().map_or_else(|_| PREFIX.to_owned(), |this| this.prefix(PREFIX));
    format!("{prefix}{:016x}", RandomState::new().hash_one(()))
}

/// Removes temporary files that killed runs of the same user left in the directory of a place, once per process and
/// directory. Files that cannot be removed stay.
pub fn remove_once(caller: &Caller, place: &Place) {
    let directory = place.directory_path().to_path_buf();
    if SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(directory) {
        remove(caller, place);
    }
}

/// Removes these files now, even if this process has done so before.
pub(super) fn remove(caller: &Caller, place: &Place) {
    if caller.user == 0 && place.directory_stat.st_uid != 0 {
        return;
    }
    let Ok(this) = Writer::this_process() else { return };
    let listed = fs::read_dir(place::descriptor_path(&place.directory));
    for name in listed.into_iter().flatten().flatten().map(|entry| entry.file_name()) {
        let writer = name.to_str().and_then(|name| Writer::of(name, PREFIX));
        if !writer.is_some_and(|writer| writer.is_gone(&this)) {
            continue;
        }
        let there = fstatat(&place.directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        let is_own =
            |there| place::kind(&there) == SFlag::S_IFREG && there.st_uid == caller.user && there.st_nlink == 1;
        if there.is_ok_and(is_own) {
            let _ = unlinkat(&place.directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
