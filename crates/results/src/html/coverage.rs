//! The figure of the census: for each arm, a stacked bar of its memory by leaf and folio size.

use std::collections::{BTreeMap, BTreeSet};

use policy::census::{Backing, Folio, Mapping};
use policy::size::{PageSize, format_bytes};

use super::svg::{Anchor, Figure, Scale, WIDTH};
use crate::figure;
use crate::rows::Row;
use crate::text::escape;

const LEFT: f64 = 142.0;
const RIGHT: f64 = 430.0;
const TOP: f64 = 8.0;
const LINE: f64 = 36.0;
/// Number of shades for page sizes in the style sheet.
const SHADES: usize = 6;

/// A kind of memory, drawn as one part of a bar. Its order is that of the parts: the largest pages first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Anonymous, shared or hugetlb memory. `size` is the effective size: that of the folio if the folio is mapped completely,
    /// else that of the leaf.
    Program { size: std::cmp::Reverse<PageSize>, shape: Shape, leaf: PageSize },
    /// File pages and the zero page.
    Other,
}

/// The relation between the leaves and the folio, which distinguishes kinds of the same effective size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// A whole folio, mapped by one leaf of its size.
    Leaf,
    /// A whole folio, mapped by smaller leaves: PTE-mapped.
    Folio,
    /// Part of a folio, or a complete one at a misaligned address.
    Part,
    /// The folio is not visible.
    Unknown,
}

impl Shape {
    /// The CSS class of the pattern for this shape; `None` for a plain fill. Patterns distinguish shapes even without
    /// colour; shades distinguish sizes.
    fn pattern(self) -> Option<&'static str> {
        match self {
            Shape::Hugetlb => Some("dotted"),
            Shape::Leaf => None,
            Shape::Folio => Some("lined"),
            Shape::Part => Some("hatched"),
            Shape::Unknown => Some("crossed"),
        }
    }
}

impl Kind {
    fn of(mapping: &Mapping) -> Kind {
        if matches!(mapping.backing, Backing::File | Backing::Zero) {
            return Kind::Other;
        }
        let shape = match (mapping.backing, mapping.folio) {
            (Backing::Hugetlb, _) => Shape::Hugetlb,
            (_, Folio::Whole(size)) if size > mapping.leaf => Shape::Folio,
            (_, Folio::Whole(_)) => Shape::Leaf,
            (_, Folio::Part(_)) => Shape::Part,
            (_, Folio::Unknown) => Shape::Unknown,
        };
        Kind::Program { size: std::cmp::Reverse(mapping.effective()), shape, leaf: mapping.leaf }
    }

    fn name(&self) -> String {
        match self {
            Kind::Other => "files and the zero page".to_string(),
            Kind::Program { size, shape, leaf } => match shape {
                Shape::Hugetlb => format!("{leaf} hugetlb"),
                Shape::Leaf => format!("{leaf} leaf"),
                Shape::Folio => format!("{} folio, {leaf} leaves", size.0),
                Shape::Part => format!("{leaf} leaves, part of a larger folio"),
                Shape::Unknown => format!("{leaf} leaves, folio not visible"),
            },
        }
    }

    /// CSS classes of a part: the shade for its size, and the pattern for its shape. `sizes`: all effective sizes in
    /// the figure, ascending.
    fn classes(&self, sizes: &[PageSize]) -> (String, Option<&'static str>) {
        match self {
            Kind::Other => ("other".to_string(), None),
            Kind::Program { size, shape, .. } => {
                let rank = sizes.iter().position(|known| *known == size.0).unwrap_or(0);
                let shade = rank * (SHADES - 1) / sizes.len().saturating_sub(1).max(1);
                (format!("s{shade}"), shape.pattern())
            }
        }
    }
}

/// The bars of all arms.
struct Bars<'a> {
    /// For each arm, the bytes of each kind of memory.
    rows: Vec<(&'a Row<'a>, BTreeMap<Kind, u64>)>,
    /// All effective sizes in the figure, ascending.
    sizes: Vec<PageSize>,
}

