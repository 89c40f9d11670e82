//! `pagelab list tcg-regions`: the regions of QEMU's code buffer by size and number of vCPUs, as a table and as a map.

use std::path::PathBuf;

use crate::regions::{BUFFER_BYTES, HIGHWATER_BYTES, Layout, Placement, Rule, TooManyRegions, Windows};
use clap::{Args, ValueEnum};
use host::{Host, KernelVersion};
use policy::size::{PageSize, SizeError, format_bytes, parse_bytes};
use results::grid::plain;
use results::shading::{self, Cell, Shading};
use serde_json::{Value, json};

use verbs::lab::{Failure, terminal_width, write};

/// The most vCPUs of a QEMU machine; larger numbers would only cause a long loop.
const MAX_CPUS: i64 = 4096;

/// Arguments of `pagelab list tcg-regions`.
#[derive(Clone, Debug, Args)]
pub struct TcgRegions {
    /// The size of the buffer: MiB as in QEMU's tb-size, or a size such as 1G; several by commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_tb_size,
          default_values = ["32", "64", "128", "256", "512", "1024", "2048"])]
    pub tb_size: Vec<u64>,
    /// vCPUs; several by commas
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MAX_CPUS),
          default_values = ["1", "2", "4", "8", "16", "32", "64", "128"])]
    pub smp: Vec<u32>,
    /// vCPUs that could be plugged in (`-smp N,maxcpus=M`): these decide; default: as many as --smp
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=MAX_CPUS))]
    pub max_cpus: Option<u32>,
    /// The first version of QEMU with the rule
    #[arg(long, value_name = "VERSION", default_value = "6.1")]
    pub rule: RuleName,
    /// Base page, the size of a guard; default: this machine's
    #[arg(long, value_name = "SIZE", value_parser = parse_page)]
    pub page: Option<PageSize>,
    /// The size of a PMD leaf; default: this machine's
    #[arg(long, value_name = "SIZE", value_parser = parse_page)]
    pub pmd: Option<PageSize>,
    /// The Linux that places the buffer, such as 6.6; default: this machine's
    #[arg(long, value_name = "VERSION", value_parser = parse_kernel)]
    pub kernel: Option<KernelVersion>,
    /// Write the map as a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the map as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The name of a rule.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RuleName {
    /// 2.11 to 6.0: at most 8 regions for each vCPU, as many as leave 2 MiB to each region
    #[value(name = "2.11")]
    From2_11,
    /// Since 6.1: as many regions as leave 2 MiB to each, at most 8 for each vCPU
    #[value(name = "6.1")]
    From6_1,
}

impl From<RuleName> for Rule {
    fn from(name: RuleName) -> Rule {
        match name {
            RuleName::From2_11 => Rule::From2_11,
            RuleName::From6_1 => Rule::From6_1,
        }
    }
}

/// One buffer size and vCPU count.
struct Row {
    tb_size_bytes: u64,
    smp: u32,
    max_cpus: u32,
    /// The layout, or why QEMU aborts.
    placed: Result<Placed, TooManyRegions>,
}

/// A divided buffer, and how many PMD leaves can map it at the kernel's placement.
struct Placed {
    layout: Layout,
    placement: Placement,
    windows: Windows,
    free_windows: Windows,
    /// The share that PMD leaves can map with any placement.
    free_share: f64,
}

impl Placed {
    fn of(layout: Layout, target: &Target) -> Placed {
        let placement = Placement::of(layout.buffer_bytes, target.pmd, target.kernel);
        Placed {
            windows: layout.windows(target.pmd, placement),
            free_windows: layout.free_windows(target.pmd, placement),
            free_share: layout.free_share(target.pmd, placement),
            layout,
            placement,
        }
    }
}

/// The machine that QEMU runs on.
struct Target {
    page: PageSize,
    pmd: PageSize,
    kernel: KernelVersion,
}

/// The regions as text and as a document; writes the requested pictures.
pub fn list(arguments: &TcgRegions) -> Result<(String, Value), Failure> {
    let width = terminal_width();
    check(arguments)?;
    let target = target(arguments)?;
    let rows = rows(arguments, &target);
    let map = map(arguments, &rows, target.pmd);
    for (file, content) in [(&arguments.svg, shading::svg(&map)), (&arguments.html, shading::html(&map))] {
        if let Some(file) = file {
            write(file, &|to| to.write_all(content.as_bytes()))?;
        }
    }
    Ok((text(&rows, &map, &target, width), document(arguments.rule.into(), &rows, &target)))
}

fn check(arguments: &TcgRegions) -> Result<(), Failure> {
    let wrong = arguments.smp.iter().find(|smp| arguments.max_cpus.is_some_and(|max| max < **smp));
    match (wrong, arguments.max_cpus) {
        (Some(smp), Some(max)) => {
            Err(Failure::Input(format!("--max-cpus: expected at least --smp ({smp}), found {max}; QEMU refuses fewer")))
        }
        _ => Ok(()),
    }
}

