//! `pagelab table decode`: explains entries field by field, and how an address is looked up.

use clap::Args;
use paging::format::named::Named;
use paging::format::{Field, Kind};
use paging::{Format, InputAddress, OutputAddress, Rule, Severity, with_format};
use policy::size::format_bytes;
use results::grid::plain;
use serde_json::{Value, json};

use super::describe::{attributes_document, attributes_text, broken, hex, kind_word, rule_document, severity_word};
use super::format_name::{self, FormatName, parse_format};
use super::index;
use super::level::{self, label, linux_name};
use super::number::{NumberError, parse_hexadecimal};
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Arguments of `pagelab table decode`.
#[derive(Debug, Args)]
#[command(after_help = format_name::help(), after_long_help = format!("{LONG}\n\n{}", format_name::help()))]
pub struct Decode {
    /// The format of the tables
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format)]
    format: FormatName,
    // As a help text, the comment below must not turn VPN[1] into a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    /// The level of the entries, as the format's specification or Linux calls it: PD, "level 2", VPN[1], pmd.
    /// A number is the specification's (on arm64 level 3 holds pages, on RISC-V level 0). Default: the level
    /// of pages, followed by the meaning at each other level
    #[arg(short, long, value_name = "LEVEL")]
    level: Option<String>,
    /// Explain how this address is looked up: hexadecimal, with or without 0x
    #[arg(long, value_name = "ADDRESS", value_parser = parse_hexadecimal)]
    va: Option<u64>,
    /// Entries, hexadecimal, with or without 0x. A level may precede an entry: `pmd=100e067`, or `PMD 100e067`
    #[arg(value_name = "ENTRY", required_unless_present = "va")]
    entries: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

const LONG: &str = "The last line of an oops can be pasted as it is:
  x86-64   pagelab table decode --format x86-64 PGD 100000067 P4D 100000067 PUD 1001f4067 PMD 0
  arm64    pagelab table decode --format arm64-4k-48 pgd=1000000081a3c003, p4d=1000000081a3c003, pud=0000000000000000";

/// An entry to explain.
#[derive(PartialEq, Eq)]
struct EntryRequest {
    entry: u64,
    /// The level that was given for this entry.
    level: Option<u8>,
}

/// Runs `pagelab table decode`.
pub fn run(arguments: &Decode) -> Result<(), Failure> {
    let named = arguments.format.named;
    let requests = parse_entries(arguments).map_err(Failure::input)?;
    let text = if arguments.json {
        format!("{:#}", with_format!(named, format => document(&format, named, arguments, &requests)))
    } else {
        with_format!(named, format => text(&format, named, arguments, &requests))
    };
    print(&text, arguments.json)
}

