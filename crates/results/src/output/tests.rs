use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::process::Command;

use tempfile::TempDir;

use super::*;

mod killed;

/// The unprivileged user.
const NOBODY: u32 = 65534;
/// The user who calls sudo.
const INVOKER: Owner = Owner { user: 4711, group: 4712 };

fn me() -> Caller {
    Caller { invoker: None, ..Caller::of_process() }
}

fn write_for(caller: &Caller, path: &Path, content: &str) -> Result<(), Error> {
    let mut output = Output::create_for(caller, path)?;
    output.write_all(content.as_bytes()).unwrap();
    output.finish()
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    write_for(&me(), path, content)
}

fn why(result: Result<(), Error>) -> Why {
    result.expect_err("it was written").why
}

fn is_root() -> bool {
    let is_root = me().user == 0;
    if !is_root {
        testing::skip("root");
    }
    is_root
}

/// A directory with the permissions of /tmp.
fn sticky() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

#[test]
fn the_previous_file_stays_until_the_new_one_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut output = Output::create(&path).unwrap();
    output.write_all(b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    drop(output);
    assert_eq!(names(directory.path()), ["a"], "nothing is left");
    check(&path).unwrap();
    check(&directory.path().join("b")).unwrap();
    assert_eq!(names(directory.path()), ["a"], "a check changes nothing");
    write(&path, "new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn own_links_are_followed_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink("inside/target", at("first")).unwrap();
    symlink("../first", inside.join("second")).unwrap();
    symlink(&inside, at("directory")).unwrap();
    // The first link dangles, and is followed all the same.
    for (link, content) in [(at("first"), "1"), (inside.join("second"), "2"), (at("directory/../first"), "3")] {
        write(&link, content).unwrap();
        assert_eq!(fs::read_to_string(inside.join("target")).unwrap(), content);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    write(&at("directory/second"), "4").unwrap();
    assert_eq!(fs::read_to_string(inside.join("target")).unwrap(), "4");
    assert_eq!(names(&inside), ["second", "target"]);
}

#[test]
fn refuses_paths_that_lead_nowhere_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink("round", at("round")).unwrap();
    fs::write(at("file"), "").unwrap();
    let _bound = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for (path, part) in [
        (at("none/a"), "mkdir -p"),
        (at("round"), "40 symbolic links"),
        (at("file/a"), "Not a directory"),
        (directory.path().into(), "it is a directory; name a file in it"),
        (at("new/"), "it is a directory"),
        (at(".."), "it is a directory"),
        ("".into(), "it is a directory"),
        ("/".into(), "it is a directory"),
        (at("socket"), "it is a socket"),
        (at(&"x".repeat(300)), "too long"),
    ] {
        let error = write(&path, "new").expect_err("it was written").to_string();
        let begin = format!("{} cannot be written: ", path.display());
        assert!(error.starts_with(&begin) && error.contains(part), "{path:?}: {error}");
        assert_eq!(check(&path).unwrap_err().to_string(), error, "a check reports the same error");
    }
    assert_eq!(names(directory.path()), ["file", "round", "socket"]);
}

#[test]
fn links_of_others_are_refused_wherever_they_are() {
    if !is_root() {
        return;
    }
    let (directory, precious) = (sticky(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    let target = precious.path().join("target");
    fs::write(&target, "precious").unwrap();
    symlink(&target, at("report")).unwrap();
    symlink(precious.path().join("new"), at("dangling")).unwrap();
    symlink(precious.path(), at("directory")).unwrap();
    ["report", "dangling", "directory"].iter().for_each(|name| lchown(at(name), Some(NOBODY), None).unwrap());
    // A link that belongs to root but leads through a link of another user.
    symlink(at("directory/target"), precious.path().join("chain")).unwrap();
    for path in [at("report"), at("dangling"), at("directory/target"), precious.path().join("chain")] {
        let error = why(write(&path, "new"));
        assert!(matches!(error, Why::Place(place::Error::ForeignLink { owner: NOBODY, .. })), "{path:?}: {error}");
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(names(precious.path()), ["chain", "target"]);
    assert_eq!(names(directory.path()), ["dangling", "directory", "report"], "not even removed");
}

/// The owner of a directory can move root's links within it, and any user can create a hard link to root's link if the kernel
/// permits that.
#[test]
fn a_link_of_roots_where_another_user_could_have_put_it_is_refused() {
    if !is_root() {
        return;
    }
    let (precious, shared) = (tempfile::tempdir().unwrap(), sticky());
    let target = precious.path().join("target");
    fs::write(&target, "precious").unwrap();
    let home = precious.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::create_dir(home.join("of-root")).unwrap();
    for link in [home.join("link"), home.join("of-root/link"), shared.path().join("own")] {
        symlink(&target, link).unwrap();
    }
    let unsafe_links = [home.join("link"), home.join("of-root/link")];
    for link in &unsafe_links {
        assert!(matches!(why(write(link, "new")), Why::Place(place::Error::MovableLink { .. })), "{link:?}");
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    write(&shared.path().join("own"), "new").expect("it is root's, in a directory of root's");
    assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    fs::hard_link(shared.path().join("own"), shared.path().join("another")).unwrap();
    let error = why(write(&shared.path().join("another"), "newer"));
    assert!(matches!(error, Why::Place(place::Error::MovableLink { .. })), "{error}");
}

#[test]
fn pipes_of_others_are_refused_and_own_ones_are_written() {
    let directory = sticky();
    let path = directory.path().join("pipe");
    pipe(&path);
    check(&path).expect("a check does not wait for a reader");
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    write(&path, "a stream").unwrap();
    assert_eq!(reader.join().unwrap(), "a stream");
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    if !is_root() {
        return;
    }
    chown(&path, Some(NOBODY), None).unwrap();
    assert!(matches!(why(write(&path, "new")), Why::ForeignPipe { owner: NOBODY }));
    assert!(matches!(check(&path).unwrap_err().why, Why::ForeignPipe { .. }));
    assert!(matches!(InPlace::prepare(&path).unwrap_err().why, Why::ForeignPipe { .. }));
    chown(&path, Some(INVOKER.user), None).unwrap();
    let sudo = Caller { user: 0, invoker: Some(INVOKER) };
    assert!(
        matches!(WriteMode::of(&sudo, &path), Ok(WriteMode::Stream(_))),
        "the user who called sudo may own the pipe"
    );
}

#[test]
fn devices_and_descriptors_are_written_directly() {
    write(Path::new("/dev/null"), "nothing").unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let full = why({
        let mut output = Output::create(Path::new("/dev/full")).unwrap();
        output.write_all(b"x").map_err(|error| Error { path: "/dev/full".into(), why: error.into() })
    });
    assert!(matches!(full, Why::Full(_)), "{full}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, "before\n").unwrap();
    let log = File::options().append(true).open(&path).unwrap();
    let number = place::descriptor_path(&log);
    for name in [number.clone(), Path::new("/dev/fd").join(number.file_name().unwrap())] {
        check(&name).unwrap();
        write(&name, "more\n").unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "before\nmore\nmore\n", "what was there stays");
    for name in ["/dev/stdout", "/dev/stderr", "/proc/self/fd/1", "/proc/thread-self/fd/2", "/dev/fd/2"] {
        assert!(Output::create(Path::new(name)).unwrap().is_stream(), "{name}");
    }
    assert!(check(Path::new("/dev/fd/99999")).is_err());
}

/// A user may have created a regular file in /tmp in order to own what root writes to it.
#[test]
fn a_file_that_another_user_may_have_planted_is_refused() {
    if !is_root() {
        return;
    }
    let (directory, home) = (sticky(), tempfile::tempdir().unwrap());
    let planted = directory.path().join("report");
    fs::write(&planted, "").unwrap();
    chown(&planted, Some(NOBODY), None).unwrap();
    assert!(matches!(why(write(&planted, "new")), Why::ForeignFile { owner: NOBODY }));
    assert!(matches!(InPlace::prepare(&planted).unwrap_err().why, Why::ForeignFile { .. }));
    chown(home.path(), Some(NOBODY), None).unwrap();
    let theirs = home.path().join("report");
    fs::write(&theirs, "").unwrap();
    chown(&theirs, Some(NOBODY), Some(7)).unwrap();
    write(&theirs, "new").unwrap();
    assert_eq!(owner(&theirs), (NOBODY, 7), "in their own directory it stays theirs");
}

/// The other hard link of a file of root must keep its content.
#[test]
fn a_file_with_other_names_is_replaced_and_not_written_in_place() {
    let directory = sticky();
    let (precious, report) = (directory.path().join("precious"), directory.path().join("report"));
    fs::write(&precious, "precious").unwrap();
    fs::hard_link(&precious, &report).unwrap();
    assert!(matches!(InPlace::prepare_for(&me(), &report, false).unwrap_err(), Why::HardLinks));
    InPlace::prepare_for(&me(), &report, true).expect("the kernel allows other users no hard link to this file");
    write(&report, "new").unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn files_that_root_makes_belong_to_the_invoking_user() {
    if !is_root() {
        return;
    }
    let sudo = Caller { user: 0, invoker: Some(INVOKER) };
    let (home, system, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), sticky());
    chown(home.path(), Some(INVOKER.user), Some(INVOKER.group)).unwrap();
    let old = home.path().join("old");
    fs::write(&old, "of a pagelab that gave it to root").unwrap();
    let invoker = (INVOKER.user, INVOKER.group);
    for (caller, path, expected) in [
        (sudo, home.path().join("new"), invoker),
        (sudo, old, invoker),
        (sudo, tmp.path().join("new"), invoker),
        (sudo, system.path().join("new"), (0, 0)),
        (me(), home.path().join("newer"), invoker),
        (me(), tmp.path().join("newer"), (0, 0)),
    ] {
        write_for(&caller, &path, "new").unwrap();
        assert_eq!(owner(&path), expected, "{path:?}");
        write_for(&caller, &path, "newer").unwrap();
        assert_eq!(owner(&path), expected, "again {path:?}");
    }
    let trace = home.path().join("trace");
    assert!(InPlace::prepare_for(&sudo, &trace, true).unwrap().is_new);
    assert_eq!(owner(&trace), invoker);
    let (child, linked) = (home.path().join("trace.7"), home.path().join("trace.8"));
    fs::write(&child, "").unwrap();
    fs::write(system.path().join("precious"), "").unwrap();
    fs::hard_link(system.path().join("precious"), &linked).unwrap();
    [&child, &linked].iter().for_each(|path| give_as(path, &trace).unwrap());
    assert_eq!((owner(&child), owner(&linked)), (invoker, (0, 0)));
    assert_eq!(Caller { user: 1000, ..sudo }.owner_in(&fstat(File::open(home.path()).unwrap()).unwrap()), None);
}

#[test]
fn a_full_file_system_loses_neither_the_old_file_nor_space() {
    let directory = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "pagelab-test"]).arg(directory.path());
    if !mount.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        return testing::skip("the right to mount a tmpfs");
    }
    let path = directory.path().join("report");
    write(&path, "old").unwrap();
    let mut output = Output::create(&path).unwrap();
    let error = output.write_all(&vec![b'x'; 1 << 20]).unwrap_err();
    drop(output);
    let left = (names(directory.path()), fs::read_to_string(&path).unwrap());
    assert!(Command::new("umount").arg(directory.path()).status().unwrap().success());
    assert!(matches!(Why::from(error), Why::Full(_)));
    assert_eq!(left, (vec!["report".to_string()], "old".to_string()));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let error = check(Path::new("/proc/report.html")).unwrap_err().to_string();
    assert!(error.contains("a file cannot be created in /proc"), "{error}");
    let error = check(Path::new("/sys/kernel/mm/report.html")).unwrap_err().to_string();
    assert!(error.contains("name a file in a directory that you can write to"), "{error}");
}
