//! [`FrameScatter`]: how scattered the physical frames behind a process's anonymous memory are.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;

use policy::census::Backing;
use policy::size::PageSize;

use super::{CensusError, Observer, ProcessCensus, frames};

/// The physical blocks behind anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameScatter {
    /// Size of a block: that of a PMD leaf.
    pub block: PageSize,
    /// Anonymous memory in bytes.
    pub bytes: u64,
    /// Distinct aligned blocks of physical memory that hold it.
    pub blocks: u64,
}

impl FrameScatter {
    /// The fewest blocks that can hold the memory.
    pub fn min_blocks(&self) -> u64 {
        self.bytes.div_ceil(self.block.bytes())
    }
}

impl Observer {
    /// The scatter of the frames behind the anonymous memory of a census. `None` where frame numbers are hidden (they need root), or
    /// the kernel has no PMD leaf.
    ///
    /// # Errors
    /// The frame numbers cannot be read.
    pub fn frame_scatter(&self, seen: &ProcessCensus) -> Result<Option<FrameScatter>, CensusError> {
        let Some(block) = self.pmd.filter(|_| self.sees_folios()) else { return Ok(None) };
        let path = format!("/proc/{}/pagemap", seen.pid);
        let failed = |error: io::Error| CensusError::io(seen.pid, &path, error);
        let pagemap = File::open(&path).map_err(failed)?;
        let (base, pages) = (self.base.bytes(), block.bytes() / self.base.bytes());
        let (mut blocks, mut bytes) = (BTreeSet::new(), 0);
        let regions = seen.areas.iter().flat_map(|area| &area.regions);
        for region in regions.filter(|region| region.mapping.backing == Backing::Anonymous) {
            frames::runs(&pagemap, region.start / base, region.end / base, |run| {
                bytes += run.pages * base;
                blocks.extend(run.frame / pages..=(run.frame + run.pages - 1) / pages);
                Ok(())
            })
            .map_err(failed)?;
        }
        Ok(Some(FrameScatter { block, bytes, blocks: blocks.len() as u64 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_blocks_are_those_of_contiguous_memory() {
        let scatter = |bytes| FrameScatter { block: PageSize::M2, bytes, blocks: 750 }.min_blocks();
        assert_eq!([scatter(0), scatter(4096), scatter(64 << 20), scatter((64 << 20) + 1)], [0, 1, 32, 33]);
    }
}
