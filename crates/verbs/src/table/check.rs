//! `pagelab table check`: checks whether the page tables in a memory dump follow the rules of their architecture.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use paging::check::{Fault, MAX_FAULTS, Report, check};
use paging::format::named::Named;
use paging::{Arena, Census, ENTRY_BYTES, Error, Format, OutputAddress, Severity, Tables, with_format};
use results::grid::plain;
use results::input;
use serde_json::{Value, json};

use super::census;
use super::describe::{count, explain, grouped, hex, rule_document, severity_word, size};
use super::format_name::{self, FormatName, parse_format};
use super::level::label;
use super::number::parse_number;
use super::tree::Tree;
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Arguments of `pagelab table check`.
#[derive(Debug, Args)]
#[command(after_help = format!("{IMAGES}\n\n{}", format_name::help()))]
pub struct Check {
    /// Raw physical memory with the tables in it
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The format of the tables
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format)]
    format: FormatName,
    /// The physical address of the root table, without the other fields of its register
    #[arg(long, value_name = "PA", value_parser = parse_number)]
    root: u64,
    /// The physical address of the first byte of the image
    #[arg(long, value_name = "PA", value_parser = parse_number)]
    base: u64,
    /// Refuse an image that is larger than this
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_number)]
    limit: u64,
    /// Print at most this many faults; those of neighbouring entries count as one
    #[arg(long, value_name = "N", default_value_t = 20)]
    faults: usize,
    /// Draw the tables as a tree, if they are one
    #[arg(long)]
    tree: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

const IMAGES: &str = "\
An image is raw memory, byte for byte, as these write it:
  QEMU     pmemsave 0x80000000 0x100000 dump.bin
  gdb      dump binary memory dump.bin 0x80000000 0x80100000
  pagelab  pagelab table build -o dump.bin
Turn a core file, a kdump or a compressed dump into that first. A table outside the image is a fault,
because it cannot be checked.
Exit codes: 0 no rule is broken (there may be warnings), 1 at least one is, 2 bad arguments or an
unreadable image.";

/// Runs `pagelab table check`.
pub fn run(arguments: &Check) -> Result<(), Failure> {
    let image = read_image(&arguments.image, arguments.limit).map_err(Failure::input)?;
    let note = container(&image);
    let named = arguments.format.named;
    with_format!(named, format => run_in(format, named, arguments, &image, note))
}

fn run_in<F: Format>(
    format: F,
    named: Named,
    arguments: &Check,
    image: &[u8],
    note: Option<&'static str>,
) -> Result<(), Failure> {
    let arena = Arena::from_image(OutputAddress(arguments.base), image)
        .map_err(|error| Failure::Input(format!("{}: {}", arguments.image.display(), explain(&format, &error))))?;
    let tables = Tables::in_arena(format, arena, OutputAddress(arguments.root));
    let report = check(&tables);
    let census = (report.tables != 0).then(|| tables.census());
    let checked = Checked { report, census, image_bytes: image.len() as u64, note };
    let tree = arguments.tree.then(|| Tree::of(&tables));
    let text = if arguments.json {
        format!("{:#}", document(&format, arguments, &checked, tree.as_ref().and_then(|tree| tree.as_ref().ok())))
    } else {
        let drawn = tree.map(|tree| match tree {
            Ok(tree) => tree.draw(&format, named, OutputAddress(arguments.root)),
            Err(error) => {
                results::fold(&format!("no tree can be drawn: {}", explain(&format, &error)), terminal_width(), 4)
            }
        });
        text(&format, arguments, &checked, drawn)
    };
    print(&text, arguments.json)?;
    if checked.report.is_legal() { Ok(()) } else { Err(Failure::Faults(verdict(arguments, &checked.report))) }
}

struct Checked {
    report: Report,
    /// The mapped memory, or why the tables cannot be walked completely; `None` if the root is invalid.
    census: Option<Result<Census, Error>>,
    image_bytes: u64,
    /// The format that the file seems to have, if it seems not to be raw memory.
    note: Option<&'static str>,
}

