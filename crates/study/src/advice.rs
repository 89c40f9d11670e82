//! Advice: the setting that gives a program the pages of the winning policy without pagelab.

use policy::remedy::{Change, describe};
use policy::size::PageSize;
use policy::{Granularity, PageSizes, Policy};
use serde::{Deserialize, Serialize};

/// The share of the policy's effect that a setting needs to hold.
const ENOUGH_RATIO: f64 = 0.9;

/// The advice of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Advice {
    /// No setting was tried.
    Untried {
        /// The reason, or what to do, as a clause.
        reason: String,
    },
    /// Trials take so long that settings are tried only on request.
    TooLong {
        /// The duration of a trial of the policy in seconds, rounded up.
        trial_s: u64,
    },
    /// Settings were tried.
    Tried(Tried),
}

/// The settings that were tried in order to give the program the pages of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The policy that won; of several that tie, the least intrusive.
    pub policy: Policy,
    /// The program's bytes in large pages, from one run each.
    pub large: LargeBytes,
    /// The settings that were tried, in this order, one run each. Only the last one can hold.
    pub attempts: Vec<Attempt>,
    /// An untried change to the program's source for its largest region, as an instruction; `None` if no change is known.
    pub source_change: Option<String>,
}

/// The program's bytes in large pages, which are: for most policies pages of at least the policy's size; for mTHP only pages of
/// that size, because larger pages are those of another policy; for `base` pages larger than base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeBytes {
    /// Under the policy.
    pub by_policy: u64,
    /// Without a policy and without a setting.
    pub by_default: u64,
}

/// A setting that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was set, in this order.
    pub changes: Vec<Change>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The program ran.
    Ran {
        /// Its bytes in large pages.
        large_bytes: u64,
        /// Bytes of larger pages that the kernel could not allocate during the run for lack of a free block, for any process of the
        /// system.
        no_block_bytes: u64,
    },
    /// The program ran, but without an environment variable of the setting.
    NotReached {
        /// The name of the variable.
        variable: String,
    },
    /// The program ran, but its answer differs from the one without the setting.
    OtherAnswer,
    /// The program failed under the setting.
    Failed {
        /// How the program ended, as a clause.
        how: String,
    },
    /// The setting could not be made.
    Refused {
        /// The reason.
        reason: String,
    },
}

impl Advice {
    /// The setting that holds, and the program's bytes in large pages under it.
    pub fn holding(&self) -> Option<(&Tried, &Attempt, u64)> {
        let Advice::Tried(tried) = self else { return None };
        tried.holding().map(|(attempt, bytes)| (tried, attempt, bytes))
    }
}

impl Tried {
    /// The setting that holds, and the program's bytes in large pages under it.
    pub fn holding(&self) -> Option<(&Attempt, u64)> {
        let last = self.attempts.last()?;
        let Outcome::Ran { large_bytes, .. } = last.outcome else { return None };
        self.holds(&last.outcome).then_some((last, large_bytes))
    }

    /// The bytes for which free blocks were missing, if a setting failed only for that reason: with enough free blocks, the
    /// setting would hold. Of several such settings, the one that lacked most counts.
    pub fn undecided_for_blocks(&self) -> Option<u64> {
        let would_hold = |attempt: &Attempt| {
            let Outcome::Ran { large_bytes, no_block_bytes } = attempt.outcome else { return false };
            let with_blocks = Outcome::Ran { large_bytes: large_bytes + no_block_bytes, no_block_bytes: 0 };
            no_block_bytes > 0 && !self.holds(&attempt.outcome) && self.holds(&with_blocks)
        };
        self.attempts.iter().filter(|attempt| would_hold(attempt)).map(Attempt::no_block_bytes).max()
    }

    /// Whether a setting has nine tenths of the policy's effect.
    pub fn holds(&self, outcome: &Outcome) -> bool {
        let Outcome::Ran { large_bytes, .. } = outcome else { return false };
        let LargeBytes { by_policy, by_default } = self.large;
        match self.policy.granularity {
            Granularity::Base => {
                let removed = |left: u64| by_default.saturating_sub(left) as f64;
                removed(*large_bytes) >= ENOUGH_RATIO * removed(by_policy)
            }
            _ => *large_bytes > 0 && *large_bytes as f64 >= ENOUGH_RATIO * by_policy as f64,
        }
    }
}