/// Invalid arguments after the options.
#[derive(Debug, thiserror::Error)]
enum EntriesError {
    #[error(transparent)]
    Level(#[from] level::LevelError),
    #[error(transparent)]
    Entry(#[from] NumberError),
    #[error("expected an entry after {0:?}")]
    MissingEntry(String),
}

/// Parses the arguments after the options: entries, each optionally preceded by its level.
fn parse_entries(arguments: &Decode) -> Result<Vec<EntryRequest>, EntriesError> {
    let named = arguments.format.named;
    let read_level = |text: &str| level::parse(named, text);
    let for_all = arguments.level.as_deref().map(read_level).transpose()?;
    let (mut requests, mut before) = (Vec::new(), None);
    for word in arguments.entries.iter().map(|word| word.trim_end_matches(',')) {
        let (name, entry) = match word.split_once('=') {
            Some((name, entry)) => (Some(name), entry),
            None if before.is_none() && level::is_name(word) => {
                before = Some(read_level(word)?);
                continue;
            }
            None => (None, word),
        };
        let level = name.map(read_level).transpose()?.or(before.take());
        let entry = parse_hexadecimal(entry)?;
        requests.push(EntryRequest { entry, level: level.or(for_all) });
    }
    match before {
        Some(_) => Err(EntriesError::MissingEntry(arguments.entries.last().cloned().unwrap_or_default())),
        None => Ok(requests),
    }
}

fn text<F: Format>(format: &F, named: Named, arguments: &Decode, requests: &[EntryRequest]) -> String {
    let width = terminal_width();
    let va = arguments.va.map(InputAddress);
    let address = va.map(|va| index::text(format, named, va, width));
    let walk = (requests.len() > 1).then(|| walk_table(format, named, requests, va, width));
    // An oops prints folded levels twice, so repeated entries are dropped.
    let is_first = |(at, one): &(usize, &EntryRequest)| !requests[..*at].contains(one);
    let entries = requests.iter().enumerate().filter(is_first);
    let entries = entries.map(|(_, request)| entry_text(format, named, request, va, width));
    address.into_iter().chain(walk).chain(entries).collect::<Vec<_>>().join("\n\n")
}

/// A table of all entries, in the order in which they were given.
fn walk_table<F: Format>(
    format: &F,
    named: Named,
    requests: &[EntryRequest],
    va: Option<InputAddress>,
    width: usize,
) -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for EntryRequest { entry, level } in requests {
        let level = level.unwrap_or(0);
        let row = [label(format, level), format!("{entry:#018x}"), summary(format, named, level, *entry, va)];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    plain(["level", "entry", "meaning"], rows, width)
}

fn entry_text<F: Format>(
    format: &F,
    named: Named,
    request: &EntryRequest,
    va: Option<InputAddress>,
    width: usize,
) -> String {
    let level = request.level.unwrap_or(0);
    let guessed = if request.level.is_none() { ", the level of pages: no --level was given" } else { "" };
    let head = format!("{:#018x} as an entry of {}{guessed}", request.entry, label(format, level));
    let mut parts = vec![
        results::fold(&head, width, 4),
        results::fold(&summary(format, named, level, request.entry, va), width, 4),
    ];
    if request.entry != 0 {
        parts.push(String::new());
        parts.push(fields_table(format, level, request.entry, width));
    }
    let rules = broken(format, level, request.entry);
    if !rules.is_empty() {
        parts.push(String::new());
        parts.extend(rules.iter().map(|rule| results::fold(&rule_line(*rule), width, 4)));
    }
    if request.level.is_none() && format.geometry().levels() > 1 {
        parts.push(String::new());
        parts.push(other_levels(format, named, request.entry, width));
    }
    parts.join("\n")
}

/// A sentence that says what kind of entry this is, and what it does.
fn summary<F: Format>(format: &F, named: Named, level: u8, entry: u64, va: Option<InputAddress>) -> String {
    match kind(format, level, entry) {
        Kind::Hole if entry == 0 => "a hole: not valid, all zero".to_string(),
        Kind::Hole => "a hole: not valid; all other bits are software's".to_string(),
        Kind::Table => {
            format!("points to the {} table at {:#x}", label(format, level - 1), format.table_address(entry))
        }
        Kind::Illegal => {
            format!("illegal: the hardware faults on it ({})", names(&broken(format, level, entry)))
        }
        Kind::Leaf => {
            let leaf = leaf(format, level, entry, va);
            let broken = broken(format, level, entry);
            let illegal = broken.iter().any(|rule| rule.severity() == Severity::Error);
            let but = if illegal { format!(", but breaks {}", names(&broken)) } else { String::new() };
            let size = format_bytes(format.geometry().span(level));
            let group = match leaf.group_bytes {
                Some(bytes) => format!(" as a part of a contiguous group of {}", format_bytes(bytes)),
                None => String::new(),
            };
            let here = match (va, leaf.pa) {
                (Some(va), Some(pa)) => format!("; {va:#x} is {pa:#x}"),
                _ => String::new(),
            };
            let what = attributes_text(named, format.attributes(level, entry));
            format!("maps {size} at {:#x}{group}{but}: {what}{here}", leaf.memory)
        }
    }
}

/// The kind of the entry as hardware reads it.
fn kind(format: &impl Format, level: u8, entry: u64) -> Kind {
    let faults = broken(format, level, entry).into_iter().any(|rule| format.faults(rule));
    if faults { Kind::Illegal } else { format.kind(level, entry) }
}

/// The memory that a leaf maps.
struct Leaf {
    /// The start of the mapped memory. If the entry is one of a contiguous group, this is the start of the group, unless an
    /// address selects a part of the group.
    memory: OutputAddress,
    group_bytes: Option<u64>,
    /// The address that the given virtual address translates to.
    pa: Option<OutputAddress>,
}

fn leaf(format: &impl Format, level: u8, entry: u64, va: Option<InputAddress>) -> Leaf {
    let span = format.geometry().span(level);
    let group_bits = format.group_bits(level, entry);
    let memory = format.leaf_address(level, entry, va.unwrap_or_default());
    let canonical = va.filter(|va| format.geometry().is_canonical(*va));
    Leaf {
        memory,
        group_bytes: (group_bits != 0).then_some(span << group_bits),
        pa: canonical.map(|va| OutputAddress(memory.0 | va.0 & (span - 1))),
    }
}

fn names(rules: &[Rule]) -> String {
    rules.iter().map(|rule| rule.name()).collect::<Vec<_>>().join(", ")
}

fn rule_line(rule: Rule) -> String {
    format!("{}: {}: {rule}", severity_word(rule.severity()), rule.name())
}

fn fields_table(format: &impl Format, level: u8, entry: u64, width: usize) -> String {
    let rows = fields(format, level, entry).into_iter().map(|field| {
        let bits =
            if field.high == field.low { field.low.to_string() } else { format!("{}:{}", field.high, field.low) };
        let value = if field.high - field.low < 3 { field.value.to_string() } else { hex(field.value) };
        [bits, field.name.to_string(), value, field.meaning]
    });
    plain(["bits", "field", "value", "meaning"], rows, width)
}

/// The fields of an entry, including bits that are set and belong to no field.
fn fields(format: &impl Format, level: u8, entry: u64) -> Vec<Field> {
    let mut fields = format.fields(level, entry);
    let mask = |field: &Field| (u64::MAX >> (63 - field.high)) & (u64::MAX << field.low);
    let covered = fields.iter().fold(0, |covered, field| covered | mask(field));
    let meaning = match format.kind(level, entry) {
        Kind::Hole => "software's",
        _ => "no field of this format",
    };
    let mut rest = !covered;
    while rest != 0 {
        let low = rest.trailing_zeros();
        let length = (rest >> low).trailing_ones();
        let bits = u64::MAX >> (64 - length);
        let (high, value) = ((low + length - 1) as u8, entry >> low & bits);
        if value != 0 {
            fields.push(Field { name: "-", high, low: low as u8, value, meaning: meaning.to_string() });
        }
        rest &= !(bits << low);
    }
    fields.sort_by_key(|field| std::cmp::Reverse(field.high));
    fields
}

fn other_levels<F: Format>(format: &F, named: Named, entry: u64, width: usize) -> String {
    let rows = (1..format.geometry().levels())
        .rev()
        .map(|level| [label(format, level), summary(format, named, level, entry, None)]);
    plain(["at another level", "meaning"], rows, width)
}

fn document<F: Format>(format: &F, named: Named, arguments: &Decode, requests: &[EntryRequest]) -> Value {
    let va = arguments.va.map(InputAddress);
    let entries = requests.iter().map(|request| {
        let level = request.level.unwrap_or(0);
        let mut document = reading(format, named, level, request.entry, va);
        document["level_was_said"] = json!(request.level.is_some());
        document["fields"] = fields(format, level, request.entry)
            .iter()
            .map(|field| {
                json!({
                    "name": field.name,
                    "high_bit": field.high,
                    "low_bit": field.low,
                    "value": hex(field.value),
                    "meaning": field.meaning,
                })
            })
            .collect();
        if request.level.is_none() {
            let others =
                (1..format.geometry().levels()).map(|level| reading(format, named, level, request.entry, None));
            document["other_levels"] = others.collect();
        }
        document
    });
    json!({
        "schema": "pagelab.table-decode/1",
        "format": arguments.format.name,
        "address": va.map(|va| index::document(format, va)),
        "entries": entries.collect::<Vec<_>>(),
    })
}

/// The interpretation of an entry at a level, as a document.
fn reading<F: Format>(format: &F, named: Named, level: u8, entry: u64, va: Option<InputAddress>) -> Value {
    let kind = kind(format, level, entry);
    let leaf = (kind == Kind::Leaf).then(|| leaf(format, level, entry, va));
    let output = match (&leaf, kind) {
        (Some(leaf), _) => Some(leaf.memory),
        (None, Kind::Table) => Some(format.table_address(entry)),
        (None, _) => None,
    };
    json!({
        "entry": hex(entry),
        "level": level,
        "level_name": format.level_name(level),
        "linux_name": linux_name(format, level),
        "kind": kind_word(kind),
        "output_address": output.map(hex),
        "leaf_bytes": leaf.as_ref().map(|_| format.geometry().span(level)),
        "group_bytes": leaf.as_ref().and_then(|leaf| leaf.group_bytes),
        "translated_address": leaf.as_ref().and_then(|leaf| leaf.pa).map(hex),
        "attributes": leaf.as_ref().map(|_| attributes_document(format.attributes(level, entry))),
        "text": summary(format, named, level, entry, va),
        "broken_rules": broken(format, level, entry).into_iter().map(rule_document).collect::<Vec<_>>(),
    })
}
