//! Judges all published figures of a study together: whether the claim of the publication that the study repeats (its origin)
//! is reproduced here.

use super::{Agreement, Reproduction};
use crate::definition::Published;
use study::metric::Provenance;

/// Whether the origin's claim is reproduced here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Some of the figures are inside our interval, and none is contradicted.
    Confirmed,
    /// Some of the figures have the same direction and another size, and none is contradicted.
    Direction,
    /// Some of the figures are contradicted, and none is inside our interval or of another size.
    Contradicted,
    /// Less than half of the figures can be judged here, or some are contradicted and others are not: of twenty figures judged
    /// at 95 %, one is contradicted by chance.
    Undecided,
    /// Nothing that could be compared with a published figure was measured.
    NothingMeasured,
    /// There is no published figure to compare with.
    NothingPublished,
}

impl Claim {
    /// The verdict on a claim from its figures, each compared with one found here.
    pub fn of<'a>(reproductions: impl IntoIterator<Item = &'a Reproduction>) -> Claim {
        let all: Vec<&Reproduction> = reproductions.into_iter().collect();
        let any = |which: &[Agreement]| all.iter().any(|one| which.contains(&one.agreement));
        let is_for = any(&[Agreement::Inside, Agreement::OtherSize]);
        let is_of_size = any(&[Agreement::Inside]);
        let is_against = any(&[Agreement::Contradicted]);
        match (is_for, is_against) {
            _ if all.is_empty() => Claim::NothingPublished,
            _ if all.iter().all(|one| one.provenance == Provenance::Modelled) => Claim::NothingMeasured,
            _ if !are_most_judged(&all) => Claim::Undecided,
            (true, false) if is_of_size => Claim::Confirmed,
            (true, false) => Claim::Direction,
            (false, true) => Claim::Contradicted,
            (true, true) | (false, false) => Claim::Undecided,
        }
    }

    /// The verdict in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Claim::Confirmed => "confirmed",
            Claim::Direction => "confirmed in its direction only",
            Claim::Contradicted => "contradicted",
            Claim::Undecided => "undecided",
            Claim::NothingMeasured => "not judged",
            Claim::NothingPublished => "nothing published",
        }
    }
}

/// Whether at least half of the figures are judged, each on at least one machine.
fn are_most_judged(all: &[&Reproduction]) -> bool {
    let mut figures: Vec<(&Published, bool)> = Vec::new();
    for one in all {
        let is_judged = one.agreement != Agreement::Undecided;
        match figures.iter_mut().find(|(published, _)| **published == one.published) {
            Some((_, any)) => *any |= is_judged,
            None => figures.push((&one.published, is_judged)),
        }
    }
    let judged = figures.iter().filter(|(_, is_judged)| *is_judged).count();
    2 * judged >= figures.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Measure;

    #[test]
    fn figures_that_disagree_decide_nothing() {
        use Agreement::{Contradicted, Inside, OtherSize, Undecided};
        let published = Published {
            what: String::new(),
            workload: None,
            suite: None,
            policy: None,
            boot: None,
            variant: None,
            metric: None,
            measure: Measure::Change,
            change: String::new(),
            ratio: 1.0,
            source: String::new(),
            differs: None,
        };
        let one = |agreement: &Agreement| Reproduction {
            published: published.clone(),
            machine: String::new(),
            provenance: Provenance::Measured,
            found: None,
            agreement: *agreement,
        };
        let of = |all: &[Agreement]| Claim::of(&all.iter().map(one).collect::<Vec<Reproduction>>());
        assert_eq!(of(&[]), Claim::NothingPublished);
        assert_eq!(of(&[Undecided]), Claim::Undecided);
        let modelled = Reproduction { provenance: Provenance::Modelled, ..one(&Undecided) };
        assert_eq!(Claim::of(&[modelled]), Claim::NothingMeasured);
        assert_eq!(of(&[Undecided, OtherSize]), Claim::Direction);
        assert_eq!(of(&[Inside, OtherSize]), Claim::Confirmed);
        assert_eq!(of(&[Contradicted, Contradicted]), Claim::Contradicted);
        assert_eq!(of(&[Inside, Contradicted]), Claim::Undecided);
        // A single judged figure of many decides nothing.
        let figures = |all: &[Agreement]| {
            let named = |(at, agreement): (usize, &Agreement)| Reproduction {
                published: Published { what: at.to_string(), ..published.clone() },
                ..one(agreement)
            };
            Claim::of(&all.iter().enumerate().map(named).collect::<Vec<Reproduction>>())
        };
        assert_eq!(figures(&[Contradicted, Undecided]), Claim::Contradicted);
        assert_eq!(figures(&[Contradicted, Undecided, Undecided]), Claim::Undecided);
        assert_eq!(figures(&[Undecided, Inside, Undecided, Inside]), Claim::Confirmed);
    }
}
