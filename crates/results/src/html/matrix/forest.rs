//! Forest plots: for one policy on one machine, the change of each workload with its interval, and their mean.

use study::stats::Effect;
use study_files::matrix::{Cell, Matrix, Row};

use super::Anchors;
use crate::figure::{self, Change};
use crate::html::axis;
use crate::html::parts::{captioned, typeset};
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH};
use crate::matrix::{all_machine_figures, place, rows_of, totals_of};

const LEFT: f64 = 142.0;
const RIGHT: f64 = 436.0;
const TOP: f64 = 12.0;
const LINE: f64 = 26.0;

/// A plot per machine and policy: a line per workload, and their mean.
pub fn forests(matrix: &Matrix, anchors: Anchors) -> String {
    let mut forests = String::new();
    for (at, machine_figures) in all_machine_figures(matrix).into_iter().enumerate() {
        let rows: Vec<&Row> = rows_of(matrix, machine_figures).collect();
        for (policy, name) in matrix.policies.iter().enumerate() {
            let total = totals_of(matrix, machine_figures).into_iter().find(|total| total.policy == *name);
            let mean =
                total.filter(|total| !total.has_too_few()).and_then(|total| total.mean).map(|mean| mean.effect());
            let id = format!("{}-forest{at}-{policy}", anchors.prefix());
            let title = format!("{name} against {} on {}", matrix.baseline, place(machine_figures));
            let lines = lines(&rows, policy, mean, &|row| anchors.of(matrix, row));
            if let Some(picture) = forest(&lines, policy, &id, &title) {
                forests.push_str(&captioned(&picture, &title));
            }
        }
    }
    if forests.is_empty() {
        forests
    } else {
        format!(
            "<p>Cost, with {} intervals; throughput is inverted. The last line is the geometric mean, with six workloads or more. Hollow: the change is not \
         claimed to be the policy's.</p>\n<div class=\"figures\">\n{forests}</div>\n",
            figure::confidence(0.95)
        )
    }
}

/// A line of a plot.
struct Line {
    label: String,
    effect: Effect,
    is_claim: bool,
    /// HTML id of the workload's row, to which the mark links; `None` for the mean.
    anchor: Option<String>,
}

/// A line for each workload with a change. If there are several, their mean follows.
fn lines(rows: &[&Row], policy: usize, mean: Option<Effect>, anchor: &dyn Fn(&Row) -> String) -> Vec<Line> {
    let of_row = |row: &&Row| {
        let cell: &Cell = &row.cells[policy];
        let (label, anchor) = (row.workload.clone(), Some(anchor(row)));
        Some(Line { label, effect: row.cost(cell)?, is_claim: cell.has_claim(), anchor })
    };
    let mut lines: Vec<Line> = rows.iter().filter_map(of_row).collect();
    let mean = mean.filter(|_| lines.len() > 1);
    let of_all = |effect| Line { label: "geometric mean".to_owned(), effect, is_claim: true, anchor: None };
    lines.extend(mean.map(of_all));
    lines
}

fn forest(lines: &[Line], policy: usize, id: &str, title: &str) -> Option<String> {
    if lines.is_empty() {
        return None;
    }
    let change = |line: &Line| {
        let Change { percent, interval, .. } = Change::of(&line.effect);
        (percent, interval)
    };
    let changes: Vec<_> = lines.iter().map(change).collect();
    let scale = Scale::new(axis::of_changes(&changes, 1.5), (LEFT, RIGHT));
    let bottom = TOP + LINE * lines.len() as f64;
    let sentences: Vec<String> =
        lines.iter().map(|line| format!("{}: {}.", line.label, in_words(&line.effect))).collect();
    let mut figure = Figure::new(id, title, &sentences.join(" "), bottom + 44.0);
    for tick in scale.ticks(5) {
        let x = scale.at(tick);
        figure.line(if tick == 0.0 { "zero" } else { "grid" }, (x, TOP), (x, bottom));
        figure.text("tick", (x, bottom + 15.0), Anchor::Middle, &typeset(&format!("{} %", figure::plain(tick))));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, bottom + 34.0), Anchor::Middle, "← less cost");
    for (at, line) in lines.iter().enumerate() {
        draw(&mut figure, line, policy, &scale, TOP + LINE * (at as f64 + 0.5));
    }
    Some(figure.finish())
}

fn in_words(effect: &Effect) -> String {
    let change = Change::of(effect);
    let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
    format!("{}{range}", change.estimate())
}

fn draw(figure: &mut Figure, line: &Line, policy: usize, scale: &Scale, y: f64) {
    let style = ArmStyle::of(policy + 1, 0);
    let class = if line.is_claim { "" } else { "void" };
    figure.label((LEFT - 12.0, y + 4.0), &line.label);
    let change = Change::of(&line.effect);
    let whisker = format!("whisker {} {class}", style.class());
    if let Some(interval) = change.interval {
        figure.whisker(&whisker, scale, interval, y, 0.0);
    }
    let hover = typeset(&format!("{}: {}", line.label, in_words(&line.effect)));
    let mark = match scale.within(change.percent) {
        (x, None) => style.mark((x, y), 4.5, class, &hover),
        (x, Some(side)) => {
            figure.arrow(&whisker, (x, y), side);
            String::new()
        }
    };
    match &line.anchor {
        // The cells of the heat map already link to the same rows, so these links are left out of the tab order.
        Some(anchor) => figure.raw(&format!("<a href=\"#{anchor}\" tabindex=\"-1\">{mark}</a>")),
        None => figure.raw(&mark),
    }
    figure.text("value", (WIDTH - 2.0, y + 4.0), Anchor::End, &typeset(&change.estimate()));
}
