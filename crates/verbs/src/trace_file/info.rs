//! `pagelab trace info`: summarises a trace.

use std::collections::BTreeMap;

use policy::size::format_bytes;
use serde_json::{Value, json};
use trace::{AccessCounts, Block, Call, Event, Footprint, Header, Native, NativeRun, Notes, SHIFTS, Windows};

use super::regions::{Region, Regions};
use super::{Damages, FileArguments, about, open};
use crate::failure::Failure;
use crate::output::{print, terminal_width};
use crate::table::describe::{count, grouped};
use results::grid::plain;

/// Counts of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    runs: u64,
    /// The thread's own loads, stores and instruction fetches.
    accesses: u64,
    /// The instruction fetches among the accesses.
    fetches: u64,
    /// Accesses by the kernel on behalf of the thread, one per page.
    kernel_accesses: u64,
    /// Instructions at the end of the last block; 0 if they were not counted.
    instructions: u64,
    /// Instructions whose accesses are recorded.
    recorded_instructions: u64,
    events: u64,
}

impl Thread {
    /// Returns `instructions` if they were counted: every thread in a trace has executed some.
    fn counted(&self, instructions: u64) -> Option<u64> {
        (self.instructions > 0).then_some(instructions)
    }
}

/// The content of a trace.
struct Content {
    header: Header,
    notes: Option<Notes>,
    file_bytes: u64,
    is_complete: bool,
    blocks: u64,
    windows: u64,
    timestamps: u64,
    /// By thread number. A map, because an untrusted file may contain any number.
    threads: BTreeMap<u32, Thread>,
    recorded: BTreeMap<u32, Windows>,
    footprint: Footprint,
    /// Memory that was mapped when recording began.
    regions: Regions,
    /// Accesses of a whole machine to devices and firmware, and the instructions fetched there.
    outside: (u64, u64),
    damages: Damages,
}

/// Runs `pagelab trace info`.
pub fn run(arguments: &FileArguments) -> Result<(), Failure> {
    let content = read(arguments)?;
    let text = if arguments.json { format!("{:#}", document(&content)) } else { text(&content) };
    print(&text, arguments.json)
}

fn read(arguments: &FileArguments) -> Result<Content, Failure> {
    let wrong = |error: &dyn std::fmt::Display| about(&arguments.file, error);
    let mut reader = open(&arguments.file)?;
    let file_bytes = std::fs::metadata(&arguments.file).map_err(|error| wrong(&error))?.len();
    let mut content = Content {
        header: reader.header().clone(),
        notes: None,
        file_bytes,
        is_complete: false,
        blocks: 0,
        windows: 0,
        timestamps: 0,
        threads: BTreeMap::new(),
        recorded: BTreeMap::new(),
        footprint: Footprint::default(),
        regions: Regions::default(),
        outside: (0, 0),
        damages: Damages::default(),
    };
    while let Some(block) = reader.next_block().map_err(|error| wrong(&error))? {
        content.add(block);
    }
    content.is_complete = reader.is_whole();
    content.notes = reader.notes().cloned();
    Ok(content)
}

impl Content {
    fn add(&mut self, block: Block) {
        self.blocks += 1;
        match block {
            Block::Runs { thread, first, instructions, chunk } => {
                self.footprint.add(&chunk);
                let end = first.saturating_add(chunk.len() as u64);
                let recorded = self.recorded.entry(thread).or_default().block(end, instructions);
                let thread = self.thread(thread);
                thread.runs += chunk.len() as u64;
                thread.instructions = thread.instructions.max(instructions);
                add(&mut thread.recorded_instructions, recorded);
                let AccessCounts { data, fetches, kernel } = chunk.access_counts();
                add(&mut thread.kernel_accesses, kernel);
                add(&mut thread.accesses, data + fetches);
                add(&mut thread.fetches, fetches);
            }
            Block::Events { thread, instructions, events } => {
                self.recorded.entry(thread).or_default().events(&events);
                let state = self.thread(thread);
                state.instructions = state.instructions.max(instructions);
                events.into_iter().for_each(|event| self.event(thread, event));
            }
            Block::Timestamps(timestamps) => self.timestamps += timestamps.len() as u64,
            Block::Damaged(damage) => self.damages.add(damage),
        }
    }

