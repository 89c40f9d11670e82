//! Draws tables as a tree. Adjacent entries that differ only in their address share one line. So do adjacent tables that
//! map a contiguous range uniformly.

use std::fmt::Write;

use paging::format::named::Named;
use paging::{Action, Attributes, Error, Format, Geometry, InputAddress, Log, Node, OutputAddress, Tables, Visitor};
use serde_json::{Value, json};

use super::describe::{address, attributes_document, count, grouped, hex, letters, size};
use super::level::short_name;

/// The maximum number of lines per table.
const MAX_RUNS: usize = 48;

/// A memory range that is mapped uniformly.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UniformRange {
    /// The level of its leaves.
    level: u8,
    group_bits: u8,
    pa: OutputAddress,
    bytes: u64,
    attributes: Attributes,
}

impl UniformRange {
    /// Merges this range and the next one, if they are contiguous and uniform.
    fn joined(self, next: UniformRange) -> Option<UniformRange> {
        let alike = UniformRange { pa: next.pa, bytes: next.bytes, ..self } == next;
        (alike && self.pa.checked_add(self.bytes) == Some(next.pa))
            .then(|| UniformRange { bytes: self.bytes + next.bytes, ..self })
    }
}

enum Content {
    Holes,
    Leaves(UniformRange),
    /// Adjacent tables that are equal. The fields describe the first of them.
    Tables {
        pa: OutputAddress,
        uniform: Option<UniformRange>,
        below: TableEntries,
    },
    Illegal {
        entry: u64,
    },
}

/// Adjacent entries of one table that share a line of the drawing.
struct Run {
    index: u64,
    entries: u64,
    va: InputAddress,
    level: u8,
    what: Content,
}

/// The entries of a table.
#[derive(Default)]
struct TableEntries {
    runs: Vec<Run>,
    /// The number of entries that are not drawn because there are too many runs.
    left_out: u64,
}

impl TableEntries {
    fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut().filter(|_| self.left_out == 0)
            && last.append(&run)
        {
            return;
        }
        if self.runs.len() < MAX_RUNS {
            self.runs.push(run);
        } else {
            self.left_out += run.entries;
        }
    }

    /// Whether the table contains only holes.
    fn is_empty(&self) -> bool {
        matches!(&self.runs[..], [Run { what: Content::Holes, .. }])
    }

    /// The range that all entries together map uniformly; `None` if they map anything else.
    fn uniform_range(&self, entries: u64) -> Option<UniformRange> {
        match &self.runs[..] {
            [run] if run.entries == entries => run.uniform(),
            _ => None,
        }
    }
}

impl Run {
    fn uniform(&self) -> Option<UniformRange> {
        match &self.what {
            Content::Leaves(uniform) => Some(*uniform),
            Content::Tables { uniform, .. } => *uniform,
            Content::Holes | Content::Illegal { .. } => None,
        }
    }

    /// Appends the next run if it continues this one, and returns whether it does.
    fn append(&mut self, next: &Run) -> bool {
        let joined = match (&mut self.what, &next.what) {
            (Content::Holes, Content::Holes) => true,
            (Content::Leaves(here), Content::Leaves(there)) => here.joined(*there).map(|both| *here = both).is_some(),
            (Content::Tables { uniform: Some(here), .. }, Content::Tables { uniform: Some(there), .. }) => {
                here.joined(*there).map(|both| *here = both).is_some()
            }
            (Content::Tables { below: here, .. }, Content::Tables { below: there, .. }) => {
                here.is_empty() && there.is_empty()
            }
            (Content::Illegal { entry: here }, Content::Illegal { entry: there }) => here == there,
            _ => false,
        };
        self.entries += if joined { next.entries } else { 0 };
        joined
    }
}

struct Collector<'a, F> {
    format: &'a F,
    geometry: Geometry,
    /// The tables on the current walk path, root first.
    open: Vec<TableEntries>,
}

impl<F: Format> Collector<'_, F> {
    fn push(&mut self, node: &Node, entries: u64, what: Content) -> Action {
        let index = self.geometry.index(node.level, node.va.0);
        let run = Run { index, entries, va: node.va, level: node.level, what };
        if let Some(open) = self.open.last_mut() {
            open.push(run);
        }
        Action::Continue
    }
}

impl<F: Format> Visitor for Collector<'_, F> {
    fn table(&mut self, _node: &Node) -> Action {
        self.open.push(TableEntries::default());
        Action::Continue
    }

    fn table_done(&mut self, node: &Node) -> Action {
        let below = self.open.pop().unwrap_or_default();
        let uniform = below.uniform_range(self.geometry.entries(node.level - 1));
        self.push(node, 1, Content::Tables { pa: self.format.table_address(node.entry), uniform, below })
    }

    fn leaf(&mut self, node: &Node) -> Action {
        let uniform = UniformRange {
            level: node.level,
            group_bits: self.format.group_bits(node.level, node.entry),
            pa: self.format.leaf_address(node.level, node.entry, node.va),
            bytes: node.bytes,
            attributes: self.format.attributes(node.level, node.entry),
        };
        self.push(node, 1, Content::Leaves(uniform))
    }

    fn hole(&mut self, node: &Node) -> Action {
        self.push(node, node.bytes >> self.geometry.shift(node.level), Content::Holes)
    }

    fn illegal(&mut self, node: &Node) -> Action {
        self.push(node, 1, Content::Illegal { entry: node.entry })
    }
}

/// The tree of all tables.
pub struct Tree {
    root: TableEntries,
}

