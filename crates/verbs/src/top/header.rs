//! The header of `top`: lines above the table about the whole system ([`header`]).

use policy::size::format_bytes;

use super::pace::PROMISE;
use super::view::{InspectionState, SizeRates, System, View};
use crate::short::{count, rate, seconds, share};

/// A line of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLine {
    /// The text of the line.
    pub text: String,
    /// Whether it is highlighted.
    pub is_notice: bool,
}

/// A paragraph of the header about one topic: a label and clauses, in one or more lines.
struct Paragraph {
    label: &'static str,
    clauses: Vec<String>,
    /// Paragraphs with a lower weight are dropped first if there is little space.
    weight: u8,
}

/// The header in at most `room` lines of at most `width` columns. The least important paragraphs are dropped first; the title
/// stays.
pub fn header(view: &View, width: usize, room: usize) -> Vec<HeaderLine> {
    let system = &view.system;
    let mut lines = vec![HeaderLine { text: title(view, width), is_notice: false }];
    lines.extend(slowed(view, width).into_iter().map(|text| HeaderLine { text, is_notice: true }));
    lines.truncate(room.max(1));
    let mut paragraphs: Vec<(u8, Vec<String>)> =
        paragraphs(system).into_iter().map(|one| (one.weight, folded(&one, width))).collect();
    while lines.len() + paragraphs.iter().map(|(_, lines)| lines.len()).sum::<usize>() > room {
        let Some(least) = (0..paragraphs.len()).min_by_key(|at| paragraphs[*at].0) else { break };
        paragraphs.remove(least);
    }
    let texts = paragraphs.into_iter().flat_map(|(_, lines)| lines);
    lines.extend(texts.map(|text| HeaderLine { text, is_notice: false }));
    lines
}

fn title(view: &View, width: usize) -> String {
    let waiting = view.rows.iter().filter(|row| matches!(row.inspection, InspectionState::Pending)).count();
    let waiting = if waiting > 0 { format!(", {waiting} not looked at yet") } else { String::new() };
    let left = format!("pagelab top  {} processes{waiting}", view.rows.len());
    let right = format!("every {}", seconds(view.pace.every_s));
    let gap = width.saturating_sub(left.chars().count() + right.chars().count());
    if gap < 2 { crate::short::fitted(&left, width, false) } else { format!("{left}{:gap$}{right}", "") }
}

/// Why the refresh interval is longer than requested.
fn slowed(view: &View, width: usize) -> Vec<String> {
    let pace = view.pace;
    if pace.every_s <= pace.requested_s {
        return Vec::new();
    }
    let text = format!(
        "every {} and not {}: a frame costs {} of CPU time, and top stays below {PROMISE}",
        seconds(pace.every_s),
        seconds(pace.requested_s),
        seconds(pace.frame_s)
    );
    results::fold(&text, width, 2).lines().map(String::from).collect()
}

fn paragraphs(system: &System) -> Vec<Paragraph> {
    let paragraph = |label, weight, clauses| Paragraph { label, clauses, weight };
    let all = [
        paragraph("memory", 8, memory(system)),
        paragraph("free by order", 3, orders(system)),
        paragraph("faults", 9, faults(system)),
        paragraph("given", 7, given(system)),
        paragraph("khugepaged", 6, khugepaged(system)),
        paragraph("compaction", 5, compaction(system)),
        paragraph("split", 4, splits(system)),
        paragraph("pools", 2, pools(system)),
    ];
    all.into_iter().filter(|one| !one.clauses.is_empty()).collect()
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_string(), format_bytes)
}

fn memory(system: &System) -> Vec<String> {
    let available = format!("{} available of {}", bytes(system.available_bytes), bytes(system.memory_bytes));
    let in_blocks = system.page_sizes.pmd.zip(system.free_in_pmd_blocks_bytes);
    let in_blocks = in_blocks.map(|(pmd, free)| format!("{} free in blocks of {pmd} and more", format_bytes(free)));
    [available].into_iter().chain(in_blocks).collect()
}

