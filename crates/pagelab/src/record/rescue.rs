//! What a program that is killed had not written yet: its recorder keeps that in files that survive it, from which the
//! traces are finished.
//!
//! Files are called `PID.THREAD` (runs) and `PID.events`; [`trace::log`] says what is in them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use trace::log::{LoggedEvent, RunLog};
use trace::{Rescue, Rescued};

use crate::failure::say;

/// What the log of events is called behind the number of its process. It is not there where the trace was finished, or where
/// the recorder had no room for some log: then what there is does not make the trace whole.
const EVENTS: &str = "events";

/// Finishes the traces of all processes that have ended and have logs in a directory; `output` is that of the process
/// `first`.
pub fn finish(logs: &Path, output: &Path, first: u32) {
    finish_ended(logs, output, first, |process| process != first && is_running(process));
}

fn finish_ended(logs: &Path, output: &Path, first: u32, is_running: impl Fn(u32) -> bool) {
    let unfinished: BTreeSet<u32> =
        files(logs).filter(|(_, of, _)| of == EVENTS).map(|(process, ..)| process).collect();
    // Asked before the logs are read: a process that ends then has all in them that it has not written.
    for process in unfinished.into_iter().filter(|process| !is_running(*process)) {
        let path = if process == first { output.to_owned() } else { of_child(output, process) };
        match finish_from(logs, process, &path) {
            Ok(Rescued { torn: 0, missing: 0, .. }) => {}
            Ok(Rescued { torn, missing, .. }) => say(format_args!(
                "pagelab: {}: the process ended while it was recorded; {missing} runs of accesses are missing, and {torn} that it was in are left out",
                path.display()
            )),
            Err(error) => say(format_args!(
                "pagelab: {}: the process ended while it was recorded, and its trace cannot be finished: {error}",
                path.display()
            )),
        }
    }
}

/// The logs in a directory: of which process each is, what it is called behind that, and where it is.
fn files(logs: &Path) -> impl Iterator<Item = (u32, String, PathBuf)> {
    let entries = std::fs::read_dir(logs).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let (process, of) = name.to_str()?.split_once('.')?;
        Some((process.parse().ok()?, of.to_owned(), entry.path()))
    })
}

/// The trace of a forked process.
fn of_child(output: &Path, process: u32) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(format!(".{process}"));
    path.into()
}

/// Whether a process may still write its trace itself: any of its threads, because the first may have ended before them.
pub fn is_running(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .map(|task| task.path().join("stat"))
        .any(|status| is_alive(&std::fs::read_to_string(status).unwrap_or_default()))
}

/// Whether what proc(5) calls `stat` is of a thread that has not ended.
fn is_alive(status: &str) -> bool {
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

/// Finishes the trace of a process.
fn finish_from(logs: &Path, process: u32, path: &Path) -> Result<Rescued, Box<dyn std::error::Error>> {
    let Ok(events) = std::fs::read(logs.join(format!("{process}.{EVENTS}"))) else { return Ok(Rescued::default()) };
    let events = LoggedEvent::read(&events);
    let runs: Vec<RunLog> = files(logs)
        .filter(|(other, of, _)| *other == process && of != EVENTS)
        .filter_map(|(.., path)| RunLog::read(File::open(path).ok()?).ok().flatten())
        .collect();
    let rescue = Rescue::of(BufReader::new(File::open(path)?))?;
    if !rescue.is_needed(&events, &runs) {
        return Ok(Rescued::default());
    }
    let mut file = results::output::open_no_link(path)?;
    file.set_len(rescue.end())?;
    file.seek(SeekFrom::Start(rescue.end()))?;
    Ok(rescue.write(io::BufWriter::new(file), events, &runs)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Block, Call, Event, Header, Reader, Writer};

    fn log(events: u64) -> Vec<u8> {
        let logged = |number| LoggedEvent {
            thread: 0,
            number,
            instructions: 1,
            is_attempt: false,
            event: Event { run: 0, order: number, call: Call::Brk { address: number }, result: 0 },
        };
        let lines: Vec<u8> = (0..events).flat_map(|number| serde_json::to_vec(&logged(number)).unwrap()).collect();
        [&(lines.len() as u64).to_le_bytes()[..], &lines].concat()
    }

    #[test]
    fn what_a_process_logs_until_it_has_ended_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let (output, logs) = (directory.path().join("trace"), directory.path());
        Writer::new(File::create(&output).unwrap(), &Header::of("a test")).unwrap();
        std::fs::write(logs.join("7.events"), log(1)).unwrap();
        finish_ended(logs, &output, 7, |_| {
            // It logs something and ends while it is asked whether it runs.
            std::fs::write(logs.join("7.events"), log(2)).unwrap();
            false
        });
        let mut reader = Reader::new(File::open(&output).unwrap()).unwrap();
        let Some(Block::Events { events, .. }) = reader.next_block().unwrap() else { panic!() };
        assert_eq!(events.len(), 2);
        // One that runs writes its trace itself.
        let before = std::fs::read(&output).unwrap();
        std::fs::write(logs.join("7.events"), log(3)).unwrap();
        finish_ended(logs, &output, 7, |_| true);
        assert_eq!(std::fs::read(&output).unwrap(), before);
    }

    #[test]
    fn a_thread_is_alive_unless_it_has_ended() {
        assert!(is_alive("7 (a) R) S 1") && is_alive("7 (x) D 1"));
        assert!(!is_alive("7 (x) Z 1") && !is_alive("7 (x) X 1") && !is_alive(""));
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
    }
}
