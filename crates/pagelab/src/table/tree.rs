//! Draws tables as a tree. Adjacent entries that differ only in their address share one line, and so do tables that map a
//! contiguous range uniformly.

use std::fmt::Write;

use paging::format::named::Named;
use paging::{Action, Attributes, Error, Format, Geometry, InputAddress, Log, Node, OutputAddress, Tables, Visitor};
use serde_json::{Value, json};

use super::describe::{address, attributes_document, count, grouped, hex, letters, size};
use super::level::short_name;

/// The most lines per table.
const MAX_RUNS: usize = 48;

/// A memory range that is mapped uniformly.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// The level of its leaves.
    level: u8,
    group_bits: u8,
    pa: OutputAddress,
    bytes: u64,
    attributes: Attributes,
}

impl Stretch {
    /// Merges this range and the next one, if they are contiguous and uniform.
    fn joined(self, next: Stretch) -> Option<Stretch> {
        let alike = Stretch { pa: next.pa, bytes: next.bytes, ..self } == next;
        (alike && self.pa.checked_add(self.bytes) == Some(next.pa))
            .then(|| Stretch { bytes: self.bytes + next.bytes, ..self })
    }
}

enum What {
    Holes,
    Leaves(Stretch),
    /// Equal tables; the fields describe the first one.
    Tables {
        pa: OutputAddress,
        whole: Option<Stretch>,
        below: Below,
    },
    Illegal {
        entry: u64,
    },
}

/// Adjacent entries of one table that share a line.
struct Run {
    index: u64,
    entries: u64,
    va: InputAddress,
    level: u8,
    what: What,
}

/// The entries of a table.
#[derive(Default)]
struct Below {
    runs: Vec<Run>,
    /// The number of entries that are not drawn because there are too many runs.
    left_out: u64,
}

impl Below {
    fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut().filter(|_| self.left_out == 0)
            && last.takes(&run)
        {
            return;
        }
        if self.runs.len() < MAX_RUNS {
            self.runs.push(run);
        } else {
            self.left_out += run.entries;
        }
    }

    /// Whether it contains only holes.
    fn is_empty(&self) -> bool {
        matches!(&self.runs[..], [Run { what: What::Holes, .. }])
    }

    /// The range that all entries map together, if they map nothing else.
    fn whole(&self, entries: u64) -> Option<Stretch> {
        match &self.runs[..] {
            [run] if run.entries == entries => run.stretch(),
            _ => None,
        }
    }
}

impl Run {
    fn stretch(&self) -> Option<Stretch> {
        match &self.what {
            What::Leaves(stretch) => Some(*stretch),
            What::Tables { whole, .. } => *whole,
            What::Holes | What::Illegal { .. } => None,
        }
    }

