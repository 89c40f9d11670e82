//! `pagelab table build`: builds page tables for mappings, as an image of physical memory.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use paging::format::named::Named;
use paging::{Census, Error, Format, Mapping, OutputAddress, Sizes, Tables, with_format};
use policy::size::format_bytes;
use results::grid::plain;
use serde_json::{Value, json};

use super::census;
use super::describe::{explain, hex, size};
use super::format_name::{self, FormatName, parse_format};
use super::number::parse_number;
use super::request::{self, Request, parse_request};
use super::tree::Tree;
use crate::failure::Failure;
use crate::output::{print, terminal_width, write};

/// Arguments of `pagelab table build`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{}", request::HELP, format_name::help()))]
pub struct Build {
    /// The format of the tables
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format)]
    format: FormatName,
    /// A range to map; repeat it for more
    #[arg(long = "map", value_name = "VA:PA:SIZE[:PERM]", required = true, value_parser = parse_request)]
    maps: Vec<Request>,
    /// Write the tables to this file, as an image of memory from --base on. An existing file is replaced. Without
    /// this, nothing is written
    #[arg(short, long, value_name = "IMAGE")]
    output: Option<PathBuf>,
    /// The physical address of the tables
    #[arg(long, value_name = "PA", default_value = "0x80000000", value_parser = parse_number)]
    base: u64,
    /// Make no leaf larger than this
    #[arg(long, value_name = "SIZE", value_parser = parse_number)]
    largest: Option<u64>,
    /// Make no contiguous groups (arm64 contiguous bit, RISC-V Svnapot). A 64K software page remains a group if the
    /// format has +svnapot
    #[arg(long)]
    no_contiguous: bool,
    /// The maximum memory for the tables
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_number)]
    limit: u64,
    /// Draw the tables as a tree: index, input address, and content, with permissions in the syntax of --map
    #[arg(long)]
    tree: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `pagelab table build`.
pub fn run(arguments: &Build) -> Result<(), Failure> {
    let named = arguments.format.named;
    with_format!(named, format => run_in(format, named, arguments))
}

fn run_in<F: Format>(format: F, named: Named, arguments: &Build) -> Result<(), Failure> {
    let tables = build_tables(format, arguments)?;
    let failed = |error| Failure::Input(explain(&format, &error));
    let census = tables.census().map_err(failed)?;
    let tree = arguments.tree.then(|| Tree::of(&tables)).transpose().map_err(failed)?;
    let image = arguments.output.as_deref().map(|path| write_image(path, &tables)).transpose()?;
    let text = if arguments.json {
        format!("{:#}", document(&tables, arguments, &census, tree.as_ref()))
    } else {
        text(&tables, named, arguments, &census, tree.as_ref(), image)
    };
    print(&text, arguments.json)
}

fn build_tables<F: Format>(format: F, arguments: &Build) -> Result<Tables<F>, Failure> {
    let output_bits = format.geometry().output_bits();
    if arguments.base >> output_bits != 0 {
        let base = arguments.base;
        return Err(Failure::Input(format!(
            "--base {base:#x} does not fit in the {output_bits} bits of a physical address"
        )));
    }
    let mut tables = Tables::new(format, OutputAddress(arguments.base), arguments.limit).map_err(|error| {
        Failure::Input(format!("--base {:#x}: {}", arguments.base, refusal(&format, arguments, &error)))
    })?;
    for request in &arguments.maps {
        let sizes =
            Sizes { largest_bytes: arguments.largest.unwrap_or(u64::MAX), contiguous: !arguments.no_contiguous };
        let attributes = request.attributes(&format);
        let mapping = Mapping { va: request.va, pa: request.pa, bytes: request.bytes, attributes, sizes };
        tables
            .map(&mapping)
            .map_err(|error| Failure::Input(format!("--map {request}: {}", refusal(&format, arguments, &error))))?;
    }
    Ok(tables)
}

/// The error if tables cannot be built, with a remedy that applies.
fn refusal(format: &impl Format, arguments: &Build, error: &Error) -> String {
    match error {
        Error::ArenaFull { limit_bytes, .. } if *limit_bytes < arguments.limit => format!(
            "the tables do not fit in the {} from --base {:#x} to the end of the {}-bit physical address space; \
             use a lower base",
            size(u128::from(*limit_bytes)),
            arguments.base,
            format.geometry().output_bits()
        ),
        error => explain(format, error),
    }
}

struct WrittenFile {
    bytes: u64,
    replaced: bool,
}

fn write_image<F: Format>(path: &Path, tables: &Tables<F>) -> Result<WrittenFile, Failure> {
    let before = fs::metadata(path).ok();
    let image = tables.arena().image();
    write(path, &|to| to.write_all(&image))?;
    Ok(WrittenFile { bytes: image.len() as u64, replaced: before.is_some_and(|before| before.is_file()) })
}

fn text<F: Format>(
    tables: &Tables<F>,
    named: Named,
    arguments: &Build,
    census: &Census,
    tree: Option<&Tree>,
    image: Option<WrittenFile>,
) -> String {
    let (format, width) = (tables.format(), terminal_width());
    let (base, bytes) = (tables.arena().base(), tables.arena().bytes());
    let memory = format!("{} of physical memory, {base:#x} to {:#x}", format_bytes(bytes), base + (bytes - 1));
    let written = match (&arguments.output, image) {
        (Some(path), Some(written)) => {
            let what = if written.replaced { "replaced" } else { "wrote" };
            format!("{what} {}: {} bytes, {memory}", results::printable(&path.display().to_string()), written.bytes)
        }
        _ => format!("the tables take {memory}; nothing is written without -o"),
    };
    let registers =
        format.registers(tables.root()).into_iter().map(|(name, value)| [name.to_string(), format!("{value:#018x}")]);
    let mut parts = vec![
        written,
        root(named, tables.root()),
        plain(["register", "value"], registers, width),
        census::tables_text(format, census, tables.arena().used_bytes(), width),
        census::mapped_text(format, census, width),
    ];
    parts.extend(tree.map(|tree| tree.draw(format, named, tables.root())));
    parts.join("\n\n")
}

fn root(named: Named, root: OutputAddress) -> String {
    let concatenated = match named {
        Named::Arm64Stage2(format) => format.concatenated(),
        Named::X86_64(_) | Named::Arm64Stage1(_) | Named::RiscV(_) | Named::Software64K(_) => 1,
    };
    match concatenated {
        1 => format!("root at {root:#x}"),
        tables => format!("root at {root:#x}: {tables} concatenated tables, counted as one"),
    }
}

fn document<F: Format>(tables: &Tables<F>, arguments: &Build, census: &Census, tree: Option<&Tree>) -> Value {
    let format = tables.format();
    let registers =
        format.registers(tables.root()).into_iter().map(|(name, value)| json!({ "name": name, "value": hex(value) }));
    json!({
        "schema": "pagelab.table-build/1",
        "format": arguments.format.name,
        "image": arguments.output.as_ref().map(|path| path.display().to_string()),
        "base": hex(tables.arena().base()),
        "image_bytes": tables.arena().bytes(),
        "allocated_bytes": tables.arena().used_bytes(),
        "root": hex(tables.root()),
        "registers": registers.collect::<Vec<_>>(),
        "census": census::document(format, census),
        "tree": tree.map(|tree| tree.document(format)),
    })
}
