//! The proof that the kernel's direct map was as its policy says: read before and after a trial.

use host::Host;
use host::direct_map::{Leaves, leaves};
use study::cause::{Cause, CauseShare};
use study::comparison::Unsupported;
use study::size::PageSize;
use study::verdict::{Holding, Verdict};

/// What was read before the trial.
pub struct KernelProof {
    leaf: PageSize,
    before: Result<Leaves, Unsupported>,
}

impl KernelProof {
    /// Reads the direct map before a trial.
    pub fn before(leaf: PageSize, host: &Host) -> KernelProof {
        KernelProof { leaf, before: leaves(host) }
    }

    /// Reads it again, and makes the verdict one about the direct map.
    pub fn conclude(self, host: &Host, verdict: &mut Verdict) {
        self.judge(leaves(host), verdict);
    }

    fn judge(self, after: Result<Leaves, Unsupported>, verdict: &mut Verdict) {
        verdict.peak = None; // the program's memory is not what is judged
        match self.before.and_then(|before| Ok((before, after?))) {
            Ok((before, after)) => {
                verdict.concerned_bytes = before.total_bytes();
                verdict.covered_bytes = before.certain(self.leaf).min(after.certain(self.leaf));
                verdict.holding = Verdict::holding_of(verdict.concerned_bytes, verdict.covered_bytes);
                let bytes = verdict.concerned_bytes - verdict.covered_bytes;
                let otherwise = CauseShare { cause: Cause::DirectMapOtherwise, bytes: Some(bytes) };
                verdict.causes.insert(0, otherwise);
                verdict.causes.retain(|share| share.bytes != Some(0));
            }
            Err(why) => {
                let cause = Cause::DirectMapUnseen { reason: why.to_string() };
                verdict.holding = Holding::Unknown;
                (verdict.concerned_bytes, verdict.covered_bytes) = (0, 0);
                verdict.causes.insert(0, CauseShare { cause, bytes: None });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use host::direct_map::Source;

    fn of(gigabytes: u64, of_2m: u64) -> Leaves {
        let bytes = BTreeMap::from([(PageSize::G1, gigabytes << 30), (PageSize::M2, of_2m << 30)]);
        let (contiguous_bytes, boot_bytes, split_bytes) = Default::default();
        Leaves { bytes, contiguous_bytes, boot_bytes, split_bytes, memory_bytes: None, source: Source::Meminfo }
    }

    fn verdict(before: Result<Leaves, Unsupported>, after: Leaves) -> Verdict {
        let mut verdict = Verdict {
            holding: Holding::NotAsked,
            concerned_bytes: 5,
            covered_bytes: 5,
            peak: None,
            causes: Vec::new(),
            answered: Vec::new(),
        };
        KernelProof { leaf: PageSize::G1, before }.judge(Ok(after), &mut verdict);
        verdict
    }

    #[test]
    fn a_map_that_was_split_meanwhile_does_not_hold() {
        assert_eq!(verdict(Ok(of(19, 1)), of(19, 1)).holding, Holding::Held);
        let split = verdict(Ok(of(19, 1)), of(10, 10));
        assert_eq!((split.holding, split.covered_bytes), (Holding::Partly, 10 << 30));
        assert_eq!(split.causes[0], CauseShare { cause: Cause::DirectMapOtherwise, bytes: Some(10 << 30) });
        assert!(verdict(Ok(of(20, 0)), of(20, 0)).causes.is_empty());
    }

    #[test]
    fn what_cannot_be_seen_is_unknown() {
        let hidden = Unsupported { reason: "no file".into(), remedy: "mount it".into() };
        let unseen = verdict(Err(hidden), of(20, 0));
        assert_eq!((unseen.holding, unseen.coverage_ratio()), (Holding::Unknown, None));
    }
}
