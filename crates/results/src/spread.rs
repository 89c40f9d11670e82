//! How the figures of a simulation vary over address space layouts, as plain data ([`Spread`]).

use policy::size::format_bytes;
use study::metric::Unit;

use crate::figure;

/// Minimum ratio by which the cycles of two policies must differ to be distinguished, because the model's counts agree
/// with a kernel's only within this ratio.
pub const MIN_DIFFERENCE_RATIO: f64 = 0.02;

/// The cost of one machine under one policy over address space layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Name of the machine.
    pub machine: String,
    /// Name of the policy.
    pub policy: String,
    /// Number of simulations that reached the end of the trace.
    pub layouts: u32,
    /// The variation of each count.
    pub figures: Vec<FigureSpread>,
}

/// The values of a figure over address space layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FigureSpread {
    /// The name of the figure in the JSON document.
    pub name: String,
    /// Value without randomisation.
    pub fixed: u64,
    /// Minimum over all randomised layouts.
    pub least: u64,
    /// Median; of two middle values the lower one.
    pub median: u64,
    /// Maximum over all randomised layouts.
    pub most: u64,
}

/// The figures that tables show: display name, and name in the JSON document.
const SPREAD: [(&str, &str); 6] = [
    ("faults", "faults"),
    ("resident", "resident_peak_bytes"),
    ("tables", "all_table_peak_bytes"),
    ("L1 misses", "first_level_misses"),
    ("walks", "walks"),
    ("cycles", "max_lost_cycles"),
];

impl Spread {
    /// The values of a figure, by its name in the JSON document.
    pub fn figure(&self, name: &str) -> Option<&FigureSpread> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The range of the cycles lost to translation, in words; `None` if layouts differ by no more than the model can
    /// distinguish.
    pub fn loss_in_words(&self) -> Option<String> {
        let FigureSpread { least, most, .. } = self.figure("max_lost_cycles")?;
        let differs = *most as f64 > *least as f64 * (1.0 + MIN_DIFFERENCE_RATIO);
        let [least, most] = [least, most].map(|cycles| figure::long(*cycles as f64, Unit::Count));
        differs.then(|| format!("{} loses {least} to {most} cycles to translation", self.policy))
    }

    /// Column headings for [`Spread::shown`].
    pub const HEADER: [&'static str; 6] = ["policy", "figure", "not randomised", "least", "median", "most"];

    /// The rows below [`Spread::HEADER`].
    pub fn shown(&self) -> Vec<[String; 6]> {
        let row = |(place, (shown, name)): (usize, &(&str, &str))| {
            let figure = self.figure(name)?;
            let text = |value: u64| {
                if name.ends_with("_bytes") { format_bytes(value) } else { figure::long(value as f64, Unit::Count) }
            };
            let policy = if place == 0 { self.policy.clone() } else { String::new() };
            let values = [figure.fixed, figure.least, figure.median, figure.most].map(text);
            let [fixed, least, median, most] = values;
            Some([policy, (*shown).to_owned(), fixed, least, median, most])
        };
        SPREAD.iter().enumerate().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_shows_what_matters_with_its_units() {
        let of = |name: &str, fixed| FigureSpread { name: name.into(), fixed, least: 986, median: 1050, most: 1130 };
        let figures = vec![of("resident_peak_bytes", 4096), of("faults", 733), of("zero_faults", 1)];
        let spread = Spread { policy: "thp".into(), layouts: 9, figures, ..Spread::default() };
        let shown = spread.shown();
        assert_eq!(shown[0], ["thp", "faults", "733", "986", "1,050", "1,130"]);
        assert_eq!((shown.len(), &shown[1][..3]), (2, &["".to_owned(), "resident".into(), "4K".into()][..]));
    }
}