    fn event(&mut self, thread: u32, event: Event) {
        let thread = self.thread(thread);
        match event.call {
            Call::Seen => {}
            Call::Window { .. } => self.windows += 1,
            Call::Outside { accesses, instructions } => {
                add(&mut self.outside.0, accesses);
                add(&mut self.outside.1, instructions);
            }
            Call::Region { address, bytes, protection, name } => {
                thread.events += 1;
                self.regions.add(Region { address, bytes, protection, name });
            }
            _ => thread.events += 1,
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    fn total(&self) -> Thread {
        let sum = self.threads.values().fold(Thread::default(), |sum, thread| Thread {
            runs: sum.runs + thread.runs,
            accesses: sum.accesses.saturating_add(thread.accesses),
            fetches: sum.fetches.saturating_add(thread.fetches),
            kernel_accesses: sum.kernel_accesses.saturating_add(thread.kernel_accesses),
            instructions: sum.instructions.saturating_add(thread.instructions),
            recorded_instructions: sum.recorded_instructions.saturating_add(thread.recorded_instructions),
            events: sum.events + thread.events,
        });
        // A total is given only if the instructions of all threads were counted.
        let are_counted = self.threads.values().all(|thread| thread.instructions > 0);
        Thread { instructions: if are_counted { sum.instructions } else { 0 }, ..sum }
    }

    /// Bytes of the file per access; `None` without accesses.
    fn bytes_per_access(&self) -> Option<f64> {
        let accesses = self.total().accesses;
        (accesses > 0).then(|| self.file_bytes as f64 / accesses as f64)
    }
}

/// Adds with saturation: counts of an untrusted file may overflow.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn numbered(number: u32, thread: &Thread) -> Value {
    let mut document = thread_document(thread);
    document["thread"] = number.into();
    document
}

fn thread_document(thread: &Thread) -> Value {
    json!({
        "runs": thread.runs, "accesses": thread.accesses, "data_accesses": thread.accesses - thread.fetches,
        "fetches": thread.fetches, "kernel_accesses": thread.kernel_accesses,
        "instructions": thread.counted(thread.instructions),
        "recorded_instructions": thread.counted(thread.recorded_instructions), "events": thread.events,
    })
}

fn document(content: &Content) -> Value {
    let threads: Vec<Value> = content.threads.iter().map(|(number, thread)| numbered(*number, thread)).collect();
    let footprint = SHIFTS.map(|shift| {
        let (data, fetched) = content.footprint.bytes(shift);
        json!({ "page_bytes": 1u64 << shift, "data_bytes": data, "fetched_bytes": fetched })
    });
    json!({
        "schema": "pagelab.trace-info/1",
        "header": content.header,
        "notes": content.notes,
        "file_bytes": content.file_bytes,
        "whole": content.is_complete,
        "blocks": content.blocks,
        "windows": content.windows,
        "timestamps": content.timestamps,
        "threads": threads,
        "total": thread_document(&content.total()),
        "footprint": footprint,
        "outside_accesses": content.outside.0,
        "outside_instructions": content.outside.1,
        "regions": content.regions.first.iter().map(Region::document).collect::<Vec<Value>>(),
        "regions_left_out": content.regions.others,
        "bytes_per_access_ratio": content.bytes_per_access(),
        "raw_to_file_ratio": content.bytes_per_access().map(|bytes| 8.0 / bytes),
        "damages": content.damages.documents(),
        "damages_left_out": content.damages.others,
    })
}

fn text(content: &Content) -> String {
    let mut text = plain(["trace", ""], rows(content), terminal_width());
    let cells = |name: String, thread: &Thread| {
        let data = thread.accesses - thread.fetches;
        [
            name,
            thread.runs.to_string(),
            data.to_string(),
            thread.fetches.to_string(),
            thread.kernel_accesses.to_string(),
            thread.counted(thread.instructions).map_or_else(|| or_unknown(""), |number| number.to_string()),
            thread.events.to_string(),
        ]
    };
    let mut threads: Vec<[String; 7]> =
        content.threads.iter().map(|(number, thread)| cells(number.to_string(), thread)).collect();
    if threads.len() > 1 {
        threads.push(cells("all".to_owned(), &content.total()));
    }
    let header = ["thread", "runs", "data accesses", "fetches", "by the kernel", "instructions", "events"];
    text.push_str(&format!("\n\n{}", plain(header, threads, terminal_width())));
    let footprint = SHIFTS.map(|shift| {
        let (data, fetched) = content.footprint.bytes(shift);
        [format_bytes(1 << shift), format_bytes(data), format_bytes(fetched)]
    });
    text.push_str(&format!(
        "\n\n{}",
        plain(["page size", "touched by data", "fetched from"], footprint, terminal_width())
    ));
    if !content.regions.first.is_empty() {
        let cells = |region: &Region| {
            let name = if region.name.is_empty() { "anonymous" } else { &region.name };
            let end = region.address.saturating_add(region.bytes);
            [
                format!("{:x}-{end:x}", region.address),
                format_bytes(region.bytes),
                region.permissions(),
                results::printable(name),
            ]
        };
        let header = ["mapped at the start", "size", "access", "name"];
        text.push_str(&format!("\n\n{}", plain(header, content.regions.first.iter().map(cells), terminal_width())));
    }
    if content.regions.others > 0 {
        text.push_str(&format!("\nand {}", count(content.regions.others, "more region")));
    }
    for line in content.damages.lines() {
        text.push_str(&format!("\ndamaged {line}"));
    }
    text
}

fn left_out(content: &Content) -> String {
    let parts = super::left_out::left_out(&content.header);
    let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") };
    match content.outside {
        (0, 0) => parts,
        (accesses, instructions) => {
            let fetched = count(instructions, "instruction");
            format!("{parts} of memory; devices and firmware: {} and {fetched}", count(accesses, "data access"))
        }
    }
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "not known" } else { text }.to_owned()
}

