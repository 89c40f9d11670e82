//! Inspects a process periodically: one row per look, with a sparkline of the share of large pages in the last looks.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use census::inspect::{Detail, InspectError, Inspector};
use census::{CensusError, Observer};
use policy::PageSizes;
use policy::inspect::Summary;
use policy::size::format_bytes;
use results::inspection::{json, openmetrics};
use tracer::signals::{self, Forward};

use super::Inspect;
use crate::failure::{Failure, report};
use crate::looks;
use crate::output::{Reader, print_update, terminal_width, write_update};
use crate::short::{count, fitted, seconds, share};
use crate::sizes::{Class, Sizes};

/// The number of looks in the sparkline.
const SPARKS: usize = 16;
/// The rest of the message that a process has ended.
const OTHER_PROCESS: &str = ", and its number belongs to another process";

/// How often to inspect a process, and where the output is written.
#[derive(Clone, Debug)]
pub struct PeriodicInspection {
    every: Duration,
    as_json_lines: bool,
    metrics: Option<PathBuf>,
    sizes_only: bool,
}

/// Inspects a process in a separate thread while another thread traces it.
pub struct LookThread {
    thread: io::Result<JoinHandle<Result<(), Failure>>>,
    is_over: Arc<AtomicBool>,
}

impl PeriodicInspection {
    /// The looks that the arguments request.
    pub fn of(arguments: &Inspect) -> Option<PeriodicInspection> {
        let every = looks::interval(arguments.every?);
        let (as_json_lines, metrics) = (arguments.json_lines, arguments.openmetrics.clone());
        Some(PeriodicInspection { every, as_json_lines, metrics, sizes_only: arguments.sizes })
    }

    /// Inspects a process until it ends, the output has no reader, or a signal stops pagelab.
    pub fn run(&self, pid: u32) -> Result<(), Failure> {
        // `catch` includes an alarm, because a write to a terminal that takes no output (Ctrl-S) blocks.
        signals::catch(Forward::Kill).map_err(Failure::input)?;
        let ended = self.run_until(pid, false, &AtomicBool::new(false));
        if let Some(signal) = signals::arrived() {
            return Err(Failure::Stopped(signal, "the process continues"));
        }
        if let Some(how) = ended? {
            report(format_args!("pagelab: process {pid} has ended{how}"));
        }
        Ok(())
    }

    /// Starts inspecting a process that is about to exec its program. The first look is one interval later.
    pub fn spawn(self, pid: u32) -> LookThread {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("looks".into()).spawn(move || {
            looks::wait(Instant::now() + self.every, &ends);
            self.run_until(pid, true, &ends).map(drop)
        });
        LookThread { thread, is_over }
    }

    /// Inspects until the process ends or [`must_end`]. `existed` means that the PID was a process's before the first look. Returns the
    /// rest of the message that the process has ended; `None` if it has not.
    fn run_until(&self, pid: u32, mut existed: bool, is_over: &AtomicBool) -> Result<Option<&'static str>, Failure> {
        let observer = Observer::open().map_err(Failure::input)?;
        let inspector =
            super::inspector(observer.with_file_folios(), Detail { sizes_only: self.sizes_only, ..Detail::default() })?;
        let mut series = Series::new(self, inspector.page_sizes().clone());
        let ended = looks::at_intervals(self.every, is_over, |at| {
            match look(&inspector, pid) {
                Ok(summary) if series.is_other_process(&summary) => return Ok(ControlFlow::Break(Some(OTHER_PROCESS))),
                Ok(summary) => match series.show(&summary, at)? {
                    Reader::Present => {}
                    Reader::Gone => return Ok(ControlFlow::Break(None)),
                },
                Err(error) if existed && how_ended(&error).is_some() => {
                    return Ok(ControlFlow::Break(how_ended(&error)));
                }
                Err(_) if is_over.load(Ordering::SeqCst) => return Ok(ControlFlow::Break(None)),
                Err(error) => return Err(Failure::input(error)),
            }
            existed = true;
            Ok(ControlFlow::Continue(()))
        });
        Ok(ended?.flatten())
    }
}

