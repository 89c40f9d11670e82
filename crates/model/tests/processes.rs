//! Traces of processes that fork and execute programs, and traces of other recordings.

use std::collections::HashMap;
use std::io::Cursor;

use model::machine;
use model::replay::{Child, ReplayError, Replayed, Unrecorded, replay_processes};
use model::simulation::{MAX_PROCESSES, Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Chunk, Filter, Header, Image, Kind, Process, Recording, Writer};

const BASE: u64 = 0x10_0000_0000;
const FIRST: u32 = 100;
const CLONE_VM: u64 = 0x100;

/// The trace of a process with one thread, while it is written.
struct Trace(Recording<Vec<u8>>);

fn header(process: u32, parent: Option<u32>) -> Header {
    Header { process: Some(Process { process, parent, execs: 0 }), architecture: "x86_64".into(), ..Header::of("test") }
}

impl Trace {
    fn new(header: Header) -> Trace {
        Trace(Recording::new(Vec::new(), header).unwrap())
    }

    fn map(mut self, bytes: u64) -> Trace {
        let call = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
        self.0.event(0, call, BASE as i64);
        self
    }

    fn touch(mut self, pages: std::ops::Range<u64>) -> Trace {
        for page in pages {
            self.0.instructions(0, 1);
            self.0.access(0, BASE + (page << 12), 8, Kind::STORE).unwrap();
        }
        self
    }

    fn fork(mut self, flags: u64, child: u32) -> Trace {
        self.0.event(0, Call::Clone { flags }, i64::from(child));
        self
    }

    fn exec(mut self, unrecorded: Option<&str>) -> Trace {
        let unrecorded = unrecorded.map(str::to_owned);
        self.0.event(0, Call::Exec { program: "a".to_owned(), unrecorded }, 0);
        self
    }

    fn done(self) -> Vec<u8> {
        self.0.finish().unwrap()
    }
}

/// Replays a trace with those of its children, by process number.
fn run(first: &[u8], children: &HashMap<u32, Vec<u8>>) -> Result<(Outcome, Replayed), ReplayError> {
    let of_fork = |(process, bytes): (&u32, &Vec<u8>)| (Image { process: *process, execs: 0 }, bytes.clone());
    run_images(first, &children.iter().map(of_fork).collect())
}

/// Replays a trace with those of other images.
fn run_images(first: &[u8], others: &HashMap<Image, Vec<u8>>) -> Result<(Outcome, Replayed), ReplayError> {
    let machine = machine::read("lru.toml", include_str!("../benches/lru.toml")).unwrap();
    let mut simulations = [Simulation::new(&machine, &"base".parse().unwrap(), &Physical::default()).unwrap()];
    let mut child = |image: Image| {
        let name = format!("a{}", image.suffix());
        let open = |bytes: &Vec<u8>| Child { name, from: Box::new(Cursor::new(bytes.clone())) };
        Ok(others.get(&image).map(open))
    };
    let replayed = replay_processes(Cursor::new(first), &mut child, None, &mut simulations, 1)?;
    Ok((simulations[0].outcome().unwrap(), replayed))
}

fn refused(first: Vec<u8>, children: impl IntoIterator<Item = (u32, Vec<u8>)>) -> String {
    run(&first, &children.into_iter().collect()).unwrap_err().to_string()
}

#[test]
fn refuses_a_second_fork_of_the_same_process() {
    let first = || Trace::new(header(FIRST, None)).map(8192).touch(0..2);
    let of = |process| Trace::new(header(process, None)).touch(0..1);
    // A process forks itself, two fork each other, a parent forks itself, and a parent forks the same child twice.
    assert!(
        refused(first().fork(0, 7).done(), [(7, of(7).fork(0, 7).done())])
            .contains("a.7: process 7 is forked a second")
    );
    let circle = [(7, of(7).fork(0, 8).done()), (8, of(8).fork(0, 7).done())];
    assert!(refused(first().fork(0, 7).done(), circle).contains("process 7 is forked a second time"));
    let own = (FIRST, of(FIRST).done());
    assert!(refused(first().fork(0, FIRST).done(), [own]).contains("process 100 is forked a second time"));
    assert!(refused(first().fork(0, 7).fork(0, 7).done(), [(7, of(7).done())]).contains("remove the file"));
    // A process without a trace can be forked again, because PIDs are reused.
    let (outcome, _) = run(&first().fork(0, 9).fork(0, 9).done(), &HashMap::new()).unwrap();
    assert_eq!(outcome.costs.forks, 2);
}

