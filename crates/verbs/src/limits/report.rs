//! The limits of policies as text.

use policy::Granularity;
use policy::size::format_bytes;
use results::{fold, grid, printable};

use super::run::Run;
use super::{Limit, Measured};

/// The table, a sentence with the answer, and a note on what the limits leave out.
pub fn text(measured: &[Measured], width: usize) -> String {
    let header = ["policy", "limit", "too small", "peak", "anonymous", "files", "shared", "tables", "other kernel"];
    let rows: Vec<_> = measured.iter().filter_map(row).collect();
    let mut lines = Vec::new();
    let note = (!rows.is_empty()).then(|| NOTE.to_owned());
    if !rows.is_empty() {
        lines.push(grid::plain(header, rows, width).trim_end().to_owned());
        lines.push(String::new());
    }
    let sentences = answer(measured).into_iter().chain(measured.iter().filter_map(without_limit));
    let sentences = sentences.chain(measured.iter().flat_map(remarks)).chain(note);
    lines.extend(sentences.map(|line| fold(&printable(&line), width, 0)));
    lines.join("\n")
}

/// What the limits leave out.
const NOTE: &str = "Without swap. The kernel can take back files, so that a limit may be below the peak. Pages of files and of tmpfs that \
                    were in memory before are charged to the group that touched them first: in a new container they come on top.";

/// If limit and peak differ by at least this much, which is one large page, the difference is explained.
const PMD_BYTES: u64 = 2 << 20;

/// The row of a policy; `None` if there was no run without a limit.
fn row(one: &Measured) -> Option<[String; 9]> {
    let Run { peak_bytes, at_peak, .. } = one.unlimited?;
    let limit = one.limit.as_ref().ok();
    let other_kernel = at_peak.kernel_bytes.zip(at_peak.tables_bytes).map(|(all, tables)| all.saturating_sub(tables));
    let too_small_bytes = limit.and_then(|limit| limit.found.too_small_bytes);
    Some([
        one.policy.to_string(),
        limit.map_or_else(|| "?".to_owned(), limit_in_words),
        too_small_bytes.map_or_else(|| "-".to_owned(), format_bytes),
        format_bytes(peak_bytes),
        format_bytes(at_peak.anonymous_bytes),
        format_bytes(at_peak.file_bytes),
        format_bytes(at_peak.shmem_bytes),
        at_peak.tables_bytes.map_or_else(|| "?".to_owned(), format_bytes),
        other_kernel.map_or_else(|| "?".to_owned(), format_bytes),
    ])
}

/// The limit. If chance decides within a range whether a limit suffices, the range.
fn limit_in_words(limit: &Limit) -> String {
    match limit.found.range_of_chance() {
        Some((from, to)) => format!("{} to {}", format_bytes(from), format_bytes(to)),
        None => format_bytes(limit.found.limit_bytes),
    }
}

/// A sentence: the limit that the first policy needs, and those of the other policies compared with it.
fn answer(measured: &[Measured]) -> Option<String> {
    let mut limits = measured.iter().filter_map(|one| Some((one, one.limit.as_ref().ok()?)));
    let (first, its) = limits.next()?;
    let others = limits.map(|(one, limit)| compared(one, limit, its));
    let first = format!("Under {} the command needs a limit of {}", first.policy, limit_in_words(its));
    Some(std::iter::once(first).chain(others).collect::<Vec<_>>().join("; ") + ".")
}

/// The limit that another policy needs, as a clause. A range of chance is not given as a ratio.
fn compared(one: &Measured, limit: &Limit, first: &Limit) -> String {
    let (bytes, first_bytes) = (limit.found.limit_bytes, first.found.limit_bytes);
    let step = limit.found.too_small_bytes.map_or(0, |lower| bytes.saturating_sub(lower));
    if limit.found.range_of_chance().or(first.found.range_of_chance()).is_some() {
        format!("{} needs {}", one.policy, limit_in_words(limit))
    } else if bytes.abs_diff(first_bytes) <= 2 * step {
        format!("{} needs the same", one.policy)
    } else {
        format!("{} needs {:.2} times as much, {}", one.policy, bytes as f64 / first_bytes as f64, format_bytes(bytes))
    }
}

fn without_limit(one: &Measured) -> Option<String> {
    one.limit.as_ref().err().map(|why| format!("{}: no limit, because {why}.", one.policy))
}

/// Remarks that a reader of the limits needs.
fn remarks(one: &Measured) -> Vec<String> {
    let (Some(unlimited), Ok(Limit { found, failed })) = (one.unlimited, &one.limit) else { return Vec::new() };
    let (policy, limit) = (&one.policy, format_bytes(found.limit_bytes));
    let mut remarks = Vec::new();
    if found.range_of_chance().is_some() {
        remarks.push(format!(
            "{policy}: in this range a limit suffices or not by its exact size and by chance: large pages fill it in steps of their size, and \
             the kernel kills where the rest does not fit. From {limit} on, each limit that was tried sufficed; without a limit the command \
             takes {}.",
            format_bytes(unlimited.peak_bytes)
        ));
    }
    let excess_bytes = unlimited.peak_bytes.saturating_sub(found.limit_bytes);
    let is_steady = found.range_of_chance().is_none();
    if is_steady && excess_bytes >= PMD_BYTES && unlimited.at_peak.huge_bytes >= excess_bytes {
        remarks.push(format!(
            "{policy}: without a limit the command takes {}. With one, the kernel gives small pages where a large one does not fit: what the \
             policy gains may be lost near the limit.",
            format_bytes(unlimited.peak_bytes)
        ));
    }
    if matches!(policy.granularity, Granularity::Hugetlb(_)) {
        remarks.push(format!(
            "{policy}: pages of the pool are charged to the memory controller only where it is mounted with memory_hugetlb_accounting; the \
             hugetlb controller has limits of its own."
        ));
    }
    if let Some(run) = failed.as_ref().filter(|run| run.oom_kills == 0) {
        remarks.push(format!("{policy}: below {limit} the OOM killer did not kill it: {}.", run.outcome()));
    }
    remarks
}
