use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use super::*;

/// The unprivileged user.
const NOBODY: u32 = 65534;

/// A directory of root with a file, and a directory of the unprivileged user with links into it: to a file, to a
/// directory, and to a missing name.
struct Planted {
    precious: TempDir,
    foreign: TempDir,
}

impl Planted {
    fn new() -> Option<Planted> {
        if Caller::of_process().user != 0 {
            testing::skip("root");
            return None;
        }
        let (precious, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(precious.path().join("file"), "precious").unwrap();
        fs::create_dir(precious.path().join("inner")).unwrap();
        fs::write(precious.path().join("inner/file"), "precious").unwrap();
        for (name, target) in [("file", "file"), ("dangling", "new"), ("tree", "inner"), ("up", ".")] {
            symlink(precious.path().join(target), foreign.path().join(name)).unwrap();
            lchown(foreign.path().join(name), Some(NOBODY), None).unwrap();
        }
        chown(foreign.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Planted { precious, foreign })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.foreign.path().join(name)
    }

    fn is_unchanged(&self) -> bool {
        let has = |name: &str| fs::read_to_string(self.precious.path().join(name)).is_ok_and(|text| text == "precious");
        has("file") && has("inner/file") && fs::read_dir(self.precious.path()).unwrap().count() == 2
    }
}

#[test]
fn no_function_follows_a_link_of_another_user() {
    let Some(planted) = Planted::new() else { return };
    fs::write(planted.at("own"), "x").unwrap();
    let through = planted.at("up/file");
    assert!(write(&planted.at("file"), b"new").is_err() && write(&planted.at("dangling"), b"new").is_err());
    assert!(create_new(&planted.at("dangling")).is_err() && create_new(&planted.at("up/new")).is_err());
    assert!(create_private(&planted.at("up/new")).is_err() && create_private(&planted.at("tree/new")).is_err());
    assert!(open_to_read(&planted.at("file")).is_err() && open_to_read(&through).is_err());
    assert!(make_directories(&planted.at("up/made")).is_err() && make_directories(&planted.at("dangling")).is_err());
    assert!(give_directory(&planted.at("up"), Owner { user: NOBODY, group: NOBODY }).is_err());
    assert!(
        rename(&planted.at("own"), &planted.at("up/new")).is_err() && rename(&through, &planted.at("new")).is_err()
    );
    assert!(remove_file(&through).is_err() && remove_tree(&planted.at("up/inner")).is_err());
    assert!(planted.is_unchanged());
    // The link itself is removed, renamed or replaced, not its target.
    rename(&planted.at("own"), &planted.at("file")).unwrap();
    rename(&planted.at("dangling"), &planted.at("moved")).unwrap();
    remove_file(&planted.at("moved")).unwrap();
    remove_tree(&planted.at("tree")).unwrap();
    assert!(planted.is_unchanged());
    assert_eq!(fs::read_to_string(planted.at("file")).unwrap(), "x");
}

#[test]
fn removing_a_missing_file_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().join("none"), directory.path().join("none/none")] {
        remove_file(&path).unwrap();
        remove_tree(&path).unwrap();
    }
    fs::create_dir_all(directory.path().join("a/b")).unwrap();
    symlink("/", directory.path().join("a/root")).unwrap();
    remove_tree(&directory.path().join("a")).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_private_file_and_its_new_directories_are_accessible_only_to_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/file");
    create_private(&path).unwrap();
    let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["a", "a/b", "a/b/file"].map(mode), [0o700, 0o700, 0o600]);
    assert_eq!(create_private(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_private_file_is_not_created_in_another_users_directory() {
    let Some(planted) = Planted::new() else { return };
    fs::create_dir(planted.at("of-root")).unwrap();
    for name in ["file.new", "a/file"] {
        let error = create_private(&planted.at(name)).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534; name a directory of your own"), "{error}");
    }
    assert!(!planted.at("a").exists() && !planted.at("file.new").exists());
    create_private(&planted.at("of-root/file")).unwrap();
    assert_eq!(fs::metadata(planted.at("of-root/file")).unwrap().uid(), 0);
}

#[test]
fn a_pipe_is_not_opened_and_a_file_is() {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, file) = (directory.path().join("pipe"), directory.path().join("file"));
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    assert!(open_to_read(&pipe).unwrap_err().to_string().contains("expected a file"));
    fs::write(&file, "text").unwrap();
    symlink(&file, directory.path().join("link")).unwrap();
    for path in [file, directory.path().join("link")] {
        assert_eq!(io::read_to_string(open_to_read(&path).unwrap()).unwrap(), "text");
    }
    open_to_read(Path::new("/dev/null")).unwrap();
}

#[test]
fn only_a_directory_whose_path_no_other_user_can_change_is_sheltered() {
    let Some(planted) = Planted::new() else { return };
    let own = planted.precious.path().join("a/b");
    assert_eq!(sheltered_directory(&own).unwrap(), own);
    drop(temporary_directory(&own, "x-").unwrap());
    fs::create_dir(planted.at("of-root")).unwrap();
    let open = planted.precious.path().join("a");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    for path in [planted.at("of-root"), own.clone()] {
        let error = sheltered_directory(&path).unwrap_err();
        assert!(matches!(error, Error::Unsheltered { .. }), "{path:?}: {error}");
        assert!(temporary_directory(&path, "x-").is_err());
    }
    fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    sheltered_directory(&own).unwrap();
}

/// Regression test: the directory of a path was resolved through an entry with a fixed name, and that entry may be a
/// link.
#[test]
fn entries_of_a_directory_do_not_decide_where_files_are_made_in_it() {
    let Some(planted) = Planted::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in ["any", "new.tmp"] {
        symlink(planted.at("tree"), directory.path().join(name)).unwrap();
        lchown(directory.path().join(name), Some(NOBODY), None).unwrap();
    }
    create_new(&directory.path().join("file")).unwrap();
    rename(&directory.path().join("file"), &directory.path().join("renamed")).unwrap();
    assert!(directory.path().join("renamed").is_file());
    remove_file(&directory.path().join("renamed")).unwrap();
    assert!(planted.is_unchanged());
}

/// The new directory belongs to the user who called sudo, and that user can rename what is in it.
#[test]
fn a_directory_that_was_given_away_is_sheltered_no_more() {
    if Caller::of_process().user != 0 {
        return testing::skip("root");
    }
    let shared = tempfile::tempdir().unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let sudo = Caller { user: 0, invoker: Some(Owner { user: NOBODY, group: NOBODY }) };
    let made = Place::directory(&shared.path().join("made"), &sudo, DIRECTORY).unwrap();
    assert_eq!(fs::metadata(&made.path).unwrap().uid(), NOBODY);
    assert!(!made.is_sheltered);
    assert!(!Place::directory(&made.path, &sudo, DIRECTORY).unwrap().is_sheltered, "as when it is there already");
    // A link whose target ends with a slash counts as a directory, even if the target does not exist.
    symlink("missing/", shared.path().join("link")).unwrap();
    let found = Place::find(&shared.path().join("link"), &sudo, Missing::Refuse);
    assert!(matches!(found, Err(Error::Directory)), "{found:?}");
}
