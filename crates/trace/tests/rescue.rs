//! Traces that are finished from logs.

use std::io::{Cursor, Seek, SeekFrom};

use trace::log::{LOG, LOG_HEAD_BYTES, LoggedEvent, NO_PAGE, RawRun, RunLog, STORES_SHIFT};
use trace::{Block, Call, Event, Header, Kind, PREFIX_BYTES, Reader, Rescue, Rescued, Run, Writer};

/// A log of a thread: the pages and counters of the streams, and the runs.
fn log(data: [u64; 2], fetch: [u64; 2], runs: &[RawRun]) -> Vec<u8> {
    let next = 1 + runs.len() as u64;
    let head = [data.as_slice(), &fetch, &[next, 0, 1234, 0, 0, 10, 3, LOG]].concat();
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(LOG_HEAD_BYTES, 0);
    let places = [&[RawRun::default()], runs].concat();
    bytes.extend(places.iter().flat_map(|run| [run.page.to_le_bytes(), run.begin.to_le_bytes()].concat()));
    bytes
}

const FETCH: u64 = 1;
const STORE: u64 = 1 | 1 << STORES_SHIFT;

fn raw(page: u64, begin: u64) -> RawRun {
    RawRun { page: page << 12, begin }
}

fn fetches(page: u64, begin: u64) -> RawRun {
    RawRun { page: page << 12 | FETCH, begin }
}

fn run(page: u64, kind: Kind, accesses: u32) -> Run {
    Run { page, kind, accesses }
}

fn read(bytes: &[u8]) -> Option<RunLog> {
    RunLog::read(bytes).unwrap()
}

fn begun() -> [RawRun; 4] {
    [raw(100, 5), fetches(200, 7), RawRun::of_kernel(300, true), raw(101, 9)]
}

/// Data began at the counter 5, fetches at 7; the last run of data goes on.
fn sound() -> Vec<u8> {
    log([101 << 12, 9 + STORE], [NO_PAGE, 17], &begun())
}

fn expected() -> Vec<Run> {
    vec![run(100, Kind::LOAD, 4), run(200, Kind::FETCH, 10), run(300, Kind::KERNEL_STORE, 1), run(101, Kind::STORE, 1)]
}

#[test]
fn a_log_is_read_to_the_run_that_goes_on() {
    let read = read(&sound()).unwrap();
    assert_eq!(read, RunLog { thread: 3, instructions: 1234, first: 10, runs: expected(), torn: 0 });
}

#[test]
fn of_a_log_only_what_is_used_is_read() {
    let (sound, room) = (sound(), 1 << 16);
    let mut file = Cursor::new([sound.clone(), vec![0; room]].concat());
    assert_eq!(RunLog::read(&mut file).unwrap(), read(&sound));
    assert_eq!(file.position(), sound.len() as u64);
}

#[test]
fn a_run_that_was_half_begun_is_left_out() {
    // Its place was stored, and nothing of its stream; or its access was not counted.
    for page in [NO_PAGE, 101 << 12] {
        let read = read(&log([page, 9], [NO_PAGE, 17], &begun())).unwrap();
        assert_eq!((read.runs, read.torn), (expected()[..3].to_vec(), 1));
    }
}

#[test]
fn what_is_no_log_gives_nothing() {
    let sound = sound();
    for length in 0..sound.len() {
        assert_eq!(read(&sound[..length]), None);
    }
    let mut other = sound.clone();
    other[11 * 8] ^= 1;
    assert_eq!(read(&other), None);
    assert!(LoggedEvent::read(b"").is_empty() && LoggedEvent::read(&[255; 99]).is_empty());
}

fn event(number: u64) -> LoggedEvent {
    let event = Event { run: 10, order: number, call: Call::Brk { address: number }, result: 0 };
    LoggedEvent { thread: 3, number, instructions: 1000, is_attempt: false, event }
}

/// An `execve` of a thread, about to be made, or come back from.
fn exec(thread: u32, number: u64, order: u64, result: Option<i64>) -> LoggedEvent {
    let call = Call::Exec { program: "/bin/true".to_owned() };
    let event = Event { run: 0, order, call, result: result.unwrap_or(0) };
    LoggedEvent { thread, number, instructions: 1000, is_attempt: result.is_none(), event }
}

