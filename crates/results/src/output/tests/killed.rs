//! Tests of files left by killed runs, and of which runs remove them.

use super::*;
use crate::writer::Writer;

/// Creates a file as left by a run that was killed with SIGKILL.
fn left_by_a_killed_run(directory: &Path) -> PathBuf {
    let this = Writer::this_process().unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    let process = format!("{}-", std::process::id());
    let name = this.prefix(".pagelab-").replacen(&process, &format!("{}-", ended.id()), 1) + "0123456789abcdef";
    ended.wait().unwrap();
    let path = directory.join(name);
    fs::write(&path, "half").unwrap();
    path
}

fn remove_leftovers(caller: &Caller, directory: &Path) {
    let End::Place(place) = Place::find(&directory.join("new"), caller, Missing::Refuse).unwrap() else { panic!() };
    leftovers::remove(caller, &place);
}

#[test]
fn the_next_file_removes_leftovers_of_a_killed_run_next_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let left = left_by_a_killed_run(directory.path());
    let unfinished = Output::create(&directory.path().join("unfinished")).unwrap();
    assert!(!left.exists());
    assert_eq!(names(directory.path()).len(), 1, "that of a living process stays");
    remove_leftovers(&me(), directory.path());
    assert_eq!(names(directory.path()).len(), 1);
    drop(unfinished);
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn only_leftovers_of_dead_processes_of_this_boot_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let own = Writer::this_process().unwrap();
    let other_forms = [".pagelab-0123456789abcdef".to_owned(), ".pagelab-x".to_owned(), "pagelab-record-1".to_owned()];
    let alive = own.prefix(".pagelab-") + "0123456789abcdef";
    let elsewhere = own.elsewhere().prefix(".pagelab-") + "0123456789abcdef";
    let kept = [&other_forms[..], &[alive, elsewhere]].concat();
    for name in &kept {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let target = directory.path().join("target");
    fs::write(&target, "").unwrap();
    let link = left_by_a_killed_run(directory.path());
    fs::remove_file(&link).unwrap();
    symlink(&target, &link).unwrap();
    let named_twice = left_by_a_killed_run(directory.path());
    fs::hard_link(&named_twice, directory.path().join("second name")).unwrap();
    let before = names(directory.path());
    remove_leftovers(&me(), directory.path());
    assert_eq!(names(directory.path()), before);
}

#[test]
fn root_removes_no_leftover_in_a_directory_of_another_user_and_none_of_another_user_anywhere() {
    if !is_root() {
        return;
    }
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let of_root = left_by_a_killed_run(theirs.path());
    let shared = sticky();
    let of_another = left_by_a_killed_run(shared.path());
    chown(&of_another, Some(NOBODY), Some(NOBODY)).unwrap();
    for directory in [&theirs, &shared] {
        remove_leftovers(&me(), directory.path());
    }
    assert!(of_root.exists() && of_another.exists());
    chown(theirs.path(), Some(0), Some(0)).unwrap();
    remove_leftovers(&me(), theirs.path());
    assert!(!of_root.exists(), "in a directory of its own it does");
}
