//! `pagelab trace cut`: copies whole blocks of a trace, and all events before their end, so that the mappings of the
//! accessed memory are known. Optionally filters the runs of these blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};

use results::output::Output;
use serde_json::json;
use trace::{Block, Call, Chunk, Event, Filter, Header, LruFilter, Part, PayloadKind, Writer};

use super::filter::{BlockPosition, Filtered};
use super::{Cut, about, damage_text, open, refuse_same};
use crate::failure::{Failure, report};
use crate::output::print;
use crate::table::describe::count;

/// The position of the first copied block of a thread.
#[derive(Clone, Copy)]
struct Begin {
    /// The number of the block's first run in the input. In the output, this run has the number 0.
    run: u64,
    /// Instructions that the thread executed before the block.
    instructions: u64,
}

/// The state of a thread during the cut.
#[derive(Default)]
struct Thread {
    /// Instructions at the end of the previous block.
    instructions: u64,
    /// The beginning of the thread's copied part, if there is one.
    begin: Option<Begin>,
    /// Whether the event that marks the beginning of the part has been written, or is unnecessary.
    has_begin_event: bool,
    /// Whether runs of the thread after its copied part were left out.
    ended: bool,
    /// Events that are not written yet. An event must be written before the runs that follow it.
    events: Vec<Event>,
    /// Instructions at the end of the last block of these events.
    instructions_at_events: u64,
}

impl Thread {
    fn of(begin: Begin, arguments: &Cut) -> Thread {
        Thread { begin: Some(begin), has_begin_event: arguments.from == 0, ..Thread::default() }
    }

    /// Removes and returns the events up to a run, renumbered for the output.
    fn events_before(&mut self, run: u64) -> Vec<Event> {
        let count = self.events.iter().take_while(|event| event.run <= run).count();
        // If no block of the thread is copied, all its events are written first.
        let first = self.begin.map_or(u64::MAX, |begin| begin.run);
        let moved = |mut event: Event| {
            event.run = event.run.saturating_sub(first);
            event
        };
        self.events.drain(..count).map(moved).collect()
    }

    /// Inserts the event that marks the beginning of the part, once the next event is known to be beyond it.
    fn insert_begin_event(&mut self, until: u64) {
        let Some(Begin { run, instructions }) = self.begin.filter(|_| !self.has_begin_event) else { return };
        let place = self.events.iter().position(|event| event.run > run);
        if place.is_none() && until == u64::MAX {
            return;
        }
        let place = place.unwrap_or(self.events.len());
        let order = self.events[..place].iter().map(|event| event.order).max().unwrap_or(0);
        self.events.insert(place, Event { run, order, call: Call::Window { instructions }, result: 0 });
        self.has_begin_event = true;
    }
}

/// Whether `arguments` select a block that ends after `instructions` of its thread, if the previous block ended after
/// `before`.
fn keeps(arguments: &Cut, thread: u32, before: u64, instructions: u64) -> bool {
    let chosen = arguments.threads.is_empty() || arguments.threads.contains(&thread);
    chosen && instructions > arguments.from && arguments.to.is_none_or(|to| before < to)
}

/// Determines the first copied block of each thread. This takes a pass of its own: the events of a thread may precede blocks
/// of other threads, long before the thread's own blocks, and must already be renumbered there.
fn first_blocks(arguments: &Cut) -> Result<BTreeMap<u32, Begin>, Failure> {
    let wrong = |error| about(&arguments.file, error);
    let mut reader = open(&arguments.file)?;
    let (mut begins, mut before) = (BTreeMap::new(), BTreeMap::new());
    let mut add = |thread: u32, run: u64, instructions: u64| {
        let before = before.insert(thread, instructions).unwrap_or(0);
        if keeps(arguments, thread, before, instructions) {
            begins.entry(thread).or_insert(Begin { run, instructions: before });
        }
    };
    if let Some(places) = reader.places().map_err(wrong)? {
        let blocks = places.iter().map(|place| place.prefix).filter(|prefix| prefix.payload_kind == PayloadKind::Runs);
        blocks.for_each(|prefix| add(prefix.thread, prefix.first, prefix.instructions));
        return Ok(begins);
    }
    while let Some(block) = reader.next_block().map_err(wrong)? {
        if let Block::Runs { thread, first, instructions, .. } = block {
            add(thread, first, instructions);
        }
    }
    Ok(begins)
}

/// The state while the output trace is written.
struct PartWriter<'a, W> {
    arguments: &'a Cut,
    writer: Writer<W>,
    threads: BTreeMap<u32, Thread>,
    filtered: Option<Filtered>,
    runs: u64,
    blocks: u64,
    left_out: u64,
}

