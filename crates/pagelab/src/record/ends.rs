//! What is said of traces once the program has ended: what whoever reads them has to know and cannot see.
//!
//! The program's own output is not to be disturbed, so that this says nothing where all is well.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use trace::{Block, Call, Event, Holds, Place, Reader, pace};

use super::OUTSIDE;
use super::error::RecordError;
use crate::failure::say;
use crate::table::describe::count;

/// Looks at the trace of the program that was recorded. Whether there is anything in it; where not, it is removed.
pub fn look_at(output: &Path, ended: ExitStatus) -> Result<bool, RecordError> {
    let unreadable = |error| RecordError::Unreadable { path: output.to_owned(), error };
    let nothing = || {
        let _ = std::fs::remove_file(output);
        Ok(false)
    };
    let file = File::open(output).map_err(unreadable)?;
    let Ok(mut reader) = Reader::new(BufReader::new(file)) else { return nothing() };
    let skipped = reader.header().window.map(|window| window.skip_instructions);
    let name = output.display();
    match reader.places().ok().flatten() {
        None => say(format_args!(
            "pagelab: {name}: the program ended ({ended}) before its last accesses were written; {}",
            cut_off()
        )),
        // Nothing was left out, and nothing is there.
        Some(places) if skipped.is_none() && !has_runs(&places) => return nothing(),
        Some(places) => {
            if let Some(skipped) = skipped.filter(|_| !has_runs(&places)) {
                let skipped = count(skipped, "instruction");
                say(format_args!(
                    "pagelab: {name}: no accesses were recorded: no thread went on after the {skipped} that --skip leaves out; skip fewer"
                ));
            }
            if let Some(Event { call: Call::Exec { program }, result: 0, .. }) = last_event(&mut reader, &places) {
                let program = results::printable(&program);
                say(format_args!(
                    "pagelab: {name}: the program went on as {program} (exec), {OUTSIDE}; record {program} itself"
                ));
            }
        }
    }
    Ok(true)
}

/// What a trace lacks whose recorder could not end it.
fn cut_off() -> String {
    let most = count(pace::MOST_INSTRUCTIONS, "instruction");
    format!("the trace is cut off: up to {most} of each thread are missing")
}

fn has_runs(places: &[Place]) -> bool {
    places.iter().any(|place| place.prefix.holds == Holds::Runs)
}

fn last_event(reader: &mut Reader<BufReader<File>>, places: &[Place]) -> Option<Event> {
    let place = places.iter().rev().find(|place| place.prefix.holds == Holds::Events)?;
    reader.seek(place).ok()?;
    match reader.next_block().ok()?? {
        Block::Events { mut events, .. } => events.pop(),
        _ => None,
    }
}

/// Looks at the traces of the processes that the process `first` has forked, and that those have.
pub fn look_at_children(output: &Path, first: u32) {
    let mut found = traces_beside(output);
    let mut known = BTreeSet::from([first]);
    // Whoever was forked by one that is known is known, in whatever order their files are found.
    while let Some(index) = found.iter().position(|child| known.contains(&child.parent)) {
        let child = found.swap_remove(index);
        known.insert(child.process);
        // Where it cannot be given away it is root's, and whole all the same.
        let _ = results::output::give_as(&child.path, output);
        let name = child.path.display();
        if child.is_whole {
            continue;
        }
        if child.is_running {
            say(format_args!("pagelab: {name}: the forked process still runs; its trace is whole when it has ended"));
        } else {
            say(format_args!(
                "pagelab: {name}: the forked process ended before its last accesses were written; {}",
                cut_off()
            ));
        }
    }
}

/// A trace of a forked process.
struct Child {
    path: PathBuf,
    process: u32,
    parent: u32,
    is_running: bool,
    is_whole: bool,
}

/// The traces of forked processes that have the output's name, of whatever recording.
fn traces_beside(output: &Path) -> Vec<Child> {
    let (Some(directory), Some(name)) = (output.parent(), output.file_name()) else { return Vec::new() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        // A pipe that somebody put there would be waited for.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return false;
        }
        let (entry, name) = (entry.file_name(), name.as_encoded_bytes());
        let number = entry.as_encoded_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"."));
        number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    });
    named.filter_map(|entry| trace_of_child(entry.path())).collect()
}

fn trace_of_child(path: PathBuf) -> Option<Child> {
    let mut reader = Reader::new(BufReader::new(File::open(&path).ok()?)).ok()?;
    let of = reader.header().process?;
    // Asked first: what a process that has ended by then has written is there.
    let is_running = is_running(of.process);
    let is_whole = reader.places().ok()?.is_some();
    Some(Child { path, process: of.process, parent: of.parent?, is_running, is_whole })
}

/// Whether a process may still write its trace itself: any of its threads, because the first may have ended before them.
fn is_running(process: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alive_unless_it_has_ended() {
        assert!(is_alive("7 (a) R) S 1") && is_alive("7 (x) D 1"));
        assert!(!is_alive("7 (x) Z 1") && !is_alive("7 (x) X 1") && !is_alive(""));
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
    }
}
