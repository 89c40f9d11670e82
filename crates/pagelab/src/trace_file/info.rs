//! `pagelab trace info`.

use std::io::Write;

use serde_json::{Value, json};
use study::size::format_bytes;
use trace::{Block, Call, Damage, Footprint, Header, Kind, SHIFTS};

use super::{Shown, damage_document, damage_text, named, open};
use crate::failure::Failure;
use crate::output::{ignore_closed_pipe, terminal_width};
use crate::table::describe::count;
use results::grid::plain;

/// What one thread did.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    runs: u64,
    /// Its own loads, stores and fetches of instructions.
    accesses: u64,
    /// Of the accesses, fetches.
    fetches: u64,
    /// What the kernel did for it, an access for each page.
    kernel_accesses: u64,
    instructions: u64,
    events: u64,
}

/// What is in a trace.
struct Content {
    header: Header,
    file_bytes: u64,
    whole: bool,
    blocks: u64,
    windows: u64,
    threads: Vec<Thread>,
    footprint: Footprint,
    /// Memory that was there when recording began.
    regions: Vec<Region>,
    /// Accesses and instructions of a whole machine that went to no memory.
    outside: (u64, u64),
    damages: Vec<Damage>,
}

/// A stretch of memory.
struct Region {
    address: u64,
    bytes: u64,
    protection: u64,
    name: String,
}

/// Runs `pagelab trace info`.
pub fn run(arguments: &Shown) -> Result<(), Failure> {
    let content = read(arguments)?;
    let text = if arguments.json { format!("{:#}", document(&content)) } else { text(&content) };
    ignore_closed_pipe(writeln!(std::io::stdout(), "{text}"))
}

fn read(arguments: &Shown) -> Result<Content, Failure> {
    let wrong = |error: &dyn std::fmt::Display| named(&arguments.file, error);
    let mut reader = open(&arguments.file)?;
    let file_bytes = std::fs::metadata(&arguments.file).map_err(|error| wrong(&error))?.len();
    let mut content = Content {
        header: reader.header().clone(),
        file_bytes,
        whole: false,
        blocks: 0,
        windows: 0,
        threads: Vec::new(),
        footprint: Footprint::default(),
        regions: Vec::new(),
        outside: (0, 0),
        damages: Vec::new(),
    };
    while let Some(block) = reader.next_block().map_err(|error| wrong(&error))? {
        content.add(block);
    }
    content.whole = reader.is_whole();
    Ok(content)
}

impl Content {
    fn add(&mut self, block: Block) {
        self.blocks += 1;
        match block {
            Block::Runs { thread, instructions, chunk, .. } => {
                self.footprint.add(&chunk);
                let thread = self.thread(thread);
                thread.runs += chunk.len() as u64;
                thread.instructions = thread.instructions.max(instructions);
                for run in chunk.runs() {
                    if run.kind.has(Kind::KERNEL) {
                        thread.kernel_accesses += u64::from(run.accesses);
                        continue;
                    }
                    thread.accesses += u64::from(run.accesses);
                    thread.fetches += if run.kind.has(Kind::FETCH) { u64::from(run.accesses) } else { 0 };
                }
            }
            Block::Events { thread, events } => {
                let is_real = |call: &Call| !matches!(call, Call::Seen | Call::Window { .. } | Call::Outside { .. });
                self.thread(thread).events += events.iter().filter(|event| is_real(&event.call)).count() as u64;
                for event in &events {
                    if let Call::Outside { accesses, instructions } = event.call {
                        self.outside = (self.outside.0 + accesses, self.outside.1 + instructions);
                    }
                }
                self.regions.extend(events.iter().filter_map(|event| Region::of(&event.call)));
                self.windows += events.iter().filter(|event| matches!(event.call, Call::Window { .. })).count() as u64;
            }
            Block::Damaged(damage) => self.damages.push(damage),
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, Thread::default());
        }
        &mut self.threads[index]
    }

    fn total(&self) -> Thread {
        self.threads.iter().fold(Thread::default(), |sum, thread| Thread {
            runs: sum.runs + thread.runs,
            accesses: sum.accesses + thread.accesses,
            fetches: sum.fetches + thread.fetches,
            kernel_accesses: sum.kernel_accesses + thread.kernel_accesses,
            instructions: sum.instructions + thread.instructions,
            events: sum.events + thread.events,
        })
    }

    /// Bytes of the file for an access; `None` without accesses.
    fn bytes_per_access(&self) -> Option<f64> {
        let accesses = self.total().accesses;
        (accesses > 0).then(|| self.file_bytes as f64 / accesses as f64)
    }
}

