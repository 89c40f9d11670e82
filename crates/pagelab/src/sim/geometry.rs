//! `pagelab sim --geometry`: misses for every LRU geometry.

use std::io::Write;

use model::geometry::{SET_SHIFTS, Swept, sweep};
use results::grid::plain;
use serde_json::{Value, json};
use study::size::format_bytes;

use super::{SimArguments, about, bar, opened};
use crate::compare::{ignore_closed_pipe, terminal_width};
use crate::failure::{Failure, say};

/// log2 of the page sizes: 4K, 16K, 64K, 2M and 32M.
const PAGE_SHIFTS: [u32; 5] = [12, 14, 16, 21, 25];
/// The ways that the table shows; JSON has all.
const SHOWN_WAYS: [u32; 6] = [1, 2, 4, 8, 12, 15];

/// Runs `pagelab sim --geometry`.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    let mut texts = Vec::new();
    let mut documents = Vec::new();
    for file in &arguments.files {
        let bar = bar(file);
        let swept = sweep(opened(file, &bar)?, &PAGE_SHIFTS, arguments.threads());
        bar.finish_and_clear();
        let swept = swept.map_err(|error| about(file, error))?;
        for damage in &swept.damage {
            say(format_args!("pagelab: {}: {damage}; it was passed over", file.display()));
        }
        let name = file.display().to_string();
        texts.push(text(&name, &swept, terminal_width()));
        documents.push(document(&name, &swept));
    }
    let text = if arguments.json {
        format!("{:#}", json!({ "schema": "pagelab.sim-geometry/1", "traces": documents }))
    } else {
        texts.join("\n\n")
    };
    ignore_closed_pipe(writeln!(std::io::stdout(), "{text}"))
}

fn document(file: &str, swept: &Swept) -> Value {
    let mut document = json!(swept);
    document["file"] = json!(file);
    document["provenance"] = json!("modelled");
    document
}

/// A table for each page size: rows are numbers of sets, columns numbers of ways.
fn text(file: &str, swept: &Swept, width: usize) -> String {
    let of = swept.instructions.unwrap_or(swept.runs).max(1) as f64;
    let unit = if swept.instructions.is_some() { "instructions" } else { "runs" };
    let mut lines = vec![format!("{file}: {} accesses in {} runs; misses per 1000 {unit}", swept.accesses, swept.runs)];
    for shift in PAGE_SHIFTS {
        let rows = SET_SHIFTS.map(|set_shift| {
            let cell = |ways: u32| {
                let found = swept.geometries.iter().find(|geometry| {
                    (geometry.page_bytes, geometry.sets, geometry.ways) == (1 << shift, 1 << set_shift, ways)
                });
                found.map_or(String::new(), |found| format!("{:.3}", found.misses as f64 * 1000.0 / of))
            };
            let [one, two, four, eight, twelve, fifteen] = SHOWN_WAYS.map(cell);
            [(1u32 << set_shift).to_string(), one, two, four, eight, twelve, fifteen]
        });
        let header = ["sets", "1 way", "2 ways", "4 ways", "8 ways", "12 ways", "15 ways"];
        lines.push(format!("\npages of {}\n{}", format_bytes(1 << shift), plain(header, rows, width)));
    }
    lines.join("\n")
}
