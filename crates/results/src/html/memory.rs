//! A figure of the memory cost of each policy: the peak resident set, and the page tables.

use study::metric::{Unit, names};

use super::svg::{Anchor, ArmStyle, Figure, Scale};
use crate::figure;
use crate::rows::Row;

const LABEL: f64 = 142.0;
const TOP: f64 = 26.0;
const LINE: f64 = 30.0;
/// The two panels: left edge, metric and title.
const PANELS: [(f64, &str, &str); 2] =
    [(LABEL, names::PEAK_RESIDENT_BYTES, "peak memory"), (360.0, names::PAGE_TABLE_SEEN_BYTES, "page tables")];
const BAR: f64 = 138.0;

/// The figure; `None` if neither metric was observed.
pub(super) fn figure(rows: &[Row<'_>], baseline: usize) -> Option<String> {
    let observed = |row: &Row<'_>| PANELS.iter().any(|(_, metric, _)| row.median(metric).is_some());
    if !rows.iter().any(observed) {
        return None;
    }
    let height = TOP + LINE * rows.len() as f64 + 4.0;
    let mut figure = Figure::new("memory", "Peak memory, and page tables", &description(rows), height);
    for (at, row) in rows.iter().enumerate() {
        figure.label((LABEL - 12.0, TOP + LINE * at as f64 + 18.0), &row.arm.label);
    }
    for (left, metric, title) in PANELS {
        figure.text("head", (left, 14.0), Anchor::Start, title);
        let most = rows.iter().filter_map(|row| row.median(metric)).fold(0.0, f64::max);
        let scale = Scale::new((0.0, most.max(1.0)), (0.0, BAR));
        for (at, row) in rows.iter().enumerate() {
            bar(&mut figure, row, (left, TOP + LINE * at as f64), metric, &scale, baseline);
        }
        figure.line("zero", (left, TOP), (left, height));
    }
    Some(figure.finish())
}

fn bar(figure: &mut Figure, row: &Row<'_>, (x, y): (f64, f64), metric: &str, scale: &Scale, baseline: usize) {
    let Some(bytes) = row.median(metric) else {
        return figure.text("none", (x + 8.0, y + 18.0), Anchor::Start, "not observed");
    };
    let width = scale.at(bytes);
    let text = figure::short(bytes, Unit::Bytes);
    let style = ArmStyle::of(row.index, baseline);
    figure.rectangle(
        &format!("bar {}", style.class()),
        (x, y + 5.0),
        (width, LINE - 12.0),
        &format!("{}: {text}", row.label()),
    );
    figure.text("value", (x + width + 6.0, y + 18.0), Anchor::Start, &text);
}

fn description(rows: &[Row<'_>]) -> String {
    let figure = |row: &Row<'_>, metric: &str| {
        row.median(metric).map_or("not observed".to_string(), |bytes| figure::short(bytes, Unit::Bytes))
    };
    let arm = |row: &Row<'_>| {
        let [peak, tables] = PANELS.map(|(_, metric, _)| figure(row, metric));
        format!("{}: peak memory {peak}, page tables {tables}.", row.label())
    };
    rows.iter().map(arm).collect::<Vec<_>>().join(" ")
}
