//! The cells of the truth table ([`Cell`]): a measured and a simulated figure, and whether the two agree.

use std::fmt;

use serde::{Deserialize, Serialize};
use validation::lab::Figures;

/// The allowed relative difference of a figure.
const TOLERANCE: f64 = 0.02;
/// Faults that are not caused by the program's memory: faults on the vDSO and its data, which QEMU does not have, on code that
/// libraries choose by the processor, and the few by which launches differ.
const STRAY_FAULTS: f64 = 5.0;
const BASE_BYTES: f64 = 4096.0;

/// The figures that are compared, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Minor faults, without those of launching the program.
    Faults,
    /// Bytes that are mapped as the policy asks, sampled before memory is unmapped and at the end of each process.
    CoveredBytes,
    /// Bytes that the policy applies to: all private anonymous memory and hugetlb pages.
    ConcernedBytes,
    /// Bytes of page tables, at the peak of each process.
    TableBytes,
    /// Whether the policy held.
    Verdict,
}

pub const FIGURES: [Figure; 5] =
    [Figure::Faults, Figure::CoveredBytes, Figure::ConcernedBytes, Figure::TableBytes, Figure::Verdict];

impl Figure {
    /// The name in `reasons.toml` and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Faults => "faults",
            Figure::CoveredBytes => "covered_bytes",
            Figure::ConcernedBytes => "concerned_bytes",
            Figure::TableBytes => "table_bytes",
            Figure::Verdict => "verdict",
        }
    }

    /// The allowed difference of a figure in addition to [`TOLERANCE`], which stray faults and the base pages that they
    /// map can cause.
    fn stray(self) -> f64 {
        match self {
            Figure::Faults => STRAY_FAULTS,
            Figure::CoveredBytes | Figure::ConcernedBytes => STRAY_FAULTS * BASE_BYTES,
            Figure::TableBytes | Figure::Verdict => 0.0,
        }
    }
}

/// The values of a figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// A number, measured and simulated.
    Number { measured: Spread, simulated: Spread },
    /// A word. Several measured words mean that a policy holds in some runs only.
    Word { measured: Vec<String>, simulated: String },
}

/// The spread of a figure over several runs, or over the traces of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; of two middle values the lower one.
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// The spread of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Spread { median: values[(values.len() - 1) / 2], least: values[0], most: values[values.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.median)
        } else {
            write!(f, "{} ({} to {})", self.median, self.least, self.most)
        }
    }
}

impl Cell {
    /// Compares a figure of native trials with that of the simulations, one for each trace. `launch_faults` is the native number
    /// of faults of launching a program.
    pub fn new(figure: Figure, trials: &[Figures], simulated: &[Figures], launch_faults: f64) -> Cell {
        let number = |of: fn(&Figures) -> u64, less: f64| Cell::Number {
            measured: Spread::of(trials.iter().map(|trial| of(trial) as f64 - less)),
            simulated: Spread::of(simulated.iter().map(|trace| of(trace) as f64)),
        };
        match figure {
            Figure::Faults => number(|figures| figures.faults, launch_faults),
            Figure::CoveredBytes => number(|figures| figures.covered_bytes, 0.0),
            Figure::ConcernedBytes => number(|figures| figures.concerned_bytes, 0.0),
            Figure::TableBytes => number(|figures| figures.table_bytes, 0.0),
            Figure::Verdict => {
                let mut measured: Vec<String> = trials.iter().map(|trial| trial.holding.clone()).collect();
                measured.sort();
                measured.dedup();
                Cell::Word { measured, simulated: most_frequent(simulated) }
            }
        }
    }

    /// Whether both sides agree. Numbers agree if the median over the traces differs from the median over the runs by at most the
    /// tolerance or the stray faults, or if it is between the minimum and the maximum of the runs, extended by the stray faults.
    /// Words agree if the simulated word was measured in some run.
    pub fn agrees(&self, figure: Figure) -> bool {
        match self {
            Cell::Number { measured, simulated } => {
                let spread = measured.least - figure.stray()..=measured.most + figure.stray();
                let off = (simulated.median - measured.median).abs();
                off <= measured.median.abs() * TOLERANCE || spread.contains(&simulated.median)
            }
            Cell::Word { measured, simulated } => measured.contains(simulated),
        }
    }
}

/// The most frequent verdict over the traces.
fn most_frequent(simulated: &[Figures]) -> String {
    let count = |word: &str| simulated.iter().filter(|trace| trace.holding == word).count();
    let most = simulated.iter().max_by_key(|trace| count(&trace.holding));
    most.map(|trace| trace.holding.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(faults: u64, bytes: u64, holding: &str) -> Figures {
        Figures { faults, concerned_bytes: bytes, covered_bytes: bytes, table_bytes: bytes, holding: holding.into() }
    }

    #[test]
    fn two_percent_five_faults_or_the_spread_of_runs_are_agreement() {
        let trials = [figures(1050, 409_600, "held"), figures(1046, 409_600, "partly"), figures(1090, 409_600, "held")];
        let agrees = |figure, simulated: &Figures| {
            Cell::new(figure, &trials, std::slice::from_ref(simulated), 46.0).agrees(figure)
        };
        for (faults, is_near) in
            [(1004, true), (1024, true), (1044, true), (1049, true), (1050, false), (984, true), (983, false)]
        {
            assert_eq!(agrees(Figure::Faults, &figures(faults, 0, "held")), is_near, "{faults}");
        }
        assert!(agrees(Figure::CoveredBytes, &figures(0, 409_600 - 5 * 4096, "held")));
        assert!(!agrees(Figure::CoveredBytes, &figures(0, 409_600 - 6 * 4096, "held")));
        assert!(!agrees(Figure::TableBytes, &figures(0, 409_600 - 3 * 4096, "held")));
        assert!(
            agrees(Figure::Verdict, &figures(0, 0, "partly")) && !agrees(Figure::Verdict, &figures(0, 0, "not_held"))
        );
    }

    #[test]
    fn of_several_traces_the_median_counts() {
        let trials = [figures(1000, 0, "held")];
        let traces = |faults: [u64; 3]| faults.map(|faults| figures(faults, 0, "held"));
        let agrees = |faults| Cell::new(Figure::Faults, &trials, &traces(faults), 0.0).agrees(Figure::Faults);
        assert!(agrees([1100, 1003, 1001]) && !agrees([1100, 1003, 1050]));
        let cell = Cell::new(Figure::Faults, &trials, &traces([1100, 1003, 1001]), 0.0);
        let Cell::Number { measured, simulated } = cell else { panic!("{cell:?}") };
        assert_eq!(
            (measured.to_string(), simulated.to_string()),
            ("1000".to_owned(), "1003 (1001 to 1100)".to_owned())
        );
        let words = [figures(0, 0, "held"), figures(0, 0, "partly"), figures(0, 0, "partly")];
        let Cell::Word { simulated, .. } = Cell::new(Figure::Verdict, &trials, &words, 0.0) else { panic!() };
        assert_eq!(simulated, "partly");
    }
}
