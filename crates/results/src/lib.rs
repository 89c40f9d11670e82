//! What is kept of a comparison, and every way in which it is shown.
//!
//! The document is [`study::comparison::Comparison`]. [`store`] keeps it raw in SQLite; [`table`],
//! [`sentence`], [`json`], [`csv`] and [`html`] render it and decide nothing: outcomes and verdicts
//! come from `study`. The formats are described in `FORMATS.md`.
//!
//! Text that comes from outside (command lines, messages, settings) is never shown as it is: control
//! characters are escaped in the terminal and markup in HTML.
#![forbid(unsafe_code)]

pub mod csv;
pub mod html;
pub mod json;
pub mod sentence;
pub mod store;
pub mod table;

mod figure;
mod rows;
mod text;

#[cfg(test)]
mod sample;

#[cfg(test)]
mod tests {
    use study::stats::Outcome;

    use super::*;

    /// A document can come from a file, so its parts need not agree.
    #[test]
    fn a_document_that_contradicts_itself_is_shown() {
        let mut comparison = sample::comparison();
        comparison.design.arms.truncate(3);
        comparison.design.baseline = 9;
        comparison.admissions.truncate(1);
        comparison.adoptions.clear();
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
        sentence::adoption(&comparison);
        assert!(table::render(&comparison, 200).contains("thp+no-guards"));
        assert_eq!(json::document(&comparison)["arms"].as_array().unwrap().len(), 3);
        csv::write(&comparison, std::io::sink()).unwrap();
        assert!(html::report(&comparison).ends_with("</html>\n"));
    }
}