/// The file is not an image of memory.
#[derive(Debug, thiserror::Error)]
enum ImageError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("{} is empty; expected raw memory that holds page tables", .0.display())]
    Empty(PathBuf),
    #[error("{} is larger than {limit}; cut out the tables, or allow more with --limit", path.display())]
    TooLarge {
        path: PathBuf,
        /// The limit, as text.
        limit: String,
    },
    /// The file ends within an entry.
    #[error("{} has {bytes}; expected whole 8-byte entries: it is truncated, or not raw memory", path.display())]
    Truncated {
        path: PathBuf,
        /// The size of the file, as text.
        bytes: String,
    },
}

fn read_image(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ImageError> {
    let path = path.to_path_buf();
    let mut image = Vec::new();
    let opened = input::open_memory(&path).map_err(std::io::Error::from);
    let read = opened.and_then(|file| file.take(limit_bytes.saturating_add(1)).read_to_end(&mut image));
    match (read, image.len() as u64) {
        (Err(error), _) => Err(ImageError::Unreadable { path, error }),
        (_, 0) => Err(ImageError::Empty(path)),
        (_, bytes) if bytes > limit_bytes => Err(ImageError::TooLarge { path, limit: size(u128::from(limit_bytes)) }),
        (_, bytes) if !bytes.is_multiple_of(8) => Err(ImageError::Truncated { path, bytes: count(bytes, "byte") }),
        _ => Ok(image),
    }
}

/// The dump format whose magic number the file starts with. Raw memory may start with the same bytes by chance, so this is
/// not a reason to refuse it.
fn container(image: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 8] = [
        (b"\x7fELF", "an ELF core file"),
        (b"KDUMP   ", "a kdump file"),
        (b"DISKDUMP", "a diskdump file"),
        (b"makedumpfile", "a flattened makedumpfile"),
        (b"EMiL", "a LiME dump"),
        (b"\x1f\x8b", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"\xfd7zXZ", "an xz file"),
    ];
    KNOWN.iter().find(|(magic, _)| image.starts_with(magic)).map(|(_, what)| *what)
}

/// The numbers of violated rules and of warnings.
fn counts(report: &Report) -> (u64, u64) {
    let listed = |severity| report.faults.iter().filter(|fault| fault.severity() == severity).count() as u64;
    (listed(Severity::Error) + report.unlisted_errors, listed(Severity::Warning) + report.unlisted_warnings)
}

fn verdict(arguments: &Check, report: &Report) -> String {
    let shown = arguments.image.display();
    let (errors, warnings) = counts(report);
    let warned = if warnings == 0 { String::new() } else { format!(", {}", count(warnings, "warning")) };
    match errors {
        0 => format!("{shown}: legal: no rule is broken{warned}"),
        _ => format!("{shown}: not legal: {}{warned}", count(errors, "fault")),
    }
}

fn text<F: Format>(format: &F, arguments: &Check, checked: &Checked, tree: Option<String>) -> String {
    let image_bytes = checked.image_bytes;
    let (report, width) = (&checked.report, terminal_width());
    let first = format!(
        "{}; {} of {} from the root {:#x} on, in memory from {:#x} to {:#x}",
        results::printable(&verdict(arguments, report)),
        count(report.tables, "table"),
        arguments.format.name,
        arguments.root,
        arguments.base,
        arguments.base + (image_bytes - 1)
    );
    let mut parts = vec![results::fold(&first, width, 4)];
    if let Some(note) = checked.note.filter(|_| !report.is_legal()) {
        parts.push(format!("expected raw memory (see --help), but the file begins like {note}"));
    }
    if !report.faults.is_empty() {
        parts.push(by_rule(report, width));
        let runs = runs(&report.faults);
        parts.extend(runs.iter().take(arguments.faults).map(|run| run_text(format, run, arguments.root, width)));
        let left_out_of = runs.iter().skip(arguments.faults).map(|run| run.len() as u64).sum();
        parts.extend(left_out(report, left_out_of).map(|text| results::fold(&text, width, 4)));
    }
    match &checked.census {
        None => {}
        Some(Ok(census)) => {
            parts.push(census::tables_text(format, census, census.table_bytes, width));
            parts.push(census::mapped_text(format, census, width));
        }
        Some(Err(error)) => {
            let why = format!("what is mapped in groups was not counted: {}", explain(format, error));
            parts.push(results::fold(&why, width, 4));
            parts.push(leaves_text(report, width));
        }
    }
    parts.extend(tree);
    parts.join("\n\n")
}

