//! A study as one HTML file: the answer, the matrix as a heat map, what all workloads say together, forests, published
//! figures.

use study::matrix::{Cell, Row, Standing};
use study::metric::Direction;
use study::stats::Effect;

use super::parts::{captioned, command, page, section, typeset};
use super::svg::{Anchor, Figure, Look, Scale, WIDTH};
use super::tables::wide;
use crate::figure::{self, Change};
use crate::matrix::{Report, Sheet, conclude, grounds, in_cell, provenance, rows_of, sheets};
use crate::text::escape;

const LEFT: f64 = 142.0;
const RIGHT: f64 = 436.0;
const TOP: f64 = 12.0;
const LINE: f64 = 26.0;

/// The page.
pub fn report(report: &Report<'_>) -> String {
    let sheets: String = sheets(report).iter().map(table).collect();
    let sections = [
        section("Answer", "answer", &answer(report)),
        section("Matrix", "matrix", &maps(report)),
        section("Changes against the baseline", "changes", &forests(report)),
        section("Tables", "tables", &sheets),
        section("Where each row comes from", "origin", &origin(report)),
    ];
    page(&report.definition.name, &header(report), &sections.concat(), &footer(report))
}

fn header(report: &Report<'_>) -> String {
    let definition = report.definition;
    format!(
        "<header>\n<p class=\"kicker\">pagelab · study {} · {}</p>\n<h1>{}</h1>\n{}</header>\n",
        escape(&definition.name),
        definition.size.name(),
        escape(&typeset(&definition.question)),
        command("command that made this page", &report.command)
    )
}

fn answer(report: &Report<'_>) -> String {
    let sentence = |text: &String| format!("<p>{}</p>\n", escape(&typeset(text)));
    conclude(report).iter().map(sentence).collect()
}

/// A map for each machine: workloads downwards, policies to the right.
fn maps(report: &Report<'_>) -> String {
    let map = |ground| {
        let rows: Vec<&Row> = rows_of(report.matrix, ground).collect();
        let head: String = ["workload"]
            .into_iter()
            .chain(report.matrix.policies.iter().map(String::as_str))
            .map(|title| format!("<th scope=\"col\">{}</th>", escape(title)))
            .collect();
        let body: String = rows.iter().map(|row| map_row(row)).collect();
        let caption = format!(
            "{}, {}: cost against {}; bluish is less, reddish is more",
            ground.0,
            provenance(ground.1),
            report.matrix.baseline
        );
        wide(&caption, &head, &body)
    };
    let maps: String = grounds(report.matrix).into_iter().map(map).collect();
    format!(
        "<p>Each cell has its figure. Its interval and what follows from it are shown when it has the focus or the \
         pointer. A cell without colour has no claim.</p>\n{maps}"
    )
}

fn map_row(row: &Row) -> String {
    let cells: String = row.cells.iter().map(|cell| map_cell(row, cell)).collect();
    format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&row.workload))
}

fn map_cell(row: &Row, cell: &Cell) -> String {
    let why = match &cell.standing {
        Standing::None { why } => why.clone(),
        _ => in_cell(row, cell),
    };
    let short = match (&cell.standing, cell.effects.get(&row.metric)) {
        (Standing::None { .. }, _) => "–".to_owned(),
        (Standing::Baseline, _) | (_, None) => in_cell(row, cell),
        (_, Some(effect)) => Change::of(effect).estimate(),
    };
    let cost = row.cost_ratio(cell).filter(|_| cell.has_claim());
    let style = cost.map(|cost| format!(" style=\"background: {}\"", heat(cost))).unwrap_or_default();
    let hover = escape(&typeset(&format!("{}, {}: {why}", row.workload, cell.policy)));
    format!("<td class=\"n\" tabindex=\"0\" title=\"{hover}\"{style}>{}</td>", escape(&typeset(&short)))
}

/// From a third of the cost to three times it, in both directions alike.
fn heat(cost: f64) -> String {
    let share = (cost.ln().abs() / 3f64.ln()).clamp(0.0, 1.0);
    let colour = if cost < 1.0 { "--c1" } else { "--c2" };
    format!("color-mix(in srgb, var({colour}) {:.0}%, transparent)", 4.0 + 56.0 * share)
}

/// A forest for each machine and policy: a line for each workload, and their mean.
fn forests(report: &Report<'_>) -> String {
    let mut forests = String::new();
    for (at, ground) in grounds(report.matrix).into_iter().enumerate() {
        let rows: Vec<&Row> = rows_of(report.matrix, ground).collect();
        for (policy, name) in report.matrix.policies.iter().enumerate() {
            let total = report
                .matrix
                .totals
                .iter()
                .find(|total| (total.machine.as_str(), total.provenance) == ground && total.policy == *name);
            let mean = total.and_then(|total| total.mean).map(|mean| mean.effect());
            let id = format!("forest{at}-{policy}");
            let title = format!("{name} against {} on {}, {}", report.matrix.baseline, ground.0, provenance(ground.1));
            if let Some(picture) = forest(&rows, policy, mean, &id, &title) {
                forests.push_str(&captioned(&picture, &title));
            }
        }
    }
    match forests.is_empty() {
        true => forests,
        false => format!(
            "<p>Cost, with {} intervals; throughput is inverted. The last line is the geometric mean. Hollow: the change is not \
             claimed to be the policy's.</p>\n<div class=\"figures\">\n{forests}</div>\n",
            figure::confidence(0.95)
        ),
    }
}

