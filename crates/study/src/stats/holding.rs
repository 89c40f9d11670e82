//! Whether a policy held over all trials of an arm.

use policy::verdict::{Holding, Verdict};

/// The best holding that at least nine tenths of the verdicts reach, the same share that a single trial needs of its
/// memory ([`Verdict::HELD`]); `None` without verdicts.
///
/// With fewer than ten trials, every trial must hold. From worst to best: not held, unknown, partly, held, not asked.
pub fn holding<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<Holding> {
    deciding(verdicts).map(|verdict| verdict.holding)
}

/// The verdict that determines [`holding`]: at least nine tenths of the verdicts are as good or better, ordered by holding and
/// then by coverage. Its coverage is therefore consistent with its holding, which the mean coverage may not be.
pub fn deciding<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<&'a Verdict> {
    let mut verdicts: Vec<&Verdict> = verdicts.into_iter().collect();
    let coverage = |verdict: &Verdict| verdict.coverage_ratio().unwrap_or(0.0);
    verdicts.sort_by(|one, other| {
        rank(one.holding).cmp(&rank(other.holding)).then(coverage(one).total_cmp(&coverage(other)))
    });
    verdicts.get(verdicts.len() / 10).copied()
}

fn rank(holding: Holding) -> u8 {
    match holding {
        Holding::NotHeld => 0,
        Holding::Unknown => 1,
        Holding::Partly => 2,
        Holding::Held => 3,
        Holding::NotAsked => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(Holding, usize)]) -> Option<Holding> {
        let verdict = |holding| Verdict {
            holding,
            concerned_bytes: 1,
            covered_bytes: 1,
            peak: None,
            causes: vec![],
            answered: vec![],
        };
        let verdicts: Vec<Verdict> =
            counts.iter().flat_map(|(holding, times)| std::iter::repeat_n(verdict(*holding), *times)).collect();
        holding(&verdicts)
    }

    #[test]
    fn the_coverage_is_consistent_with_the_holding() {
        let of = |percents: &[u64]| {
            let verdict = |percent: &u64| Verdict {
                holding: Verdict::holding_of(100, *percent),
                concerned_bytes: 100,
                covered_bytes: *percent,
                peak: None,
                causes: vec![],
                answered: vec![],
            };
            let verdicts: Vec<Verdict> = percents.iter().map(verdict).collect();
            deciding(&verdicts).map(|verdict| (verdict.holding, verdict.covered_bytes))
        };
        // The first mean is 95 %, which alone would count as held. The second is 82 %, which would not.
        assert_eq!(of(&[99, 99, 81, 99]), Some((Holding::Partly, 81)));
        assert_eq!(of(&[91, 91, 91, 1, 91, 91, 91, 91, 91, 91]), Some((Holding::Held, 91)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn one_trial_in_ten_may_fail() {
        assert_eq!(of(&[(Holding::Held, 8)]), Some(Holding::Held));
        assert_eq!(of(&[(Holding::Held, 8), (Holding::Partly, 1)]), Some(Holding::Partly));
        assert_eq!(of(&[(Holding::Held, 9), (Holding::NotHeld, 1)]), Some(Holding::Held));
        assert_eq!(of(&[(Holding::Held, 8), (Holding::NotHeld, 2)]), Some(Holding::NotHeld));
        assert_eq!(of(&[(Holding::NotAsked, 3)]), Some(Holding::NotAsked));
        assert_eq!(of(&[]), None);
    }
}