impl Attempt {
    /// Bytes of larger pages that the kernel could not allocate for lack of a free block.
    pub fn no_block_bytes(&self) -> u64 {
        match self.outcome {
            Outcome::Ran { no_block_bytes, .. } => no_block_bytes,
            _ => 0,
        }
    }

    /// What was set, as one instruction.
    pub fn instruction(&self) -> String {
        describe(&self.changes)
    }

    /// Whether the setting affects every program of the system.
    pub fn is_for_all(&self) -> bool {
        let is_for_all = |change: &Change| matches!(change, Change::Setting { value, .. } if value != "madvise");
        self.changes.iter().any(is_for_all)
    }
}

/// Whether a page size counts as large for a policy; `None` for policies that no setting can give.
pub fn is_large(policy: &Policy, page_sizes: &PageSizes) -> Option<impl Fn(PageSize) -> bool + use<>> {
    if !policy.modifiers().is_empty() {
        return None;
    }
    let granularity = policy.granularity;
    let wanted = match granularity {
        Granularity::Base => page_sizes.base,
        Granularity::Thp | Granularity::Mthp(_) | Granularity::Hugetlb(_) => policy.target(page_sizes)?,
        Granularity::Default | Granularity::DirectMap(_) => return None,
    };
    Some(move |size: PageSize| match granularity {
        Granularity::Base => size > wanted,
        Granularity::Mthp(_) => size == wanted,
        _ => size >= wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(policy: &str, by_policy: u64, by_default: u64) -> Tried {
        let large = LargeBytes { by_policy, by_default };
        Tried { policy: policy.parse().unwrap(), large, attempts: Vec::new(), source_change: None }
    }

    #[test]
    fn nine_tenths_of_the_effect_are_enough() {
        let ran = |large_bytes| Outcome::Ran { large_bytes, no_block_bytes: 0 };
        let thp = tried("thp", 100, 0);
        assert!(thp.holds(&ran(90)) && !thp.holds(&ran(89)) && !thp.holds(&Outcome::OtherAnswer));
        let base = tried("base", 0, 100);
        assert!(base.holds(&ran(10)) && !base.holds(&ran(11)) && !base.holds(&Outcome::Refused { reason: "x".into() }));
        assert!(!tried("thp", 0, 0).holds(&ran(0)));
    }

    #[test]
    fn larger_pages_than_those_of_mthp_are_those_of_another_policy() {
        let size = |kib: u64| PageSize::new(kib << 10).unwrap();
        let page_sizes = PageSizes {
            base: PageSize::K4,
            pmd: Some(size(2048)),
            mthp: vec![PageSize::K16, PageSize::K64],
            hugetlb: vec![size(2048)],
        };
        let large = |policy: &str| {
            let is_large = is_large(&policy.parse().unwrap(), &page_sizes).unwrap();
            [4, 16, 64, 2048].map(size).into_iter().filter(|size| is_large(*size)).collect::<Vec<_>>()
        };
        assert_eq!(large("mthp-64k"), [PageSize::K64]);
        assert_eq!(large("thp"), [size(2048)]);
        assert_eq!(large("base"), [PageSize::K16, PageSize::K64, size(2048)]);
    }

    #[test]
    fn the_last_attempt_holds_or_none_does() {
        let attempt =
            |large_bytes| Attempt { changes: Vec::new(), outcome: Outcome::Ran { large_bytes, no_block_bytes: 0 } };
        let mut thp = tried("thp", 100, 0);
        assert_eq!(thp.holding(), None);
        thp.attempts = vec![attempt(3), attempt(95)];
        assert_eq!(thp.holding().map(|(_, bytes)| bytes), Some(95));
        thp.attempts.push(attempt(4));
        assert_eq!(Advice::Tried(thp).holding(), None);
    }

    #[test]
    fn missing_free_blocks_are_reported_if_the_setting_would_hold_with_them() {
        let attempt = |large_bytes, no_block_bytes| Attempt {
            changes: Vec::new(),
            outcome: Outcome::Ran { large_bytes, no_block_bytes },
        };
        let with = |attempts| Tried { attempts, ..tried("thp", 100, 0) }.undecided_for_blocks();
        assert_eq!(with(vec![attempt(60, 30), attempt(70, 25), attempt(10, 80)]), Some(80));
        assert_eq!(with(vec![attempt(0, 0), attempt(60, 20), attempt(95, 30)]), None);
    }
}
