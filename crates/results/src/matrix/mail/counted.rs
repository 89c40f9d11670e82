//! Counted work and series of sizes in a mail.

use policy::size::format_bytes;
use study_files::series::Filled;

use super::super::CountedCosts;
use super::super::counted::{costs_in_words, summary};
use super::super::series::{cell, provenance, sentences};
use super::layout::{self, Columns, folded, paragraph};

/// Columns for the name of a row, such as a granule.
const NAME: usize = 20;
/// Columns for a size, and the number of columns of values for it.
const SIZE: usize = 7;
const HELD: usize = 3;

/// The counted work in the origin's form: a table per phase and variant, and the basis of each cost.
pub fn of_counted(counted_costs: &CountedCosts<'_>) -> String {
    if counted_costs.table.rows.is_empty() {
        return String::new();
    }
    let (counted, table) = (counted_costs.counted, &counted_costs.table);
    let bytes = format_bytes(counted.bytes);
    let (first, others) = counted.variants.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let mut text = summary(counted_costs).as_ref().map(layout::table).unwrap_or_default();
    text += &paragraph(&format!(
        "{} of {bytes}, modelled: per cent of the time of {first} that is saved. Counts are exact; ranges hold for every \
         choice of costs.",
        counted.what
    ));
    for (phase, variant) in table.phases().into_iter().flat_map(|phase| others.iter().map(move |one| (phase, one))) {
        text.push_str(&(folded(&format!("{phase}, {variant}"), 2) + "\n"));
        let columns = Columns::of_equal_width(NAME, &table.backings());
        text.push_str(&columns.heads());
        for (name, cells) in counted_costs.lines(phase, variant) {
            text.push_str(&columns.row(&name, &cells));
        }
        text.push('\n');
    }
    let costs = costs_in_words(counted_costs).join("; ");
    text + &paragraph(&format!("What each event costs: {costs}.")) + &rounds(counted_costs)
}

/// A series of sizes: a line per size, a column per layout and host, as many as fit.
pub fn of_series(series: &Filled) -> String {
    let mut text = paragraph(&format!("{}: bytes held for a size. {}", series.name, series.source));
    for (number, columns) in series.columns.chunks(HELD).enumerate() {
        let name = |at: usize| format!("[{}]", number * HELD + at + 1);
        let names: Vec<String> = (0..columns.len()).map(name).collect();
        let table = Columns::of_equal_width(SIZE, &names.iter().map(String::as_str).collect::<Vec<_>>());
        text.push_str(&table.heads());
        for (at, bytes) in series.sizes.iter().enumerate() {
            let cells: Vec<String> = columns.iter().map(|column| cell(column, at)).collect();
            text.push_str(&table.row(&format_bytes(*bytes), &cells));
        }
        for (at, column) in columns.iter().enumerate() {
            text.push_str(&(folded(&format!("{} {}, {}", name(at), column.name, provenance(column)), 4) + "\n"));
        }
        text.push('\n');
    }
    sentences(series).iter().fold(text, |text, sentence| text + &paragraph(sentence))
}

/// The sources of published rounds, and why figures here can differ from them, one paragraph each.
fn rounds(counted_costs: &CountedCosts<'_>) -> String {
    let mut seen: Vec<(&str, &str, Option<&String>)> = Vec::new();
    for figure in &counted_costs.counted.published {
        let round = (figure.what.as_str(), figure.source.as_str(), figure.differs.as_ref());
        if !seen.contains(&round) {
            seen.push(round);
        }
    }
    let of_round = |(what, source, differs): (&str, &str, Option<&String>)| {
        let why = differs.map(|why| format!("; {why}")).unwrap_or_default();
        paragraph(&format!("{what}: published [{source}]{why}."))
    };
    seen.into_iter().map(of_round).collect()
}
