//! Compares a published figure with one found here.

use crate::stats::Effect;

/// How a published change and one found here agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
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

impl Agreement {
    /// The agreement as a clause.
    pub fn describe(self) -> &'static str {
        match self {
            Agreement::Confirmed => "confirmed: the interval holds the published figure, and leaves out no change",
            Agreement::OtherSize => "the same direction, but another size",
            Agreement::Contradicted => "contradicted: the change has the opposite sign",
            Agreement::NotSeen => "not seen here: the interval holds no change, and not the published figure",
            Agreement::Undecided => {
                "undecided: there is no interval here, or it holds the published figure and no change alike"
            }
        }
    }

    /// Compares a published ratio with an effect.
    pub fn of(published_ratio: f64, found: Option<&Effect>) -> Agreement {
        Agreement::within(published_ratio, found.and_then(|effect| effect.low.zip(effect.high)), 1.0)
    }

    /// Compares a published value with an interval; `unchanged` is the value that means no change.
    pub(super) fn within(published: f64, interval: Option<(f64, f64)>, unchanged: f64) -> Agreement {
        let Some((low, high)) = interval else { return Agreement::Undecided };
        match ((low..=high).contains(&published), (low..=high).contains(&unchanged)) {
            (true, true) => Agreement::Undecided,
            (true, false) => Agreement::Confirmed,
            (false, true) => Agreement::NotSeen,
            (false, false) if (low > unchanged) == (published > unchanged) => Agreement::OtherSize,
            (false, false) => Agreement::Contradicted,
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
            Agreement::of(published, Some(&effect))
        };
        assert_eq!(of(0.9, 0.85, 0.95), Agreement::Confirmed);
        assert_eq!(of(0.9, 0.95, 0.98), Agreement::OtherSize);
        assert_eq!(of(0.9, 1.02, 1.05), Agreement::Contradicted);
        assert_eq!(of(0.9, 0.98, 1.02), Agreement::NotSeen);
        assert_eq!(of(0.9, 0.8, 1.2), Agreement::Undecided, "a wide interval confirms nothing");
        assert_eq!(Agreement::of(0.9, None), Agreement::Undecided);
    }
}