/// The threads, orders and results of the events that come into a trace, which has one event of the thread 3.
fn added(events: Vec<LoggedEvent>) -> Vec<(u32, u64, i64)> {
    let mut file = Cursor::new(trace(0, false));
    let rescue = Rescue::of(&mut file).unwrap();
    file.seek(SeekFrom::Start(rescue.end())).unwrap();
    rescue.write(&mut file, events, &[]).unwrap();
    file.rewind().unwrap();
    let (mut reader, mut found) = (Reader::new(file).unwrap(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        let Block::Events { thread, events, .. } = block else { panic!("{block:?}") };
        found.extend(events.iter().map(|event| (thread, event.order, event.result)));
    }
    found.split_off(1)
}

#[test]
fn a_call_that_nobody_came_back_from_has_ended_the_program() {
    // Others went on while it was made; it is the last all the same.
    let others = LoggedEvent { thread: 5, number: 0, ..event(7) };
    assert_eq!(added(vec![exec(3, 1, 4, None), others.clone()]), [(5, 7, 0), (3, 8, 0)]);
    // A thread that came back from it did something else.
    assert_eq!(added(vec![exec(3, 1, 4, None), exec(3, 1, 4, Some(-2)), others]), [(3, 4, -2), (5, 7, 0)]);
    // The trace has it already.
    assert_eq!(added(vec![exec(3, 0, 4, None)]), []);
}

fn events(count: u64) -> Vec<LoggedEvent> {
    let lines: Vec<u8> = (0..count).flat_map(|number| serde_json::to_vec(&event(number)).unwrap()).collect();
    let mut bytes = (lines.len() as u64).to_le_bytes().to_vec();
    bytes.extend(lines);
    // What was there before.
    bytes.extend(b"{\"thread\":");
    LoggedEvent::read(&bytes)
}

/// A trace in which the thread has `runs` runs and one event; the second part is cut off.
fn trace(runs: u32, torn: bool) -> Vec<u8> {
    let header = Header { architecture: "x86_64".to_owned(), ..Header::of("a test") };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    writer.events(3, &[event(0).event], 1).unwrap();
    let mut builder = trace::Builder::new(header.columns);
    (0..runs).for_each(|page| builder.push(run(u64::from(page), Kind::LOAD, 1), &[]));
    writer.runs(3, &builder.take(), 2).unwrap();
    let bytes = writer.get_mut().clone();
    if torn { bytes[..bytes.len() - PREFIX_BYTES / 2].to_vec() } else { bytes }
}

fn rescued(bytes: Vec<u8>) -> (Rescued, Vec<Run>, Vec<Event>) {
    let mut file = Cursor::new(bytes);
    let (events, runs) = (events(3), [read(&sound()).unwrap()]);
    let rescue = Rescue::of(&mut file).unwrap();
    assert!(rescue.is_needed(&events, &runs));
    file.get_mut().truncate(rescue.end() as usize);
    file.seek(SeekFrom::Start(rescue.end())).unwrap();
    let done = rescue.write(&mut file, events.clone(), &runs).unwrap();
    // Once is enough.
    file.rewind().unwrap();
    assert!(!Rescue::of(&mut file).unwrap().is_needed(&events, &runs));
    file.rewind().unwrap();
    let mut reader = Reader::new(file).unwrap();
    let (mut found, mut happened) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        match block {
            Block::Runs { chunk, .. } => found.extend(chunk.runs()),
            Block::Events { events, .. } => happened.extend(events),
            Block::Damaged(damage) => panic!("{damage:?}"),
        }
    }
    assert!(reader.is_whole());
    (done, found, happened)
}

#[test]
fn a_trace_goes_on_where_it_ends() {
    let (done, runs, happened) = rescued(trace(10, false));
    assert_eq!(done, Rescued { added: 2 + 4, torn: 0, missing: 0 });
    assert_eq!(runs[10..], expected());
    assert_eq!(happened, (0..3).map(|number| event(number).event).collect::<Vec<_>>());
}

#[test]
fn what_the_file_has_is_not_added_again() {
    let (done, runs, _) = rescued(trace(12, false));
    assert_eq!((done.added, runs.len()), (2 + 2, 14));
    assert_eq!(runs[12..], expected()[2..]);
}

#[test]
fn a_torn_block_goes_and_what_is_missing_then_is_told() {
    // The log begins with the run 10, and the block with those before is damaged.
    let (done, runs, _) = rescued(trace(10, true));
    assert_eq!((done.missing, runs.len()), (10, 4));
}
