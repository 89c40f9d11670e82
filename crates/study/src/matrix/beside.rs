//! Compares a published figure with one found here.

use crate::stats::Effect;

/// How a published change and one found here agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The interval contains the published figure and excludes no change.
    Confirmed,
    /// Same direction as published, but another amount: the interval excludes both the published figure and no change.
    OtherSize,
    /// The interval excludes no change, in the opposite direction.
    Contradicted,
    /// The interval contains no change and excludes the published figure.
    NotSeen,
    /// There is no interval, or it contains both the published figure and no change.
    Undecided,
}

impl Beside {
    /// The agreement as a clause.
    pub fn describe(self) -> &'static str {
        match self {
            Beside::Confirmed => "confirmed: the interval holds the published figure, and leaves out no change",
            Beside::OtherSize => "the same direction, but another size",
            Beside::Contradicted => "contradicted: the change goes the other way",
            Beside::NotSeen => "not seen here: the interval holds no change, and not the published figure",
            Beside::Undecided => {
                "undecided: there is no interval here, or it holds the published figure and no change alike"
            }
        }
    }

    /// Compares a published ratio with an effect.
    pub fn of(published_ratio: f64, found: Option<&Effect>) -> Beside {
        Beside::within(published_ratio, found.and_then(|effect| effect.low.zip(effect.high)), 1.0)
    }

    /// Compares a published value with an interval; `unchanged` is the value that means no change.
    pub(super) fn within(published: f64, interval: Option<(f64, f64)>, unchanged: f64) -> Beside {
        let Some((low, high)) = interval else { return Beside::Undecided };
        match ((low..=high).contains(&published), (low..=high).contains(&unchanged)) {
            (true, true) => Beside::Undecided,
            (true, false) => Beside::Confirmed,
            (false, true) => Beside::NotSeen,
            (false, false) if (low > unchanged) == (published > unchanged) => Beside::OtherSize,
            (false, false) => Beside::Contradicted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_decide() {
        let of = |published, low, high| {
            let effect = Effect { blocks: 9, ratio: 1.0, low: Some(low), high: Some(high), p_adjusted: None };
            Beside::of(published, Some(&effect))
        };
        assert_eq!(of(0.9, 0.85, 0.95), Beside::Confirmed);
        assert_eq!(of(0.9, 0.95, 0.98), Beside::OtherSize);
        assert_eq!(of(0.9, 1.02, 1.05), Beside::Contradicted);
        assert_eq!(of(0.9, 0.98, 1.02), Beside::NotSeen);
        assert_eq!(of(0.9, 0.8, 1.2), Beside::Undecided, "a wide interval confirms nothing");
        assert_eq!(Beside::of(0.9, None), Beside::Undecided);
    }
}