/// A table of how often each rule is broken.
fn by_rule(report: &Report, width: usize) -> String {
    let mut rules: BTreeMap<&str, (Severity, u64)> = BTreeMap::new();
    for fault in &report.faults {
        rules.entry(fault.rule.name()).or_insert((fault.severity(), 0)).1 += 1;
    }
    let rows = rules
        .into_iter()
        .map(|(name, (severity, times))| [name.to_string(), severity_word(severity).to_string(), times.to_string()]);
    plain(["rule", "severity", "times"], rows, width)
}

/// Groups faults of adjacent entries that break the same rule.
fn runs(faults: &[Fault]) -> Vec<&[Fault]> {
    let continues = |one: &Fault, next: &Fault| {
        one.rule.name() == next.rule.name()
            && one.level == next.level
            && one.pa.checked_add(ENTRY_BYTES) == Some(next.pa)
    };
    faults.chunk_by(continues).collect()
}

fn run_text(format: &impl Format, run: &[Fault], root: u64, width: usize) -> String {
    let [fault, rest @ ..] = run else { return String::new() };
    let Fault { rule, level, pa, entry, va, .. } = fault;
    let (word, name, at) = (severity_word(fault.severity()), rule.name(), label(format, *level));
    // The root is not referenced by an entry, so there is no entry to show.
    if pa.0 == root && *entry == 0 && *level == format.geometry().root_level() {
        return results::fold(&format!("{word}: {name}: the root: {rule}"), width, 4);
    }
    let first = match rest.last() {
        None => format!("{word}: {name} in the {at} entry at {pa:#x}, for {va:#x}"),
        Some(last) => {
            let to = last.va.0 | (format.geometry().span(*level) - 1);
            format!("{word}: {name} in {} {at} entries from {pa:#x} on, for {va:#x} to {to:#x}; the first:", run.len())
        }
    };
    let second = format!("    {entry:#018x}: {rule}");
    format!("{}\n{}", results::fold(&first, width, 4), results::fold(&second, width, 4))
}

fn left_out(report: &Report, listed: u64) -> Option<String> {
    match (listed, report.unlisted_errors + report.unlisted_warnings) {
        (0, 0) => None,
        (listed, 0) => Some(format!("and {} that are not printed (--faults)", count(listed, "fault"))),
        (listed, unlisted) => Some(format!(
            "and {} that are not printed; faults after the first {} were only counted, and are in no table",
            count(listed + unlisted, "fault"),
            grouped(MAX_FAULTS as u64)
        )),
    }
}

fn leaves_text(report: &Report, width: usize) -> String {
    if report.leaves.is_empty() {
        return "nothing is mapped".to_string();
    }
    let rows = report.leaves.iter().rev().map(|(bytes, leaves)| {
        let mapped = u128::from(*bytes) * u128::from(*leaves);
        [size(u128::from(*bytes)), grouped(*leaves), size(mapped)]
    });
    plain(["leaf", "leaves", "mapped"], rows, width)
}

fn document<F: Format>(format: &F, arguments: &Check, checked: &Checked, tree: Option<&Tree>) -> Value {
    let report = &checked.report;
    let (errors, warnings) = counts(report);
    let fault = |fault: &Fault| {
        let mut document = rule_document(fault.rule);
        document["level"] = json!(fault.level);
        document["level_name"] = json!(fault.level_name);
        document["entry_address"] = json!(hex(fault.pa));
        document["entry"] = json!(hex(fault.entry));
        document["input_address"] = json!(hex(fault.va));
        document
    };
    let leaves = report.leaves.iter().map(|(bytes, leaves)| json!({ "leaf_bytes": bytes, "leaves": leaves }));
    json!({
        "schema": "pagelab.table-check/1",
        "format": arguments.format.name,
        "image": arguments.image.display().to_string(),
        "base": hex(arguments.base),
        "root": hex(arguments.root),
        "legal": report.is_legal(),
        "errors": errors,
        "warnings": warnings,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
        "unlisted_errors": report.unlisted_errors,
        "unlisted_warnings": report.unlisted_warnings,
        "tables": report.tables,
        "leaves": leaves.collect::<Vec<_>>(),
        "census": checked.census.iter().flatten().next().map(|census| census::document(format, census)),
        "census_error": checked.census.as_ref().and_then(|census| census.as_ref().err()).map(|error| explain(format, error)),
        "tree": tree.map(|tree| tree.document(format)),
    })
}