fn rows(content: &Content) -> Vec<[String; 2]> {
    let header = &content.header;
    let completeness = if content.is_complete { "complete" } else { "cut off: its end is missing" };
    let mut rows = vec![
        ["command".to_owned(), or_unknown(&header.command.join(" "))],
        ["recorder".to_owned(), header.recorded_by()],
        ["instruction set".to_owned(), or_unknown(&header.architecture)],
        [
            "keeps".to_owned(),
            if header.columns.addresses { "every address" } else { "runs of accesses to a 4K page" }.to_owned(),
        ],
        [
            "addresses".to_owned(),
            if header.system { "physical, of a whole machine" } else { "of a program" }.to_owned(),
        ],
        ["left out".to_owned(), left_out(content)],
        [
            "file".to_owned(),
            format!("{}, {}, {completeness}", format_bytes(content.file_bytes), count(content.blocks, "block")),
        ],
    ];
    rows.extend(content.notes.as_ref().map(|notes| ["native CPU time".to_owned(), native(&notes.native)]));
    if let Some(window) = header.window {
        let each = window.record_instructions.map_or("the rest".to_owned(), |number| count(number, "instruction"));
        let skipped = count(window.skip_instructions, "instruction");
        rows.push(["windows".to_owned(), format!("{} of {each}, each after {skipped}", grouped(content.windows))]);
    }
    if content.timestamps > 0 {
        rows.push(["order of threads".to_owned(), format!("{} with their time", count(content.timestamps, "place"))]);
    }
    let total = content.total();
    if let Some(all) = total.counted(total.instructions).filter(|all| *all != total.recorded_instructions) {
        let all = count(all, "instruction");
        rows.push(["recorded".to_owned(), format!("{} of {all}", grouped(total.recorded_instructions))]);
    }
    if let Some(bytes) = content.bytes_per_access() {
        rows.push([
            "bytes an access".to_owned(),
            format!("{bytes:.3}, {} times less than plain addresses of 8 bytes", times(8.0 / bytes)),
        ]);
    }
    rows
}

/// The CPU time of the native runs, or why it is unknown.
fn native(native: &Native) -> String {
    match native {
        Native::Measured(time) => {
            let processor = results::printable(&time.processor);
            let median_s = |of: fn(&NativeRun) -> f64| study::stats::median(&mut time.sorted_s(of)).unwrap_or_default();
            let (all, kernel) = (median_s(NativeRun::cpu_s), median_s(|run| run.system_s));
            let spread = match &time.sorted_s(NativeRun::cpu_s)[..] {
                [shortest, .., longest] => {
                    format!(", median of {} runs, {shortest:.3} to {longest:.3} s", time.runs.len())
                }
                _ => ", one run".to_owned(),
            };
            format!("{all:.3} s ({kernel:.3} s of it in the kernel{spread}) on {}", or_unknown(&processor))
        }
        Native::Unknown(why) => format!("not known: {}", results::printable(why)),
    }
}

/// Formats a ratio with two digits, or with all digits before the decimal point.
fn times(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.0}"),
        1.0.. => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_below_one_is_not_zero() {
        assert_eq!([530.4, 1.53, 0.106].map(times), ["530", "1.5", "0.11"]);
    }
}
