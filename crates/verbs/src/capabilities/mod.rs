//! `pagelab capabilities`: which page each kind of memory can get on this kernel, and in which way. Each combination is tried by
//! a small program, and the result is read from pagemap, kpageflags and smaps.

mod bench;
pub mod probe;
mod settings;
mod subjects;
mod trial;
mod why;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use census::Observer;
use clap::{Args, Parser};
use host::Host;
use host::admit::{Privilege, Terms};
use platform::{KhugepagedHold, wait_for_lease};
use policy::capability::{Contiguous, Kind, Matrix, SettingsMode, Way};
use policy::size::PageSize;
use results::capabilities::{diff, json, table};
use tracer::signals::{self, Forward};

use self::bench::Bench;
use crate::failure::Failure;
use crate::output::{can_be_written, print, terminal_width, write_page};
use crate::progress_line::ProgressLine;
use crate::waiting;
use crate::words::parse_duration;

/// The folio size that `--quick` tries, in addition to the PMD size.
const QUICK: PageSize = PageSize::K64;

/// Arguments of `pagelab capabilities`.
#[derive(Debug, Args)]
pub struct Capabilities {
    /// Kinds of memory, separated by commas: anon, heap, stack, shared-anon, memfd, tmpfs, hugetlb, file-data,
    /// file-text; default: all
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind)]
    kinds: Vec<Kind>,
    /// Ways in which memory gets its pages, separated by commas: touch, zeros, fork, populate, collapse, khugepaged,
    /// swap-in, mremap, mprotect; default: all
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = parse_way)]
    ways: Vec<Way>,
    /// Sizes, separated by commas; default: every folio size of the kernel and every hugetlb pool
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    sizes: Vec<PageSize>,
    /// Try 64K and the PMD size only
    #[arg(long, conflicts_with = "sizes")]
    quick: bool,
    /// Change no setting that decides about sizes: try what the current ones permit. Default without root
    #[arg(long)]
    as_found: bool,
    /// Stop trying after this time; the other cells are unknown
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_time: Option<f64>,
    /// Where to make the files that are mapped; repeat it for several file systems. A tmpfs is tried as shared memory. Default: the
    /// directory of temporary files
    #[arg(long = "directory", value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    /// How long to wait for another pagelab that has changed system settings
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    wait: f64,
    /// Compare two documents of --json instead of trying anything: the cells that differ
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["json", "mail"])]
    diff: Vec<PathBuf>,
    /// Print one JSON document instead of the tables
    #[arg(long, conflicts_with = "mail")]
    json: bool,
    /// Write a report: one HTML file without script
    #[arg(long, value_name = "FILE", conflicts_with = "diff")]
    html: Option<PathBuf>,
    /// Print the tables for a mail: ASCII, in lines of at most 72 characters
    #[arg(long)]
    mail: bool,
}

/// Runs `pagelab capabilities`.
pub fn run(arguments: &Capabilities) -> Result<(), Failure> {
    if let [before, after] = arguments.diff.as_slice() {
        return print(&diff::text(&read(before)?, &read(after)?, terminal_width()), false);
    }
    can_be_written(arguments.html.as_ref())?;
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let matrix = try_all(arguments)?;
    if let Some(file) = &arguments.html {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        write_page(file, &results::html::capabilities::report(&matrix, (&words, env!("CARGO_PKG_VERSION"))))?;
    }
    if arguments.json {
        let document = json::document(&matrix).map_err(Failure::input)?;
        return print(&format!("{document:#}"), true);
    }
    let text = if arguments.mail {
        results::ascii(&table::text(&matrix, MAIL_WIDTH)).into()
    } else {
        table::text(&matrix, terminal_width())
    };
    print(&text, false)
}

/// Arguments that do not come from pagelab's command line.
#[derive(Parser)]
#[command(name = "pagelab capabilities", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    capabilities: Capabilities,
}

/// Tries the cells that these arguments name; forms of output are ignored.
///
/// # Errors
/// The arguments are invalid, or the system cannot be read or changed.
pub fn of_words(words: &[String]) -> Result<Matrix, Failure> {
    let line = Line::try_parse_from(words).map_err(Failure::input)?;
    try_all(&line.capabilities)
}

