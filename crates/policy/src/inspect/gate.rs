//! The memory of inspected processes, judged by a requirement.

use super::Inspection;
use super::recognise::GUEST_BYTES;
use super::region::Region;
use crate::kind::Kind;
use crate::requirement::{Figure, RequirementCheck, Scope};

impl RequirementCheck {
    /// Adds a process. Memory that several processes map counts for each of them.
    pub fn add(&mut self, inspection: &Inspection) {
        let base_bytes = inspection.supply.base_bytes;
        let has_guest = inspection.process.second_stage.is_some();
        let scope = self.requirement().scope;
        for region in inspection.regions.iter().filter(|region| has_region(scope, region, has_guest)) {
            if self.add_census(&region.census, base_bytes) > 0 {
                self.add_region(region);
            }
        }
        if self.requirement().figure == Figure::CouldBeLarger && !inspection.sight.flags {
            self.mark_incomplete("what could be larger was not inspected");
        }
    }

    /// Adds what is known of a region that has memory in the scope.
    fn add_region(&mut self, region: &Region) {
        let is_about_benefit = self.requirement().figure == Figure::CouldBeLarger;
        if is_about_benefit {
            self.add_to_figure(region.benefit.bytes);
        }
        for one in region.causes.iter().filter(|one| !one.is_absent()) {
            let is_of_figure = !is_about_benefit || one.is_removable();
            // A region can have pages of a file next to memory in the scope.
            let is_in_scope = self.requirement().scope == Scope::All || !one.cause.is_of_file_pages();
            if is_of_figure && is_in_scope {
                self.add_cause(&one.cause, one.bytes);
            }
        }
    }
}

fn has_region(scope: Scope, region: &Region, has_guest: bool) -> bool {
    let is_guest = || match region.kind {
        Kind::GuestMemory => true,
        Kind::Hugetlb { .. } | Kind::SharedMemory { .. } => has_guest && region.length_bytes() >= GUEST_BYTES,
        _ => false,
    };
    scope != Scope::Guest || is_guest()
}
