//! How much of the memory brings how much of the gain (`compare --shares`), for the page: a picture and a table for
//! each policy.

use study::comparison::Comparison;
use study::stats::CurvePoint;

use super::parts::{captioned, typeset};
use super::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH, round};
use super::tables::wide;
use crate::figure;
use crate::shares::{GainCurve, gain_curves, sentences, whole};
use crate::text::escape;

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 240.0;

/// The section; empty without `--shares`.
pub(super) fn section(comparison: &Comparison) -> String {
    let paragraphs = sentences(comparison);
    let paragraphs: String = paragraphs.iter().map(|one| format!("<p>{}</p>\n", escape(&typeset(one)))).collect();
    let shown = gain_curves(comparison)
        .iter()
        .map(|one| picture(comparison, one) + &table(comparison, one))
        .collect::<String>();
    paragraphs + &shown
}

fn picture(comparison: &Comparison, of: &GainCurve<'_>) -> String {
    let label = &comparison.design.arms[of.arm].label;
    let points = &of.curve.points;
    let ends = points.iter().map(|point| point.change).chain(of.curve.line.iter().map(|point| point.change));
    let values =
        ends.flat_map(|change| [Some(change.ratio), change.low, change.high]).flatten().map(|ratio| ratio * 100.0);
    let (low, high) = values.fold((-1.0, 1.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    let (x, y) = (Scale::new((0.0, 100.0), (LEFT, RIGHT)), Scale::new((low, high), (BOTTOM, TOP)));
    let title = format!("Change of {} by the share of {label}'s large memory", of.metric());
    let mut figure = Figure::new(&format!("shares{}", of.arm), &title, &description(comparison, of), BOTTOM + 48.0);
    axes(&mut figure, &x, &y);
    let style = ArmStyle::of(of.arm, comparison.design.baseline);
    line(&mut figure, of, &style, (&x, &y));
    points.iter().for_each(|point| mark(&mut figure, comparison, of, point, (&x, &y)));
    let caption = "Straight lines between measured shares; the band is where a measurement is expected";
    format!("<div class=\"figures\">\n{}</div>\n", captioned(&figure.finish(), caption))
}

fn axes(figure: &mut Figure, x: &Scale, y: &Scale) {
    for tick in y.ticks(5) {
        figure.line(if tick == 0.0 { "zero" } else { "grid" }, (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        figure.text(
            "tick",
            (LEFT - 8.0, y.at(tick) + 4.0),
            Anchor::End,
            &typeset(&format!("{} %", figure::plain(tick))),
        );
    }
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        figure.line("grid", (x.at(tick), BOTTOM), (x.at(tick), BOTTOM + 4.0));
        figure.text("tick", (x.at(tick), BOTTOM + 18.0), Anchor::Middle, &typeset(&format!("{tick:.0} %")));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 38.0), Anchor::Middle, "share of the large memory");
}

/// The curve as a line, in the band of its interval.
fn line(figure: &mut Figure, of: &GainCurve<'_>, style: &ArmStyle, (x, y): (&Scale, &Scale)) {
    let at = |share: f64, change: f64| format!("{} {}", round(x.at(share * 100.0)), round(y.at(change * 100.0)));
    let points = &of.curve.line;
    if points.is_empty() {
        return;
    }
    let low = points.iter().map(|point| at(point.share_ratio, point.change.low.unwrap_or(point.change.ratio)));
    let high = points.iter().rev().map(|point| at(point.share_ratio, point.change.high.unwrap_or(point.change.ratio)));
    figure.raw(&format!("<path class=\"band\" d=\"M{}Z\"/>", low.chain(high).collect::<Vec<_>>().join("L")));
    let middle: Vec<String> = points.iter().map(|point| at(point.share_ratio, point.change.ratio)).collect();
    figure.raw(&format!("<path class=\"curve {}\" d=\"M{}\"/>", style.class(), middle.join("L")));
}

fn mark(
    figure: &mut Figure,
    comparison: &Comparison,
    of: &GainCurve<'_>,
    point: &CurvePoint,
    (x, y): (&Scale, &Scale),
) {
    let share = point.seen_ratio.unwrap_or(point.asked_ratio).clamp(0.0, 1.0);
    let style = ArmStyle::of(if of.is_between(point) { of.arm } else { point.arm }, comparison.design.baseline);
    let class = if point.is_as_asked { "" } else { "void" };
    let across = x.at(share * 100.0);
    if let (Some(low), Some(high)) = (point.change.low, point.change.high) {
        let whisker = format!("whisker {} {class}", style.class());
        figure.line(&whisker, (across, y.at(low * 100.0)), (across, y.at(high * 100.0)));
    }
    let hover = typeset(&format!("{}: {}", comparison.design.arms[point.arm].label, of.change(point)));
    figure.raw(&style.mark((across, y.at(point.change.ratio * 100.0)), 5.0, class, &hover));
}

fn description(comparison: &Comparison, of: &GainCurve<'_>) -> String {
    let clause = |point: &CurvePoint| {
        let seen = point.seen_ratio.map_or("not known".to_owned(), |seen| format!("{} %", whole(seen)));
        format!("{}: share {seen}, change {}.", comparison.design.arms[point.arm].label, of.change(point))
    };
    of.curve.points.iter().map(clause).collect::<Vec<_>>().join(" ")
}

fn table(comparison: &Comparison, of: &GainCurve<'_>) -> String {
    let row = |point: &CurvePoint| {
        let seen = point.seen_ratio.map_or("not known".to_owned(), |seen| format!("{} %", whole(seen)));
        let gain =
            of.not_as_asked(point).map(|_| "does not count".to_owned()).or_else(|| of.gain(point)).unwrap_or_default();
        let peak = of.peak(point.arm).unwrap_or_default();
        let cells = [format!("{} %", whole(point.asked_ratio)), seen, of.change(point), gain, peak];
        let cells = cells.map(|cell| format!("<td class=\"n\">{}</td>", escape(&typeset(&cell))));
        format!(
            "<tr><th scope=\"row\">{}</th>{}</tr>\n",
            escape(&comparison.design.arms[point.arm].label),
            cells.concat()
        )
    };
    let body: String = of.curve.points.iter().map(row).collect();
    let titles = ["asked for", "seen", "change", "share of the gain", "peak memory"];
    let head = titles.map(|title| format!("<th scope=\"col\" class=\"n\">{title}</th>")).concat();
    let caption = format!(
        "Changes of {} with {} intervals; shares are of the memory that is large under the policy",
        of.metric(),
        figure::confidence(comparison.design.confidence)
    );
    wide(&caption, &format!("<th scope=\"col\">arm</th>{head}"), &body)
}
