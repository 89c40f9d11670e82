//! [`Verdict`]: whether the policy took effect. It does not depend on the platform that made the census.

use serde::{Deserialize, Serialize};

use crate::cause::CauseShare;

/// Whether a policy held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// At least nine tenths of the concerned memory is mapped as asked.
    Held,
    /// At least one tenth of the concerned memory is mapped as asked.
    Partly,
    /// Less than one tenth of the concerned memory is mapped as asked.
    NotHeld,
    /// It cannot be determined; the causes give the reason.
    Unknown,
    /// The policy asks for nothing that could fail to hold (`default`).
    NotAsked,
}

/// What the census shows about a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the policy held.
    pub holding: Holding,
    /// Anonymous and hugetlb bytes that the policy applies to.
    pub concerned_bytes: u64,
    /// Concerned bytes that are mapped as asked.
    pub covered_bytes: u64,
    /// How much of the peak was examined; absent where the platform needs no examinations, or did not count.
    pub peak: Option<Peak>,
    /// Why the rest is not mapped as asked, largest first, and other facts that the reader should know.
    pub causes: Vec<CauseShare>,
    /// Calls of the program that were answered and not passed on, for example `prctl(PR_SET_THP_DISABLE)`, with their number.
    pub answered: Vec<AnsweredCall>,
}

/// Anonymous and hugetlb memory at its peak, and how much of it was examined. Each process, or each image of one, is taken at its
/// own peak; the values are sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes examined after the peak, no address twice; at most `least_bytes`.
    pub seen_bytes: u64,
    /// Lower bound of the peak in bytes.
    pub least_bytes: u64,
    /// Upper bound of the peak in bytes.
    pub most_bytes: u64,
}

/// A call that the tracer answered in place of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredCall {
    /// The call in manual-page notation.
    pub call: String,
    /// How often it was answered.
    pub times: u64,
}

impl Peak {
    /// The share of the peak that must be examined to represent the rest.
    pub const MIN_SEEN_RATIO: f64 = 0.5;

    /// Whether too little was examined, even at the lower bound of the peak.
    pub fn is_unseen(&self) -> bool {
        (self.seen_bytes as f64) < Peak::MIN_SEEN_RATIO * self.least_bytes as f64
    }

    /// Whether enough was examined, even at the upper bound of the peak.
    pub fn is_seen(&self) -> bool {
        self.seen_bytes as f64 >= Peak::MIN_SEEN_RATIO * self.most_bytes as f64
    }
}

impl std::ops::AddAssign for Peak {
    fn add_assign(&mut self, other: Peak) {
        self.seen_bytes += other.seen_bytes;
        self.least_bytes += other.least_bytes;
        self.most_bytes += other.most_bytes;
    }
}

impl Verdict {
    /// The smallest coverage at which a policy counts as held.
    pub const HELD: f64 = 0.9;
    /// The smallest coverage at which a policy counts as partly held.
    pub const PARTLY: f64 = 0.1;

    /// The share of the concerned memory that is mapped as asked; absent where no memory is concerned.
    pub fn coverage_ratio(&self) -> Option<f64> {
        (self.concerned_bytes > 0).then(|| self.covered_bytes as f64 / self.concerned_bytes as f64)
    }

    /// The result for a coverage.
    pub fn holding_of(concerned_bytes: u64, covered_bytes: u64) -> Holding {
        if concerned_bytes == 0 {
            return Holding::Unknown;
        }
        match covered_bytes as f64 / concerned_bytes as f64 {
            ratio if ratio >= Verdict::HELD => Holding::Held,
            ratio if ratio >= Verdict::PARTLY => Holding::Partly,
            _ => Holding::NotHeld,
        }
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Holding::Held => "held",
            Holding::Partly => "partly",
            Holding::NotHeld => "not held",
            Holding::Unknown => "unknown",
            Holding::NotAsked => "-",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_peak_speaks_for_the_rest() {
        let judged = |seen_bytes, least_bytes, most_bytes| {
            let peak = Peak { seen_bytes, least_bytes, most_bytes };
            (peak.is_unseen(), peak.is_seen())
        };
        assert_eq!(judged(49, 100, 100), (true, false));
        assert_eq!(judged(50, 100, 100), (false, true));
        assert_eq!(judged(50, 100, 101), (false, false));
        assert_eq!(judged(0, 0, 0), (false, true));
    }
}
