//! What an arm's change of user time consists of (`compare --explain`), for the page.

use study::comparison::Comparison;

use super::parts::typeset;
use super::tables::wide;
use crate::explained::{explained, scatter_of, sentences};
use crate::figure;
use crate::text::escape;

/// The sentences, and a table of reach and placement. Empty without `--explain`.
pub(super) fn explanation(comparison: &Comparison) -> String {
    let sentences = sentences(comparison);
    let sentences: String = sentences.iter().map(|one| format!("<p>{}</p>\n", escape(&typeset(one)))).collect();
    let rows = explained(comparison);
    let row = |row: &crate::explained::Explained<'_>| {
        let cells = row.cells()?.map(|cell| format!("<td class=\"n\">{}</td>", escape(&typeset(&cell))));
        Some(format!("<tr>{}{}{}</tr>\n", name(comparison, row.arm), cells.concat(), blocks(comparison, row.arm)))
    };
    let body: String = rows.iter().filter_map(row).collect();
    if body.is_empty() {
        return sentences;
    }
    let baseline = comparison.design.baseline;
    let baseline_row =
        format!("<tr>{}{}{}</tr>\n", name(comparison, baseline), "<td></td>".repeat(4), blocks(comparison, baseline));
    let titles = ["user time", "by reach", "by placement of frames", "system time", "blocks of physical memory"];
    let head = titles.map(|title| format!("<th scope=\"col\" class=\"n\">{title}</th>")).concat();
    let caption = format!(
        "Changes in per cent of the baseline's time with {} intervals; blocks of PMD size that hold the anonymous memory",
        figure::confidence(comparison.design.confidence)
    );
    let head = format!("<th scope=\"col\">policy</th>{head}");
    sentences + &wide(&caption, &head, &(baseline_row + &body))
}

fn name(comparison: &Comparison, arm: usize) -> String {
    format!("<th scope=\"row\">{}</th>", escape(&comparison.design.arms[arm].label))
}

/// `750 (32 possible)`
fn blocks(comparison: &Comparison, arm: usize) -> String {
    let text = scatter_of(comparison, arm).map(|[blocks, least]| format!("{blocks:.0} ({least:.0} possible)"));
    format!("<td class=\"n\">{}</td>", text.unwrap_or_else(|| "not known".into()))
}