/// The figure with its legend. `None` if the census of every arm is empty.
pub(super) fn figure(rows: &[Row<'_>]) -> Option<String> {
    let bars = Bars::of(rows);
    let total = |kinds: &BTreeMap<Kind, u64>| kinds.values().sum::<u64>();
    let most = bars.rows.iter().map(|(_, kinds)| total(kinds)).max().filter(|most| *most > 0)?;
    let bottom = TOP + LINE * bars.rows.len() as f64;
    let scale = Scale::new((0.0, most as f64 * 1.02), (LEFT, RIGHT));
    let title = "Memory of a run by the size of its leaves and folios";
    let mut figure = Figure::new("coverage", title, &bars.description(), bottom + 26.0);
    for tick in scale.byte_ticks(4) {
        figure.line("grid", (scale.at(tick), TOP), (scale.at(tick), bottom));
        figure.text("tick", (scale.at(tick), bottom + 15.0), Anchor::Middle, &format_bytes(tick as u64));
    }
    for (at, (row, kinds)) in bars.rows.iter().enumerate() {
        let y = TOP + LINE * at as f64 + 7.0;
        figure.label((LEFT - 12.0, y + 15.0), &row.arm.label);
        if total(kinds) == 0 {
            figure.text("none", (LEFT + 8.0, y + 15.0), Anchor::Start, &row.outcome());
            continue;
        }
        bars.draw(&mut figure, row, kinds, &scale, y);
    }
    Some(format!("{}{}", figure.finish(), bars.legend()))
}

impl<'a> Bars<'a> {
    fn of(rows: &'a [Row<'a>]) -> Bars<'a> {
        let mut sizes = BTreeSet::new();
        let kinds = |row: &'a Row<'a>| {
            let mut kinds = BTreeMap::new();
            for (mapping, bytes) in row.census().rows() {
                let kind = Kind::of(mapping);
                if let Kind::Program { size, .. } = kind {
                    sizes.insert(size.0);
                }
                *kinds.entry(kind).or_insert(0) += bytes;
            }
            (row, kinds)
        };
        let rows = rows.iter().map(kinds).collect();
        Bars { rows, sizes: sizes.into_iter().collect() }
    }

    /// Draws the bar of an arm, with its total bytes and its coverage at the right.
    fn draw(&self, figure: &mut Figure, row: &Row<'_>, kinds: &BTreeMap<Kind, u64>, scale: &Scale, y: f64) {
        let mut drawn_bytes = 0;
        for (kind, bytes) in kinds {
            let (from, to) = (scale.at(drawn_bytes as f64), scale.at((drawn_bytes + bytes) as f64));
            let (class, pattern) = kind.classes(&self.sizes);
            let hover = format!("{}: {}, {}", row.label(), format_bytes(*bytes), kind.name());
            figure.rectangle(&format!("bar {class}"), (from, y), (to - from, 22.0), &hover);
            if let Some(pattern) = pattern {
                figure.rectangle(&format!("pattern {pattern}"), (from, y), (to - from, 22.0), "");
            }
            drawn_bytes += bytes;
        }
        figure.text("value", (WIDTH - 2.0, y + 9.0), Anchor::End, &format_bytes(drawn_bytes));
        let coverage = match row.mean_coverage_ratio() {
            Some(ratio) => format!("{} as asked", figure::share(ratio)),
            None => row.holding().map(|_| "nothing asked").unwrap_or_default().to_string(),
        };
        figure.text("range", (WIDTH - 2.0, y + 23.0), Anchor::End, &coverage);
    }

    fn legend(&self) -> String {
        let kinds: BTreeSet<&Kind> = self.rows.iter().flat_map(|(_, kinds)| kinds.keys()).collect();
        let entry = |kind: &&Kind| {
            let (class, pattern) = kind.classes(&self.sizes);
            let part = |class: &str| format!("<rect class=\"{class}\" width=\"16\" height=\"12\"/>");
            let parts = [format!("bar {class}")].into_iter().chain(pattern.map(|pattern| format!("pattern {pattern}")));
            format!(
                "<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{}</svg>{}</li>",
                parts.map(|class| part(&class)).collect::<String>(),
                escape(&kind.name())
            )
        };
        format!("<ul class=\"legend\">{}</ul>\n", kinds.iter().map(entry).collect::<String>())
    }

    /// The content of the figure as text, for readers who cannot see it.
    fn description(&self) -> String {
        let arm = |(row, kinds): &(&Row<'_>, BTreeMap<Kind, u64>)| {
            let parts: Vec<String> =
                kinds.iter().map(|(kind, bytes)| format!("{} of {}", format_bytes(*bytes), kind.name())).collect();
            let parts = if parts.is_empty() { row.outcome() } else { parts.join("; ") };
            format!("{}: {parts}.", row.label())
        };
        self.rows.iter().map(arm).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_look_different_also_without_colour() {
        let of = |backing, leaf, folio| Kind::of(&Mapping { backing, leaf, folio });
        let (base, huge) = (PageSize::K4, PageSize::M2);
        let kinds = [
            of(Backing::Hugetlb, huge, Folio::Whole(huge)),
            of(Backing::Anonymous, huge, Folio::Whole(huge)),
            of(Backing::Anonymous, base, Folio::Whole(huge)),
            of(Backing::Anonymous, base, Folio::Whole(base)),
            of(Backing::Anonymous, base, Folio::Part(huge)),
            of(Backing::Anonymous, base, Folio::Unknown),
            of(Backing::File, base, Folio::Unknown),
        ];
        let classes: BTreeSet<_> = kinds.iter().map(|kind| kind.classes(&[base, huge])).collect();
        assert_eq!(classes.len(), kinds.len(), "{classes:?}");
        for pattern in classes.iter().filter_map(|(_, pattern)| *pattern) {
            let rule = format!("svg .{pattern} {{ fill: url(#");
            let (_, id) = crate::html::parts::STYLE.split_once(&rule).expect("a rule of the style sheet");
            let id = id.split_once(')').unwrap().0;
            assert!(crate::html::parts::PATTERNS.contains(&format!("<pattern id=\"{id}\"")), "{pattern}");
        }
    }
}