impl LookThread {
    /// Ends the looks after the process has ended, and waits for the last one.
    pub fn finish(self) -> Result<(), Failure> {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.map_err(|error| {
            Failure::Input(format!(
                "--every: no thread can be started: {error}; raise the limit of threads (ulimit -u)"
            ))
        });
        match thread?.join() {
            Ok(looked) => looked,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The rest of the message that a process has ended, if this error is due to its end; some of them appear only where it ends during a
/// look.
fn how_ended(error: &InspectError) -> Option<&'static str> {
    match error {
        InspectError::NoSuchProcess { .. } | InspectError::Zombie { .. } => Some(""),
        InspectError::Census(CensusError::Gone { .. } | CensusError::NoAddressSpace { .. }) => Some(""),
        InspectError::Replaced { .. } => Some(OTHER_PROCESS),
        _ => None,
    }
}

fn look(inspector: &Inspector, pid: u32) -> Result<Summary, InspectError> {
    Ok(Summary::of(&inspector.process(pid, &inspector.supply()?)?))
}

/// The state of a series of looks at one process.
struct Series {
    page_sizes: PageSizes,
    as_json_lines: bool,
    metrics: Option<PathBuf>,
    started_ticks: Option<u64>,
    /// The shares of PMD and larger leaves at the last looks.
    large: Vec<f64>,
}

impl Series {
    fn new(looks: &PeriodicInspection, page_sizes: PageSizes) -> Series {
        let (as_json_lines, metrics) = (looks.as_json_lines, looks.metrics.clone());
        Series { page_sizes, as_json_lines, metrics, started_ticks: None, large: Vec::new() }
    }

    /// Whether the PID has been reused by another process.
    fn is_other_process(&mut self, summary: &Summary) -> bool {
        let ticks = summary.process.started_ticks;
        *self.started_ticks.get_or_insert(ticks) != ticks
    }

    /// Writes a look to all outputs. Returns whether all of them still have a reader.
    fn show(&mut self, summary: &Summary, elapsed: Duration) -> Result<Reader, Failure> {
        if let Some(file) = &self.metrics {
            let text = openmetrics::text(std::slice::from_ref(summary));
            if write_update(file, &|to| to.write_all(text.as_bytes()))? == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
        if self.as_json_lines {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            return print_update(&json::sample(summary, now.as_secs_f64(), elapsed.as_secs_f64()).to_string(), true);
        }
        if self.large.is_empty() {
            print_update(&self.heading(summary), false)?;
        }
        let row = self.row(summary, elapsed.as_secs_f64());
        print_update(&fitted(&row, row.chars().count().min(terminal_width()), false), false)
    }

    fn heading(&self, summary: &Summary) -> String {
        let (base, pmd) = (self.page_sizes.base.to_string(), self.pmd());
        format!(
            "process {} ({})\n{:>8} {:>8} {base:>5}{} {pmd:>5} {:>6} {:>9}  {:<SPARKS$}  why not",
            summary.process.pid,
            results::printable(&summary.process.name),
            "time",
            "resident",
            self.contiguous("cont"),
            "folios",
            "could be",
            format!("{pmd} so far")
        )
    }

    /// A cell of the column for contiguous entries; empty without that column, if the kernel has no pools of such sizes.
    fn contiguous(&self, text: &str) -> String {
        let PageSizes { base, pmd, hugetlb, .. } = &self.page_sizes;
        let has_column = hugetlb.iter().any(|size| size > base && pmd.is_some_and(|pmd| *size < pmd));
        if has_column { format!(" {:>5}", text) } else { String::new() }
    }

    fn pmd(&self) -> String {
        self.page_sizes.pmd.map_or("large".to_string(), |pmd| pmd.to_string())
    }

    /// A row: the time, and the memory by leaf. Leaves of PMD size and larger ones are one column.
    fn row(&mut self, summary: &Summary, elapsed_s: f64) -> String {
        let sizes = Sizes::of(&summary.census);
        let of = |class| sizes.share(class, &self.page_sizes);
        let large = of(Class::Pmd).unwrap_or(0.0) + of(Class::Larger).unwrap_or(0.0);
        let (base, contiguous) = (of(Class::Base), of(Class::Contiguous));
        self.large.push(large);
        let cell = |ratio: Option<f64>| ratio.map_or("-".to_string(), share);
        let unknown = if sizes.total_bytes() == 0 { "-" } else { "?" };
        let cause = summary.first_cause.as_ref().map(|(cause, _)| cause.describe()).unwrap_or_default();
        let partial = if summary.partial.is_empty() { "" } else { " (partial)" };
        format!(
            "{:>8} {:>8} {:>5}{} {:>5} {:>6} {:>9}  {:<SPARKS$}  {}{partial}",
            time(elapsed_s),
            format_bytes(summary.resident_bytes),
            cell(base),
            self.contiguous(&cell(contiguous)),
            share(large),
            sizes.folio_share().map_or(unknown.to_string(), share),
            format_bytes(summary.could_be_larger_bytes),
            sparkline(&self.large),
            results::printable(&cause)
        )
        .trim_end()
        .to_string()
    }
}

fn time(elapsed_s: f64) -> String {
    if elapsed_s < 1000.0 { seconds(elapsed_s) } else { format!("{} s", count(elapsed_s)) }
}

/// The last shares as block characters, from 0% to 100%.
fn sparkline(shares: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last = &shares[shares.len().saturating_sub(SPARKS)..];
    let block = |share: &f64| BLOCKS[(share.clamp(0.0, 1.0) * (BLOCKS.len() - 1) as f64).round() as usize];
    last.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use policy::cause::Cause;
    use policy::census::{Backing, Census, Folio, Mapping};
    use policy::inspect::Process;
    use policy::size::PageSize;

    use super::*;

    fn summary(base_mib: u64, large_mib: u64, folio: Folio) -> Summary {
        let mut census = Census::default();
        let mut add =
            |leaf, folio, mib: u64| census.add(Mapping { backing: Backing::Anonymous, leaf, folio }, mib << 20);
        add(PageSize::K4, folio, base_mib);
        add(PageSize::M2, Folio::Whole(PageSize::M2), large_mib);
        Summary {
            process: Process { pid: 7, name: "re\u{1b}dis".into(), ..Process::default() },
            census,
            resident_bytes: (base_mib + large_mib) << 20,
            could_be_larger_bytes: base_mib << 20,
            bloat_bytes: 0,
            first_cause: (base_mib > 0).then_some((Cause::NotAdvised, 1)),
            partial: Vec::new(),
        }
    }

    #[test]
    fn each_look_is_a_row_with_a_sparkline_of_the_last_looks() {
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] };
        let (started_ticks, metrics) = (None, None);
        let mut series = Series { page_sizes, as_json_lines: false, metrics, started_ticks, large: Vec::new() };
        let whole = Folio::Whole(PageSize::K4);
        let text = [
            series.heading(&summary(1, 0, whole)),
            series.row(&summary(100, 0, whole), 0.0),
            series.row(&summary(50, 50, whole), 2.0),
            series.row(&summary(1, 99, Folio::Unknown), 4.02),
            series.row(&summary(0, 100, whole), 1234.0),
            series.row(&summary(0, 0, whole), 1300.0),
        ];
        let golden = "\
process 7 (re\\x1bdis)
    time resident    4K    2M folios  could be  2M so far         why not
    0 ms     100M  100%    0%     0%      100M  ▁                 not advised, and the kernel gives the size to advised memory only
     2 s     100M   50%   50%     0%       50M  ▁▅                not advised, and the kernel gives the size to advised memory only
     4 s     100M    1%   99%      ?        1M  ▁▅█               not advised, and the kernel gives the size to advised memory only
 1.23k s     100M    0%  100%     0%         0  ▁▅██
 1.30k s        0     -    0%      -         0  ▁▅██▁";
        assert_eq!(text.join("\n"), golden, "{}", text.join("\n"));
        assert_eq!(sparkline(&[1.0; 40]).chars().count(), SPARKS);
    }
}
