//! Bars on a simulation's page: cycles lost under each policy, and what maps the memory.

use crate::figure;
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH};
use crate::simulation::{Cell, Cost, Mapped, mapped_in_words, rate_in_words};
use crate::text::escape;
use policy::size::format_bytes;

use super::parts::costs;

const LEFT: f64 = 142.0;
const RIGHT: f64 = 456.0;
const TOP: f64 = 8.0;
const ROW_HEIGHT: f64 = 34.0;
/// Number of colours for sizes in the style sheet.
const SHADES: usize = 9;
/// The number of shades, from light to dark, that are used unless a machine has more sizes.
const USUAL_SHADES: usize = 6;

/// Cycles lost per 1000 instructions or runs, one bar per policy of a machine.
pub(super) fn lost_cycles(cells: &[Cell], id: &str) -> Option<String> {
    let lost_rates = |cost: &Cost| (cost.per.rate(cost.min_lost_cycles), cost.per.rate(cost.max_lost_cycles));
    let most = costs(cells).map(|(_, cost)| lost_rates(cost).1).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let bottom = TOP + ROW_HEIGHT * cells.len() as f64;
    let scale = Scale::new((0.0, most * 1.02), (LEFT, RIGHT));
    let described: Vec<String> = costs(cells)
        .map(|(cell, cost)| {
            format!("{}: {} to {}", cell.policy, rate_in_words(lost_rates(cost).0), rate_in_words(lost_rates(cost).1))
        })
        .collect();
    let title = format!("{}: cycles lost to translation", cells[0].machine);
    let mut figure = Figure::new(id, &title, &described.join("; "), bottom + 26.0);
    for tick in scale.ticks(4) {
        figure.line("grid", (scale.at(tick), TOP), (scale.at(tick), bottom));
        figure.text("tick", (scale.at(tick), bottom + 15.0), Anchor::Middle, &figure::plain(tick));
    }
    for (at, cell, cost) in rows(&mut figure, cells) {
        let y = row_y(at);
        let ((least, most), style) = (lost_rates(cost), ArmStyle::of(at, 0).class());
        let hover = format!(
            "{}: {} to {} per 1000 {}",
            cell.policy,
            rate_in_words(least),
            rate_in_words(most),
            cost.per.unit()
        );
        figure.rectangle(&format!("bar {style}"), (LEFT, y), (scale.at(least) - LEFT, 20.0), &hover);
        figure.raw(&format!("<g class=\"{style}\">"));
        figure.line("whisker", (scale.at(least), y + 10.0), (scale.at(most), y + 10.0));
        figure.raw("</g>");
        figure.text("value", (WIDTH - 2.0, y + 14.0), Anchor::End, &rate_in_words(most));
    }
    Some(figure.finish())
}

/// Writes the policy of each row, or the reason if there is no cost; returns the rows with a cost.
fn rows<'a>(figure: &mut Figure, cells: &'a [Cell]) -> Vec<(usize, &'a Cell, &'a Cost)> {
    let mut with_cost = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        figure.label((LEFT - 12.0, row_y(at) + 14.0), &cell.policy);
        match &cell.outcome {
            Ok(cost) => with_cost.push((at, cell, cost)),
            Err(missing) => figure.text("none", (LEFT + 8.0, row_y(at) + 14.0), Anchor::Start, missing.label()),
        }
    }
    with_cost
}

/// Vertical position of a row's bar.
fn row_y(at: usize) -> f64 {
    TOP + ROW_HEIGHT * at as f64 + 7.0
}