/// The trace of a process that forks the first of `count` processes, each of which forks the next.
fn chain(count: u32) -> (Vec<u8>, HashMap<u32, Vec<u8>>) {
    let trace = |process: u32, parent| Trace::new(header(process, parent));
    let first = trace(FIRST, None).map(8192).touch(0..2).fork(0, FIRST + 1).done();
    let of = |at: u32| {
        let process = FIRST + at;
        (process, trace(process, Some(process - 1)).touch(0..1).fork(0, process + 1).done())
    };
    (first, (1..=count).map(of).collect())
}

#[test]
fn refuses_chains_of_more_processes_than_there_are_tags() {
    let most = MAX_PROCESSES as u32 - 1;
    let (first, children) = chain(most);
    let (outcome, replayed) = run(&first, &children).unwrap();
    assert_eq!((replayed.children, outcome.costs.processes, outcome.costs.forks), (u64::from(most), most + 1, 1));
    // Each process walks for its own copy of a page, even if its ancestors have the page in the TLB.
    assert_eq!(outcome.walks, 2 + u64::from(most));
    let (first, children) = chain(most + 1);
    assert!(
        matches!(run(&first, &children), Err(ReplayError::Child { error, .. }) if matches!(*error, ReplayError::TooDeep { .. }))
    );
}

#[test]
fn a_reused_tag_has_no_entries_in_the_tlb() {
    let forks = 2 * MAX_PROCESSES as u32;
    let first = Trace::new(header(FIRST, None)).map(8192).touch(0..1);
    let first = (1..=forks).fold(first, |first, child| first.fork(0, FIRST + child));
    let of = |child| (FIRST + child, Trace::new(header(FIRST + child, Some(FIRST))).touch(1..2).done());
    let (outcome, _) = run(&first.done(), &(1..=forks).map(of).collect()).unwrap();
    // Each child touches one page, which no other process has touched.
    assert_eq!((outcome.walks, outcome.faults), (1 + u64::from(forks), 1 + u64::from(forks)));
}

#[test]
fn counts_pages_touched_by_a_clone_vm_child_once() {
    let first = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..16).fork(CLONE_VM, 7).touch(20..24);
    let child = Trace::new(header(7, Some(FIRST))).touch(8..20).done();
    let (outcome, _) = run(&first.touch(16..20).done(), &HashMap::from([(7, child.clone())])).unwrap();
    assert_eq!((outcome.touched_bytes, outcome.touched_peak_bytes), (24 << 12, 24 << 12));
    assert_eq!((outcome.resident_bytes, outcome.faults), (24 << 12, 24));
    // Without CLONE_VM, the child counts its copies of the pages touched before the fork, and the pages that it touches.
    let first = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..16).fork(0, 7).done();
    let (outcome, _) = run(&first, &HashMap::from([(7, child)])).unwrap();
    assert_eq!((outcome.touched_bytes, outcome.touched_peak_bytes), (16 << 12, (16 + 20) << 12));
    assert_eq!((outcome.resident_bytes, outcome.costs.resident_peak_bytes), (16 << 12, (16 + 20) << 12));
}

#[test]
fn moved_pages_stay_touched() {
    const TO: u64 = BASE + (1 << 30) + (1 << 12);
    let moved = |old_pages: u64, new_pages: u64, result: u64| {
        let mut trace = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..16);
        let (old_bytes, new_bytes) = (old_pages << 12, new_pages << 12);
        trace.0.event(0, Call::Mremap { address: BASE, old_bytes, new_bytes, flags: 1, new_address: 0 }, result as i64);
        let (outcome, _) = run(&trace.touch(40..44).done(), &HashMap::new()).unwrap();
        assert_eq!(
            (outcome.touched_bytes, outcome.touched_peak_bytes),
            (outcome.resident_bytes, outcome.costs.resident_peak_bytes)
        );
        outcome.touched_bytes >> 12
    };
    assert_eq!(moved(64, 128, TO), 20);
    assert_eq!(moved(64, 8, TO), 12);
    assert_eq!(moved(4, 4, TO), 20);
    // Neither a call that fails nor one that stays in place moves anything.
    assert_eq!(moved(64, 128, -12i64 as u64), 20);
    assert_eq!(moved(64, 128, BASE), 20);
}