/// The target machine from the arguments; this host supplies what they leave out.
fn target(arguments: &TcgRegions) -> Result<Target, Failure> {
    let here = Host::open("/").map_err(Failure::input)?;
    let page = arguments.page.unwrap_or(here.page_sizes().base);
    let Some(pmd) = arguments.pmd.or(here.page_sizes().pmd) else {
        return Err(Failure::Input("this kernel has no THP, so no PMD leaf is known; name one with --pmd".into()));
    };
    if pmd <= page {
        return Err(Failure::Input(format!("--pmd: expected more than a base page ({page}), found {pmd}")));
    }
    let version = || here.kernel_version().map_err(Failure::input);
    let Some(kernel) = arguments.kernel.map_or_else(version, |kernel| Ok(Some(kernel)))? else {
        return Err(Failure::Input(
            "/proc/sys/kernel/osrelease names no version of Linux; name one with --kernel".into(),
        ));
    };
    Ok(Target { page, pmd, kernel })
}

fn rows(arguments: &TcgRegions, target: &Target) -> Vec<Row> {
    let mut rows = Vec::new();
    for tb_size_bytes in &arguments.tb_size {
        for smp in &arguments.smp {
            let max_cpus = arguments.max_cpus.unwrap_or(*smp);
            let layout = Layout::of(arguments.rule.into(), *tb_size_bytes, max_cpus, target.page);
            let placed = layout.map(|layout| Placed::of(layout, target));
            rows.push(Row { tb_size_bytes: *tb_size_bytes, smp: *smp, max_cpus, placed });
        }
    }
    rows
}

fn text(rows: &[Row], map: &Shading, target: &Target, width: usize) -> String {
    let Target { pmd, kernel, .. } = target;
    let free = format!("free {pmd} windows");
    let header = ["tb-size", "smp", "regions", "stride", "usable", "capacity", &free];
    let table = plain(header, rows.iter().map(|row| cells(row, *pmd)), width);
    let first = rows.iter().find_map(|row| row.placed.as_ref().err());
    let first = first.map(|why| format!("\n-: {why}")).unwrap_or_default();
    let is_anywhere = |row: &Row| row.placed.as_ref().is_ok_and(|placed| placed.placement == Placement::AnyPage);
    let anywhere = if rows.iter().any(is_anywhere) {
        format!(
            "\nA to B: with the worst and the best placement; Linux {kernel} places such a buffer at a different base page in each run"
        )
    } else {
        String::new()
    };
    format!(
        "{table}\n\nusable: a region without its guard page, in bytes; the last region also has the remainder\n\
         capacity: code before a flush, in bytes: a region is full {HIGHWATER_BYTES} bytes before its end\n\
         free windows: aligned {pmd} of the buffer without a guard{anywhere}{first}\n\n{}",
        shading::text(map, width)
    )
}

fn cells(row: &Row, pmd: PageSize) -> [String; 7] {
    let cpus =
        if row.smp == row.max_cpus { row.smp.to_string() } else { format!("{},maxcpus={}", row.smp, row.max_cpus) };
    let size = format_bytes(row.tb_size_bytes);
    match &row.placed {
        Err(_) => [size, cpus, "-".into(), "-".into(), "-".into(), "-".into(), "-".into()],
        Ok(Placed { layout, windows, free_windows, free_share, .. }) => [
            size,
            cpus,
            layout.regions.to_string(),
            format_bytes(layout.stride_bytes),
            layout.usable_bytes().to_string(),
            layout.capacity_bytes().to_string(),
            match (windows.max, windows.known().and(free_windows.known())) {
                (0, _) => format!("smaller than {pmd}"),
                (_, Some(_)) => format!("{free_windows} of {windows} ({})", percent(*free_share)),
                (_, None) => format!("{free_windows} of {windows}"),
            },
        ],
    }
}

fn percent(share: f64) -> String {
    format!("{}%", (share * 1000.0).round() / 10.0)
}

fn map(arguments: &TcgRegions, rows: &[Row], pmd: PageSize) -> Shading {
    let line = |line: &[Row]| {
        let name = line.first().map(|row| format_bytes(row.tb_size_bytes)).unwrap_or_default();
        (name, line.iter().map(|row| cell(row, pmd)).collect())
    };
    let max = arguments.max_cpus.map(|max| format!(", maxcpus={max}")).unwrap_or_default();
    Shading {
        title: format!("TCG regions of QEMU {}{max}: regions x stride", Rule::from(arguments.rule).versions()),
        rows_are: "tb-size".into(),
        columns_are: "smp".into(),
        shade_is: format!("{pmd} windows of the buffer that are free of guards"),
        columns: arguments.smp.iter().map(ToString::to_string).collect(),
        rows: rows.chunks(arguments.smp.len()).map(line).collect(),
    }
}