/// Reads a document of `--json`.
fn read(path: &Path) -> Result<Matrix, Failure> {
    let text = host::content(path).map_err(|error| Failure::about(path, error))?;
    json::parse(&text).map_err(|error| Failure::about(path, error))
}

/// The width of a line in a mail.
const MAIL_WIDTH: usize = 72;

fn try_all(arguments: &Capabilities) -> Result<Matrix, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let machine = host.machine().map_err(Failure::input)?;
    let observer = Observer::open().map_err(Failure::input)?.with_file_folios().with_frames();
    let page_sizes = host.page_sizes().clone();
    let mut bench = bench(arguments, host, observer)?;
    let sizes = sizes(arguments, &bench)?;
    let (kinds, ways) = (or_all(&arguments.kinds, &Kind::ALL), or_all(&arguments.ways, &Way::ALL));
    let subjects = subjects::find(&bench.host, &kinds, &arguments.directories)?;
    let progress = ProgressLine::new();
    let mut cells = Vec::new();
    for size in sizes {
        cells.extend(bench.try_size(size, &subjects, &ways, &progress)?);
    }
    progress.clear();
    let (mode, sees_folios) = (bench.mode, bench.observer.sees_folios());
    if let Some((lease, _)) = bench.leased {
        let report = lease.restore().map_err(Failure::input)?;
        if report.has_failed() {
            return Err(Failure::Input(report.to_string()));
        }
    }
    Ok(Matrix {
        kernel: machine.kernel,
        contiguous: contiguous(&machine.arch),
        architecture: machine.arch,
        base: page_sizes.base,
        pmd: page_sizes.pmd,
        settings: mode,
        sees_folios,
        cells,
    })
}

fn bench(arguments: &Capabilities, host: Host, observer: Observer) -> Result<Bench, Failure> {
    let terms = Terms::of_this_process(&host, tracer::try_tracing);
    let is_root = terms.privilege == Privilege::Root;
    let leased = if is_root {
        let khugepaged = KhugepagedHold::of(&host, &terms).map_err(|why| Failure::Input(why.to_string()))?;
        let patience = Duration::from_secs_f64(arguments.wait);
        let mut lease = wait_for_lease(patience, waiting::report_lease_holder).map_err(Failure::input)?;
        khugepaged.begin(&mut lease).map_err(Failure::input)?;
        Some((lease, khugepaged))
    } else {
        None
    };
    let is_found = arguments.as_found || !is_root;
    Ok(Bench {
        host,
        observer,
        mode: if is_found { SettingsMode::Found } else { SettingsMode::Open },
        leased,
        wanted: Vec::new(),
        deadline: arguments.max_time.map(|time_s| Instant::now() + Duration::from_secs_f64(time_s)),
    })
}

fn sizes(arguments: &Capabilities, bench: &Bench) -> Result<Vec<PageSize>, Failure> {
    if !arguments.sizes.is_empty() {
        return Ok(arguments.sizes.clone());
    }
    let page_sizes = bench.host.page_sizes();
    let mut sizes = bench.folio_sizes()?;
    sizes.extend(&page_sizes.hugetlb);
    if arguments.quick {
        sizes.retain(|size| *size == QUICK || page_sizes.pmd == Some(*size));
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn or_all<T: Copy>(chosen: &[T], all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen.to_vec() }
}

/// Which feature for contiguous entries an architecture has. Of pagelab's architectures, arm64 has the contiguous bit
/// and riscv64 has Svnapot.
fn contiguous(architecture: &str) -> Contiguous {
    match architecture {
        "aarch64" | "riscv64" => Contiguous::NotSeen,
        _ => Contiguous::NotInThisArchitecture,
    }
}

/// A word that is neither a kind of memory nor a way.
#[derive(Debug, thiserror::Error)]
#[error("expected one of {0}")]
struct WordError(String);

fn parse_kind(word: &str) -> Result<Kind, WordError> {
    Kind::of_word(word).ok_or_else(|| WordError(Kind::ALL.map(Kind::word).join(", ")))
}

fn parse_way(word: &str) -> Result<Way, WordError> {
    Way::of_word(word).ok_or_else(|| WordError(Way::ALL.map(Way::word).join(", ")))
}
