//! [`Totals`]: the memory of several processes, added up.

use std::collections::BTreeMap;

use super::Inspection;
use crate::cause::Cause;
use crate::census::{Backing, Census};

/// The memory of several processes. Memory that several of them map counts for each; [`Totals::proportional_bytes`] divides
/// it. A figure that only some of the processes have is the sum over these processes; it is `None` if no process has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The number of processes.
    pub processes: u64,
    /// The number of processes whose inspection is incomplete: their figures may be too low.
    pub partial: u64,
    /// Present memory, without the zero page, which uses none.
    pub census: Census,
    /// Bytes of present memory that are mapped once.
    pub private_bytes: Option<u64>,
    /// Bytes of present memory that are mapped more than once, by these or other processes.
    pub mapped_again_bytes: Option<u64>,
    /// Memory outside hugetlb pools, each page divided by the number of its mappings.
    pub proportional_bytes: Option<u64>,
    /// Bytes that could be larger.
    pub could_be_larger_bytes: u64,
    /// Bytes that larger pages would add.
    pub bloat_bytes: u64,
    /// Bytes that could be larger, by the first cause of each. They add up to [`Totals::could_be_larger_bytes`] where the flags of
    /// mappings were read.
    pub causes: BTreeMap<Cause, u64>,
    /// Bytes freed with MADV_FREE that the kernel has not reclaimed yet.
    pub lazy_free_bytes: Option<u64>,
    /// Bytes of folios that are mapped in part, outside that part.
    pub held_unmapped_bytes: Option<u64>,
}

impl Totals {
    /// Adds a process.
    pub fn add(&mut self, inspection: &Inspection) {
        let removable = |region: &super::Region| {
            let causes = region.causes.iter().filter(|one| one.is_removable());
            causes.map(|one| (one.cause.clone(), one.bytes)).collect::<Vec<_>>()
        };
        let mut causes = BTreeMap::new();
        for (cause, bytes) in inspection.regions.iter().flat_map(removable) {
            *causes.entry(cause).or_insert(0) += bytes;
        }
        let mut census = Census::default();
        for (mapping, bytes) in inspection.census().rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
            census.add(*mapping, bytes);
        }
        let again_bytes = inspection.process.mapped_again_bytes;
        self.merge(&Totals {
            processes: 1,
            partial: u64::from(!inspection.partial.is_empty()),
            // The two figures come from two looks at a running process, so their difference may be negative.
            private_bytes: again_bytes.map(|again_bytes| inspection.resident_bytes().saturating_sub(again_bytes)),
            census,
            mapped_again_bytes: again_bytes,
            proportional_bytes: inspection.process.proportional_bytes,
            could_be_larger_bytes: inspection.could_be_larger_bytes(),
            bloat_bytes: inspection.bloat_bytes(),
            causes,
            lazy_free_bytes: inspection.process.lazy_free_bytes,
            held_unmapped_bytes: inspection.process.held_unmapped_bytes,
        });
    }

    /// Adds the processes of another total.
    pub fn merge(&mut self, other: &Totals) {
        self.processes += other.processes;
        self.partial += other.partial;
        self.census.merge(&other.census);
        self.private_bytes = sum(self.private_bytes, other.private_bytes);
        self.mapped_again_bytes = sum(self.mapped_again_bytes, other.mapped_again_bytes);
        self.proportional_bytes = sum(self.proportional_bytes, other.proportional_bytes);
        self.could_be_larger_bytes += other.could_be_larger_bytes;
        self.bloat_bytes += other.bloat_bytes;
        for (cause, bytes) in &other.causes {
            *self.causes.entry(cause.clone()).or_insert(0) += bytes;
        }
        self.lazy_free_bytes = sum(self.lazy_free_bytes, other.lazy_free_bytes);
        self.held_unmapped_bytes = sum(self.held_unmapped_bytes, other.held_unmapped_bytes);
    }

    /// Bytes that are present.
    pub fn resident_bytes(&self) -> u64 {
        self.census.total_bytes()
    }

    /// The cause that explains most of the bytes that could be larger.
    pub fn first_cause(&self) -> Option<(&Cause, u64)> {
        self.causes.iter().map(|(cause, bytes)| (cause, *bytes)).max_by_key(|(_, bytes)| *bytes)
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).reduce(|one, other| one + other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::{Folio, Mapping};
    use crate::size::PageSize;

    fn totals(bytes: u64, private_bytes: Option<u64>, cause: Cause) -> Totals {
        let mut census = Census::default();
        census.add(Mapping { backing: Backing::Anonymous, leaf: PageSize::K4, folio: Folio::Unknown }, bytes);
        let causes = BTreeMap::from([(cause, bytes)]);
        Totals { processes: 1, census, private_bytes, could_be_larger_bytes: bytes, causes, ..Totals::default() }
    }

    #[test]
    fn figures_and_causes_add_up_and_what_no_process_has_stays_unknown() {
        let mut all = Totals::default();
        all.merge(&totals(8192, Some(4096), Cause::NotAdvised));
        all.merge(&totals(4096, None, Cause::Unexplained));
        all.merge(&totals(16384, Some(0), Cause::Unexplained));
        assert_eq!((all.processes, all.resident_bytes(), all.could_be_larger_bytes), (3, 28672, 28672));
        assert_eq!((all.private_bytes, all.mapped_again_bytes), (Some(4096), None));
        assert_eq!(all.first_cause(), Some((&Cause::Unexplained, 20480)));
        assert_eq!(all.causes.values().sum::<u64>(), all.could_be_larger_bytes);
    }
}