fn cell(row: &Row, pmd: PageSize) -> Option<Cell> {
    let Placed { layout, windows, free_windows, free_share, .. } = row.placed.as_ref().ok()?;
    Some(Cell {
        share: *free_share,
        text: format!("{}x{}", layout.regions, format_bytes(layout.stride_bytes)),
        hover: format!(
            "tb-size {}, smp {}: {} regions of {} bytes with a guard; {free_windows} of {windows} windows of {pmd} are free",
            format_bytes(row.tb_size_bytes),
            row.smp,
            layout.regions,
            layout.stride_bytes
        ),
    })
}

fn document(rule: Rule, rows: &[Row], target: &Target) -> Value {
    let row = |row: &Row| {
        let mut document = json!({ "tb_size_bytes": row.tb_size_bytes, "smp": row.smp, "max_cpus": row.max_cpus });
        match &row.placed {
            Err(why) => document["aborts"] = json!(why.to_string()),
            Ok(Placed { layout, placement, windows, free_windows, .. }) => {
                document["buffer_bytes"] = json!(layout.buffer_bytes);
                document["regions"] = json!(layout.regions);
                document["stride_bytes"] = json!(layout.stride_bytes);
                document["usable_bytes"] = json!(layout.usable_bytes());
                let last = layout.region(layout.regions - 1);
                document["last_usable_bytes"] = json!(last.end - last.start);
                document["capacity_bytes"] = json!(layout.capacity_bytes());
                document["placement"] = json!(placement.to_string());
                document["windows"] = json!(windows.known());
                document["least_windows"] = json!(windows.min);
                document["most_windows"] = json!(windows.max);
                document["free_windows"] = json!(free_windows.known());
                document["least_free_windows"] = json!(free_windows.min);
                document["most_free_windows"] = json!(free_windows.max);
            }
        }
        document
    };
    json!({
        "schema": "pagelab.list-tcg-regions/1",
        "rule": rule.to_string(),
        "page_bytes": target.page.bytes(),
        "pmd_bytes": target.pmd.bytes(),
        "kernel": target.kernel.to_string(),
        "highwater_bytes": HIGHWATER_BYTES,
        "buffers": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The argument is neither a buffer size nor a Linux version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// The size in bytes does not fit in 64 bits.
    #[error("{0} MiB do not fit in 64 bits")]
    TooLarge(String),
    /// The argument is not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The size is 0, with which QEMU chooses one itself.
    #[error("expected at least 1 (MiB); at 0 QEMU takes 1G or an eighth of the host's memory: name that size")]
    Zero,
    /// The size is not a whole number of MiB.
    #[error("expected whole MiB, as QEMU takes them, found {text} ({bytes} bytes)")]
    NotWholeMib {
        /// The given text.
        text: String,
        /// The size in bytes.
        bytes: u64,
    },
    /// The size exceeds QEMU's maximum.
    #[error("expected at most {most}, QEMU's maximum, found {0}", most = format_bytes(BUFFER_BYTES.1))]
    TooMuch(String),
    /// The argument is not a Linux version.
    #[error("expected a version of Linux, such as 6.6, found {0:?}")]
    Kernel(String),
}

/// Parses QEMU's tb-size: a number is in MiB; with a suffix, it is a size in whole MiB.
pub fn parse_tb_size(text: &str) -> Result<u64, WordError> {
    let mib = 1u64 << 20;
    let bytes = match text.parse::<u64>() {
        Ok(number) => number.checked_mul(mib).ok_or_else(|| WordError::TooLarge(text.to_owned()))?,
        Err(_) => parse_bytes(text)?,
    };
    match bytes {
        0 => Err(WordError::Zero),
        bytes if !bytes.is_multiple_of(mib) => Err(WordError::NotWholeMib { text: text.to_owned(), bytes }),
        bytes if bytes > BUFFER_BYTES.1 => Err(WordError::TooMuch(text.to_owned())),
        bytes => Ok(bytes),
    }
}

fn parse_kernel(text: &str) -> Result<KernelVersion, WordError> {
    KernelVersion::parse(text).ok_or_else(|| WordError::Kernel(text.to_owned()))
}

fn parse_page(text: &str) -> Result<PageSize, SizeError> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_mib_as_in_qemu() {
        assert_eq!((parse_tb_size("1024"), parse_tb_size("1G")), (Ok(1 << 30), Ok(1 << 30)));
        for (wrong, part) in [
            ("0", "at least 1"),
            ("1500K", "whole MiB"),
            ("4G", "at most 2G"),
            ("x", "64K"),
            ("18446744073709551615", "64 bits"),
        ] {
            let error = parse_tb_size(wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
