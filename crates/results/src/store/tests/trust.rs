//! Stores that others may write: allowed locations, allowed content, and changes while a store is open.

use super::*;
use crate::place::Error as Misplaced;

#[test]
fn a_directory_that_cannot_be_created_is_named() {
    let error = Store::open("/proc/pagelab/results.sqlite").unwrap_err();
    assert!(matches!(error, Error::Directory { .. }), "{error:?}");
    assert!(error.to_string().contains("/proc/pagelab"), "{error}");
}

#[test]
fn a_file_without_the_right_to_write_can_be_read_and_not_written() {
    let (directory, store) = store();
    store.begin(&sample::comparison()).unwrap();
    let path = store.path().to_path_buf();
    drop(store);
    let readable = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    readable(directory.path(), 0o755);
    readable(path.parent().unwrap(), 0o755);
    readable(&path, 0o444);
    let error = if is_root() {
        // Root may write anything, so another user must write.
        let child = write_as_nobody(directory.path(), &path);
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    } else {
        format!("{:?}", write_once(&path))
    };
    assert!(error.contains("ReadOnly"), "{error}");
}

/// Another user begins a comparison in the store. That user may be unable to run programs in the private directory of the
/// build, so the program is copied.
fn write_as_nobody(directory: &Path, store: &Path) -> Child {
    let program = directory.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [directory, &program] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut child = helper(&program, "writes_once", store);
    std::os::unix::process::CommandExt::uid(&mut child, 65534);
    std::os::unix::process::CommandExt::gid(&mut child, 65534);
    child.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn waits_for_an_index_that_root_has_not_yet_given_away() {
    if !is_root() {
        testing::skip("root");
        return;
    }
    let written = |is_given: bool| {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
        let (path, index) = (home.join("results.sqlite"), home.join("results.sqlite-shm"));
        std::fs::write(&index, "").unwrap();
        let child = write_as_nobody(directory.path(), &path);
        if is_given {
            // SQLite opens the index together with the log. Soon after, the test can see whether the caller waits.
            while !home.join("results.sqlite-wal").exists() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(200));
            std::os::unix::fs::chown(&index, Some(65534), Some(65534)).unwrap();
        }
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    };
    assert!(written(true).contains("Ok(1)"), "{}", written(true));
    let never = written(false);
    assert!(never.contains("ReadOnly"), "and not for ever: {never}");
}