impl Tree {
    /// Builds the tree by walking the tables.
    pub fn of<F: Format, L: Log>(tables: &Tables<F, L>) -> Result<Tree, Error> {
        let mut collector =
            Collector { format: tables.format(), geometry: tables.geometry(), open: vec![TableEntries::default()] };
        tables.walk_all(&mut collector)?;
        Ok(Tree { root: collector.open.pop().unwrap_or_default() })
    }

    /// Draws the tree as lines of text.
    pub fn draw<F: Format>(&self, format: &F, named: Named, root: OutputAddress) -> String {
        let mut drawing = Drawing { format, named, lines: Vec::new() };
        drawing.below(&self.root, "");
        let left = drawing.lines.iter().map(|line| line.left.chars().count()).max().unwrap_or(0);
        let mut text = format!("{} table at {root:#x}", short_name(format, format.geometry().root_level()));
        for line in &drawing.lines {
            let _ = write!(text, "\n{:left$}  {}", line.left, line.right);
        }
        text
    }

    /// The tree as a document.
    pub fn document<F: Format>(&self, format: &F) -> Value {
        below_document(format, &self.root)
    }
}

struct Line {
    /// The parts of a line to the left: the branches of the tree, and indexes.
    left: String,
    right: String,
}

struct Drawing<'a, F> {
    format: &'a F,
    named: Named,
    lines: Vec<Line>,
}

impl<F: Format> Drawing<'_, F> {
    fn below(&mut self, below: &TableEntries, margin: &str) {
        let last = (below.runs.len() + usize::from(below.left_out > 0)).saturating_sub(1);
        for (at, run) in below.runs.iter().enumerate() {
            let (branch, next) = if at == last { ("└ ", "  ") } else { ("├ ", "│ ") };
            let right = match run.what {
                Content::Holes => format!("{:18}  empty: {}", "", self.size(run)),
                _ => format!("{}  {}", address(run.va), self.what(run)),
            };
            self.lines.push(Line { left: format!("{margin}{branch}{}", indexes(run)), right });
            if let Content::Tables { uniform, below, .. } = &run.what
                && uniform.is_none()
                && !below.is_empty()
            {
                self.below(below, &format!("{margin}{next}"));
            }
        }
        if below.left_out > 0 {
            let right = format!("{:18}  and {} that are not drawn", "", entries(below.left_out));
            self.lines.push(Line { left: format!("{margin}└ ..."), right });
        }
    }

    fn size(&self, run: &Run) -> String {
        size(u128::from(run.entries) << self.format.geometry().shift(run.level))
    }

    fn what(&self, run: &Run) -> String {
        match &run.what {
            Content::Holes => String::new(),
            Content::Leaves(uniform) => self.uniform(uniform),
            Content::Tables { pa, uniform, below } => {
                let name = short_name(self.format, run.level - 1);
                let tables = match run.entries {
                    1 => format!("{name} table at {pa:#x}"),
                    entries => count(entries, &format!("{name} table")),
                };
                match uniform {
                    None if below.is_empty() => format!("{tables}: empty"),
                    None => tables,
                    Some(uniform) => format!("{tables}: {}", self.uniform(uniform)),
                }
            }
            Content::Illegal { entry } => format!("illegal entry {entry:#018x}"),
        }
    }

    fn uniform(&self, uniform: &UniformRange) -> String {
        let leaf = self.format.geometry().span(uniform.level);
        let group = match uniform.group_bits {
            0 => String::new(),
            bits => format!(" in groups of {}", size(u128::from(leaf << bits))),
        };
        let leaves = match uniform.bytes / leaf {
            1 => size(u128::from(leaf)),
            leaves => format!("{} x {}", grouped(leaves), size(u128::from(leaf))),
        };
        format!("{leaves}{group} → {:#x} {}", uniform.pa, letters(self.named, uniform.attributes))
    }
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_string() } else { format!("{} entries", grouped(count)) }
}

fn indexes(run: &Run) -> String {
    match run.entries {
        1 => run.index.to_string(),
        entries => format!("{}-{}", run.index, run.index + entries - 1),
    }
}

fn below_document(format: &impl Format, below: &TableEntries) -> Value {
    let runs: Vec<Value> = below.runs.iter().map(|run| run_document(format, run)).collect();
    json!({ "runs": runs, "entries_left_out": below.left_out })
}

fn run_document(format: &impl Format, run: &Run) -> Value {
    let (kind, table, entry, below) = match &run.what {
        Content::Holes => ("hole", None, None, None),
        Content::Leaves(_) => ("leaf", None, None, None),
        Content::Tables { pa, uniform, below } => {
            ("table", Some(*pa), None, uniform.is_none().then(|| below_document(format, below)))
        }
        Content::Illegal { entry } => ("illegal", None, Some(*entry), None),
    };
    let maps = run.uniform().map(|uniform| {
        let leaf_bytes = format.geometry().span(uniform.level);
        json!({
            "output_address": hex(uniform.pa),
            "mapped_bytes": uniform.bytes,
            "leaf_bytes": leaf_bytes,
            "group_bytes": leaf_bytes << uniform.group_bits,
            "attributes": attributes_document(uniform.attributes),
        })
    });
    json!({
        "kind": kind,
        "level": run.level,
        "level_name": format.level_name(run.level),
        "index": run.index,
        "entries": run.entries,
        "address": hex(run.va),
        "table_address": table.map(hex),
        "entry": entry.map(hex),
        "maps": maps,
        "below": below,
    })
}
