//! Curves on a simulation's page: misses against entries, and memory against page size.

use crate::figure;
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH, round};
use crate::simulation::{Cell, Cost, Sweep, Trace, rate_in_words};
use crate::text::escape;
use policy::size::format_bytes;
use study::metric::Unit;

use super::parts::costs;

const LEFT: f64 = 72.0;
/// Right end of the axis; the rest leaves room for half of the longest label.
const RIGHT: f64 = WIDTH - 26.0;
/// Minimum distance between the centres of two axis labels.
const MIN_LABEL_DISTANCE: f64 = 36.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 290.0;
const HEIGHT: f64 = BOTTOM + 44.0;
/// Decades shown below the greatest rate.
const DECADES: f64 = 7.0;

/// Misses per 1000 instructions (or runs) against TLB entries, both on logarithmic scales; a line per page size.
pub(super) fn misses(sweep: &Sweep, id: &str) -> Option<String> {
    let sizes = sweep.page_sizes();
    let curves: Vec<(u64, Vec<(u64, u64)>)> = sizes.iter().map(|size| (*size, sweep.curve(*size))).collect();
    let entries = curves.iter().flat_map(|(_, points)| points).map(|(entries, _)| *entries as f64);
    let most_entries = entries.fold(1.0, f64::max);
    let (least, most) = sweep.rates()?;
    let (floor, ceiling) = (least.log10().floor().max(most.log10().ceil() - DECADES), most.log10().ceil());
    let across = Scale::new((0.0, most_entries.log2()), (LEFT, RIGHT));
    let up = Scale::new((floor, ceiling.max(floor + 1.0)), (BOTTOM, TOP));
    let unit = sweep.per.unit();
    let mut figure =
        Figure::new(id, &format!("Misses per 1000 {unit} against entries"), &described(sweep, &curves), HEIGHT);
    for power in (0..=most_entries.log2() as u32).step_by(2) {
        let x = across.at(f64::from(power));
        figure.line("grid", (x, TOP), (x, BOTTOM));
        figure.text("tick", (x, BOTTOM + 16.0), Anchor::Middle, &(1u64 << power).to_string());
    }
    for decade in floor as i32..=ceiling.max(floor + 1.0) as i32 {
        let y = up.at(f64::from(decade));
        figure.line("grid", (LEFT, y), (RIGHT, y));
        figure.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &figure::plain(10f64.powi(decade)));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 36.0), Anchor::Middle, "entries of the TLB");
    for (at, (size, points)) in curves.iter().enumerate() {
        let place = |(entries, misses): &(u64, u64)| {
            let rate = sweep.per.rate(*misses).log10().max(floor);
            (across.at((*entries as f64).log2()), up.at(rate))
        };
        line(&mut figure, style(at), points.iter().map(place));
        for point in points {
            let hover = format!(
                "{} entries, pages of {}: {} misses, {} per 1000 {unit}",
                point.0,
                format_bytes(*size),
                figure::long(point.1 as f64, Unit::Count),
                rate_in_words(sweep.per.rate(point.1))
            );
            figure.raw(&style(at).mark(place(point), 3.6, "", &hover));
        }
    }
    Some(figure.finish())
}

fn style(at: usize) -> ArmStyle {
    ArmStyle::of(at, 0)
}

/// Draws straight lines through points.
fn line(figure: &mut Figure, style: ArmStyle, points: impl Iterator<Item = (f64, f64)>) {
    let path: Vec<String> = points.map(|(x, y)| format!("{} {}", round(x), round(y))).collect();
    if path.len() > 1 {
        figure.raw(&format!("<path class=\"curve {}\" d=\"M{}\"/>", style.class(), path.join("L")));
    }
}

fn described(sweep: &Sweep, curves: &[(u64, Vec<(u64, u64)>)]) -> String {
    let curve = |(size, points): &(u64, Vec<(u64, u64)>)| {
        let points: Vec<String> = points
            .iter()
            .map(|(entries, misses)| format!("{entries}: {}", rate_in_words(sweep.per.rate(*misses))))
            .collect();
        format!("Pages of {}: {}.", format_bytes(*size), points.join(", "))
    };
    curves.iter().map(curve).collect::<Vec<_>>().join(" ")
}

/// Legend of the lines by page size.
pub(super) fn legend(sizes: &[u64]) -> String {
    let entry = |(at, size): (usize, &u64)| {
        let mark = style(at).mark((8.0, 6.0), 4.5, "", "");
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(&format_bytes(*size)))
    };
    format!("<ul class=\"legend\">{}</ul>\n", sizes.iter().enumerate().map(entry).collect::<String>())
}