#[test]
fn root_does_not_follow_the_links_of_others() {
    if !is_root() {
        testing::skip("root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let elsewhere = directory.path().join("elsewhere");
    [&home, &elsewhere].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    let link = home.join("share");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let own = directory.path().join("own");
    std::os::unix::fs::symlink(&elsewhere, &own).unwrap();
    Store::open(own.join("mine.sqlite")).expect("a link that root made is followed");
    let error = Store::open(link.join("moved.sqlite")).unwrap_err();
    let moved = matches!(error, Error::Place { why: Misplaced::MovableLink { .. }, .. });
    assert!(moved, "who owns a directory can rename root's links in it: {error:?}");
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    let error = Store::open(link.join("theirs.sqlite")).unwrap_err();
    assert!(matches!(error, Error::Place { why: Misplaced::ForeignLink { owner: 65534, .. }, .. }), "{error:?}");
    assert!(error.to_string().contains("belongs to user 65534"), "{error}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);

    let store = Store::open(home.join("data/results.sqlite")).unwrap();
    store.begin(&sample::empty()).unwrap();
    for entry in std::fs::read_dir(home.join("data")).unwrap() {
        let entry = entry.unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&entry.metadata().unwrap());
        assert_eq!(owner, 65534, "{:?} belongs to the home's owner", entry.path());
    }
}

/// Objects that pagelab does not create in a store, each with the resulting message.
const ADDED: [(&str, &str); 7] = [
    (
        "CREATE TRIGGER spin AFTER INSERT ON trials BEGIN
             INSERT INTO settings WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, n FROM c; END",
        "a trigger spin on trials",
    ),
    ("CREATE VIEW mine AS SELECT 1", "a view mine"),
    ("CREATE TABLE mine (a)", "a table mine"),
    ("CREATE INDEX mine ON trials (abs(arm))", "an index mine on trials"),
    ("CREATE VIRTUAL TABLE mine USING fts5(a)", "a table mine"),
    ("ALTER TABLE trials ADD COLUMN g TEXT AS (hex(zeroblob(99)))", "its table trials differs from the one"),
    ("DROP VIEW effects", "it lacks the view effects"),
];

#[test]
fn a_store_with_another_schema_is_refused_and_left_unchanged() {
    for (added, expected) in ADDED {
        let (_directory, store) = store();
        let id = store.begin(&sample::empty()).unwrap();
        plain(&store).execute_batch(added).unwrap();
        let path = store.path().to_path_buf();
        // The store that is already open notices the object too, before any other operation.
        let record = &sample::comparison().trials[0];
        for error in [store.append(id, record).unwrap_err(), store.load(id).map(drop).unwrap_err()] {
            assert!(
                matches!(&error, Error::OtherSchema { found, .. } if found.contains(expected)),
                "{added}: {error:?}"
            );
        }
        assert_eq!(count(&store, "trials"), 0);
        drop(store);
        let before = std::fs::read(&path).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("--store FILE"), "{added}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{added}");
    }
}

#[test]
fn a_store_analysed_by_sqlite_is_still_valid() {
    let (_directory, store) = store();
    store.begin(&sample::comparison()).unwrap();
    plain(&store).execute_batch("ANALYZE; VACUUM").unwrap();
    store.begin(&sample::comparison()).unwrap();
    assert_eq!(Store::open(store.path()).unwrap().list().unwrap().len(), 2);
}

/// Even if an object passed the comparison of schemas, it would have no effect.
#[test]
fn triggers_and_views_do_nothing_and_the_schema_cannot_be_written() {
    let (_directory, store) = store();
    plain(&store).execute_batch(ADDED[0].0).unwrap();
    let settings = "INSERT INTO settings VALUES ('a', '{}')";
    let states = "INSERT INTO states VALUES (1, 'a', '{}')";
    let machine = "INSERT INTO machines VALUES ('m', '{}')";
    [settings, states, machine].iter().for_each(|sql| assert_eq!(store.connection.execute(sql, []).unwrap(), 1));
    store.connection.pragma_update(None, "foreign_keys", false).unwrap();
    let trial = "INSERT INTO trials VALUES (1, 1, 0, 0, 0, 0, 0.0, 0, NULL, NULL, 1, 1, 0, NULL)";
    assert_eq!(store.connection.execute(trial, []).unwrap(), 1, "an endless trigger would not come back");
    assert_eq!(count(&store, "settings"), 1);
    for refused in ["SELECT * FROM effects", "UPDATE sqlite_schema SET sql = ''", "ATTACH ':memory:' AS a"] {
        assert!(store.connection.execute_batch(refused).is_err(), "{refused}");
    }
}

/// Whether the store in the next test was asked to stop.
static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[test]
fn endless_work_ends_when_pagelab_must_stop() {
    let directory = tempfile::tempdir().unwrap();
    let must_stop = || STOP.load(std::sync::atomic::Ordering::Relaxed);
    let path = directory.path().join("results.sqlite");
    let store = Store::open_until(&path, must_stop).unwrap();
    STOP.store(true, std::sync::atomic::Ordering::Relaxed);
    let endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c";
    let error = store.read(|transaction| transaction.query_row(endless, [], |row| row.get::<_, i64>(0))).unwrap_err();
    assert!(matches!(error, Error::TooLong { worked_s, .. } if worked_s > 0.0), "{error:?}");
    let id = store.begin(&sample::empty()).expect("there is still time to store what was measured");
    let other = plain(&store);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.append(id, &sample::comparison().trials[0]).unwrap_err();
    assert!(matches!(error, Error::Busy { waited_s, .. } if waited_s < bound::PATIENCE_S as f64), "{error:?}");
    other.execute_batch("COMMIT").unwrap();
    store.append(id, &sample::comparison().trials[0]).unwrap();
}

#[test]
fn waits_for_a_briefly_locked_store() {
    let (_directory, store) = store();
    let other = plain(&store);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let releases = std::thread::spawn(move || {
        std::thread::sleep(connection::BUSY * 2);
        other.execute_batch("COMMIT").unwrap();
    });
    store.begin(&sample::empty()).unwrap();
    releases.join().unwrap();
}

#[test]
fn a_store_that_is_removed_or_replaced_is_noticed_and_results_are_set_aside() {
    type Act = fn(&Path);
    let acts: [(&str, Act); 4] = [
        ("removed", |path| std::fs::remove_file(path).unwrap()),
        ("replaced by another file", |path| {
            let other = path.with_file_name("other.sqlite");
            Store::open(&other).unwrap();
            std::fs::rename(other, path).unwrap();
        }),
        ("write-ahead log, which was removed", |path| {
            std::fs::remove_file(path.with_file_name("results.sqlite-wal")).unwrap();
        }),
        ("removed", |path| std::fs::remove_dir_all(path.parent().unwrap()).unwrap()),
    ];
    for (what, act) in acts {
        let (_directory, store) = store();
        let mut comparison = Comparison { ended: Ended::NotEnded, analysis: None, ..sample::empty() };
        let id = store.begin(&comparison).unwrap();
        let trials = sample::comparison().trials;
        store.append(id, &trials[0]).unwrap();
        act(store.path());
        let error = store.append(id, &trials[1]).unwrap_err();
        assert!(matches!(&error, Error::Gone { what: found, .. } if found.contains(what)), "{error:?}");
        comparison.trials = trials[..2].to_vec();
        let aside = store.set_aside().unwrap();
        let id = aside.begin(&comparison).unwrap();
        aside.append(id, &trials[2]).unwrap();
        assert_eq!(aside.load(id).unwrap().trials, trials[..3]);
        let is_next_to_store = store.path().parent().unwrap().is_dir();
        let name = if is_next_to_store { "results-set-aside-1.sqlite" } else { "pagelab-set-aside-" };
        assert!(aside.path().display().to_string().contains(name), "{:?}", aside.path());
        assert_eq!(is_next_to_store, aside.path().parent() == store.path().parent());
        if !is_next_to_store {
            let private = aside.path().parent().unwrap().to_path_buf();
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&private).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o700);
            std::fs::remove_dir_all(private).unwrap();
        }
    }
}

// Tests with several processes: they run this same program again, with one of the ignored functions below.