/// Runs `pagelab trace cut`.
pub fn run(arguments: &Cut) -> Result<(), Failure> {
    if let Some(to) = arguments.to.filter(|to| *to <= arguments.from) {
        return Err(Failure::Input(format!("--to {to}: expected more than --from {}", arguments.from)));
    }
    refuse_same(&arguments.file, &arguments.output)?;
    if std::fs::metadata(&arguments.file).is_ok_and(|of| !of.is_file()) {
        let why = "not a regular file; cut reads the trace twice: write the trace to a file first";
        return Err(about(&arguments.file, why));
    }
    refuse_missing_threads(arguments)?;
    let mut reader = open(&arguments.file)?;
    let header = header(arguments, reader.header()).map_err(|why| about(&arguments.file, why))?;
    let wrong = |error: std::io::Error| about(&arguments.output, error);
    let to = BufWriter::new(Output::create(&arguments.output).map_err(Failure::input)?);
    let mut part = PartWriter {
        arguments,
        writer: Writer::new(to, &header).map_err(wrong)?,
        threads: first_blocks(arguments)?
            .into_iter()
            .map(|(thread, begin)| (thread, Thread::of(begin, arguments)))
            .collect(),
        filtered: arguments.most_recent.then(|| Filtered::new(header.columns)).transpose().map_err(wrong)?,
        runs: 0,
        blocks: 0,
        left_out: 0,
    };
    while let Some(block) = reader.next_block().map_err(|error| about(&arguments.file, error))? {
        match block {
            Block::Damaged(damage) => {
                let name = arguments.file.display().to_string();
                report(format_args!("pagelab: {}: damaged {}", results::printable(&name), damage_text(&damage)));
            }
            // Timestamps are dropped: a part may lack threads and their earlier activity.
            Block::Timestamps(_) => {}
            Block::Events { thread, instructions, events } => part.events(thread, instructions, events),
            Block::Runs { thread, first, instructions, chunk } => {
                part.block(thread, first, instructions, &chunk).map_err(wrong)?;
            }
        }
    }
    part.write_events(u32::MAX, u64::MAX).map_err(wrong)?;
    let PartWriter { writer, runs, blocks, left_out, .. } = part;
    let output = writer.finish().map_err(wrong)?.into_inner().map_err(|error| wrong(error.into_error()))?;
    output.finish().map_err(Failure::input)?;
    summarise(arguments, runs, blocks, left_out)
}

/// Refuses threads that are not in the trace.
fn refuse_missing_threads(arguments: &Cut) -> Result<(), Failure> {
    if arguments.threads.is_empty() {
        return Ok(());
    }
    let threads = threads(arguments)?;
    match arguments.threads.iter().find(|thread| !threads.contains(thread)) {
        None => Ok(()),
        Some(missing) => {
            let threads = ranges(&threads);
            Err(about(&arguments.file, format_args!("it has no thread {missing} (--thread); it has {threads}")))
        }
    }
}

/// The numbers of the threads in the trace.
fn threads(arguments: &Cut) -> Result<BTreeSet<u32>, Failure> {
    let wrong = |error| about(&arguments.file, error);
    let mut reader = open(&arguments.file)?;
    if let Some(places) = reader.places().map_err(wrong)? {
        let blocks = places.iter().map(|place| place.prefix);
        let of_threads = blocks.filter(|prefix| matches!(prefix.payload_kind, PayloadKind::Runs | PayloadKind::Events));
        return Ok(of_threads.map(|prefix| prefix.thread).collect());
    }
    let mut threads = BTreeSet::new();
    while let Some(block) = reader.next_block().map_err(wrong)? {
        if let Block::Runs { thread, .. } | Block::Events { thread, .. } = block {
            threads.insert(thread);
        }
    }
    Ok(threads)
}

/// Formats numbers as ranges: `0 to 3, 7`; if there are many ranges, only the first ones.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    const MOST: usize = 16;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let shown = ranges.iter().take(MOST).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    let more = (ranges.len() > MOST).then(|| "and others".to_owned());
    let shown: Vec<String> = shown.chain(more).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// The trace cannot be filtered.
#[derive(Debug, thiserror::Error)]
enum NotFilterable {
    #[error("it consists of samples, which cannot be filtered; leave --most-recent out")]
    Sampled,
    #[error("it is already filtered; leave --most-recent out, or use the unfiltered trace")]
    Filtered,
}