/// For each policy of the first machine: the page size that it requests, and the peak of resident memory.
fn peaks(trace: &Trace) -> Vec<(String, u64, u64)> {
    let of_first = |cell: &Cell| trace.cells.first().is_some_and(|first| first.machine == cell.machine);
    let peak = |(cell, cost): (&Cell, &Cost)| (cell.policy.clone(), cost.page_bytes, cost.resident_peak_bytes);
    costs(&trace.cells).filter(|(cell, _)| of_first(cell)).map(peak).collect()
}

/// Legend of the marks in [`memory`].
pub(super) fn memory_legend(trace: &Trace) -> String {
    let pages = ("all pages that are touched".to_owned(), 1);
    let peaks = peaks(trace).into_iter().enumerate().map(|(at, (policy, ..))| (format!("peak under {policy}"), at + 2));
    let entry = |(text, at): (String, usize)| {
        let mark = style(at).mark((8.0, 6.0), 4.5, "", "");
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(&text))
    };
    let entries: String = std::iter::once(pages).chain(peaks).map(entry).collect();
    format!("<ul class=\"legend\">{entries}</ul>\n")
}

/// Memory against page size. The line with small marks: bytes of touched pages. The larger marks: the peak under each policy, at the
/// page size that it requests.
pub(super) fn memory(trace: &Trace, id: &str) -> Option<String> {
    let footprints = &trace.sweep.as_ref()?.footprints;
    let peaks = peaks(trace);
    let (first, last) = (footprints.first()?.0, footprints.last()?.0);
    let all = || {
        footprints
            .iter()
            .map(|(_, bytes)| *bytes)
            .chain(peaks.iter().map(|(_, _, bytes)| *bytes))
            .filter(|bytes| *bytes > 0)
    };
    let (least, most) = (all().min()? as f64, all().max()? as f64);
    let (floor, ceiling) = (least.log2().floor(), most.log2().ceil().max(least.log2().floor() + 1.0));
    let across = Scale::new(((first as f64).log2(), (last as f64).log2()), (LEFT, RIGHT));
    let up = Scale::new((floor, ceiling), (BOTTOM, TOP));
    let touched: Vec<String> =
        footprints.iter().map(|(size, bytes)| format!("{}: {}", format_bytes(*size), format_bytes(*bytes))).collect();
    let described = peaks.iter().map(|(policy, _, bytes)| format!("{policy}: {}", format_bytes(*bytes)));
    let described =
        format!("Touched by page size: {}. Peaks: {}.", touched.join(", "), described.collect::<Vec<_>>().join(", "));
    let mut figure = Figure::new(id, "Memory against page size", &described, HEIGHT);
    let step = ((ceiling - floor) / 6.0).ceil().max(1.0) as usize;
    for power in (floor as u32..=ceiling as u32).step_by(step) {
        let y = up.at(f64::from(power));
        figure.line("grid", (LEFT, y), (RIGHT, y));
        figure.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &format_bytes(1u64 << power.min(62)));
    }
    let mut last_label = f64::NEG_INFINITY;
    for (size, _) in footprints {
        let x = across.at((*size as f64).log2());
        figure.line("grid", (x, TOP), (x, BOTTOM));
        if x - last_label >= MIN_LABEL_DISTANCE {
            figure.text("tick", (x, BOTTOM + 16.0), Anchor::Middle, &format_bytes(*size));
            last_label = x;
        }
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 36.0), Anchor::Middle, "page size");
    let place = |size: u64, bytes: u64| (across.at((size as f64).log2()), up.at((bytes.max(1) as f64).log2()));
    line(&mut figure, style(1), footprints.iter().map(|(size, bytes)| place(*size, *bytes)));
    for (size, bytes) in footprints {
        let hover = format!("pages of {}: {} touched", format_bytes(*size), format_bytes(*bytes));
        figure.raw(&style(1).mark(place(*size, *bytes), 3.6, "", &hover));
    }
    for (at, (policy, size, bytes)) in peaks.iter().enumerate() {
        let hover = format!("{policy}: at most {} resident", format_bytes(*bytes));
        figure.raw(&style(at + 2).mark(place((*size).clamp(first, last), *bytes), 5.0, "", &hover));
    }
    Some(figure.finish())
}
