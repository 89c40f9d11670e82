//! Directories in which inputs are being made, and the removal of those that killed runs left.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use results::writer::Writer;
use tempfile::TempDir;
use tracer::User;

/// What names begin with.
const KIND: &str = "partial-";

/// Makes a directory of this process in another one.
///
/// # Errors
/// Those of the system.
pub fn directory_in(parent: &Path) -> io::Result<TempDir> {
    let prefix = Writer::this_process()?.prefix(KIND);
    tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)
}

/// Removes the directories whose writers have ended. This runs as the user who makes the inputs (`None`: who runs pagelab), and
/// only if the parent belongs to that user. What cannot be removed stays.
pub fn remove_left_in(parent: &Path, user: &Option<User>) {
    let user_id = user.as_ref().map_or_else(tracer::user::effective_id, |user| user.uid);
    let is_own = fs::symlink_metadata(parent).is_ok_and(|parent| parent.uid() == user_id);
    let (true, Ok(this)) = (is_own, Writer::this_process()) else { return };
    let names = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_left =
        |name: &OsString| name.to_str().and_then(|name| Writer::of(name, KIND)).is_some_and(|w| w.is_gone(&this));
    let left: Vec<OsString> = names.filter(is_left).collect();
    if left.is_empty() {
        return;
    }
    let null = || File::options().read(true).write(true).open("/dev/null");
    if let (Ok(stdin), Ok(stdout)) = (null(), null()) {
        let words = ["rm", "-rf", "--"].map(OsString::from).into_iter().chain(left).collect::<Vec<_>>();
        let _ = platform::make(&words, user, parent, stdin, stdout);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory as a process leaves it that was killed.
    fn left_in(parent: &Path) -> PathBuf {
        let prefix = Writer::this_process().unwrap().prefix(KIND);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let name = prefix.replacen(&std::process::id().to_string(), &ended.id().to_string(), 1) + "aB1";
        ended.wait().unwrap();
        let left = parent.join(name);
        fs::create_dir(&left).unwrap();
        left
    }

    #[test]
    fn only_directories_of_processes_that_ended_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let own = directory_in(parent.path()).unwrap();
        fs::write(own.path().join("a file"), "").unwrap();
        let (left, other) = (left_in(parent.path()), parent.path().join("partial-x"));
        for directory in [&left, &other] {
            fs::create_dir_all(directory.join("deeper")).unwrap();
            fs::write(directory.join("deeper/file"), "half").unwrap();
        }
        remove_left_in(parent.path(), &None);
        assert!(!left.exists() && other.join("deeper/file").exists() && own.path().join("a file").exists());
    }

    #[test]
    fn in_a_directory_of_another_user_root_removes_nothing() {
        if tracer::user::effective_id() != 0 {
            return testing::skip("root, to give a directory to another user");
        }
        let parent = tempfile::tempdir().unwrap();
        let left = left_in(parent.path());
        std::os::unix::fs::chown(parent.path(), Some(65_534), None).unwrap();
        remove_left_in(parent.path(), &None);
        assert!(left.exists());
    }
}
