//! The page of a pointer chase over buffers of growing size, measured and modelled.

use super::parts::modelled;
use super::tables;
use crate::figure;
use crate::html::parts::{captioned, page, section, title};
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH, round};
use crate::simulation::{Knees, Line};
use crate::text::{command_line, enumerate, escape};
use policy::size::format_bytes;

const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 290.0;

/// What a load costs in the largest buffer under each policy: as measured, or as modelled if nothing was measured.
fn answer(document: &Knees) -> String {
    let (lines, unit) = match &document.measured_ns[..] {
        [] => (&document.modelled_cycles, "cycles of translation"),
        _ => (&document.measured_ns, "ns"),
    };
    let largest = lines.iter().filter_map(|line| Some(line.points.last()?.0)).max();
    let cost = |line: &Line| {
        let (_, value) = line.points.iter().find(|(bytes, _)| Some(*bytes) == largest)?;
        Some(format!("{} {unit} under {}", figure::significant(*value, 3), line.name))
    };
    let costs: Vec<String> = lines.iter().filter_map(cost).collect();
    match largest {
        Some(bytes) => format!("In a buffer of {} a load takes {}", format_bytes(bytes), enumerate(&costs)),
        None => document.title.clone(),
    }
}

/// Renders the page.
pub fn knees(document: &Knees) -> String {
    let header = format!(
        "<header>\n<p class=\"kicker\">pagelab · {}</p>\n{}\
         <pre class=\"command\" aria-label=\"command line\"><code>{}</code></pre>\n</header>\n",
        escape(&document.title),
        title(&answer(document)),
        escape(&command_line(&document.invocation))
    );
    let items: String = document.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    let notes = if items.is_empty() { String::new() } else { format!("<ul class=\"warnings\">\n{items}</ul>\n") };
    let sections = [
        section("Over the size of the buffer", "knees", &(figures(document) + &notes)),
        section("Machine: every number and its source", "machines", &tables::machines(&document.machines)),
        section("Invocation", "invocation", &tables::facts(&document.facts)),
    ];
    let footer = format!("<footer><p>Made by pagelab {}.</p></footer>\n", escape(&document.version));
    page(&document.title, &header, &sections.concat(), &footer)
}

fn figures(document: &Knees) -> String {
    let measured = picture(&document.measured_ns, "measured", "nanoseconds a load")
        .map(|picture| captioned(&picture, "Nanoseconds a load (measured)") + &legend(&document.measured_ns));
    let cycles = picture(&document.modelled_cycles, "modelled", "Cycles a load loses")
        .map(|picture| modelled(&picture, "Cycles a load loses") + &legend(&document.modelled_cycles));
    let figures: String = measured.into_iter().chain(cycles).map(|figure| format!("<div>{figure}</div>\n")).collect();
    format!(
        "<p>One load in each 4K page, in one random cycle: every load waits for the one before. What is measured has \
         the knees of the data caches too, at the same sizes for both policies. The distance between the two lines is translation.</p>\n\
         <div class=\"figures\">\n{figures}</div>\n"
    )
}

/// Values over bytes on a logarithmic scale, one line each.
fn picture(lines: &[Line], id: &str, title: &str) -> Option<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let first = points().map(|(bytes, _)| *bytes).min()?;
    let last = points().map(|(bytes, _)| *bytes).max()?;
    let most = points().map(|(_, value)| *value).fold(0.0, f64::max);
    let across = Scale::new(((first as f64).log2(), (last as f64).log2()), (LEFT, RIGHT));
    let up = Scale::new((0.0, most.max(1e-9) * 1.05), (BOTTOM, TOP));
    let mut figure = Figure::new(id, title, &in_text(lines), BOTTOM + 44.0);
    for (at, power) in (first.ilog2()..=last.ilog2()).enumerate() {
        let x = across.at(f64::from(power));
        figure.line("grid", (x, TOP), (x, BOTTOM));
        if at % 2 == 1 {
            figure.text("tick", (x, BOTTOM + 16.0), Anchor::Middle, &format_bytes(1 << power));
        }
    }
    for tick in up.ticks(6) {
        figure.line("grid", (LEFT, up.at(tick)), (RIGHT, up.at(tick)));
        figure.text("tick", (LEFT - 8.0, up.at(tick) + 4.0), Anchor::End, &figure::plain(tick));
    }
    figure.text("axis", ((LEFT + RIGHT) / 2.0, BOTTOM + 36.0), Anchor::Middle, "bytes of the buffer");
    for (at, line) in lines.iter().enumerate() {
        let style = ArmStyle::of(at, 0);
        let place = |(bytes, value): &(u64, f64)| (across.at((*bytes as f64).log2()), up.at(*value));
        let path: Vec<String> =
            line.points.iter().map(place).map(|(x, y)| format!("{} {}", round(x), round(y))).collect();
        figure.raw(&format!("<path class=\"curve {}\" d=\"M{}\"/>", style.class(), path.join("L")));
        for point in &line.points {
            let hover = format!("{}, {}: {:.2}", line.name, format_bytes(point.0), point.1);
            figure.raw(&style.mark(place(point), 3.6, "", &hover));
        }
    }
    Some(figure.finish())
}

fn in_text(lines: &[Line]) -> String {
    let line = |line: &Line| {
        let points = line.points.iter().map(|(bytes, value)| format!("{}: {value:.2}", format_bytes(*bytes)));
        format!("{}: {}.", line.name, points.collect::<Vec<_>>().join(", "))
    };
    lines.iter().map(line).collect::<Vec<_>>().join(" ")
}

fn legend(lines: &[Line]) -> String {
    let entry = |(at, line): (usize, &Line)| {
        let mark = ArmStyle::of(at, 0).mark((8.0, 6.0), 4.5, "", "");
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(&line.name))
    };
    format!("<ul class=\"legend\">{}</ul>\n", lines.iter().enumerate().map(entry).collect::<String>())
}
