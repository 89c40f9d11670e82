// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;
use std::path::Path;
use trace::log::RunLog;
use trace::{Block, Reader, Rescue};

/// Recorders count events in one place of the process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recorder that writes `trace` in a directory, and keeps logs there.
fn recorder(directory: &Path) -> Recorder {
    let file = TraceFile::create(&directory.join("trace")).unwrap();
    let header = Header { architecture: "x86_64".to_owned(), ..Header::of("a test") };
    let schedule = Schedule::new(&header, None);
    let numbers = Numbers::of("x86_64").unwrap();
    Recorder::new(file, header, numbers, schedule, Own::default(), Complaints::open(), Some(directory.to_owned()))
        .unwrap()
}

/// The events of the trace, and whether that is whole.
fn events(directory: &Path) -> (Vec<Event>, bool) {
    let file = std::fs::File::open(directory.join("trace")).unwrap();
    let (mut reader, mut found) = (Reader::new(file).unwrap(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        match block {
            Block::Events { events, .. } => found.extend(events),
            Block::Runs { .. } => {}
            Block::Damaged(damage) => panic!("{damage:?}"),
        }
    }
    (found, reader.is_whole())
}

/// What `pagelab record` does after the process was killed.
fn rescue(directory: &Path) {
    let log = std::fs::read(directory.join(format!("{}.events", std::process::id()))).unwrap();
    let logged = LoggedEvent::read(&log);
    let path = directory.join("trace");
    let rescue = Rescue::of(std::fs::File::open(&path).unwrap()).unwrap();
    let runs: [RunLog; 0] = [];
    if rescue.is_needed(&logged, &runs) {
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(rescue.end()).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
        rescue.write(file, logged, &runs).unwrap();
    }
}

fn exec() -> Call {
    Call::Exec { program: "/bin/true".to_owned() }
}

fn brk(address: u64) -> Call {
    Call::Brk { address }
}

#[test]
fn what_others_do_while_the_file_is_closed_is_not_lost() {
    const EACH: u64 = 2000;
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let recorder = recorder(directory.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut vcpu = recorder.begin_thread();
            (0..EACH).for_each(|number| recorder.note(&mut vcpu, brk(number), 0));
            recorder.end_thread(&mut vcpu);
        });
        let mut vcpu = recorder.begin_thread();
        (0..EACH / 4).for_each(|_| recorder.close(&mut vcpu, None));
        recorder.end_thread(&mut vcpu);
    });
    recorder.finish(0);
    let (events, whole) = events(directory.path());
    let told = events.iter().filter_map(|event| match event.call {
        Call::Brk { address } => Some(address),
        _ => None,
    });
    assert!(whole && told.eq(0..EACH), "{}", events.len());
}

#[test]
fn an_exec_that_failed_is_none_that_succeeded_whenever_the_program_is_killed() {
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let recorder = recorder(directory.path());
    let mut vcpu = recorder.begin_thread();
    recorder.note(&mut vcpu, brk(1), 0);
    recorder.close(&mut vcpu, Some(exec()));
    // Killed now it would have succeeded.
    let (found, whole) = events(directory.path());
    assert!(whole && found.last().unwrap().call == exec());
    recorder.note(&mut vcpu, exec(), -2);
    recorder.note(&mut vcpu, brk(2), 0);
    rescue(directory.path());
    let (found, whole) = events(directory.path());
    let told: Vec<(u64, i64, Call)> = found.into_iter().map(|event| (event.order, event.result, event.call)).collect();
    assert_eq!((told, whole), (vec![(0, 0, brk(1)), (1, -2, exec()), (2, 0, brk(2))], true));
}

#[test]
fn an_exec_that_succeeds_while_others_write_is_the_last_event() {
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let recorder = recorder(directory.path());
    let (mut vcpu, mut other) = (recorder.begin_thread(), recorder.begin_thread());
    recorder.close(&mut vcpu, Some(exec()));
    recorder.note(&mut other, brk(1), 0);
    assert_eq!(events(directory.path()), (vec![], false));
    recorder.write(&mut other);
    recorder.note(&mut other, brk(2), 0);
    rescue(directory.path());
    let (found, whole) = events(directory.path());
    let told: Vec<(u64, i64, Call)> = found.into_iter().map(|event| (event.order, event.result, event.call)).collect();
    assert_eq!((told, whole), (vec![(0, 0, brk(1)), (1, 0, brk(2)), (2, 0, exec())], true));
}

#[test]
fn nothing_is_kept_that_will_not_be_written() {
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let recorder = recorder(directory.path());
    let mut vcpu = recorder.begin_thread();
    recorder.note(&mut vcpu, brk(1), 0);
    recorder.attempt(&mut recorder.lock(), |_| Err(io::Error::from_raw_os_error(libc::ENOSPC)));
    for recorder in [&recorder, &recorder.silent()] {
        (0..3 * NOTED as u64).for_each(|number| recorder.note(&mut vcpu, brk(number), 0));
        recorder.note_seen(&mut vcpu);
        recorder.close(&mut vcpu, Some(exec()));
        let shared = recorder.lock();
        assert!(shared.noted.is_empty() && shared.log.is_none() && shared.attempts.is_empty());
    }
    // Nobody finishes a trace that lacks what was not written.
    assert!(!directory.path().join(format!("{}.events", std::process::id())).exists());
    assert!(!events(directory.path()).1);
}

#[test]
fn a_forked_process_writes_over_no_file() {
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let path = directory.path().join(format!("trace.{}", std::process::id()));
    std::fs::write(&path, "somebody's").unwrap();
    let said = recorder(directory.path()).of_child(Own::default()).err().unwrap();
    assert!(said.contains(path.to_str().unwrap()) && said.contains("exists"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}
