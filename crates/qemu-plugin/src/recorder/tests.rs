// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;
use std::path::Path;
use trace::{Block, Reader};

/// A recorder that writes the file `trace` in a directory.
fn recorder(directory: &Path) -> Recorder {
    let file = TraceFile::create(&directory.join("trace")).unwrap();
    let header = Header { architecture: "x86_64".to_owned(), ..Header::of("a test") };
    let plan = Plan {
        schedule: Schedule::new(&header, None),
        header,
        numbers: Numbers::of("x86_64").unwrap(),
        request: Request {
            output: directory.join("trace"),
            identity: None,
            header: PathBuf::new(),
            max_instructions: None,
            memory: PathBuf::new(),
            follow: None,
            handover: None,
        },
        events: Box::leak(Box::default()),
    };
    Recorder::new(file, plan, Owned::default()).unwrap()
}

/// The events of the trace, and whether the trace is complete.
fn events(directory: &Path) -> (Vec<Event>, bool) {
    let file = std::fs::File::open(directory.join("trace")).unwrap();
    let (mut reader, mut found) = (Reader::new(file).unwrap(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        match block {
            Block::Events { events, .. } => found.extend(events),
            Block::Runs { .. } | Block::Timestamps(_) => {}
            Block::Damaged(damage) => panic!("{damage:?}"),
        }
    }
    (found, reader.is_whole())
}

/// Orders, results and calls of the trace's events, and whether the trace is complete.
fn events_by_order(directory: &Path) -> (Vec<(u64, i64, Call)>, bool) {
    let (found, whole) = events(directory);
    (found.into_iter().map(|event| (event.order, event.result, event.call)).collect(), whole)
}

fn exec() -> Call {
    Call::exec("/bin/true")
}

fn brk(address: u64) -> Call {
    Call::Brk { address }
}

#[test]
fn keeps_events_of_other_threads_while_the_file_is_closed() {
    const EACH: u64 = 2000;
    let directory = tempfile::tempdir().unwrap();
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
    let events_by_order = events.iter().filter_map(|event| match event.call {
        Call::Brk { address } => Some(address),
        _ => None,
    });
    assert!(whole && events_by_order.eq(0..EACH), "{}", events.len());
}

#[test]
fn a_failed_exec_never_looks_successful_even_if_the_program_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path());
    let mut vcpu = recorder.begin_thread();
    recorder.note(&mut vcpu, brk(1), 0);
    recorder.close(&mut vcpu, Some(exec()));
    // If the process were killed now, the execve would have succeeded.
    let (found, whole) = events(directory.path());
    assert!(whole && found.last().unwrap().call == exec());
    recorder.note(&mut vcpu, exec(), -2);
    assert_eq!(events_by_order(directory.path()), (vec![(0, 0, brk(1)), (1, -2, exec())], false));
    recorder.note(&mut vcpu, brk(2), 0);
    recorder.finish(0);
    assert_eq!(events_by_order(directory.path()), (vec![(0, 0, brk(1)), (1, -2, exec()), (2, 0, brk(2))], true));
}

#[test]
fn an_exec_that_succeeds_while_others_write_is_the_last_event() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path());
    let (mut vcpu, mut other) = (recorder.begin_thread(), recorder.begin_thread());
    recorder.close(&mut vcpu, Some(exec()));
    for number in 0..3 {
        recorder.note(&mut other, brk(number), 0);
        let mut expected: Vec<(u64, i64, Call)> = (0..=number).map(|number| (number, 0, brk(number))).collect();
        expected.push((number + 1, 0, exec()));
        // The trace has no index, because the unwritten data of the other thread would be missing.
        assert_eq!(events_by_order(directory.path()), (expected, false));
    }
    // After the exec has failed, the trace no longer claims that it succeeded.
    recorder.note(&mut vcpu, exec(), -2);
    recorder.finish(0);
    let (events, whole) = events_by_order(directory.path());
    assert_eq!((events.len(), events.last(), whole), (4, Some(&(3, -2, exec())), true));
}

#[test]
fn removes_the_provisional_end_if_the_program_continues() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path());
    let mut vcpu = recorder.begin_thread();
    recorder.close(&mut vcpu, None);
    assert!(events_by_order(directory.path()).1 && vcpu.needs_attention());
    assert!(matches!(vcpu.attend(), crate::vcpu::Attention::CallReturned));
    recorder.continued(&vcpu);
    assert!(!events_by_order(directory.path()).1 && !vcpu.needs_attention());
}

#[test]
fn keeps_no_data_after_the_file_has_failed() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path());
    let mut vcpu = recorder.begin_thread();
    recorder.note(&mut vcpu, brk(1), 0);
    recorder.attempt(&mut recorder.lock(), |_| Err(io::Error::from_raw_os_error(libc::ENOSPC)));
    for recorder in [&recorder, &recorder.without_output()] {
        (0..3 * MAX_NOTED as u64).for_each(|number| recorder.note(&mut vcpu, brk(number), 0));
        recorder.note_seen(&mut vcpu);
        recorder.close(&mut vcpu, Some(exec()));
        let unwritten = recorder.lock();
        assert!(unwritten.count() == 0 && !unwritten.is_open() && !unwritten.has_end());
    }
    // There is no index that would make the trace look complete.
    assert!(!events(directory.path()).1);
}

#[test]
fn a_forked_process_overwrites_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("trace.{}", std::process::id()));
    std::fs::write(&path, "somebody's").unwrap();
    let message = recorder(directory.path()).of_child(Owned::default()).err().unwrap().to_string();
    assert!(message.contains(path.to_str().unwrap()) && message.contains("exists"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}