/// A line of a forest.
struct Line {
    label: String,
    effect: Effect,
    is_claim: bool,
}

fn forest(rows: &[&Row], policy: usize, mean: Option<Effect>, id: &str, title: &str) -> Option<String> {
    let mut lines: Vec<Line> = rows.iter().filter_map(|row| of_cell(row, &row.cells[policy])).collect();
    if lines.is_empty() {
        return None;
    }
    let mean = mean.filter(|_| lines.len() > 1);
    lines.extend(mean.map(|effect| Line { label: "geometric mean".to_owned(), effect, is_claim: true }));
    let ends = lines.iter().flat_map(|line| [Some(line.effect.ratio), line.effect.low, line.effect.high]).flatten();
    let percents: Vec<f64> = ends.map(percent).filter(|end| end.is_finite()).collect();
    let low = percents.iter().copied().fold(-1.5, f64::min);
    let high = percents.iter().copied().fold(1.5, f64::max);
    let scale = Scale::new((low - (high - low) * 0.04, high + (high - low) * 0.04), (LEFT, RIGHT));
    let bottom = TOP + LINE * lines.len() as f64;
    let said: Vec<String> = lines.iter().map(|line| format!("{}: {}.", line.label, in_words(&line.effect))).collect();
    let mut figure = Figure::new(id, title, &said.join(" "), bottom + 44.0);
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

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn in_words(effect: &Effect) -> String {
    let change = Change::of(effect);
    let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
    format!("{}{range}", change.estimate())
}

/// A cell as a cost.
fn of_cell(row: &Row, cell: &Cell) -> Option<Line> {
    let effect = *cell.effects.get(&row.metric)?;
    let effect = match row.direction {
        Direction::Lower => effect,
        Direction::Higher => Effect {
            ratio: 1.0 / effect.ratio,
            low: effect.high.map(|high| 1.0 / high),
            high: effect.low.map(|low| 1.0 / low),
            ..effect
        },
    };
    Some(Line { label: row.workload.clone(), effect, is_claim: cell.has_claim() })
}

fn draw(figure: &mut Figure, line: &Line, policy: usize, scale: &Scale, y: f64) {
    let look = Look::of(policy + 1, 0);
    let class = if line.is_claim { "" } else { "void" };
    figure.label((LEFT - 12.0, y + 4.0), &line.label);
    if let Some((low, high)) = line.effect.low.zip(line.effect.high) {
        let whisker = format!("whisker {} {class}", look.class());
        figure.line(&whisker, (scale.at(percent(low)), y), (scale.at(percent(high)), y));
    }
    let hover = typeset(&format!("{}: {}", line.label, in_words(&line.effect)));
    figure.raw(&look.mark((scale.at(percent(line.effect.ratio)), y), 4.5, class, &hover));
    figure.text("value", (WIDTH - 2.0, y + 4.0), Anchor::End, &typeset(&Change::of(&line.effect).estimate()));
}

fn table(sheet: &Sheet) -> String {
    let head: String = sheet.header.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
    let cells = |row: &Vec<String>| {
        let cell = |text: &String| format!("<td>{}</td>", escape(&typeset(text)));
        format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>())
    };
    wide(&sheet.caption, &head, &sheet.rows.iter().map(cells).collect::<String>())
}

/// The comparison behind each row, and what must be known of it.
fn origin(report: &Report<'_>) -> String {
    let row = |row: &Row| {
        let id = row.comparison.map(|id| format!("<code>pagelab show {id}</code>")).unwrap_or_default();
        let notes: Vec<String> = row.notes.iter().map(|note| escape(&typeset(note))).collect();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}, {}</td><td>{id}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
            escape(&row.workload),
            escape(&row.machine),
            provenance(row.provenance),
            row.blocks,
            notes.join("; ")
        )
    };
    let titles = ["workload", "machine", "comparison", "blocks", "what limits it"];
    let head = titles.map(|title| format!("<th scope=\"col\">{title}</th>")).concat();
    wide("Rows and their comparisons", &head, &report.matrix.rows.iter().map(row).collect::<String>())
}

fn footer(report: &Report<'_>) -> String {
    format!(
        "<footer><p>Made by pagelab {}. <code>pagelab study export</code> writes every sample.</p></footer>\n",
        escape(&report.version)
    )
}
