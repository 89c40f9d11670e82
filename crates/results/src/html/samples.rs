//! A figure with every sample of one metric in execution order, which makes drift visible.

use std::collections::BTreeMap;

use study::comparison::Comparison;
use study::metric::Metric;
use study::trial::TrialRecord;

use super::axis;
use super::parts::metric_name;
use super::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH, round};
use crate::figure;
use crate::rows::accepted;
use crate::text::printable;

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 6.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 262.0;
/// Maximum number of blocks whose numbers fit next to each other.
const NUMBERS: usize = 20;

/// A sample of an arm.
struct Sample<'a> {
    record: &'a TrialRecord,
    value: f64,
}

/// The figure; `None` if the metric was never observed.
pub(super) fn figure(comparison: &Comparison, metric: &Metric, id: &str) -> Option<String> {
    let samples: Vec<Sample<'_>> = comparison
        .trials
        .iter()
        .filter(|record| comparison.design.is_compared(record.trial.arm))
        .filter_map(|record| Some(Sample { record, value: record.value(&metric.name)? }))
        .filter(|sample| sample.value.is_finite())
        .collect();
    let first = samples.first()?;
    let ends = |values: &mut dyn Iterator<Item = f64>, start: f64| {
        values.fold((start, start), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (low, high) = ends(&mut samples.iter().map(|sample| sample.value), first.value);
    let (begin, end) = ends(&mut samples.iter().map(|sample| sample.record.started_s), first.record.started_s);
    let y = Scale::new(axis::of_samples(groups(comparison, &samples).iter().map(Vec::as_slice))?, (BOTTOM, TOP));
    let side = (end - begin) * 0.02;
    let x = Scale::new((begin - side, end + side), (LEFT, RIGHT));
    let title = format!("Samples of {} in the order of the runs", metric_name(&metric.name));
    let description = format!(
        "{} samples between {} and {}; the medians are in the table of all figures.",
        samples.len(),
        figure::short(low, metric.unit),
        figure::short(high, metric.unit)
    );
    let mut figure = Figure::new(id, &title, &description, BOTTOM + 46.0);
    blocks(&mut figure, comparison, &x);
    axes(&mut figure, &x, &y, metric);
    for arm in comparison.design.compared() {
        draw(&mut figure, comparison, &samples, arm, (&x, &y), metric);
    }
    Some(figure.finish())
}

/// The samples of each arm. Discarded samples are used only if there are no others.
fn groups(comparison: &Comparison, samples: &[Sample<'_>]) -> Vec<Vec<f64>> {
    let of_arm = |arm: usize, counts: bool| {
        let own = samples.iter().filter(move |sample| sample.record.trial.arm == arm);
        let own = own.filter(move |sample| !counts || sample.record.trial.block > 0);
        own.map(|sample| sample.value).collect::<Vec<f64>>()
    };
    let groups = |counts: bool| comparison.design.compared().map(|arm| of_arm(arm, counts)).collect::<Vec<_>>();
    let counted = groups(true);
    if counted.iter().all(Vec::is_empty) { groups(false) } else { counted }
}

/// Shades every other block; the discarded block is hatched.
fn blocks(figure: &mut Figure, comparison: &Comparison, x: &Scale) {
    let mut starts: BTreeMap<u32, f64> = BTreeMap::new();
    for record in &comparison.trials {
        let start = starts.entry(record.trial.block).or_insert(f64::INFINITY);
        *start = start.min(record.started_s);
    }
    let starts: Vec<(u32, f64)> = starts.into_iter().collect();
    // A block's samples begin at its first trial; the border is drawn slightly before it.
    let border = |at: usize| starts.get(at).filter(|_| at > 0).map(|(_, start)| x.at(*start) - 2.5);
    for (at, (block, _)) in starts.iter().enumerate() {
        let (from, to) = (border(at).unwrap_or(LEFT), border(at + 1).unwrap_or(RIGHT));
        if !from.is_finite() || !to.is_finite() {
            continue;
        }
        let class = match block {
            0 => "discarded",
            odd if odd % 2 == 1 => "odd",
            _ => "even",
        };
        let hover = if *block == 0 { "block 0 is discarded".to_string() } else { format!("block {block}") };
        figure.rectangle(class, (from, TOP), (to - from, BOTTOM - TOP), &hover);
        if at % ((starts.len() - 1) / NUMBERS + 1) == 0 {
            figure.text("tick", ((from + to) / 2.0, TOP - 6.0), Anchor::Middle, &block.to_string());
        }
    }
    figure.text("tick", (LEFT - 8.0, TOP - 6.0), Anchor::End, "block");
}

fn axes(figure: &mut Figure, x: &Scale, y: &Scale, metric: &Metric) {
    for tick in y.ticks(5) {
        figure.line("grid", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        figure.text("tick", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &figure::tick(tick, metric.unit));
    }
    for tick in x.ticks(6).into_iter().filter(|tick| *tick >= 0.0) {
        figure.line("grid", (x.at(tick), BOTTOM), (x.at(tick), BOTTOM + 4.0));
        figure.text("tick", (x.at(tick), BOTTOM + 17.0), Anchor::Middle, &figure::plain(tick));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 37.0), Anchor::Middle, "seconds since the comparison began");
}

fn draw(
    figure: &mut Figure,
    comparison: &Comparison,
    samples: &[Sample<'_>],
    arm: usize,
    (x, y): (&Scale, &Scale),
    metric: &Metric,
) {
    let style = ArmStyle::of(arm, comparison.design.baseline);
    let place = |sample: &Sample<'_>| (x.at(sample.record.started_s), y.within(sample.value).0);
    let own: Vec<&Sample<'_>> = samples.iter().filter(|sample| sample.record.trial.arm == arm).collect();
    let counted = own.iter().filter(|sample| sample.record.trial.block > 0 && accepted(sample.record));
    let points: Vec<String> =
        counted.map(|sample| place(sample)).map(|(x, y)| format!("{},{}", round(x), round(y))).collect();
    figure.raw(&format!("<polyline class=\"path {}\" points=\"{}\"/>", style.class(), points.join(" ")));
    for sample in own {
        let trial = sample.record.trial;
        let (class, note) = match (accepted(sample.record), trial.block) {
            (false, _) => ("void", ", rejected"),
            (true, 0) => ("faint", ", discarded"),
            (true, _) => ("", ""),
        };
        let label = printable(&comparison.design.arms[arm].label);
        let value = figure::short(sample.value, metric.unit);
        let beyond = if y.within(sample.value).1.is_some() { ", beyond the axis" } else { "" };
        let hover = format!("{label}, block {}: {value}{note}{beyond}", trial.block);
        let (x, y) = place(sample);
        figure.raw(&style.mark((x, y), 3.6, class, &hover));
        if !accepted(sample.record) {
            figure.line("rejected", (x - 7.0, y - 7.0), (x + 7.0, y + 7.0));
            figure.line("rejected", (x - 7.0, y + 7.0), (x + 7.0, y - 7.0));
        }
    }
}
