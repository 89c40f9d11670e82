//! Shows how an address is looked up: whether the address is canonical, and its index at each level.

use paging::format::named::Named;
use paging::{ENTRY_BYTES, Extension, Format, InputAddress, OutputAddress};
use policy::size::format_bytes;
use serde_json::{Value, json};

use super::describe::{grouped, hex};
use super::level::{label, linux_name};
use results::grid::plain;

/// The index of an address at one level.
struct Row {
    name: String,
    high: u32,
    low: u32,
    index: u64,
    entries: u64,
    /// The number of hardware entries that software writes as one.
    run: u64,
}

/// Whether the tables can translate an address, and why or why not.
pub fn canonical(format: &impl Format, va: InputAddress) -> (bool, String) {
    let geometry = format.geometry();
    let bits = geometry.input_bits();
    let above = va.0 >> bits;
    let expected = geometry.extended(geometry.resolved(va)).0 >> bits;
    let (top, sign) = (bits - 1, va.0 >> (bits - 1) & 1);
    let must = match geometry.extension() {
        Extension::Zero => format!("bits 63:{bits} must be zero"),
        Extension::Ones => format!("bits 63:{bits} must be ones"),
        Extension::Sign => format!("bits 63:{bits} must be copies of bit {top}, which is {sign}"),
    };
    if above == expected {
        let half = match (geometry.extension(), sign) {
            (Extension::Sign, 0) => ", the lower half",
            (Extension::Sign, _) => ", the upper half",
            _ => "",
        };
        return (true, format!("canonical{half} ({must}, and are)"));
    }
    let hint = match geometry.extension() {
        Extension::Zero if format.registers(OutputAddress(0)).iter().any(|(name, _)| *name == "ttbr0_el1") => {
            "; addresses of the upper half (TTBR1) need the format's option +upper"
        }
        _ => "",
    };
    (false, format!("not canonical: {must}, and are {above:#x}; the hardware faults before it reads a table{hint}"))
}

/// The indexes of an address, in a table.
pub fn text(format: &impl Format, named: Named, va: InputAddress, width: usize) -> String {
    let (_, why) = canonical(format, va);
    let hardware = table(&hardware_rows(format, va), format, va, width);
    let first = results::fold(&format!("address {va:#x}: {why}"), width, 4);
    match named {
        Named::Software64K(_) => format!(
            "{first}\n\nwhat the hardware walks:\n{hardware}\n\nwhat software indexes, 16 hardware entries at a time:\n{}",
            table(&software_rows(format, va), format, va, width)
        ),
        _ => format!("{first}\n\n{hardware}"),
    }
}

fn table(rows: &[Row], format: &impl Format, va: InputAddress, width: usize) -> String {
    let mut lines: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let span = format_bytes(1 << row.low);
            let at = row.index * ENTRY_BYTES * row.run;
            [
                row.name.clone(),
                format!("{}:{}", row.high, row.low),
                format!("{} of {}", row.index, grouped(row.entries)),
                format!("{:#x}", row.index),
                format!("table + {at:#x}"),
                span,
            ]
        })
        .collect();
    let low = rows.last().map_or(format.geometry().page_shift().into(), |row| row.low);
    let offset = va.0 & ((1 << low) - 1);
    lines.push([
        "offset".into(),
        format!("{}:0", low - 1),
        offset.to_string(),
        format!("{offset:#x}"),
        String::new(),
        String::new(),
    ]);
    plain(["level", "bits", "index", "hex", "entry at", "entry spans"], lines, width)
}

fn hardware_rows(format: &impl Format, va: InputAddress) -> Vec<Row> {
    let geometry = format.geometry();
    let row = |level| {
        let low = geometry.shift(level);
        let entries = geometry.entries(level);
        let name = if format.run_bits() == 0 { label(format, level) } else { format!("VPN[{level}]") };
        Row { name, high: low + entries.ilog2() - 1, low, index: geometry.index(level, va.0), entries, run: 1 }
    };
    (0..geometry.levels()).rev().map(row).collect()
}

/// The indexes as software sees them, for pages of `1 << run_bits` hardware pages.
fn software_rows(format: &impl Format, va: InputAddress) -> Vec<Row> {
    let (geometry, run) = (format.geometry(), u32::from(format.run_bits()));
    let resolved = geometry.resolved(va);
    let row = |level| {
        let low = geometry.shift(level) + run;
        let root = level == geometry.root_level();
        let high = if root { u32::from(geometry.input_bits()) } else { low + u32::from(geometry.index_bits()) };
        let entries = 1 << (high - low);
        let index = resolved >> low & (entries - 1);
        Row { name: linux_name(format, level).to_string(), high: high - 1, low, index, entries, run: 1 << run }
    };
    (0..geometry.levels()).rev().map(row).collect()
}

/// The indexes as a document.
pub fn document(format: &impl Format, va: InputAddress) -> Value {
    let (is_canonical, why) = canonical(format, va);
    let rows = |rows: Vec<Row>| {
        let row = |row: &Row| {
            json!({
                "level_name": row.name,
                "high_bit": row.high,
                "low_bit": row.low,
                "index": row.index,
                "entries": row.entries,
                "entry_offset_bytes": row.index * ENTRY_BYTES * row.run,
                "span_bytes": 1u64 << row.low,
            })
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let software = (format.run_bits() != 0).then(|| rows(software_rows(format, va)));
    json!({
        "address": hex(va),
        "canonical": is_canonical,
        "why": why,
        "levels": rows(hardware_rows(format, va)),
        "software_levels": software,
        "offset_bytes": va.0 & (format.geometry().page_bytes() - 1),
    })
}
