//! `pagelab trace cut`: whole blocks of a trace, and all events before their end, so that the memory they touch is
//! known.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

use serde_json::json;
use trace::{Block, Call, Event, Writer};

use super::{Cut, damage_text, named, open, refuse_same};
use crate::failure::{Failure, say};
use crate::output::ignore_closed_pipe;
use crate::table::describe::count;

/// A thread of the trace while it is cut.
#[derive(Default)]
struct Thread {
    /// Instructions at the end of the block before.
    instructions: u64,
    /// The number of the first run that is kept, in the trace that is read.
    first: Option<u64>,
    /// Whether runs after those that are kept were left out.
    ended: bool,
    /// Events that are not written yet: an event stands before its runs.
    events: Vec<Event>,
}

impl Thread {
    /// Whether runs that end after `instructions` are part of `arguments`.
    fn keeps(&self, arguments: &Cut, instructions: u64) -> bool {
        instructions > arguments.from && arguments.to.is_none_or(|to| self.instructions < to)
    }

    /// The events up to a run, by the numbers of the trace that is written.
    fn events_before(&mut self, run: u64) -> Vec<Event> {
        let count = self.events.iter().take_while(|event| event.run <= run).count();
        let first = self.first;
        let moved = |mut event: Event| {
            event.run = first.map_or(0, |first| event.run.saturating_sub(first));
            event
        };
        self.events.drain(..count).map(moved).collect()
    }
}

/// Runs `pagelab trace cut`.
pub fn run(arguments: &Cut) -> Result<(), Failure> {
    if let Some(to) = arguments.to.filter(|to| *to <= arguments.from) {
        return Err(Failure::Input(format!("--to {to}: expected more than --from {}", arguments.from)));
    }
    refuse_same(&arguments.file, &arguments.output)?;
    let mut reader = open(&arguments.file)?;
    let wrong = |error: &dyn std::fmt::Display| named(&arguments.output, error);
    let file = File::create(&arguments.output).map_err(|error| wrong(&error))?;
    let mut writer = Writer::new(BufWriter::new(file), reader.header()).map_err(|error| wrong(&error))?;
    let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
    let (mut runs, mut blocks) = (0u64, 0u64);
    while let Some(block) = reader.next_block().map_err(|error| named(&arguments.file, error))? {
        match block {
            Block::Damaged(damage) => {
                say(format_args!("pagelab: {}: damaged {}", arguments.file.display(), damage_text(&damage)));
            }
            Block::Events { thread, events } => threads.entry(thread).or_default().events.extend(events),
            Block::Runs { thread, first, instructions, chunk } => {
                let state = threads.entry(thread).or_default();
                let chosen = arguments.threads.is_empty() || arguments.threads.contains(&thread);
                if chosen && state.keeps(arguments, instructions) {
                    if state.first.is_none() {
                        state.first = Some(first);
                        begin(state, first, arguments.from > 0);
                    }
                    write_events(&mut writer, &mut threads, thread, first + chunk.len() as u64)
                        .map_err(|error| wrong(&error))?;
                    writer.runs(thread, &chunk, instructions).map_err(|error| wrong(&error))?;
                    (runs, blocks) = (runs + chunk.len() as u64, blocks + 1);
                } else {
                    state.ended |= state.first.is_some();
                }
                threads.entry(thread).or_default().instructions = instructions;
            }
        }
    }
    write_events(&mut writer, &mut threads, u32::MAX, u64::MAX).map_err(|error| wrong(&error))?;
    writer.finish().and_then(|mut file| file.flush()).map_err(|error| wrong(&error))?;
    report(arguments, runs, blocks)
}

/// Says where in the thread the part begins.
fn begin(state: &mut Thread, first: u64, is_part: bool) {
    if is_part {
        let call = Call::Window { instructions: state.instructions };
        let order = state.events.iter().map(|event| event.order).max().unwrap_or(0);
        let place = state.events.iter().position(|event| event.run > first).unwrap_or(state.events.len());
        state.events.insert(place, Event { run: first, order, call, result: 0 });
    }
}

/// Writes what all threads did before the runs of one: events of others too, which may concern the same memory.
fn write_events<W: Write>(
    writer: &mut Writer<W>,
    threads: &mut BTreeMap<u32, Thread>,
    thread: u32,
    end: u64,
) -> std::io::Result<()> {
    for (number, state) in threads.iter_mut() {
        // What came after the part is left out.
        let until = if *number == thread || !state.ended { if *number == thread { end } else { u64::MAX } } else { 0 };
        let events = state.events_before(until);
        writer.events(*number, &events, state.instructions)?;
    }
    Ok(())
}

fn report(arguments: &Cut, runs: u64, blocks: u64) -> Result<(), Failure> {
    if runs == 0 {
        say(format_args!("pagelab: {}: no runs lie in that part; it has events only", arguments.output.display()));
    }
    let text = if arguments.json {
        format!("{:#}", json!({ "schema": "pagelab.trace-cut/1", "runs": runs, "blocks": blocks }))
    } else {
        format!("{} in {}", count(runs, "run"), count(blocks, "block"))
    };
    ignore_closed_pipe(writeln!(std::io::stdout(), "{text}"))
}
