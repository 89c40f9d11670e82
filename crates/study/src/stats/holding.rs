//! Whether a policy held over all the trials of an arm.

use crate::verdict::{Holding, Verdict};

/// The best word that at least nine tenths of the verdicts deserve, the same share that a single trial
/// needs of its memory ([`Verdict::HELD`]); `None` without verdicts.
///
/// Below ten trials every one must hold. From worst to best: not held, unknown, partly, held, not asked.
pub fn holding<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<Holding> {
    let mut words: Vec<Holding> = verdicts.into_iter().map(|verdict| verdict.holding).collect();
    words.sort_by_key(|word| match word {
        Holding::NotHeld => 0,
        Holding::Unknown => 1,
        Holding::Partly => 2,
        Holding::Held => 3,
        Holding::NotAsked => 4,
    });
    words.get(words.len() / 10).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(Holding, usize)]) -> Option<Holding> {
        let verdict =
            |holding| Verdict { holding, concerned_bytes: 1, covered_bytes: 1, causes: vec![], answered: vec![] };
        let verdicts: Vec<Verdict> =
            words.iter().flat_map(|(word, times)| std::iter::repeat_n(verdict(*word), *times)).collect();
        holding(&verdicts)
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
