//! Memory by the code that first touched it: a table for the terminal, folded stacks, a flame graph, and a JSON document.

mod flame;

use std::collections::BTreeMap;

use policy::first_touch::{FirstTouches, Sampling, Source, Stack};
use policy::size::{PageSize, format_bytes};
use serde::Serialize;

use crate::grid;
use crate::text::{fold, printable};

pub use flame::svg;

/// The most rows of the table.
const MAX_ROWS: usize = 10;
/// A row needs at least this share of all memory.
const MIN_SHARE: f64 = 0.01;

/// Limits of the table; the JSON document and the folded file are not shortened.
const MAX_FUNCTIONS: usize = 8;
const MAX_NAME: usize = 60;
/// The functions at which a program and its threads begin. What called them is the same in every program.
const STARTS: [&str; 3] = ["main", "main.main", "start_thread"];

/// The table of the stacks with the most memory, and how they were found.
pub fn text(found: &FirstTouches, width: usize) -> String {
    let all = found.bytes();
    let rows = rows(found);
    let is_shown = |row: &&Row| row.bytes() as f64 >= MIN_SHARE * all as f64;
    let shown: Vec<&Row> = rows.iter().filter(is_shown).take(MAX_ROWS).collect();
    let verb = match found.source {
        Source::PageFaults(_) => "first touched by",
        Source::MappingCalls { .. } => "mapped by",
    };
    let cells = shown.iter().map(|row| [format_bytes(row.bytes()), sizes(&row.leaves), row.functions.clone()]);
    let table = grid::last_folded(["memory", "mapped with", verb], cells, width);
    let hidden_rows = rows.len() - shown.len();
    let hidden_bytes: u64 = all - shown.iter().map(|row| row.bytes()).sum::<u64>();
    let plural = if hidden_rows == 1 { "" } else { "s" };
    let hidden = format!("  {hidden_rows} more row{plural}, {} in total", format_bytes(hidden_bytes));
    let notes = (hidden_rows > 0).then_some(hidden).into_iter().chain(notes(found)).map(|line| fold(&line, width, 4));
    std::iter::once(table).chain(notes).collect::<Vec<_>>().join("\n")
}

/// Stacks that look alike in the table.
struct Row {
    functions: String,
    leaves: BTreeMap<PageSize, u64>,
}

impl Row {
    fn bytes(&self) -> u64 {
        self.leaves.values().sum()
    }
}

/// The rows of the table, the one with the most memory first. The name of the process is appended only if the
/// stacks have different ones.
fn rows(found: &FirstTouches) -> Vec<Row> {
    let is_same_process_name = found.stacks.windows(2).all(|pair| pair[0].frames.first() == pair[1].frames.first());
    let mut by_functions: BTreeMap<String, BTreeMap<PageSize, u64>> = BTreeMap::new();
    for stack in &found.stacks {
        let process =
            stack.frames.first().filter(|_| !is_same_process_name).map(|name| format!(" < {}", printable(name)));
        let leaves = by_functions.entry(inner_first(stack) + &process.unwrap_or_default()).or_default();
        stack.leaves.iter().for_each(|(leaf, bytes)| *leaves.entry(*leaf).or_default() += bytes);
    }
    let mut rows: Vec<Row> = by_functions.into_iter().map(|(functions, leaves)| Row { functions, leaves }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes()));
    rows
}

/// The folded format of flamegraph.pl, a line for each stack and leaf size: `process;outermost;...;innermost;[2M pages] BYTES`.
pub fn folded(found: &FirstTouches) -> String {
    let line = |stack: &Stack, leaf: &PageSize, bytes: &u64| {
        // A semicolon would end the name.
        let frames = stack.frames.iter().map(|name| printable(name).replace(';', ":"));
        format!("{};[{leaf} pages] {bytes}\n", frames.collect::<Vec<_>>().join(";"))
    };
    let lines =
        found.stacks.iter().flat_map(|stack| stack.leaves.iter().map(move |(leaf, bytes)| line(stack, leaf, bytes)));
    lines.collect()
}

/// The memory by stack, in full.
#[derive(Debug, Serialize)]
pub struct Document {
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not_page_faults: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    sampling: Option<SamplingDocument>,
    stacks: Vec<StackDocument>,
}

#[derive(Debug, Serialize)]
struct SamplingDocument {
    faults: Option<u64>,
    first_touches: u64,
    whole_stacks: u64,
    lost_faults: u64,
    includes_kernel: bool,
}

#[derive(Debug, Serialize)]
struct StackDocument {
    bytes: u64,
    /// Bytes of memory by the size of the leaf, in bytes too.
    leaves_bytes: BTreeMap<u64, u64>,
    frames: Vec<String>,
}

/// The JSON document.
pub fn document(found: &FirstTouches) -> Document {
    let stack = |stack: &Stack| StackDocument {
        bytes: stack.bytes(),
        leaves_bytes: stack.leaves.iter().map(|(leaf, bytes)| (leaf.bytes(), *bytes)).collect(),
        frames: stack.frames.clone(),
    };
    let stacks = found.stacks.iter().map(stack).collect();
    match &found.source {
        Source::PageFaults(Sampling { faults, seen, whole_stacks, lost, includes_kernel }) => Document {
            source: "page_faults",
            why_not_page_faults: None,
            sampling: Some(SamplingDocument {
                faults: *faults,
                first_touches: *seen,
                whole_stacks: *whole_stacks,
                lost_faults: *lost,
                includes_kernel: *includes_kernel,
            }),
            stacks,
        },
        Source::MappingCalls { why } => {
            Document { source: "mapping_calls", why_not_page_faults: Some(why.clone()), sampling: None, stacks }
        }
    }
}

