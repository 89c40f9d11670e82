//! Compares a published figure with one found here.

use study::stats::Effect;

/// How a published change and one found here agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The interval contains the published figure and not the value of an unchanged metric.
    Inside,
    /// Same direction as published, but another size: the interval contains neither the published figure nor the value of an
    /// unchanged metric.
    OtherSize,
    /// The interval excludes the published figure, and it either contains the value of an unchanged metric or is on its other
    /// side.
    Contradicted,
    /// There is no interval, or it contains both the published figure and the value of an unchanged metric.
    Undecided,
}

impl Agreement {
    /// The agreement as a clause.
    pub fn describe(self) -> &'static str {
        match self {
            Agreement::Inside => "inside our interval",
            Agreement::OtherSize => "same direction, other size",
            Agreement::Contradicted => "contradicted",
            Agreement::Undecided => "not decided here",
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
            (true, false) => Agreement::Inside,
            (false, true) => Agreement::Contradicted,
            (false, false) if (low > unchanged) == (published > unchanged) => Agreement::OtherSize,
            (false, false) => Agreement::Contradicted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_decides_the_agreement() {
        let of = |published, low, high| {
            let effect = Effect { blocks: 9, ratio: 1.0, low: Some(low), high: Some(high), p_adjusted: None };
            Agreement::of(published, Some(&effect))
        };
        assert_eq!(of(0.9, 0.85, 0.95), Agreement::Inside);
        assert_eq!(of(0.9, 0.95, 0.98), Agreement::OtherSize);
        assert_eq!(of(0.9, 1.02, 1.05), Agreement::Contradicted);
        assert_eq!(of(0.9, 0.98, 1.02), Agreement::Contradicted, "no such change here");
        assert_eq!(of(0.9, 0.8, 1.2), Agreement::Undecided, "a wide interval confirms nothing");
        assert_eq!(Agreement::of(0.9, None), Agreement::Undecided);
    }
}
