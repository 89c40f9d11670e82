//! Memory against speed: a point per policy, and the front of the policies that no other policy beats in both.

use study::stats::Effect;
use study_files::matrix::{CostAndMemory, Matrix, Total};

use super::Anchors;
use crate::figure::{self, Change};
use crate::html::axis;
use crate::html::parts::{captioned, typeset};
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH, round};
use crate::matrix::{all_machine_figures, place, totals_of};

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 252.0;

/// A picture for each machine on which policies other than the baseline have figures.
pub(super) fn trades(matrix: &Matrix, anchors: Anchors) -> String {
    let mut pictures = String::new();
    for (at, machine_figures) in all_machine_figures(matrix).into_iter().enumerate() {
        let totals = totals_of(matrix, machine_figures);
        let points: Vec<(usize, &Total, &CostAndMemory)> =
            totals.iter().enumerate().filter_map(|(at, total)| Some((at, *total, total.trade.as_ref()?))).collect();
        if points.len() > 1 {
            let of_baseline = totals.iter().position(|total| total.policy == matrix.baseline).unwrap_or(usize::MAX);
            pictures.push_str(&captioned(
                &picture(&points, of_baseline, &format!("{}-trade{at}", anchors.prefix())),
                &place(machine_figures),
            ));
        }
    }
    if pictures.is_empty() {
        pictures
    } else {
        format!(
            "<p>Cost to the right, memory upwards (peak resident set plus page tables; in a model also memory that is \
         held but not mapped), both against the baseline, as geometric means over the workloads for which both are known, \
         with {} intervals. Filled and joined: no other policy has less of one without more of the other.</p>\n<div \
         class=\"figures\">\n{pictures}</div>\n",
            figure::confidence(0.95)
        )
    }
}

fn picture(points: &[(usize, &Total, &CostAndMemory)], of_baseline: usize, id: &str) -> String {
    let x = scale(points.iter().map(|(_, _, trade)| trade.cost.effect()), (LEFT, RIGHT));
    let y = scale(points.iter().map(|(_, _, trade)| trade.memory.effect()), (BOTTOM, TOP));
    let sentences: Vec<String> = points.iter().map(|(_, total, trade)| in_words(total, trade)).collect();
    let mut figure = Figure::new(id, "Memory against speed", &sentences.join(" "), BOTTOM + 44.0);
    for tick in x.ticks(5) {
        figure.line(if tick == 0.0 { "zero" } else { "grid" }, (x.at(tick), TOP), (x.at(tick), BOTTOM));
        figure.text("tick", (x.at(tick), BOTTOM + 15.0), Anchor::Middle, &tick_text(tick));
    }
    for tick in y.ticks(5) {
        figure.line(if tick == 0.0 { "zero" } else { "grid" }, (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        figure.text("tick", (LEFT - 6.0, y.at(tick) + 4.0), Anchor::End, &tick_text(tick));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 34.0), Anchor::Middle, "← less cost; less memory ↓");
    front(&mut figure, points, (&x, &y));
    for (at, total, trade) in points {
        let style = ArmStyle::of(*at, of_baseline);
        let class = if trade.is_front { "" } else { "void" };
        let (cost, memory) = (trade.cost.effect(), trade.memory.effect());
        let place = (x.within(percent(cost.ratio)).0, y.within(percent(memory.ratio)).0);
        let whisker = format!("whisker thin {}", style.class());
        if let Some((low, high)) = cost.low.zip(cost.high) {
            figure.whisker(&whisker, &x, (percent(low), percent(high)), place.1, 0.0);
        }
        if let Some((low, high)) = memory.low.zip(memory.high) {
            let [low, high] = [low, high].map(|end| y.within(percent(end)).0);
            figure.line(&whisker, (place.0, low), (place.0, high));
        }
        figure.raw(&style.mark(place, 5.0, class, &typeset(&in_words(total, trade))));
    }
    let entry = |(at, total, trade): &(usize, &Total, &CostAndMemory)| {
        let class = if trade.is_front { "" } else { "void" };
        let mark = ArmStyle::of(*at, of_baseline).mark((8.0, 6.0), 4.5, class, "");
        let text = crate::text::escape(&typeset(&in_words(total, trade)));
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{text}</li>")
    };
    format!("{}<ul class=\"legend\">{}</ul>\n", figure.finish(), points.iter().map(entry).collect::<String>())
}

/// Connects the points of the front, in the order of their memory cost.
fn front(figure: &mut Figure, points: &[(usize, &Total, &CostAndMemory)], (x, y): (&Scale, &Scale)) {
    let mut front: Vec<(f64, f64)> = points
        .iter()
        .filter(|(_, _, trade)| trade.is_front)
        .map(|(_, _, trade)| (x.within(percent(trade.cost.ratio)).0, y.within(percent(trade.memory.ratio)).0))
        .collect();
    front.sort_by(|one, other| one.0.total_cmp(&other.0));
    let points: Vec<String> = front.iter().map(|(x, y)| format!("{},{}", round(*x), round(*y))).collect();
    figure.raw(&format!("<polyline class=\"path c0\" points=\"{}\"/>", points.join(" ")));
}

/// The scale of an axis, in percent, that contains all estimates and ends of intervals.
fn scale(effects: impl Iterator<Item = Effect>, coordinates: (f64, f64)) -> Scale {
    let change = |effect: Effect| {
        let Change { percent, interval, .. } = Change::of(&effect);
        (percent, interval)
    };
    Scale::new(axis::of_changes(&effects.map(change).collect::<Vec<_>>(), 1.0), coordinates)
}

fn tick_text(tick: f64) -> String {
    typeset(&format!("{} %", figure::plain(tick)))
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn in_words(total: &Total, trade: &CostAndMemory) -> String {
    let change = |effect: Effect| {
        let change = Change::of(&effect);
        let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
        format!("{}{range}", change.estimate())
    };
    match (trade.cost.ratio, trade.memory.ratio) {
        (1.0, 1.0) => format!("{}: nothing gained and nothing paid.", total.policy),
        _ => {
            format!("{}: cost {}, memory {}.", total.policy, change(trade.cost.effect()), change(trade.memory.effect()))
        }
    }
}
