//! A flame graph of memory: the width of a function is the memory that it and the functions it called touched first. Each has a
//! bar that shows which page sizes map that memory.

use std::collections::BTreeMap;

use policy::first_touch::{FirstTouches, Source};
use policy::size::{PageSize, format_bytes};

use super::sizes;
use crate::text::{escape, printable};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 12.0;
const ROW: f64 = 20.0;
/// The bar of page sizes at the lower edge of a function.
const BAR: f64 = 4.0;
const TITLE: f64 = 58.0;
/// A function narrower than this is not drawn.
const MIN_WIDTH: f64 = 2.0;
/// The width of a character.
const CHARACTER: f64 = 7.6;
/// The deepest stack that is drawn.
const MAX_DEPTH: usize = 200;

const STYLE: &str = "svg.flame { --paper: #fff; --ink: #1b1f24; --soft: #59636e; --cell: #eef1f4; \
    --base: #ecc94b; --middle: #33a58f; --large: #49479a; \
    font: 12px system-ui, \"Noto Sans\", \"Liberation Sans\", sans-serif } \
    @media (prefers-color-scheme: dark) { svg.flame { --paper: #14171b; --ink: #e4e8ec; --soft: #9ba6b2; --cell: #262c33; \
    --base: #f0d264; --middle: #4cc4ad; --large: #8684e0 } } \
    .flame .paper { fill: var(--paper) } .flame text { fill: var(--ink) } .flame .soft { fill: var(--soft) } \
    .flame .title { font-weight: 600; font-size: 15px } .flame .cell { fill: var(--cell); stroke: var(--paper) } \
    .flame .base { fill: var(--base) } .flame .middle { fill: var(--middle) } .flame .large { fill: var(--large) }";

/// A function with all that it called.
#[derive(Default)]
struct Node {
    leaves: BTreeMap<PageSize, u64>,
    called: BTreeMap<String, Node>,
}

/// The flame graph, the outermost function at the top. `base` is the base page of the kernel, and `pmd` its PMD leaf.
pub fn svg(found: &FirstTouches, base: PageSize, pmd: Option<PageSize>) -> String {
    let root = tree(found);
    let scale = (WIDTH - 2.0 * MARGIN) / found.bytes().max(1) as f64;
    let depth = depth(&root, (MIN_WIDTH / scale) as u64).min(MAX_DEPTH);
    let height = TITLE + ROW * depth as f64 + 2.0 * MARGIN;
    let verb = match found.source {
        Source::PageFaults(_) => "first touched",
        Source::MappingCalls { .. } => "mapped",
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <style>{STYLE}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\
         <text class=\"title\" x=\"{MARGIN}\" y=\"24\">{} by the functions that {verb} it</text>",
        format_bytes(found.bytes())
    );
    legend(&mut svg, base, pmd);
    let drawing = Drawing { base, pmd, scale, all: found.bytes() };
    drawing.called(&mut svg, &root, MARGIN, 0);
    svg + "</svg>\n"
}

fn tree(found: &FirstTouches) -> Node {
    let mut root = Node::default();
    for stack in &found.stacks {
        let mut node = &mut root;
        for name in stack.frames.iter().take(MAX_DEPTH) {
            node = node.called.entry(name.clone()).or_default();
            stack.leaves.iter().for_each(|(leaf, bytes)| *node.leaves.entry(*leaf).or_default() += bytes);
        }
    }
    root
}

/// The rows of the functions with at least `min_bytes`.
fn depth(node: &Node, min_bytes: u64) -> usize {
    let drawn = node.called.values().filter(|called| called.bytes() >= min_bytes);
    drawn.map(|called| 1 + depth(called, min_bytes)).max().unwrap_or(0)
}

impl Node {
    fn bytes(&self) -> u64 {
        self.leaves.values().sum()
    }
}

