//! Stores comparisons, and renders them in every form.
//!
//! The document is [`study::comparison::Comparison`]. [`store`] stores it raw in SQLite. [`screen`], [`table`], [`sentence`],
//! [`advice`], [`json`], [`csv`] and [`html`] only render it: its outcomes and verdicts come from `study`. The document of a
//! simulation is [`simulation::Document`], and [`answer`] puts its result into sentences. The formats are described in
//! `docs/reference/formats`.
//!
//! Text from outside (command lines, messages, settings) is never shown verbatim: control characters are escaped in the
//! terminal, and markup in HTML.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod advice;
pub mod answer;
pub mod boots;
pub mod capabilities;
pub mod csv;
pub mod emphasis;
pub mod files;
pub mod grid;
pub mod held_files;
pub mod html;
pub mod input;
pub mod inspection;
pub mod json;
pub mod kernel_series;
pub mod matrix;
pub mod metrics;
pub mod output;
pub mod parquet;
pub mod place;
pub mod required;
pub mod screen;
pub mod sentence;
pub mod shading;
pub mod shares;
pub mod simulation;
mod spread;
pub mod store;
pub mod table;
pub mod terminal;
pub mod writer;

mod collapses;
pub mod explained;
mod figure;
pub mod first_touch;
mod fragmented;
mod openmetrics;
mod rows;
mod text;
mod variants;

pub use rows::cause_clause;
pub use text::{ascii, command_line, enumerate, fold, printable, printable_json, printable_lines, times};

#[cfg(test)]
mod sample;

#[cfg(test)]
mod tests {
    use study::stats::Outcome;

    use super::*;

    const STORE: &str = include_str!("../../../docs/reference/formats/store.md");
    /// Documentation of the formats: JSON, CSV, boots as CSV, and the pages to which these refer.
    const EXPORTS: &str = concat!(
        include_str!("../../../docs/reference/formats/compare.md"),
        include_str!("../../../docs/reference/formats/compare-csv.md"),
        include_str!("../../../docs/reference/formats/boots-csv.md"),
    );

    fn documented(name: &str, pages: &str) -> bool {
        pages.contains(&format!("`{name}`"))
    }

    #[test]
    fn every_table_and_column_of_the_store_is_documented() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::Store::open(directory.path().join("results.sqlite")).unwrap();
        let connection = rusqlite::Connection::open(store.path()).unwrap();
        let query = "SELECT DISTINCT name FROM (SELECT schema.name FROM sqlite_schema AS schema
                         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'
                     UNION SELECT columns.name FROM sqlite_schema AS schema, pragma_table_info(schema.name) AS columns
                         WHERE schema.name NOT LIKE 'sqlite%')";
        let mut statement = connection.prepare(query).unwrap();
        let names: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(names.len() > 60, "{names:?}");
        assert_eq!(names.iter().filter(|name| !documented(name, STORE)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn every_column_and_key_of_the_exports_is_documented() {
        fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
            // The values of these keys are maps whose keys are data: metrics, paths, sizes.
            const DATA: [&str; 5] = ["medians", "effects", "tracer_cost", "settings", "direct_map_bytes"];
            match value {
                serde_json::Value::Object(fields) => {
                    for (name, value) in fields {
                        found.push(name.clone());
                        if !DATA.contains(&name.as_str()) {
                            keys(value, found);
                        }
                    }
                }
                serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
                _ => {}
            }
        }
        let mut names = Vec::new();
        keys(&json::document(&sample::with_controls()), &mut names);
        names.extend(csv::COLUMNS.map(String::from));
        names.extend(boots::csv::COLUMNS.map(String::from));
        // Details of causes and warnings. The text of a cause or warning also contains them.
        const DETAILS: [&str; 5] = ["counter", "times", "ratio", "count", "of"];
        let missing = |name: &&String| !documented(name, EXPORTS) && !DETAILS.contains(&name.as_str());
        assert_eq!(names.iter().filter(missing).collect::<Vec<_>>(), [""; 0]);
    }

    /// A document can come from a file, so its parts may contradict each other.
    #[test]
    fn a_document_that_contradicts_itself_is_shown() {
        let mut comparison = sample::comparison();
        comparison.design.arms.truncate(3);
        comparison.design.baseline = 9;
        comparison.admissions.truncate(1);
        comparison.design.metrics.clear();
        let analysis = comparison.analysis.as_mut().unwrap();
        analysis.arms[2].outcome = Outcome::Better { best: true };
        analysis.arms[2].tied = vec![44];
        let effect = analysis.arms[2].effects.get_mut("wall_s").unwrap();
        (effect.ratio, effect.low, effect.high) = (f64::NAN, Some(f64::INFINITY), Some(-1.0));
        comparison.trials[3].observations[0].value = f64::MAX;
        comparison.trials[4].observations[0].value = -f64::MAX;
        comparison.trials[5].started_s = f64::NAN;
        sentence::conclude(&comparison);
        assert!(table::render(&comparison, 200).contains("thp+no-guards"));
        assert_eq!(json::document(&comparison)["arms"].as_array().unwrap().len(), 3);
        csv::write(&comparison, std::io::sink()).unwrap();
        assert!(html::report(&comparison).ends_with("</html>\n"));
    }
}
