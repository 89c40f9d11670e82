//! How each row was measured: its comparison, the commands that reproduce it, the programs that ran, and its limits.

use study_files::matrix::{Matrix, Row, RowSource};

use super::Anchors;
use crate::html::parts::typeset;
use crate::html::tables::wide;
use crate::matrix::{Report, place};
use crate::text::{command_line, escape};

/// One table for the matrix of policies, one for that of boots, and one for each matrix of variants.
pub fn origins(report: &Report<'_>) -> String {
    let boots = report.over_boots.map(|boots| table("Rows over boots", boots, Anchors::Boots));
    let of_variants =
        |(number, matrix): (usize, &Matrix)| table("Rows over variants", matrix, Anchors::Variants(number));
    let variants: String = report.over_variants.iter().enumerate().map(of_variants).collect();
    table("Rows and what made them", report.matrix, Anchors::Policies) + &variants + &boots.unwrap_or_default()
}

fn table(caption: &str, matrix: &Matrix, anchors: Anchors) -> String {
    let titles = ["workload", "machine", "what made it", "blocks", "what limits it"];
    let head = titles.map(|title| format!("<th scope=\"col\">{title}</th>")).concat();
    wide(caption, &head, &matrix.rows.iter().map(|row| line(row, &anchors.of(matrix, row))).collect::<String>())
}

fn line(row: &Row, anchor: &str) -> String {
    let notes: Vec<String> = row.notes.iter().map(|note| escape(&typeset(note))).collect();
    format!(
        "<tr id=\"{anchor}\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
        escape(&row.workload),
        escape(&place((&row.machine, row.provenance))),
        row.origins.iter().map(origin_cell).collect::<String>(),
        row.blocks,
        notes.join("; ")
    )
}

fn origin_cell(origin: &RowSource) -> String {
    let shown = origin.comparison.map(|id| format!("<code>pagelab show {id}</code>"));
    let commands: Vec<String> = origin.commands.iter().map(|words| escape(&command_line(words))).collect();
    let commands = if commands.is_empty() {
        String::new()
    } else {
        format!("<details><summary>command</summary><pre><code>{}</code></pre></details>", commands.join("\n"))
    };
    let program = |(name, sha256): (&String, &String)| {
        let short: String = sha256.chars().take(12).collect();
        format!("<small>{} <code>{}</code></small>", escape(name), escape(&short))
    };
    let programs: String = origin.programs.iter().map(program).collect();
    format!("<div>{}{commands}{programs}</div>", shown.unwrap_or_default())
}
