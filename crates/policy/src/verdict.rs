//! The verdict: did the policy take effect? It does not know which platform made the census.

use serde::{Deserialize, Serialize};

use crate::cause::CauseShare;

/// Whether a policy held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// At least nine tenths of the memory concerned is mapped as asked.
    Held,
    /// At least a tenth.
    Partly,
    /// Less.
    NotHeld,
    /// It cannot be known; the causes say why.
    Unknown,
    /// The policy asks for nothing that could fail to hold (`default`).
    NotAsked,
}

/// What the census says about a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The word.
    pub holding: Holding,
    /// Anonymous and hugetlb bytes that the policy concerns.
    pub concerned_bytes: u64,
    /// Those of them that are mapped as asked.
    pub covered_bytes: u64,
    /// How much of the peak was looked at; absent where the platform needs no looks, or did not count.
    pub peak: Option<Peak>,
    /// Why the rest is not, largest first; and what else should be known.
    pub causes: Vec<CauseShare>,
    /// Calls of the program that were answered and not passed on, for example
    /// `prctl(PR_SET_THP_DISABLE)`, with their number.
    pub answered: Vec<AnsweredCall>,
}

/// Anonymous and hugetlb memory at its peak, and how much of it was looked at: each process, or image of one, at its own
/// peak, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// What was looked at after the peak, no address twice; at most `least_bytes`.
    pub seen_bytes: u64,
    /// What was there at least.
    pub least_bytes: u64,
    /// What was there at most.
    pub most_bytes: u64,
}

/// A call that the tracer answered in the kernel's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredCall {
    /// The call, as it stands in the manual.
    pub call: String,
    /// How often.
    pub times: u64,
}

impl Peak {
    /// The share of the peak from which on what was seen speaks for the rest: more was seen than not.
    pub const SEEN: f64 = 0.5;

    /// Whether too little was seen, however large the peak was.
    pub fn is_unseen(&self) -> bool {
        (self.seen_bytes as f64) < Peak::SEEN * self.least_bytes as f64
    }

    /// Whether enough was seen, however large the peak was.
    pub fn is_seen(&self) -> bool {
        self.seen_bytes as f64 >= Peak::SEEN * self.most_bytes as f64
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
    /// Coverage from which on a policy is held.
    pub const HELD: f64 = 0.9;
    /// Coverage from which on it is partly held.
    pub const PARTLY: f64 = 0.1;

    /// The share of the concerned memory that is mapped as asked; absent where none is concerned.
    pub fn coverage_ratio(&self) -> Option<f64> {
        (self.concerned_bytes > 0).then(|| self.covered_bytes as f64 / self.concerned_bytes as f64)
    }

    /// The word for a coverage.
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
