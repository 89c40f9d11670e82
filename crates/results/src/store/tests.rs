//! Stores: round trips, damage, and concurrent writers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use policy::size::PageSize;
use study::comparison::{Contention, Fragmented, Khugepaged, OwnSession};

use super::*;
use crate::sample;

mod attacks;
mod trust;

fn is_root() -> bool {
    crate::place::Caller::of_process().user == 0
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("new/results.sqlite")).unwrap();
    (directory, store)
}

/// Opens the file as tools other than pagelab would.
fn plain(store: &Store) -> Connection {
    Connection::open(store.path()).unwrap()
}

fn integrity(store: &Store) -> String {
    store.connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap()
}

fn count(store: &Store, table: &str) -> i64 {
    store.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn a_comparison_comes_back_as_it_was() {
    let (_directory, store) = store();
    let mut all_set = sample::with_controls();
    all_set.invocation.prepare = Some(vec!["true".into()]);
    all_set.design.prove_all = true;
    all_set.design.trial_time_s = Some(30.0);
    all_set.design.khugepaged = Khugepaged::Off;
    all_set.design.own_session = Some(OwnSession::CpuGroup { group: "/sys/fs/cgroup/a".into() });
    all_set.design.contention = Some(Contention {
        cpus: 2,
        window_s: 0.2,
        share_ratio: 0.5,
        busy_cpus: 1.75,
        runnable_tasks: 4.5,
        steal_ratio: 0.125,
        decides: true,
    });
    all_set.design.fragmented = Some(Fragmented { percent: 80, block: PageSize::M2 });
    for mut comparison in [sample::comparison(), sample::hostile(), sample::empty(), all_set] {
        let id = store.begin(&Comparison { trials: Vec::new(), analysis: None, ..comparison.clone() }).unwrap();
        comparison.trials.iter().for_each(|record| store.append(id, record).unwrap());
        store.finish(id, comparison.analysis.as_ref(), &comparison.ended).unwrap();
        comparison.id = id;
        assert!(store.load(id).unwrap() == comparison, "{id}");
        assert!(store.latest().unwrap().unwrap() == comparison, "{id}");
    }
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.list().unwrap().iter().map(|summary| summary.trials).collect::<Vec<_>>(), [81, 81, 0, 81]);
    assert_eq!(count(&store, "machines"), 2, "a machine is kept once");
    assert_eq!(count(&store, "settings"), 4, "settings are kept once: usual, changed, and both again hostile");
    // The view is for other tools; pagelab itself does not use it.
    let effects = "SELECT count(*) FROM effects WHERE metric = 'wall_s' AND outcome = 'better'";
    assert_eq!(plain(&store).query_row(effects, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn the_first_warning_of_free_page_reporting_is_found_by_its_host() {
    let (_directory, store) = store();
    let stored = |host: Option<&str>, warned: bool| {
        let mut comparison = sample::comparison();
        comparison.machine.host_id = host.map(String::from);
        let reported = study::stats::Warning::FreeMemoryReported { block: PageSize::M2, explained_by: None };
        comparison.analysis.as_mut().unwrap().warnings.extend(warned.then_some(reported));
        store.begin(&comparison).unwrap()
    };
    let ids = [stored(Some("one"), false), stored(Some("one"), true), stored(None, true), stored(Some("one"), true)];
    let first = |host: Option<&str>, before: i64| store.first_warned_of_reporting(host, before).unwrap();
    assert_eq!(first(Some("one"), ids[1]), None, "not its own");
    assert_eq!(first(Some("one"), ids[3]), Some(ids[1]));
    assert_eq!((first(None, ids[3]), first(Some("two"), ids[3])), (Some(ids[2]), None));
}

#[test]
fn a_comparison_that_has_trials_is_stored_with_them() {
    let (_directory, store) = store();
    let comparison = sample::comparison();
    let id = store.begin(&comparison).unwrap();
    assert!(store.load(id).unwrap() == Comparison { id, ..comparison });
}

#[test]
fn a_comparison_that_was_killed_is_analysed_as_far_as_it_went() {
    let (_directory, store) = store();
    let id = store.begin(&Comparison { ended: Ended::NotEnded, ..sample::empty() }).unwrap();
    sample::comparison().trials[..60].iter().for_each(|record| store.append(id, record).unwrap());
    let analysis = store.load(id).unwrap().analysis.expect("blocks that count");
    // The sample's first ten blocks are complete; the eleventh has trials of the baseline and of some other arms.
    assert_eq!(analysis.blocks, 11);
    assert_eq!(store.latest().unwrap().unwrap().analysis, Some(analysis));
}

#[test]
fn an_empty_store_has_nothing() {
    let (_directory, store) = store();
    assert!(store.latest().unwrap().is_none());
    assert_eq!(store.list().unwrap(), []);
    assert!(matches!(store.load(7), Err(Error::NoSuchComparison { id: 7, .. })));
    assert!(matches!(store.finish(7, None, &Ended::Time), Err(Error::NoSuchComparison { id: 7, .. })));
    let trial = &sample::comparison().trials[0];
    assert!(matches!(store.append(7, trial), Err(Error::NoSuchComparison { id: 7, .. })));
}

#[test]
fn a_trial_is_stored_whole_or_not_at_all() {
    let (_directory, store) = store();
    let id = store.begin(&sample::empty()).unwrap();
    let good = sample::comparison().trials[0].clone();
    let mut bad = good.clone();
    bad.observations.last_mut().unwrap().value = f64::NAN;
    assert!(matches!(store.append(id, &bad), Err(Error::Unstorable { what, .. }) if what == "tracer_s"));
    bad.observations.pop();
    bad.verdict.covered_bytes = u64::MAX;
    assert!(matches!(store.append(id, &bad), Err(Error::Unstorable { .. })));
    bad = good.clone();
    bad.trial.arm = 6;
    assert!(matches!(store.append(id, &bad), Err(Error::Unstorable { .. })));
    for table in ["trials", "observations", "states", "census"] {
        assert_eq!(count(&store, table), 0, "{table}");
    }
    store.append(id, &good).unwrap();
    assert!(matches!(store.append(id, &good), Err(Error::Duplicate { block: 0, .. })));
    assert_eq!(count(&store, "trials"), 1);
}

#[test]
fn leaves_a_file_unchanged_that_is_not_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "not a database, but valuable to its owner\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, Error::NotAStore { .. }), "{error:?}");
    assert!(error.to_string().contains("notes.txt") && error.to_string().contains("--store"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    let other = directory.path().join("other.sqlite");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (a); PRAGMA user_version = 1").unwrap();
    let before = std::fs::read(&other).unwrap();
    assert!(matches!(Store::open(&other), Err(Error::NotAStore { .. })));
    Connection::open(&other).unwrap().execute_batch("PRAGMA user_version = 0").unwrap();
    assert!(matches!(Store::open(&other), Err(Error::NotAStore { .. })));
    assert_eq!(std::fs::read(&other).unwrap().len(), before.len());

    assert!(matches!(Store::open(directory.path()), Err(Error::Unopenable { .. })));
}

#[test]
fn the_book_names_the_version() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = [
        ("docs/reference/formats/store.md", format!("# The store: version {VERSION}\n")),
        ("docs/reference/formats/README.md", format!("[the store, version {VERSION}](store.md)")),
    ];
    for (page, words) in named {
        assert!(std::fs::read_to_string(root.join(page)).unwrap().contains(&words), "{page}: {words}");
    }
}

#[test]
fn another_version_is_refused() {
    let (_directory, store) = store();
    store.connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    let error = Store::open(store.path()).unwrap_err();
    assert!(matches!(error, Error::OtherVersion { found, known: VERSION, .. } if found == VERSION + 1), "{error:?}");
}

#[test]
fn damage_is_reported_and_left_as_it_is() {
    let (_directory, store) = store();
    let id = store.begin(&sample::comparison()).unwrap();
    let path = store.path().to_path_buf();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[8192..].iter_mut().step_by(7).for_each(|byte| *byte ^= 0x5a);
    bytes.truncate(middle);
    std::fs::write(&path, &bytes).unwrap();
    let error = Store::open(&path).and_then(|store| store.load(id)).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn an_unknown_word_is_damage() {
    let (_directory, store) = store();
    let id = store.begin(&sample::comparison()).unwrap();
    store.connection.execute("UPDATE verdicts SET holding = 'perhaps' WHERE trial = 3", []).unwrap();
    let error = store.load(id).unwrap_err();
    assert!(matches!(&error, Error::Damaged { detail, .. } if detail.contains("holding")), "{error:?}");
}

#[test]
fn a_full_disk_loses_nothing_that_was_stored() {
    let (_directory, store) = store();
    let comparison = sample::comparison();
    let id = store.begin(&sample::empty()).unwrap();
    store.append(id, &comparison.trials[0]).unwrap();
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.connection.pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(())).unwrap();
    let appended = comparison.trials[1..].iter().map_while(|record| store.append(id, record).ok()).count();
    let error = store.append(id, &comparison.trials[1 + appended]).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert_eq!(store.load(id).unwrap().trials, comparison.trials[..=appended]);
}

#[test]
fn reports_a_full_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k", "pagelab-test"]).arg(directory.path()).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        testing::skip("the right to mount a tmpfs");
        return;
    }
    let fill = || -> Result<(), Error> {
        let store = Store::open(directory.path().join("results.sqlite"))?;
        let comparison = sample::comparison();
        loop {
            store.begin(&comparison)?;
        }
    };
    let errors = [fill().unwrap_err(), fill().unwrap_err()];
    let unmounted = Command::new("umount").arg(directory.path()).status().unwrap();
    assert!(unmounted.success());
    assert!(matches!(errors, [Error::Full { .. }, Error::Full { .. }]), "{errors:?}");
}

const STORE: &str = "PAGELAB_TEST_STORE";

fn helper(program: &Path, name: &str, store: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([&format!("store::tests::{name}"), "--exact", "--ignored", "--nocapture"]).env(STORE, store);
    command.stdout(Stdio::piped());
    command
}

fn spawn_writer(store: &Path) -> Child {
    helper(&std::env::current_exe().unwrap(), "writes_every_trial", store).spawn().unwrap()
}

fn write_once(path: &Path) -> Result<i64, Error> {
    Store::open(path)?.begin(&sample::empty())
}

#[test]
#[ignore = "a helper of other tests"]
fn writes_once() {
    eprintln!("{:?}", write_once(Path::new(&std::env::var_os(STORE).unwrap())));
}

/// The writer process: stores one comparison, prints its ID, and prints a line after each stored trial.
#[test]
#[ignore = "a helper of other tests"]
fn writes_every_trial() {
    let store = Store::open(std::env::var_os(STORE).unwrap()).unwrap();
    let id = store.begin(&sample::empty()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "\nid {id}").unwrap();
    for record in &sample::comparison().trials {
        store.append(id, record).unwrap();
        writeln!(out, "stored").unwrap();
    }
    store.finish(id, None, &Ended::Blocks).unwrap();
}

/// The lines that a writer prints.
fn lines(writer: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok)
}

