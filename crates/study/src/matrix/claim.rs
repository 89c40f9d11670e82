//! Judges all published figures of a study together: whether the origin's claim is reproduced here.

use super::{Agreement, Set};
use crate::definition::Published;

/// Whether the origin's claim is reproduced here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Some of its figures are confirmed, and none is contradicted.
    Confirmed,
    /// Some of its figures have the same direction and another size, and none is contradicted.
    Direction,
    /// Some of its figures are contradicted or not seen, and none is confirmed.
    Contradicted,
    /// Less than half of the figures can be judged here, or they disagree: of twenty figures judged at 95 %, one is
    /// expected by chance.
    Undecided,
    /// There is no published figure to compare with.
    NothingPublished,
}

impl Claim {
    /// The verdict on a claim from the comparisons of its figures.
    pub fn of<'a>(sets: impl IntoIterator<Item = &'a Set>) -> Claim {
        let sets: Vec<&Set> = sets.into_iter().collect();
        let any = |which: &[Agreement]| sets.iter().any(|set| which.contains(&set.agreement));
        let is_for = any(&[Agreement::Confirmed, Agreement::OtherSize]);
        let is_of_size = any(&[Agreement::Confirmed]);
        let is_against = any(&[Agreement::Contradicted, Agreement::NotSeen]);
        match (is_for, is_against) {
            _ if sets.is_empty() => Claim::NothingPublished,
            _ if !are_most_judged(&sets) => Claim::Undecided,
            (true, false) if is_of_size => Claim::Confirmed,
            (true, false) => Claim::Direction,
            (false, true) => Claim::Contradicted,
            (true, true) | (false, false) => Claim::Undecided,
        }
    }

    /// The verdict in one or two words.
    pub fn describe(self) -> &'static str {
        match self {
            Claim::Confirmed => "confirmed",
            Claim::Direction => "confirmed in its direction only",
            Claim::Contradicted => "contradicted",
            Claim::Undecided => "undecided",
            Claim::NothingPublished => "nothing published",
        }
    }
}

/// Whether at least half of the figures are judged, each on at least one machine.
fn are_most_judged(sets: &[&Set]) -> bool {
    let mut figures: Vec<(&Published, bool)> = Vec::new();
    for set in sets {
        let is_judged = set.agreement != Agreement::Undecided;
        match figures.iter_mut().find(|(published, _)| **published == set.published) {
            Some((_, any)) => *any |= is_judged,
            None => figures.push((&set.published, is_judged)),
        }
    }
    let judged = figures.iter().filter(|(_, is_judged)| *is_judged).count();
    2 * judged >= figures.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Measure;
    use crate::metric::Provenance;

    #[test]
    fn figures_that_disagree_decide_nothing() {
        use Agreement::{Confirmed, Contradicted, NotSeen, OtherSize, Undecided};
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
        let set = |agreement: &Agreement| Set {
            published: published.clone(),
            machine: String::new(),
            provenance: Provenance::Measured,
            found: None,
            agreement: *agreement,
        };
        let of = |all: &[Agreement]| Claim::of(&all.iter().map(set).collect::<Vec<Set>>());
        assert_eq!(of(&[]), Claim::NothingPublished);
        assert_eq!(of(&[Undecided]), Claim::Undecided);
        assert_eq!(of(&[Undecided, OtherSize]), Claim::Direction);
        assert_eq!(of(&[Confirmed, OtherSize]), Claim::Confirmed);
        assert_eq!(of(&[NotSeen, Contradicted]), Claim::Contradicted);
        assert_eq!(of(&[Confirmed, Contradicted]), Claim::Undecided);
        // One of many figures alone says nothing.
        let figures = |all: &[Agreement]| {
            let named = |(at, agreement): (usize, &Agreement)| Set {
                published: Published { what: at.to_string(), ..published.clone() },
                ..set(agreement)
            };
            Claim::of(&all.iter().enumerate().map(named).collect::<Vec<Set>>())
        };
        assert_eq!(figures(&[NotSeen, Undecided]), Claim::Contradicted);
        assert_eq!(figures(&[NotSeen, Undecided, Undecided]), Claim::Undecided);
        assert_eq!(figures(&[Undecided, Confirmed, Undecided, Confirmed]), Claim::Confirmed);
    }
}
