//! [`DirectMapBefore`]: reads the kernel's direct map before and after a trial, as evidence for a policy about it.

use host::Host;
use host::direct_map::{Leaves, leaves};
use policy::DirectMapLeaves;
use policy::Unsupported;
use policy::judge::{DirectMap, MappedShare};

/// The reading from before the trial.
pub struct DirectMapBefore {
    wanted: DirectMapLeaves,
    before: Result<Leaves, Unsupported>,
}

impl DirectMapBefore {
    /// Reads the direct map before a trial.
    pub fn read(wanted: DirectMapLeaves, host: &Host) -> DirectMapBefore {
        DirectMapBefore { wanted, before: leaves(host) }
    }

    /// Reads the direct map again after the trial.
    pub fn and_after(self, host: &Host) -> DirectMap {
        self.compared_with(leaves(host))
    }

    fn compared_with(self, after: Result<Leaves, Unsupported>) -> DirectMap {
        let wanted = self.wanted;
        let share = |leaves: &Leaves, before: &Leaves| MappedShare {
            total_bytes: leaves.total_bytes(),
            covered_bytes: match wanted {
                DirectMapLeaves::Of(leaf) => leaves.certain(leaf),
                // Mixed leaves: as asked if no leaf size is dominant, as far as the leaves are unchanged.
                DirectMapLeaves::Mixed if leaves.dominant().is_some() => 0,
                DirectMapLeaves::Mixed => leaves.unchanged_bytes(before),
            },
        };
        match self.before.and_then(|before| Ok((before, after?))) {
            Ok((before, after)) => DirectMap::Seen { before: share(&before, &before), after: share(&after, &before) },
            Err(why) => DirectMap::Unseen { reason: why.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use policy::cause::{Cause, CauseShare};
    use policy::judge::Evidence;
    use policy::size::PageSize;
    use policy::verdict::{Holding, Verdict};

    use super::*;
    use host::direct_map::Source;

    fn of(gigabytes: u64, of_2m: u64) -> Leaves {
        let bytes = BTreeMap::from([(PageSize::G1, gigabytes << 30), (PageSize::M2, of_2m << 30)]);
        let (contiguous_bytes, boot_bytes, split_bytes) = Default::default();
        Leaves { bytes, contiguous_bytes, boot_bytes, split_bytes, memory_bytes: None, source: Source::Meminfo }
    }

    fn verdict(before: Result<Leaves, Unsupported>, after: Leaves) -> Verdict {
        of_leaves(DirectMapLeaves::Of(PageSize::G1), before, after)
    }

    fn of_leaves(wanted: DirectMapLeaves, before: Result<Leaves, Unsupported>, after: Leaves) -> Verdict {
        let direct_map = DirectMapBefore { wanted, before }.compared_with(Ok(after));
        Evidence { direct_map: Some(direct_map), ..Evidence::default() }.verdict()
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
    fn a_map_of_no_one_size_holds_as_long_as_it_stays_as_it_is() {
        let mixed = |before, after| of_leaves(DirectMapLeaves::Mixed, Ok(before), after).holding;
        assert_eq!(mixed(of(12, 8), of(12, 8)), Holding::Held);
        assert_eq!(mixed(of(12, 8), of(8, 12)), Holding::Partly, "a fifth was split");
        assert_eq!(mixed(of(19, 1), of(19, 1)), Holding::NotHeld, "it has a size");
    }

    #[test]
    fn an_invisible_direct_map_is_unknown() {
        let hidden = Unsupported { reason: "no file".into(), remedy: "mount it".into() };
        let unseen = verdict(Err(hidden), of(20, 0));
        assert_eq!((unseen.holding, unseen.coverage_ratio()), (Holding::Unknown, None));
    }
}
