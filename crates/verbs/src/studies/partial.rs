//! Directories in which inputs are being made, and removal of those that killed runs left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use results::files;
use results::writer::Writer;
use tempfile::TempDir;

/// The prefix of directory names.
const KIND: &str = "partial-";

/// Creates a directory for this process in `parent`.
///
/// # Errors
/// The directory cannot be created.
pub fn directory_in(parent: &Path) -> io::Result<TempDir> {
    files::temporary_directory(parent, &Writer::this_process()?.prefix(KIND))
}

/// Removes the directories whose creators have ended, if the parent belongs to the user who runs pagelab. Errors are
/// ignored.
pub fn remove_leftovers_in(parent: &Path) {
    let is_own = fs::symlink_metadata(parent).is_ok_and(|parent| parent.uid() == tracer::user::effective_id());
    let (true, Ok(this)) = (is_own, Writer::this_process()) else { return };
    for name in fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name()) {
        let writer = name.to_str().and_then(|name| Writer::of(name, KIND));
        if writer.is_some_and(|writer| writer.is_gone(&this)) {
            let _ = files::remove_tree(&parent.join(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory as a killed process leaves it.
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
        remove_leftovers_in(parent.path());
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
        remove_leftovers_in(parent.path());
        assert!(left.exists());
    }
}
