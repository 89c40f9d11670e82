//! Medians and quartiles of pairs of times.

use std::fmt;

/// The median of measured values, with quartiles.
pub struct Spread {
    /// The lower quartile, the median, the upper quartile.
    pub quartiles: [f64; 3],
}

impl Spread {
    /// The spread of the ratios of each value of `above` to the value of `below` at the same index.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Spread {
        Spread::of(above.iter().zip(below).map(|(above, below)| above / below).collect())
    }

    /// The spread of the savings, in percent, of each value of `after` against the value of `before` at the same index.
    #[allow(dead_code, reason = "only one of the benchmarks asks for savings")]
    pub fn of_savings(before: &[f64], after: &[f64]) -> Spread {
        Spread::of(before.iter().zip(after).map(|(before, after)| (1.0 - after / before) * 100.0).collect())
    }

    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get((values.len() * part / 4).min(values.len() - 1)).copied().unwrap_or(f64::NAN);
        Spread { quartiles: [at(1), median(&values), at(3)] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, middle, high] = self.quartiles;
        write!(f, "{middle:.2} ({low:.2} to {high:.2})")
    }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
