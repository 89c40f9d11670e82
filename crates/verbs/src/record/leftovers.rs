//! Private directories for temporary files of a recording, and removal of those that killed recordings left.
//!
//! The name of a directory encodes the process that created it ([`Writer`]). If that process has ended, the next recording
//! of the same user removes the directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use results::files;
use results::writer::Writer;
use tempfile::TempDir;

/// The prefix of directory names.
const KIND: &str = "pagelab-record-";
/// All files that such a directory can contain.
const FILES: [&str; 5] = ["header", "written", "complete", "monitor", "memory"];

/// Creates a directory for this process in `parent`.
pub fn directory_in(parent: &Path) -> io::Result<TempDir> {
    files::temporary_directory(parent, &Writer::this_process()?.prefix(KIND))
}

/// Removes the directories whose writers have ended. As root, only in a `parent` that root owns. Errors are ignored.
pub fn remove_in(parent: &Path) {
    let is_of_root = fs::metadata(parent).is_ok_and(|parent| parent.uid() == 0);
    if geteuid().is_root() && !is_of_root {
        return;
    }
    let Ok(this) = Writer::this_process() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let writer = entry.file_name().to_str().and_then(|name| Writer::of(name, KIND));
        if writer.is_some_and(|writer| writer.is_gone(&this)) {
            // Another recording may be removing it at the same time.
            let _ = remove(&entry.path());
        }
    }
}

/// Removes a directory only if this user owns it, because another user may have planted a link of that name.
#[expect(
    clippy::disallowed_methods,
    reason = "no link is followed; only an empty directory with a name of pagelab's is removed by its path"
)]
fn remove(path: &Path) -> io::Result<()> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    let stat = fstat(&directory)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o777 != 0o700 {
        return Err(io::Error::other("owned by another user, or not private"));
    }
    for name in FILES {
        let _ = unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir);
    }
    // If the directory contains other files, they are not pagelab's: `remove_dir` then fails, and the files stay.
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn removes_only_this_users_directories_of_ended_writers() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Writer::this_process().unwrap().prefix(KIND);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let dead = alive.replacen(&std::process::id().to_string(), &ended.id().to_string(), 1);
        ended.wait().unwrap();
        let make = |prefix: &str, random: &str, mode: u32| {
            let path = parent.path().join(prefix.to_owned() + random);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("header"), "x").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let (left, alive, open) = (make(&dead, "a", 0o700), make(&alive, "b", 0o700), make(&dead, "c", 0o755));
        let kept = make(&dead, "d", 0o700);
        fs::write(kept.join("a file of the user's"), "x").unwrap();
        let elsewhere = make(&format!("{KIND}1-1-0123456789abcdef-"), "e", 0o700);
        let target = tempfile::tempdir_in(parent.path()).unwrap();
        fs::write(target.path().join("header"), "x").unwrap();
        let link = parent.path().join(dead + "f");
        std::os::unix::fs::symlink(target.path(), &link).unwrap();
        remove_in(parent.path());
        let exist = [&left, &alive, &open, &elsewhere, &link].map(|path| path.symlink_metadata().is_ok());
        assert_eq!(exist, [false, true, true, true, true]);
        assert!(kept.join("a file of the user's").exists() && target.path().join("header").exists());
        drop(directory_in(parent.path()).unwrap());
    }
}