#[test]
fn unmapping_drops_pages_touched_by_a_clone_vm_child() {
    let mut first = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..4).fork(CLONE_VM, 7).touch(0..1);
    first.0.event(0, Call::Munmap { address: BASE, bytes: 64 << 12 }, 0);
    let child = Trace::new(header(7, Some(FIRST))).touch(4..8).done();
    let (outcome, _) = run(&first.done(), &HashMap::from([(7, child)])).unwrap();
    assert_eq!((outcome.touched_bytes, outcome.touched_peak_bytes), (0, 8 << 12));
}

#[test]
fn refuses_a_trace_of_another_recording_and_names_its_file() {
    let first = Trace::new(header(FIRST, None)).map(8192).touch(0..2).fork(0, 7).done();
    let own = header(7, Some(FIRST));
    let cases = [
        (Header { system: true, ..own.clone() }, "system true, expected false"),
        (Header { architecture: "riscv64".into(), ..own.clone() }, "\"riscv64\", expected \"x86_64\""),
        (Header { filter: Filter::Sampled, ..own.clone() }, "the filter Sampled, expected None"),
        (header(8, Some(FIRST)), "the process 8, expected 7"),
        (header(7, Some(6)), "the parent 6, expected 100"),
    ];
    for (header, words) in cases {
        let error = refused(first.clone(), [(7, Trace::new(header).touch(0..1).done())]);
        assert!(error.contains("a.7: its header has ") && error.contains(words), "{error}");
    }
    let error = refused(first.clone(), [(7, b"not a trace".to_vec())]);
    assert!(error.contains("a.7: the file is no trace"), "{error}");
    let (_, replayed) = run(&first, &HashMap::from([(7, Trace::new(own).touch(0..1).done())])).unwrap();
    assert!(replayed.is_complete() && replayed.children == 1);
}

fn image(process: u32, execs: u32) -> Image {
    Image { process, execs }
}

/// The trace of a program that a process executes.
fn program(image: Image, parent: Option<u32>) -> Trace {
    let process = Some(Process { process: image.process, parent, execs: image.execs });
    Trace::new(Header { process, ..header(image.process, parent) })
}

#[test]
fn an_executed_program_has_new_memory() {
    let first = || Trace::new(header(FIRST, None)).map(64 << 12).touch(0..16).exec(None);
    let second = || program(image(FIRST, 1), None).map(64 << 12).touch(0..8);
    let (outcome, replayed) =
        run_images(&first().done(), &HashMap::from([(image(FIRST, 1), second().done())])).unwrap();
    assert_eq!((replayed.executed, replayed.unrecorded.len(), replayed.is_complete()), (1, 0, true));
    assert_eq!((outcome.faults, outcome.resident_bytes, outcome.touched_bytes), (24, 8 << 12, 8 << 12));
    assert_eq!((outcome.touched_peak_bytes, outcome.costs.resident_peak_bytes), (16 << 12, 16 << 12));
    assert_eq!((outcome.costs.processes, outcome.walks, outcome.instructions), (1, 24, Some(24)));
    // The program executes a third one; the tables of each are counted.
    let third = program(image(FIRST, 2), None).map(64 << 12).touch(0..4).done();
    let all = HashMap::from([(image(FIRST, 1), second().exec(None).done()), (image(FIRST, 2), third)]);
    let (both, replayed) = run_images(&first().done(), &all).unwrap();
    assert_eq!((replayed.executed, both.faults, both.resident_bytes), (2, 28, 4 << 12));
    assert_eq!(both.costs.process_table_bytes, 3 * (outcome.costs.process_table_bytes / 2));
}