fn orders(system: &System) -> Vec<String> {
    let base = system.page_sizes.base.bytes();
    let order = |(order, blocks): (usize, &u64)| {
        let block = base << order;
        format!("{} {}", format_bytes(block), format_bytes(blocks * block))
    };
    system.free_blocks_by_order.iter().enumerate().map(order).collect()
}

fn faults(system: &System) -> Vec<String> {
    let over = system.over_s.map(|over_s| format!("over {}", seconds(over_s)));
    let faults = [rate(system.faults_per_s), format!("{} waited for I/O", rate(system.major_faults_per_s))];
    faults.into_iter().chain(over).collect()
}

/// How many large folios were allocated, by size. A size without folios and without requests is left out, except the
/// PMD size.
fn given(system: &System) -> Vec<String> {
    let is_there = |rates: &&SizeRates| {
        let some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
        let is_pmd = Some(rates.size) == system.page_sizes.pmd;
        is_pmd || some(rates.given_per_s) || some(rates.fell_back_per_s) || rates.folios.is_some_and(|count| count > 0)
    };
    system.sizes.iter().filter(is_there).map(given_of).collect()
}

fn given_of(rates: &SizeRates) -> String {
    let mut text = format!("{} {}, fell back {}", rates.size, rate(rates.given_per_s), rate(rates.fell_back_per_s));
    if let (Some(given), Some(fell)) = (rates.given_per_s, rates.fell_back_per_s)
        && fell > 0.0
    {
        text += &format!(" ({})", share(fell / (given + fell)));
    }
    if let Some(folios) = rates.folios {
        text += &format!(", {} folios", count(folios as f64));
    }
    text
}

fn khugepaged(system: &System) -> Vec<String> {
    let of = &system.khugepaged;
    let passes = of.full_scans.map(|passes| format!("passes {passes}"));
    let rates = [
        format!("collapsed {}", rate(of.collapsed_per_s)),
        format!("no free block {}", rate(of.no_block_per_s)),
        format!("too many absent, swapped or shared {}", rate(of.exceeded_per_s)),
    ];
    rates.into_iter().chain(passes).collect()
}

fn compaction(system: &System) -> Vec<String> {
    let of = &system.compaction;
    vec![
        format!("waited for {}", rate(of.stalls_per_s)),
        format!("got a block {}", rate(of.succeeded_per_s)),
        format!("got none {}", rate(of.failed_per_s)),
        format!("kcompactd woken {}", rate(of.woken_per_s)),
        format!("pages moved {}", rate(of.moved_pages_per_s)),
    ]
}

fn splits(system: &System) -> Vec<String> {
    vec![
        format!("folios {}", rate(system.folio_splits_per_s)),
        format!("PMD leaves {}", rate(system.leaf_splits_per_s)),
    ]
}

fn pools(system: &System) -> Vec<String> {
    let pools = system.pools.iter();
    pools.map(|(size, pool)| format!("{size} {} pages, {} free", pool.pages, pool.free)).collect()
}

/// Folds a paragraph into lines; a clause is not split if it fits into a line.
fn folded(paragraph: &Paragraph, width: usize) -> Vec<String> {
    const LABEL: usize = 15;
    let indent = if width >= 60 { LABEL } else { 2 };
    let mut lines = vec![format!("{:<indent$}", paragraph.label)];
    if width < 60 {
        lines[0].push(' ');
    }
    let mut is_first = true;
    for clause in &paragraph.clauses {
        let line = lines.last_mut().expect("never empty");
        let separator = if is_first { "" } else { " · " };
        if !is_first && line.chars().count() + separator.chars().count() + clause.chars().count() > width {
            lines.push(" ".repeat(indent) + clause);
        } else {
            line.push_str(separator);
            line.push_str(clause);
        }
        is_first = false;
    }
    lines.into_iter().map(|line| crate::short::fitted(&line, line.chars().count().min(width), false)).collect()
}