/// The memory at the end of the trace by the size of the leaves that map it, one bar per policy of a machine.
pub(super) fn census(cells: &[Cell], id: &str) -> Option<String> {
    let total = |cost: &Cost| cost.mapped.iter().map(|mapped| mapped.bytes).sum::<u64>();
    let most = costs(cells).map(|(_, cost)| total(cost)).max().filter(|most| *most > 0)?;
    let (kinds, bottom) = (kinds(cells), TOP + ROW_HEIGHT * cells.len() as f64);
    let scale = Scale::new((0.0, most as f64 * 1.02), (LEFT, RIGHT));
    let title = format!("{}: memory by the size of its leaves", cells[0].machine);
    let mut figure = Figure::new(id, &title, &described(cells), bottom + 26.0);
    for tick in scale.byte_ticks(4) {
        figure.line("grid", (scale.at(tick), TOP), (scale.at(tick), bottom));
        figure.text("tick", (scale.at(tick), bottom + 15.0), Anchor::Middle, &format_bytes(tick as u64));
    }
    for (at, cell, cost) in rows(&mut figure, cells) {
        let y = row_y(at);
        let mut drawn = 0;
        for mapped in cost.mapped.iter().rev() {
            let (from, to) = (scale.at(drawn as f64), scale.at((drawn + mapped.bytes) as f64));
            let hover = format!("{}: {} as {}", cell.policy, format_bytes(mapped.bytes), mapped_in_words(mapped));
            figure.rectangle(&format!("bar {}", shade(&kinds, mapped)), (from, y), (to - from, 20.0), &hover);
            drawn += mapped.bytes;
        }
        figure.text("value", (WIDTH - 2.0, y + 14.0), Anchor::End, &format_bytes(drawn));
    }
    Some(figure.finish())
}

/// Legend of the shades.
pub(super) fn census_legend(cells: &[Cell]) -> String {
    let kinds = kinds(cells);
    let entry = |(leaf_bytes, group_bytes): &(u64, u64)| {
        let mapped = Mapped { leaf_bytes: *leaf_bytes, group_bytes: *group_bytes, bytes: 0 };
        format!(
            "<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\"><rect class=\"bar {}\" width=\"16\" height=\"12\"/></svg>{}</li>",
            shade(&kinds, &mapped),
            escape(&mapped_in_words(&mapped))
        )
    };
    format!("<ul class=\"legend\">{}</ul>\n", kinds.iter().rev().map(entry).collect::<String>())
}

/// Distinct pairs of leaf and group size, sorted by group size, which is what hardware sees, then by leaf size.
fn kinds(cells: &[Cell]) -> Vec<(u64, u64)> {
    let all = costs(cells).flat_map(|(_, cost)| &cost.mapped);
    let mut kinds: Vec<(u64, u64)> = all.map(|mapped| (mapped.leaf_bytes, mapped.group_bytes)).collect();
    kinds.sort_unstable_by_key(|(leaf, group)| (*group, *leaf));
    kinds.dedup();
    kinds
}

fn shade(kinds: &[(u64, u64)], mapped: &Mapped) -> String {
    let rank = kinds.iter().position(|kind| *kind == (mapped.leaf_bytes, mapped.group_bytes)).unwrap_or(0);
    let shade = match kinds.len() {
        // At most the usual shades: they are spread as far apart as possible.
        ..=USUAL_SHADES => rank * (USUAL_SHADES - 1) / kinds.len().saturating_sub(1).max(1),
        _ => rank.min(SHADES - 1),
    };
    format!("s{shade}")
}

fn described(cells: &[Cell]) -> String {
    let policy = |(cell, cost): (&Cell, &Cost)| {
        let parts =
            cost.mapped.iter().map(|mapped| format!("{} as {}", format_bytes(mapped.bytes), mapped_in_words(mapped)));
        format!("{}: {}.", cell.policy, parts.collect::<Vec<_>>().join(", "))
    };
    costs(cells).map(policy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_size_has_a_shade_of_its_own_that_the_style_sheet_has() {
        let css = include_str!("../style.css");
        for count in 1..=SHADES {
            let kinds: Vec<(u64, u64)> = (0..count).map(|at| (4096 << at, 4096 << at)).collect();
            let mapped = kinds.iter().map(|(leaf, group)| Mapped { leaf_bytes: *leaf, group_bytes: *group, bytes: 0 });
            let shades: BTreeSet<String> = mapped.map(|mapped| shade(&kinds, &mapped)).collect();
            assert_eq!(shades.len(), count, "{shades:?}");
            assert!(shades.iter().all(|shade| css.contains(&format!(".{shade} {{"))), "{shades:?}");
        }
    }
}
