//! The TLBs and walkers of all threads.

use trace::PAGE_SHIFT;

use super::core::{Core, FirstLevelSets};
use super::keys::Keys;
use crate::machine::Machine;
use crate::space::LEVELS;
use crate::walk::Walker;

/// Up to this number of pages, the entry of each page is dropped separately. For more pages, every entry is compared with the
/// range.
const FEW_PAGES: u64 = 16;

/// The hardware of a machine.
pub(super) struct Hardware {
    /// The cores, indexed by thread number.
    pub(super) cores: Vec<Core>,
    pub(super) keys: Keys,
    pub(super) first_level_sets: FirstLevelSets,
}

impl Hardware {
    /// Hardware without cores.
    pub(super) fn new(machine: &Machine, shifts: [u8; LEVELS]) -> Result<Hardware, paging::Error> {
        Walker::new(machine, shifts)?;
        Ok(Hardware { cores: Vec::new(), keys: Keys::default(), first_level_sets: FirstLevelSets::of_machine(machine) })
    }

    /// Adds cores for threads up to and including `thread`.
    pub(super) fn add_cores(&mut self, thread: usize, machine: &Machine, shifts: [u8; LEVELS], seed: u64) {
        while self.cores.len() <= thread {
            let seed = seed ^ (self.cores.len() as u64) << 32;
            // `new` has created such a walker already.
            let walker = Walker::new(machine, shifts).expect("the same walker was created before");
            self.cores.push(Core::new(machine, seed, walker));
        }
    }

    /// Drops a range of tagged pages from all TLBs and walk caches.
    pub(super) fn drop_pages(&mut self, first: u64, end: u64) {
        for core in &mut self.cores {
            core.walker.invalidate(first << PAGE_SHIFT, (end - first) << PAGE_SHIFT);
        }
        if end - first > FEW_PAGES {
            let is_stale = |key| key != 0 && self.keys.overlaps(key, first, end);
            self.cores.iter_mut().for_each(|core| core.invalidate(is_stale));
            return;
        }
        for (key, page) in self.keys.in_range(first, end) {
            self.cores.iter_mut().for_each(|core| core.invalidate_one(key, page));
        }
    }
}
