//! Heat maps: misses by sets and ways.

use crate::figure;
use crate::html::svg::{Anchor, Figure, WIDTH, round};
use crate::simulation::{Sweep, rate_in_words};
use crate::text::escape;
use policy::size::format_bytes;
use study::metric::Unit;

const LEFT: f64 = 64.0;
const TOP: f64 = 26.0;
const LINE: f64 = 22.0;
/// Maximum number of labels for ways above a map.
const MAX_NUMBERS: usize = 24;

/// The map of one page size: sets as rows, ways as columns.
pub(super) fn map(sweep: &Sweep, page_bytes: u64, id: &str) -> String {
    let (mut sets, mut ways): (Vec<u32>, Vec<u32>) =
        sweep.of_size(page_bytes).map(|geometry| (geometry.sets, geometry.ways)).unzip();
    for axis in [&mut sets, &mut ways] {
        axis.sort_unstable();
        axis.dedup();
    }
    let cell = (WIDTH - LEFT - 4.0) / ways.len().max(1) as f64;
    let size = format_bytes(page_bytes);
    let title = format!("Misses over sets and ways, pages of {size}");
    let description = format!("{} geometries; the numbers are in the table below.", sets.len() * ways.len());
    let mut figure = Figure::new(id, &title, &description, TOP + LINE * sets.len() as f64 + 2.0);
    figure.text("axis", (0.0, 15.0), Anchor::Start, "sets \\ ways");
    // As many labels as fit next to each other.
    let step = ways.len().div_ceil(MAX_NUMBERS).max(1);
    for (at, count) in ways.iter().enumerate().step_by(step) {
        figure.text("tick", (LEFT + cell * (at as f64 + 0.5), 15.0), Anchor::Middle, &count.to_string());
    }
    for (at, count) in sets.iter().enumerate() {
        figure.text("tick", (LEFT - 10.0, TOP + LINE * at as f64 + 15.0), Anchor::End, &count.to_string());
    }
    for geometry in sweep.of_size(page_bytes) {
        let (Ok(row), Ok(column)) = (sets.binary_search(&geometry.sets), ways.binary_search(&geometry.ways)) else {
            continue;
        };
        let (x, y) = (LEFT + cell * column as f64, TOP + LINE * row as f64);
        let rate = rate_in_words(sweep.per.rate(geometry.misses));
        let hover = format!(
            "{} sets of {} ways, pages of {size}: {} misses, {rate} per 1000 {}",
            geometry.sets,
            geometry.ways,
            figure::long(geometry.misses as f64, Unit::Count),
            sweep.per.unit()
        );
        figure.raw(&format!(
            "<rect class=\"heat\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"{:.2}\"><title>{}</title></rect>",
            round(x),
            round(y),
            round(cell - 1.5),
            round(LINE - 1.5),
            opacity(sweep, geometry.misses),
            escape(&hover)
        ));
    }
    figure.finish()
}

/// The opacity of a cell; never zero, so that every cell is visible.
fn opacity(sweep: &Sweep, misses: u64) -> f64 {
    if misses == 0 { 0.03 } else { 0.08 + 0.92 * sweep.heat(misses) }
}

/// The legend of the scale, which all maps of a trace share.
pub(super) fn legend(sweep: &Sweep) -> String {
    let Some((least, most)) = sweep.rates() else { return "<p>No geometry misses.</p>\n".to_string() };
    let steps = [0.0, 0.25, 0.5, 0.75, 1.0].map(|step| {
        let rate = least * (most / least).powf(step);
        format!(
            "<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\"><rect class=\"heat\" width=\"16\" height=\"12\" \
             fill-opacity=\"{:.2}\"/></svg>{}</li>",
            0.08 + 0.92 * step,
            escape(&rate_in_words(rate))
        )
    });
    format!("<ul class=\"legend\">{}<li>misses per 1000 {}</li></ul>\n", steps.concat(), sweep.per.unit())
}