    /// Appends the next run if it continues this one. Returns whether it did.
    fn takes(&mut self, next: &Run) -> bool {
        let joined = match (&mut self.what, &next.what) {
            (What::Holes, What::Holes) => true,
            (What::Leaves(here), What::Leaves(there)) => here.joined(*there).map(|both| *here = both).is_some(),
            (What::Tables { whole: Some(here), .. }, What::Tables { whole: Some(there), .. }) => {
                here.joined(*there).map(|both| *here = both).is_some()
            }
            (What::Tables { below: here, .. }, What::Tables { below: there, .. }) => {
                here.is_empty() && there.is_empty()
            }
            (What::Illegal { entry: here }, What::Illegal { entry: there }) => here == there,
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
    open: Vec<Below>,
}

impl<F: Format> Collector<'_, F> {
    fn push(&mut self, node: &Node, entries: u64, what: What) -> Action {
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
        self.open.push(Below::default());
        Action::Continue
    }

    fn table_done(&mut self, node: &Node) -> Action {
        let below = self.open.pop().unwrap_or_default();
        let whole = below.whole(self.geometry.entries(node.level - 1));
        self.push(node, 1, What::Tables { pa: self.format.table_address(node.entry), whole, below })
    }

    fn leaf(&mut self, node: &Node) -> Action {
        let stretch = Stretch {
            level: node.level,
            group_bits: self.format.group_bits(node.level, node.entry),
            pa: self.format.leaf_address(node.level, node.entry, node.va),
            bytes: node.bytes,
            attributes: self.format.attributes(node.level, node.entry),
        };
        self.push(node, 1, What::Leaves(stretch))
    }

    fn hole(&mut self, node: &Node) -> Action {
        self.push(node, node.bytes >> self.geometry.shift(node.level), What::Holes)
    }

    fn illegal(&mut self, node: &Node) -> Action {
        self.push(node, 1, What::Illegal { entry: node.entry })
    }
}

/// The tree of all tables.
pub struct Tree {
    root: Below,
}

impl Tree {
    /// Builds the tree by walking the tables.
    pub fn of<F: Format, L: Log>(tables: &Tables<F, L>) -> Result<Tree, Error> {
        let mut collector =
            Collector { format: tables.format(), geometry: tables.geometry(), open: vec![Below::default()] };
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
    /// Branches of the tree, and indexes.
    left: String,
    right: String,
}

struct Drawing<'a, F> {
    format: &'a F,
    named: Named,
    lines: Vec<Line>,
}

impl<F: Format> Drawing<'_, F> {
    fn below(&mut self, below: &Below, margin: &str) {
        let last = (below.runs.len() + usize::from(below.left_out > 0)).saturating_sub(1);
        for (at, run) in below.runs.iter().enumerate() {
            let (branch, next) = if at == last { ("└ ", "  ") } else { ("├ ", "│ ") };
            let right = match run.what {
                What::Holes => format!("{:18}  empty: {}", "", self.size(run)),
                _ => format!("{}  {}", address(run.va), self.what(run)),
            };
            self.lines.push(Line { left: format!("{margin}{branch}{}", indexes(run)), right });
            if let What::Tables { whole, below, .. } = &run.what
                && whole.is_none()
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
            What::Holes => String::new(),
            What::Leaves(stretch) => self.stretch(stretch),
            What::Tables { pa, whole, below } => {
                let name = short_name(self.format, run.level - 1);
                let tables = match run.entries {
                    1 => format!("{name} table at {pa:#x}"),
                    entries => count(entries, &format!("{name} table")),
                };
                match whole {
                    None if below.is_empty() => format!("{tables}: empty"),
                    None => tables,
                    Some(stretch) => format!("{tables}: {}", self.stretch(stretch)),
                }
            }
            What::Illegal { entry } => format!("illegal entry {entry:#018x}"),
        }
    }

    fn stretch(&self, stretch: &Stretch) -> String {
        let leaf = self.format.geometry().span(stretch.level);
        let group = match stretch.group_bits {
            0 => String::new(),
            bits => format!(" in groups of {}", size(u128::from(leaf << bits))),
        };
        let leaves = match stretch.bytes / leaf {
            1 => size(u128::from(leaf)),
            leaves => format!("{} x {}", grouped(leaves), size(u128::from(leaf))),
        };
        format!("{leaves}{group} → {:#x} {}", stretch.pa, letters(self.named, stretch.attributes))
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

fn below_document(format: &impl Format, below: &Below) -> Value {
    let runs: Vec<Value> = below.runs.iter().map(|run| run_document(format, run)).collect();
    json!({ "runs": runs, "entries_left_out": below.left_out })
}

fn run_document(format: &impl Format, run: &Run) -> Value {
    let (kind, table, entry, below) = match &run.what {
        What::Holes => ("hole", None, None, None),
        What::Leaves(_) => ("leaf", None, None, None),
        What::Tables { pa, whole, below } => {
            ("table", Some(*pa), None, whole.is_none().then(|| below_document(format, below)))
        }
        What::Illegal { entry } => ("illegal", None, Some(*entry), None),
    };
    let maps = run.stretch().map(|stretch| {
        let leaf_bytes = format.geometry().span(stretch.level);
        json!({
            "output_address": hex(stretch.pa),
            "mapped_bytes": stretch.bytes,
            "leaf_bytes": leaf_bytes,
            "group_bytes": leaf_bytes << stretch.group_bits,
            "attributes": attributes_document(stretch.attributes),
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