fn legend(svg: &mut String, base: PageSize, pmd: Option<PageSize>) {
    let large = pmd.map(|pmd| ("large", format!("pages of {pmd} or larger")));
    let others = [("middle", "sizes between".to_string()), ("base", format!("base pages ({base})"))];
    let kinds = large.into_iter().chain(others);
    let mut x = MARGIN;
    for (class, text) in kinds {
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"38\" width=\"14\" height=\"8\"/>\
             <text class=\"soft\" x=\"{}\" y=\"46\">{text}</text>",
            x + 19.0
        ));
        x += 19.0 + CHARACTER * (text.len() + 3) as f64;
    }
}

struct Drawing {
    base: PageSize,
    pmd: Option<PageSize>,
    /// Units per byte.
    scale: f64,
    all: u64,
}

impl Drawing {
    /// Draws the functions that `node` called, side by side from `x`.
    fn called(&self, svg: &mut String, node: &Node, mut x: f64, row: usize) {
        for (name, function) in &node.called {
            let bytes = function.bytes();
            let width = bytes as f64 * self.scale;
            if width >= MIN_WIDTH && row < MAX_DEPTH {
                self.function(svg, name, function, (x, width, row));
                self.called(svg, function, x, row + 1);
            }
            x += width;
        }
    }

    fn function(&self, svg: &mut String, name: &str, function: &Node, (x, width, row): (f64, f64, usize)) {
        let name = printable(name);
        let bytes = function.bytes();
        let y = TITLE + ROW * row as f64;
        let share = 100.0 * bytes as f64 / self.all as f64;
        let hover = format!("{name}: {} ({share:.1} %), {}", format_bytes(bytes), sizes(&function.leaves));
        svg.push_str(&format!(
            "<g><title>{}</title><rect class=\"cell\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{ROW}\"/>",
            escape(&hover)
        ));
        let mut at = x;
        for (leaf, bytes) in function.leaves.iter().rev() {
            let part = *bytes as f64 * self.scale;
            let bar = y + ROW - BAR - 0.5;
            let class = self.class(*leaf);
            svg.push_str(&format!(
                "<rect class=\"{class}\" x=\"{at:.1}\" y=\"{bar}\" width=\"{part:.1}\" height=\"{BAR}\"/>"
            ));
            at += part;
        }
        let fitting = ((width - 6.0) / CHARACTER).max(0.0) as usize;
        if fitting >= 3 {
            let shown = if name.chars().count() > fitting {
                format!("{}…", name.chars().take(fitting - 1).collect::<String>())
            } else {
                name
            };
            svg.push_str(&format!("<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 3.0, y + 12.0, escape(&shown)));
        }
        svg.push_str("</g>");
    }

    fn class(&self, leaf: PageSize) -> &'static str {
        if self.pmd.is_some_and(|pmd| leaf >= pmd) {
            "large"
        } else if leaf == self.base {
            "base"
        } else {
            "middle"
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::first_touch::Stack;

    use super::*;

    #[test]
    fn functions_are_as_wide_as_their_memory_and_names_are_escaped() {
        let stack = |frames: &[&str], leaf, bytes| Stack {
            frames: frames.iter().map(ToString::to_string).collect(),
            leaves: BTreeMap::from([(leaf, bytes)]),
        };
        let found = FirstTouches {
            source: Source::MappingCalls { why: String::new() },
            stacks: vec![
                stack(&["a", "vector<int>"], PageSize::M2, 3 << 20),
                stack(&["a", "other"], PageSize::K4, 1 << 20),
                stack(&["a", "tiny"], PageSize::K4, 1),
            ],
        };
        let svg = svg(&found, PageSize::K4, Some(PageSize::M2));
        assert!(svg.contains("vector&lt;int&gt;") && !svg.contains("vector<int>"), "{svg}");
        assert!(svg.contains("class=\"cell\" x=\"306.0\" y=\"78\" width=\"882.0\""), "{svg}");
        assert!(svg.contains("a: 4.00M (100.0 %), 2M 75 %, 4K 25 %"), "{svg}");
        assert!(!svg.contains("tiny"), "narrower than a dot");
    }
}
