//! A directory that only its owner can enter, and the files in it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::error::LeaseError;

/// Ensures that `path` is a directory of this user that no other user can enter, and creates it if it is missing. A symbolic
/// link, another owner or open permissions are refused, because a user who controls the directory would control the values
/// written to the system's settings.
#[expect(clippy::disallowed_methods, reason = "a link is not followed by mkdir(2), and is refused below")]
pub fn directory(path: &Path) -> Result<(), LeaseError> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(creation_error(path, &error)),
        _ => {}
    }
    let wrong = |what: String, remedy: &str| LeaseError::Directory {
        path: path.to_path_buf(),
        what,
        remedy: remedy.to_string(),
    };
    let found = std::fs::symlink_metadata(path)
        .map_err(|error| wrong(format!("cannot be examined: {error}"), "run as root, outside a container"))?;
    let user = nix::unistd::geteuid().as_raw();
    if !found.is_dir() {
        return Err(wrong("expected a directory, found something else (a symbolic link?)".into(), "remove it"));
    }
    if found.uid() != user {
        let remedy = match found.uid() {
            0 => "only root may change system settings: run as root",
            _ => "run as its owner, or remove it",
        };
        return Err(wrong(format!("expected the owner {user}, found {}", found.uid()), remedy));
    }
    if found.mode() & 0o077 != 0 {
        let what = format!("expected the mode 0700, found {:04o}", found.mode() & 0o7777);
        return Err(wrong(
            what,
            "others could have written there: remove it, or chmod 700 it if you know that no other user did",
        ));
    }
    Ok(())
}

/// The error when a directory cannot be created. pagelab does not create the parent directory: whether it survives a reboot
/// depends on how it is made (`mkdir` or a mount).
fn creation_error(path: &Path, error: &io::Error) -> LeaseError {
    let parent = path.parent().unwrap_or(Path::new("/")).display();
    let (what, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (format!("{parent} is missing"), format!("create it: mkdir -p {parent}")),
        io::ErrorKind::NotADirectory => {
            (format!("{parent} is not a directory"), "replace it by a directory".to_string())
        }
        io::ErrorKind::ReadOnlyFilesystem => (error.to_string(), format!("mount a writable file system at {parent}")),
        io::ErrorKind::PermissionDenied => (error.to_string(), "run as root".to_string()),
        _ => (error.to_string(), format!("check the file system of {parent} (findmnt -T {parent})")),
    };
    LeaseError::Directory { path: path.to_path_buf(), what: format!("cannot be created: {what}"), remedy }
}

/// Opens a file of the private directory, and creates it if it is missing.
#[expect(clippy::disallowed_methods, reason = "no other user can enter the directory")]
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        directory(&path).unwrap();
        directory(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = directory(&path).unwrap_err().to_string();
        assert!(error.contains("0700") && error.contains("0755"), "{error}");
    }

    #[test]
    fn a_symbolic_link_or_a_foreign_owner_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        directory(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(matches!(directory(&link), Err(LeaseError::Directory { .. })));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&real, Some(65534), None).unwrap();
            assert!(directory(&real).unwrap_err().to_string().contains("found 65534"));
        }
    }

    #[test]
    fn a_missing_parent_is_named_and_not_created() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("var/lib");
        let error = directory(&parent.join("pagelab")).unwrap_err().to_string();
        let parent = parent.display();
        assert!(error.contains(&format!("{parent} is missing; create it: mkdir -p {parent}")), "{error}");
        assert!(!root.path().join("var").exists());
        std::fs::write(root.path().join("file"), "").unwrap();
        let error = directory(&root.path().join("file/pagelab")).unwrap_err().to_string();
        assert!(error.contains("file is not a directory"), "{error}");
    }
}