/// From the lines of a writer: the ID of its comparison, and the number of trials that it reported as stored.
fn parsed(lines: &[String]) -> (Option<i64>, usize) {
    let id = lines.iter().find_map(|line| line.strip_prefix("id ")?.parse().ok());
    (id, lines.iter().filter(|line| *line == "stored").count())
}

#[test]
fn processes_write_at_once_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.sqlite");
    let mut writers: Vec<Child> = (0..5).map(|_| spawn_writer(&path)).collect();
    let outcomes: Vec<(Option<i64>, usize)> =
        writers.iter_mut().map(|writer| parsed(&lines(writer).collect::<Vec<_>>())).collect();
    assert!(writers.iter_mut().all(|writer| writer.wait().unwrap().success()));
    let store = Store::open(&path).unwrap();
    let trials = sample::comparison().trials;
    for (id, stored) in outcomes {
        let comparison = store.load(id.unwrap()).unwrap();
        assert_eq!(stored, trials.len());
        assert!(comparison.trials == trials && comparison.ended == Ended::Blocks);
    }
    assert_eq!(count(&store, "comparisons"), 5);
    assert_eq!(integrity(&store), "ok");
}

#[test]
fn a_killed_writer_loses_at_most_the_trial_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.sqlite");
    let trials = sample::comparison().trials;
    let mut cut_short = 0;
    for round in 0..30u64 {
        let mut writer = spawn_writer(&path);
        // Some writers are killed while they open the store, the others after that many lines and a short delay.
        let mut lines = lines(&mut writer);
        let mut printed: Vec<String> = lines.by_ref().take(round as usize * 2).collect();
        std::thread::sleep(Duration::from_micros(round * 613 % 4_000));
        writer.kill().unwrap();
        printed.extend(lines);
        writer.wait().unwrap();
        let (id, stored) = parsed(&printed);
        let store = Store::open(&path).unwrap();
        assert_eq!(integrity(&store), "ok");
        let Some(id) = id else { continue };
        let kept = store.load(id).unwrap().trials;
        assert!(kept.len() == stored || kept.len() == stored + 1, "{stored} were stored, {} are there", kept.len());
        assert!(kept == trials[..kept.len()]);
        cut_short += usize::from(kept.len() < trials.len());
    }
    assert!(cut_short >= 5, "only {cut_short} writers were killed at work: the test shows nothing");
}