/// The header of the output, which records the part and what was left out.
fn header(arguments: &Cut, of: &Header) -> Result<Header, NotFilterable> {
    let mut header = of.clone();
    if arguments.most_recent {
        header.filter = match header.filter {
            Filter::None => LruFilter::FILTER,
            Filter::Sampled => return Err(NotFilterable::Sampled),
            Filter::Lru { .. } => return Err(NotFilterable::Filtered),
        };
    }
    if arguments.from > 0 || arguments.to.is_some() || !arguments.threads.is_empty() {
        header.part = Some(intersected_part(arguments, of.part.as_ref()));
    }
    Ok(header)
}

/// The requested part, limited to the part of the original trace that the input contains.
fn intersected_part(arguments: &Cut, of: Option<&Part>) -> Part {
    let asked =
        Part { from_instructions: arguments.from, to_instructions: arguments.to, threads: arguments.threads.clone() };
    let Some(of) = of else { return asked };
    let to = [asked.to_instructions, of.to_instructions].into_iter().flatten().min();
    Part {
        from_instructions: asked.from_instructions.max(of.from_instructions),
        to_instructions: to,
        threads: if asked.threads.is_empty() { of.threads.clone() } else { asked.threads },
    }
}

impl<W: Write> PartWriter<'_, W> {
    fn events(&mut self, thread: u32, instructions: u64, events: Vec<Event>) {
        if let Some(filtered) = &mut self.filtered {
            filtered.events(thread, &events);
        }
        let state = self.threads.entry(thread).or_default();
        state.instructions_at_events = instructions;
        state.events.extend(events);
    }

    fn block(&mut self, thread: u32, first: u64, instructions: u64, chunk: &Chunk) -> std::io::Result<()> {
        let state = self.threads.entry(thread).or_default();
        let before = state.instructions;
        // If the first selected block is damaged, the thread begins at a later block.
        let begin = state.begin.filter(|begin| begin.run <= first);
        if let Some(begin) = begin.filter(|_| keeps(self.arguments, thread, before, instructions)) {
            self.write_events(thread, first.saturating_add(chunk.len() as u64))?;
            let place = BlockPosition { thread, first, number: first - begin.run, before, instructions };
            self.runs += chunk.len() as u64;
            match &mut self.filtered {
                None => {
                    self.writer.skip_to(thread, place.number);
                    self.writer.runs(thread, chunk, instructions)?;
                    self.blocks += 1;
                }
                Some(filtered) => {
                    let written = filtered.write(&mut self.writer, &place, chunk)?;
                    self.left_out += written.left_out;
                    self.blocks += written.blocks;
                }
            }
        } else {
            state.ended |= begin.is_some();
        }
        self.threads.entry(thread).or_default().instructions = instructions;
        Ok(())
    }

    /// Writes all events that precede the runs of a thread up to `end`, including events of other threads, because
    /// these may concern the same memory.
    fn write_events(&mut self, thread: u32, end: u64) -> std::io::Result<()> {
        for (number, state) in &mut self.threads {
            // Events of the thread after the part are left out.
            let until = if *number == thread {
                end
            } else if state.ended {
                0
            } else {
                u64::MAX
            };
            state.insert_begin_event(until);
            let events = state.events_before(until);
            self.writer.events(*number, &events, state.instructions.max(state.instructions_at_events))?;
        }
        Ok(())
    }
}

fn summarise(arguments: &Cut, runs: u64, blocks: u64, left_out: u64) -> Result<(), Failure> {
    let kept = runs - left_out;
    if runs == 0 {
        let name = arguments.output.display().to_string();
        report(format_args!("pagelab: {}: no runs are in that part; it has only events", results::printable(&name)));
    }
    let text = if arguments.json {
        let mut document = json!({ "schema": "pagelab.trace-cut/1", "runs": kept, "blocks": blocks });
        document["filtered_runs"] = arguments.most_recent.then_some(left_out).into();
        format!("{document:#}")
    } else {
        let filtered = format!("; {} filtered out", count(left_out, "run"));
        let filtered = if arguments.most_recent { &filtered } else { "" };
        format!("{} in {}{filtered}", count(kept, "run"), count(blocks, "block"))
    };
    print(&text, arguments.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_threads_as_ranges() {
        let shown = |numbers: &[u32]| ranges(&numbers.iter().copied().collect());
        assert_eq!(shown(&[]), "none");
        assert_eq!(shown(&[7, 0, 1, 2, 3]), "0 to 3, 7");
        assert_eq!(shown(&[0, 1, u32::MAX]), "0, 1, 4294967295");
        let many: Vec<u32> = (0..100).map(|number| number * 2).collect();
        assert!(shown(&many).ends_with("28, 30, and others"), "{}", shown(&many));
    }
}