impl Region {
    fn of(call: &Call) -> Option<Region> {
        match call {
            Call::Region { address, bytes, protection, name } => {
                Some(Region { address: *address, bytes: *bytes, protection: *protection, name: name.clone() })
            }
            _ => None,
        }
    }

    /// As in `/proc/PID/maps`.
    fn permissions(&self) -> String {
        let letters = [(1, 'r'), (2, 'w'), (4, 'x')];
        letters.map(|(bit, letter)| if self.protection & bit == 0 { '-' } else { letter }).iter().collect()
    }
}

fn region_document(region: &Region) -> Value {
    json!({
        "address": region.address, "bytes": region.bytes, "protection": region.protection, "name": region.name,
    })
}

fn thread_document(thread: &Thread) -> Value {
    json!({
        "runs": thread.runs, "accesses": thread.accesses, "data_accesses": thread.accesses - thread.fetches,
        "fetches": thread.fetches, "kernel_accesses": thread.kernel_accesses, "instructions": thread.instructions, "events": thread.events,
    })
}

fn document(content: &Content) -> Value {
    let threads: Vec<Value> = content.threads.iter().map(thread_document).collect();
    let footprint = SHIFTS.map(|shift| {
        let (data, fetched) = content.footprint.bytes(shift);
        json!({ "page_bytes": 1u64 << shift, "data_bytes": data, "fetched_bytes": fetched })
    });
    json!({
        "schema": "pagelab.trace-info/1",
        "header": content.header,
        "file_bytes": content.file_bytes,
        "whole": content.whole,
        "blocks": content.blocks,
        "windows": content.windows,
        "threads": threads,
        "total": thread_document(&content.total()),
        "footprint": footprint,
        "outside_accesses": content.outside.0,
        "outside_instructions": content.outside.1,
        "regions": content.regions.iter().map(region_document).collect::<Vec<Value>>(),
        "bytes_per_access_ratio": content.bytes_per_access(),
        "raw_to_file_ratio": content.bytes_per_access().map(|bytes| 8.0 / bytes),
        "damages": content.damages.iter().map(damage_document).collect::<Vec<Value>>(),
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
            thread.instructions.to_string(),
            thread.events.to_string(),
        ]
    };
    let mut threads: Vec<[String; 7]> =
        content.threads.iter().enumerate().map(|(number, thread)| cells(number.to_string(), thread)).collect();
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
    if !content.regions.is_empty() {
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
        let header = ["there from the beginning", "size", "access", "name"];
        text.push_str(&format!("\n\n{}", plain(header, content.regions.iter().map(cells), terminal_width())));
    }
    for damage in &content.damages {
        text.push_str(&format!("\ndamaged {}", damage_text(damage)));
    }
    text
}

fn left_out(content: &Content) -> String {
    let filtered = super::check::left_out(&content.header.filter);
    match content.outside {
        (0, 0) => filtered,
        (accesses, instructions) => {
            let fetched = count(instructions, "instruction");
            format!("{filtered} of memory; devices and firmware: {} and {fetched}", count(accesses, "data access"))
        }
    }
}

fn rows(content: &Content) -> Vec<[String; 2]> {
    let header = &content.header;
    let known = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
    let whole = if content.whole { "whole" } else { "cut off: its end is missing" };
    let mut rows = vec![
        ["command".to_owned(), known(&header.command.join(" "))],
        ["recorder".to_owned(), header.recorder.clone()],
        ["instruction set".to_owned(), known(&header.architecture)],
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
            format!("{}, {}, {whole}", format_bytes(content.file_bytes), count(content.blocks, "block")),
        ],
    ];
    if let Some(window) = header.window {
        let each = window.record_instructions.map_or("the rest".to_owned(), |number| count(number, "instruction"));
        let skipped = count(window.skip_instructions, "instruction");
        let text = format!("{} of {each}, each after {skipped}", content.windows);
        rows.push(["windows".to_owned(), text]);
    }
    if let Some(bytes) = content.bytes_per_access() {
        rows.push([
            "bytes an access".to_owned(),
            format!("{bytes:.3} (8 as plain addresses: {:.0} times)", 8.0 / bytes),
        ]);
    }
    rows
}
