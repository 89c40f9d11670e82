//! Series of sizes: values that are derived for each memory layout, next to measured ones.

use policy::size::format_bytes;
use study::metric::Provenance;
use study_files::series::{Agreement, Column, Filled};

use super::cells::Sheet;

/// A table per series: a row per size, a column per layout and host.
pub fn sheets(series: &[Filled]) -> Vec<Sheet> {
    series.iter().map(sheet).collect()
}

fn sheet(series: &Filled) -> Sheet {
    let heading = |column: &Column| format!("{}, {}", column.name, provenance(column));
    let header = std::iter::once("size".to_owned()).chain(series.columns.iter().map(heading));
    let row = |(at, bytes): (usize, &u64)| {
        let cells = series.columns.iter().map(|column| cell(column, at));
        std::iter::once(format_bytes(*bytes)).chain(cells).collect()
    };
    Sheet {
        caption: format!("{}: bytes held for a size. Derived: exact arithmetic. {}", series.name, series.source),
        header: header.collect(),
        rows: series.sizes.iter().enumerate().map(row).collect(),
    }
}

/// `derived` or `measured`.
pub(super) fn provenance(column: &Column) -> &'static str {
    if column.provenance == Provenance::Derived { "derived" } else { "measured" }
}

/// A cell. It is not rounded, because the value is exact.
pub(super) fn cell(column: &Column, at: usize) -> String {
    let absent = if column.provenance == Provenance::Derived { "cannot be mapped" } else { "not measured" };
    let held = column.held_bytes.get(at).copied().flatten();
    held.map_or_else(|| absent.to_owned(), in_bytes)
}

/// Bytes in words; a mean over several files may not be an integer.
fn in_bytes(bytes: f64) -> String {
    if bytes.fract() == 0.0 { format_bytes(bytes as u64) } else { format!("{bytes:.1} bytes") }
}

/// How the values of each host agree with those derived for the host's layout, one sentence each.
pub fn sentences(series: &Filled) -> Vec<String> {
    let sentence = |(column, agreement): (&Column, Agreement)| {
        let begin = format!("{}, measured on {}: ", series.name, column.name);
        let layout = column.layout.as_deref().unwrap_or_default();
        let result = match agreement {
            Agreement::NoLayout => "the series has no layout for this host".to_owned(),
            Agreement::All { sizes } => format!("as derived for {layout}, at all {sizes} sizes that were measured"),
            Agreement::Others { others, sizes } => {
                let other = |(bytes, derived, measured): &(u64, f64, f64)| {
                    format!("{} instead of {} for {}", in_bytes(*measured), in_bytes(*derived), format_bytes(*bytes))
                };
                let all = others.iter().map(other).collect::<Vec<_>>().join(", ");
                format!("differs from the value derived for {layout} at {} of {sizes} sizes: {all}", others.len())
            }
        };
        format!("{begin}{result}.")
    };
    series.agreements().into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_derived_and_measured_values_in_labelled_columns() {
        let column = |name: &str, provenance, held: &[f64], layout: Option<&str>| Column {
            name: name.into(),
            provenance,
            held_bytes: held.iter().map(|held| Some(*held)).chain([None]).take(2).collect(),
            layout: layout.map(str::to_owned),
        };
        let series = Filled {
            name: "page cache".into(),
            source: "A list.".into(),
            sizes: vec![1, 5 << 10],
            columns: vec![
                column("x86-64", Provenance::Derived, &[4096.0, 8192.0], None),
                column("a host", Provenance::Measured, &[4096.5], Some("x86-64")),
            ],
        };
        let sheet = sheet(&series);
        assert_eq!(sheet.header, ["size", "x86-64, derived", "a host, measured"]);
        assert_eq!(sheet.rows[0], ["1", "4K", "4096.5 bytes"]);
        assert_eq!(sheet.rows[1], ["5K", "8K", "not measured"]);
        let sentence = "page cache, measured on a host: differs from the value derived for x86-64 at 1 of 1 sizes: 4096.5 \
                    bytes instead of 4K for 1.";
        assert_eq!(sentences(&series), [sentence]);
    }
}
