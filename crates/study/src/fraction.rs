//! Shares of memory as fractions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A requested share of memory, such as `1/2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fraction {
    numerator: u32,
    denominator: u32,
}

/// The text is not a share of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share of memory from 0 to 1 such as 0, 1/8 or 1, found {0:?}")]
pub struct FractionError(String);

impl Fraction {
    /// The share as a number from 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }

    /// Whether the share is none of the memory or all of it.
    pub fn is_none_or_all(self) -> bool {
        self.numerator == 0 || self.numerator == self.denominator
    }

    /// The number of windows, out of `windows`, that the share covers: at least one, and fewer than all if there are several.
    pub(crate) fn of(self, windows: u32) -> u32 {
        let count = (self.ratio() * f64::from(windows)).round() as u32;
        count.clamp(1, windows.saturating_sub(1).max(1))
    }
}

impl FromStr for Fraction {
    type Err = FractionError;

    fn from_str(text: &str) -> Result<Fraction, FractionError> {
        let error = || FractionError(text.to_owned());
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| text.parse::<u32>().map_err(|_| error());
        let fraction = Fraction { numerator: number(numerator)?, denominator: number(denominator)? };
        (fraction.denominator > 0 && fraction.numerator <= fraction.denominator).then_some(fraction).ok_or_else(error)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

impl TryFrom<String> for Fraction {
    type Error = FractionError;

    fn try_from(text: String) -> Result<Fraction, FractionError> {
        text.parse()
    }
}

impl From<Fraction> for String {
    fn from(fraction: Fraction) -> String {
        fraction.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_from_0_to_1() {
        assert_eq!(["0", "1/8", "1"].map(|text| text.parse::<Fraction>().unwrap().ratio()), [0.0, 0.125, 1.0]);
        for text in ["2", "1/0", "3/2", "-1/2", "0.5", "", "1/", "half"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
    }
}
