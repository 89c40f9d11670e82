//! `pagelab trace dump`: prints runs and events as text.

use std::collections::BTreeMap;
use std::io::{BufWriter, StdoutLock, Write};

use serde_json::{Value, json};
use trace::{Block, Chunk, Event, PAGE_SHIFT, Timestamp};

use super::{Dump, about, damage_document, damage_text, kind_name, open, parquet};
use crate::failure::Failure;
use crate::output::{ignore_closed_pipe, print};

/// Runs `pagelab trace dump`.
pub fn run(arguments: &Dump) -> Result<(), Failure> {
    if let Some(directory) = &arguments.parquet {
        let written = parquet::write(&arguments.file, directory, arguments.json)?;
        return print(&written, arguments.json);
    }
    let mut reader = open(&arguments.file)?;
    let mut printer = Printer { out: BufWriter::new(std::io::stdout().lock()), json: arguments.json };
    let mut events: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    let mut printed = printer.begin(&arguments.file.display().to_string(), reader.header());
    while printed.is_ok()
        && let Some(block) = reader.next_block().map_err(|error| about(&arguments.file, error))?
    {
        printed = match block {
            Block::Events { thread, events: more, .. } => {
                events.entry(thread).or_default().extend(more);
                Ok(())
            }
            Block::Runs { thread, first, chunk, .. } => {
                printer.runs(thread, first, &chunk, events.entry(thread).or_default())
            }
            Block::Timestamps(timestamps) => timestamps.iter().try_for_each(|timestamp| printer.timestamp(timestamp)),
            Block::Damaged(damage) if arguments.json => printer.line(&json!({ "damage": damage_document(&damage) })),
            Block::Damaged(damage) => writeln!(printer.out, "damaged {}", damage_text(&damage)),
        };
    }
    let rest = events
        .iter()
        .try_for_each(|(thread, events)| events.iter().try_for_each(|event| printer.event(*thread, event)));
    ignore_closed_pipe(printed.and(rest).and_then(|()| printer.out.flush()))
}

struct Printer<'a> {
    out: BufWriter<StdoutLock<'a>>,
    json: bool,
}

impl Printer<'_> {
    /// Writes a document in one line.
    fn line(&mut self, document: &Value) -> std::io::Result<()> {
        writeln!(self.out, "{}", results::printable_json(&document.to_string()))
    }

    fn begin(&mut self, name: &str, header: &trace::Header) -> std::io::Result<()> {
        if self.json {
            self.line(&json!({ "schema": "pagelab.trace-dump/1", "header": header }))
        } else {
            writeln!(self.out, "{}: thread, run, address of the page, what, accesses", results::printable(name))
        }
    }

    /// Writes the runs of a block, and before each run the events that precede it.
    fn runs(&mut self, thread: u32, first: u64, chunk: &Chunk, events: &mut Vec<Event>) -> std::io::Result<()> {
        let mut next = events.iter().peekable();
        let mut printed = 0;
        let mut addresses = chunk.addresses.iter();
        for (number, run) in (first..).zip(chunk.runs()) {
            while let Some(event) = next.next_if(|event| event.run <= number) {
                self.event(thread, event)?;
                printed += 1;
            }
            let address = run.page << PAGE_SHIFT;
            let kind = kind_name(run.kind);
            let run_addresses =
                addresses.by_ref().take(if chunk.addresses.is_empty() { 0 } else { run.accesses as usize });
            if self.json {
                let mut line = json!({
                    "thread": thread, "run": number, "address": address, "kind": kind, "accesses": run.accesses,
                });
                if !chunk.addresses.is_empty() {
                    line["each"] = run_addresses
                        .map(|access| json!([address + u64::from(access.offset()), access.bytes(), access.is_store()]))
                        .collect();
                }
                self.line(&line)?;
            } else {
                writeln!(self.out, "{thread} {number} {address:#x} {kind} {}", run.accesses)?;
                for access in run_addresses {
                    let what = if access.is_store() { "store" } else { "read" };
                    let bytes = access.bytes().map_or("?".to_owned(), |bytes| bytes.to_string());
                    writeln!(self.out, "  {:#x} {what} {bytes}", address + u64::from(access.offset()))?;
                }
            }
        }
        events.drain(..printed);
        Ok(())
    }

    fn timestamp(&mut self, timestamp: &Timestamp) -> std::io::Result<()> {
        let Timestamp { thread, run, event, time_ns } = *timestamp;
        if self.json {
            let timestamp = json!({ "run": run, "event": event, "time_ns": time_ns });
            return self.line(&json!({ "thread": thread, "timestamp": timestamp }));
        }
        writeln!(self.out, "{thread} {run} timestamp {event} {time_ns}")
    }

    fn event(&mut self, thread: u32, event: &Event) -> std::io::Result<()> {
        if self.json {
            return self.line(&json!({ "thread": thread, "event": event }));
        }
        let call = serde_json::to_string(&event.call)?;
        let call = results::printable(&call);
        writeln!(self.out, "{thread} {} event {} {call} = {:#x}", event.run, event.order, event.result)
    }
}
