//! The matrix of a study as a heat map: workloads as rows, policies as columns.

use study_files::matrix::{Cell, Conclusion, Matrix, Row};

use super::Anchors;
use crate::figure::Change;
use crate::html::parts::typeset;
use crate::html::tables::wide;
use crate::matrix::{all_machine_figures, in_cell, place, rows_of};
use crate::text::escape;

/// One map per machine.
pub fn maps(matrix: &Matrix, anchors: Anchors) -> String {
    let map = |machine_figures| {
        let policy = |title: &String| format!("<th scope=\"col\" class=\"n\">{}</th>", escape(title));
        let head =
            "<th scope=\"col\">workload</th>".to_owned() + &matrix.policies.iter().map(policy).collect::<String>();
        let body: String = rows_of(matrix, machine_figures).map(|row| map_row(row, &anchors.of(matrix, row))).collect();
        let caption =
            format!("{}: cost against {}; bluish is less, reddish is more", place(machine_figures), matrix.baseline);
        wide(&caption, &head, &body)
    };
    let maps: String = all_machine_figures(matrix).into_iter().map(map).collect();
    format!(
        "<p>Each cell shows its figure and links to its origin. Focus a cell or hover over it to see the interval and the \
         conclusion. A cell without colour shows no difference, or has no figure.</p>\n<div class=\"heat\">\n{maps}</div>\n"
    )
}

fn map_row(row: &Row, anchor: &str) -> String {
    let cells: String = row.cells.iter().map(|cell| map_cell(row, cell, anchor)).collect();
    format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&row.workload))
}

fn map_cell(row: &Row, cell: &Cell, anchor: &str) -> String {
    let tip = match &cell.conclusion {
        Conclusion::None { why } => why.clone(),
        _ => in_cell(row, cell),
    };
    let short = match (&cell.conclusion, cell.effects.get(&row.metric)) {
        (Conclusion::None { .. }, _) => "–".to_owned(),
        (Conclusion::Baseline, _) | (_, None) => in_cell(row, cell),
        (_, Some(effect)) => Change::of(effect).estimate(),
    };
    let is_shown = matches!(cell.conclusion, Conclusion::Better | Conclusion::Worse | Conclusion::Modelled);
    let cost = row.cost_ratio(cell).filter(|_| is_shown);
    let style = cost.map(|cost| format!(" style=\"background:{}\"", heat(cost))).unwrap_or_default();
    let tip = escape(&typeset(&format!("{}, {}: {tip}", row.workload, cell.policy)));
    let short = escape(&typeset(&short));
    format!("<td class=\"n\"{style}><a href=\"#{anchor}\">{short}<span class=\"tip\">{tip}</span></a></td>")
}

/// The colour for a cost. The scale ends at a third of the baseline's cost and at three times the cost.
fn heat(cost: f64) -> String {
    let share = (cost.ln().abs() / 3f64.ln()).clamp(0.0, 1.0);
    let colour = if cost < 1.0 { "--c1" } else { "--c2" };
    format!("color-mix(in srgb,var({colour}) {:.0}%,transparent)", 4.0 + 56.0 * share)
}