#[test]
fn exec_in_a_child_keeps_the_parents_memory() {
    for flags in [0, CLONE_VM] {
        let first = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..16).fork(flags, 7).touch(0..16).done();
        let child = Trace::new(header(7, Some(FIRST))).touch(0..1).exec(None).done();
        // The executed program forks too.
        let program_of_child = program(image(7, 1), Some(FIRST)).map(64 << 12).touch(0..8).fork(0, 9).done();
        let grandchild = Trace::new(header(9, Some(7))).touch(0..1).done();
        let others = [(image(7, 0), child), (image(7, 1), program_of_child), (image(9, 0), grandchild)];
        let (outcome, replayed) = run_images(&first, &others.into()).unwrap();
        assert_eq!((replayed.children, replayed.executed), (2, 1));
        let copies = if flags == 0 { 1 } else { 0 };
        // After a fork without CLONE_VM, the pages are write-protected: the child copies one, and the parent's 16 stores fault.
        let again = if flags == 0 { 16 } else { 0 };
        assert_eq!(outcome.faults, 16 + copies + 8 + 1 + again, "{flags}");
        assert_eq!((outcome.resident_bytes, outcome.touched_bytes), (16 << 12, 16 << 12));
        assert_eq!(outcome.costs.processes, 3);
    }
}

#[test]
fn names_an_executed_program_without_a_trace() {
    let first = |why| Trace::new(header(FIRST, None)).map(8192).touch(0..2).exec(why).done();
    let unrecorded_after = |why| {
        let (outcome, replayed) = run(&first(why), &HashMap::new()).unwrap();
        assert_eq!((outcome.resident_bytes, replayed.executed), (0, 0));
        replayed.unrecorded.into_iter().collect::<Vec<_>>()
    };
    let unrecorded = |why: Option<&str>| Unrecorded { program: "a".to_owned(), why: why.map(str::to_owned) };
    assert_eq!(unrecorded_after(None), [(unrecorded(None), 1)]);
    assert_eq!(unrecorded_after(Some("it gains privileges")), [(unrecorded(Some("it gains privileges")), 1)]);
    // A trace with another number of executed programs belongs to another recording.
    let other = program(image(FIRST, 2), None).map(8192).touch(0..2).done();
    let error = run_images(&first(None), &HashMap::from([(image(FIRST, 1), other)])).unwrap_err().to_string();
    assert!(error.contains("a.100.exec1: its header has the number of programs executed 2, expected 1"), "{error}");
}

#[test]
fn work_of_other_threads_precedes_an_exec() {
    let mut trace = Trace::new(header(FIRST, None)).map(64 << 12).touch(0..1);
    trace = trace.exec(None);
    // This access is after the exec in the file, but its thread has not seen the exec.
    trace.0.access(1, BASE + (5 << 12), 8, Kind::STORE).unwrap();
    let (outcome, _) = run(&trace.done(), &HashMap::new()).unwrap();
    assert_eq!((outcome.faults, outcome.costs.outside_bytes, outcome.resident_bytes), (2, 0, 0));
}

#[test]
fn failing_to_open_a_child_is_an_error() {
    let first = Trace::new(header(FIRST, None)).map(8192).touch(0..2).fork(0, 7).done();
    let mut denied = |_| Err(std::io::Error::other("a.7: no way"));
    let error = replay_processes(Cursor::new(first), &mut denied, None, &mut [], 1).unwrap_err();
    assert!(error.to_string().contains("a.7: no way"), "{error}");
}

#[test]
fn reports_damage_of_a_child_with_its_name() {
    let first = Trace::new(header(FIRST, None)).map(8192).touch(0..2).fork(0, 7).done();
    let mut child = Trace::new(header(7, Some(FIRST))).touch(0..1).done();
    child.truncate(child.len() - 20);
    let (_, replayed) = run(&first, &HashMap::from([(7, child.clone())])).unwrap();
    assert!(!replayed.cut_off && replayed.cut_off_children == ["a.7"], "{replayed:?}");
    assert!(replayed.damage.iter().all(|damage| damage.starts_with("a.7: ")) && !replayed.is_complete());
}

#[test]
fn accepts_any_thread_number_and_instruction_count() {
    let mut writer = Writer::new(Vec::new(), &header(FIRST, None)).unwrap();
    let (kinds, pages) = (vec![Kind::STORE.bits()], vec![BASE >> 12]);
    let chunk = Chunk { pages, ids: vec![0], kinds, accesses: vec![1], ..Chunk::default() };
    writer.runs(0, &chunk, 1 << 63).unwrap();
    writer.runs(1 << 20, &chunk, u64::MAX).unwrap();
    let (outcome, _) = run(&writer.finish().unwrap(), &HashMap::new()).unwrap();
    assert_eq!((outcome.threads, outcome.walks, outcome.instructions), (2, 2, Some(u64::MAX)));
}
