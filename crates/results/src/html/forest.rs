//! The changes of one metric with their intervals, one line per policy.

use study::comparison::Comparison;
use study::metric::{Direction, Metric};
use study::stats::Outcome;

use super::axis;
use super::parts::{metric_name, typeset};
use super::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH};
use crate::figure::{self, Change};
use crate::rows::{Row, baseline_label};

const LEFT: f64 = 142.0;
const RIGHT: f64 = 436.0;
const TOP: f64 = 12.0;
const LINE: f64 = 36.0;

/// The figure; `None` if no arm has a change of this metric.
pub(super) fn figure(comparison: &Comparison, rows: &[Row<'_>], metric: &Metric, id: &str) -> Option<String> {
    let others: Vec<&Row<'_>> = rows.iter().filter(|row| row.index != comparison.design.baseline).collect();
    let changes: Vec<Option<Change>> = others.iter().map(|row| row.effect(&metric.name).map(Change::of)).collect();
    let scale = scale(comparison, changes.iter().flatten())?;
    let bottom = TOP + LINE * others.len() as f64;
    let title = format!("Change of {} against {}", metric_name(&metric.name), baseline_label(comparison));
    let mut figure = Figure::new(id, &title, &description(&others, &changes), bottom + 48.0);
    frame(&mut figure, comparison, &scale, bottom, metric);
    for (at, (row, change)) in others.iter().zip(&changes).enumerate() {
        let y = TOP + LINE * (at as f64 + 0.5);
        figure.label((LEFT - 12.0, y + 4.0), &row.arm.label);
        match change {
            Some(change) => draw(&mut figure, comparison, row, change, &scale, y),
            None => figure.text("none", (LEFT + 8.0, y + 4.0), Anchor::Start, &row.outcome()),
        }
    }
    Some(figure.finish())
}

/// The scale that contains all changes; `None` if there is no change.
fn scale<'a>(comparison: &Comparison, changes: impl Iterator<Item = &'a Change>) -> Option<Scale> {
    let changes: Vec<_> = changes.map(|change| (change.percent, change.interval)).collect();
    let is_finite = changes.iter().any(|(estimate, _)| estimate.is_finite());
    let least = 1.5 * comparison.design.band_ratio * 100.0;
    is_finite.then(|| Scale::new(axis::of_changes(&changes, least), (LEFT, RIGHT)))
}

fn frame(figure: &mut Figure, comparison: &Comparison, scale: &Scale, bottom: f64, metric: &Metric) {
    let band = comparison.design.band_ratio * 100.0;
    let (from, to) = (scale.at(-band), scale.at(band));
    let hover = format!("changes within {} % do not matter", figure::plain(band));
    figure.rectangle("band", (from, TOP), (to - from, bottom - TOP), &hover);
    for tick in scale.ticks(5) {
        let x = scale.at(tick);
        figure.line(if tick == 0.0 { "zero" } else { "grid" }, (x, TOP), (x, bottom));
        figure.text("tick", (x, bottom + 15.0), Anchor::Middle, &typeset(&format!("{} %", signed(tick))));
    }
    let better = match metric.direction {
        Direction::Lower => "← less is better",
        Direction::Higher => "more is better →",
    };
    figure.text("axis", ((LEFT + RIGHT) / 2.0, bottom + 36.0), Anchor::Middle, better);
}

fn signed(tick: f64) -> String {
    let plain = figure::plain(tick);
    if tick > 0.0 { format!("+{plain}") } else { plain }
}

fn draw(figure: &mut Figure, comparison: &Comparison, row: &Row<'_>, change: &Change, scale: &Scale, y: f64) {
    let style = ArmStyle::of(row.index, comparison.design.baseline);
    let void =
        !row.is_held() || matches!(row.analysis.map(|analysis| &analysis.outcome), Some(Outcome::WithinTracerCost));
    let class = if void { "void" } else { "" };
    let whisker = format!("whisker {} {class}", style.class());
    if let Some(interval) = change.interval {
        figure.whisker(&whisker, scale, interval, y, 5.0);
    }
    let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
    let hover = typeset(&format!("{}: {}{range}, {}", row.label(), change.estimate(), row.outcome()));
    match scale.within(change.percent) {
        (x, None) => figure.raw(&style.mark((x, y), 5.0, class, &hover)),
        (x, Some(side)) => figure.arrow(&whisker, (x, y), side),
    }
    let note = if void { " *" } else { "" };
    figure.text("value", (WIDTH - 2.0, y - 1.0), Anchor::End, &typeset(&format!("{}{note}", change.estimate())));
    if let Some(range) = change.range() {
        figure.text("range", (WIDTH - 2.0, y + 13.0), Anchor::End, &typeset(&range));
    }
}

fn description(rows: &[&Row<'_>], changes: &[Option<Change>]) -> String {
    let clause = |(row, change): (&&Row<'_>, &Option<Change>)| match change {
        Some(change) => {
            let range = change.range().map(|range| format!(", interval {range}")).unwrap_or_default();
            format!("{}: {}{range}, {}.", row.label(), change.estimate(), row.outcome())
        }
        None => format!("{}: no change known, {}.", row.label(), row.outcome()),
    };
    rows.iter().zip(changes).map(clause).collect::<Vec<_>>().join(" ")
}