/// How the stacks were found, and what that leaves out.
fn notes(found: &FirstTouches) -> Vec<String> {
    match &found.source {
        Source::PageFaults(Sampling { faults, seen, whole_stacks, lost, includes_kernel }) => {
            let seen = match faults {
                Some(faults) => format!("{faults} page faults, {seen} of them recorded at pages that were not present"),
                None => format!("{seen} page faults recorded at pages that were not present"),
            };
            let how = format!(
                "  {seen}; {whole_stacks} stacks were copied whole: a fault whose callers were not copied has the stack of another one \
                 at the same place"
            );
            let were_lost = "records were lost, because a buffer of perf was full: a page without its fault counts for the recorded fault \
                             with which it shares the smallest aligned block, or as [not seen]";
            let lost = (*lost > 0).then(|| format!("  {lost} {were_lost}"));
            let unknown_bytes = unknown_bytes(found);
            let unknown = (unknown_bytes as f64 >= MIN_SHARE * found.bytes() as f64).then(|| {
                format!(
                    "  {} were touched by code whose callers are not all known ([not unwound])",
                    format_bytes(unknown_bytes)
                )
            });
            let kernel = "  pages that the kernel touched for the program, as in read(2), were not seen: that needs root, or \
                          kernel.perf_event_paranoid=1";
            let kernel = (!includes_kernel).then(|| kernel.to_string());
            std::iter::once(how).chain(lost).chain(unknown).chain(kernel).collect()
        }
        Source::MappingCalls { why } => vec![format!(
            "  page faults could not be recorded ({why}), so these functions mapped the memory, and others may have touched it first"
        )],
    }
}

/// The memory of functions whose callers are not all known.
fn unknown_bytes(found: &FirstTouches) -> u64 {
    let is_unknown = |stack: &&Stack| stack.frames.iter().any(|name| name == "[not unwound]");
    found.stacks.iter().filter(is_unknown).map(Stack::bytes).sum()
}

/// `2M`, or the sizes with their shares.
fn sizes(leaves: &BTreeMap<PageSize, u64>) -> String {
    let all: u64 = leaves.values().sum();
    let share = |bytes: u64| (100.0 * bytes as f64 / all as f64).round();
    match leaves.len() {
        1 => leaves.keys().map(PageSize::to_string).collect(),
        _ => leaves
            .iter()
            .rev()
            .map(|(leaf, bytes)| {
                let percent = share(*bytes);
                if percent == 0.0 { format!("{leaf} <1 %") } else { format!("{leaf} {percent} %") }
            })
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The functions of a stack, from the one that touched the memory outwards. The first frame is the process.
fn inner_first(stack: &Stack) -> String {
    let functions = stack.frames.get(1..).unwrap_or_default();
    let start = functions.iter().position(|name| STARTS.contains(&name.as_str())).unwrap_or(0);
    let mut names: Vec<String> = functions[start..].iter().rev().map(|name| shortened(&printable(name))).collect();
    // Code without symbols appears as its file; adjacent repeats are listed once.
    names.dedup_by(|one, other| one == other && one.starts_with('['));
    if names.len() > MAX_FUNCTIONS {
        names.truncate(MAX_FUNCTIONS);
        names.push("...".into());
    }
    names.join(" < ")
}

/// The first [`MAX_NAME`] characters, and `...` if there are more.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str], leaves: &[(PageSize, u64)]) -> Stack {
        Stack { frames: frames.iter().map(ToString::to_string).collect(), leaves: leaves.iter().copied().collect() }
    }

    fn found(source: Source) -> FirstTouches {
        let stacks = vec![
            stack(&["cc1", "main", "parse;all"], &[(PageSize::K4, 1 << 20), (PageSize::M2, 254 << 20)]),
            stack(&["cc1", "main", "rare\n"], &[(PageSize::K4, 4096)]),
        ];
        FirstTouches { source, stacks }
    }

    #[test]
    fn the_largest_stacks_are_rows_and_the_rest_is_counted() {
        let sampling = Sampling { faults: Some(900), seen: 800, whole_stacks: 300, lost: 7, includes_kernel: false };
        let text = text(&found(Source::PageFaults(sampling)), 80);
        assert!(text.contains("255M     2M 100 %, 4K <1 %   parse;all < main"), "{text}");
        assert!(text.contains("900 page faults, 800 of them") && text.contains("7 records were lost"), "{text}");
        assert!(text.contains("1 more row, 4K in total\n") && text.contains("kernel.perf_event_paranoid=1"), "{text}");
    }

    #[test]
    fn a_folded_line_has_only_the_separators_of_the_format() {
        let folded = folded(&found(Source::MappingCalls { why: "no".into() }));
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(lines[0], "cc1;main;parse:all;[4K pages] 1048576");
        assert_eq!(lines[1], "cc1;main;parse:all;[2M pages] 266338304");
        assert_eq!(lines.len(), 3, "{folded}");
    }

    #[test]
    fn a_document_says_why_page_faults_are_not_the_source() {
        let document = serde_json::to_value(document(&found(Source::MappingCalls { why: "no".into() }))).unwrap();
        assert_eq!(document["source"], "mapping_calls");
        assert_eq!(document["why_not_page_faults"], "no");
        assert_eq!(document["stacks"][0]["leaves_bytes"]["2097152"], 254 << 20);
        assert!(document.get("faults").is_none());
    }
}
