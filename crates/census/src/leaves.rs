//! [`Observer::pmd_leaves`]: the anonymous memory of a running process that PMD leaves map, without a complete census.

use std::fs::File;
use std::io;

use host::maps::{self, VmaKind};

use super::scan::{self, Scanner};
use super::{CensusError, Observer, Source, read_text};

impl Observer {
    /// The ranges of a process's anonymous memory that PMD leaves map, in address order. Huge zero pages are not included.
    ///
    /// # Errors
    /// As [`Observer::process`]; and [`CensusError::NeedsPagemapScan`] on kernels before 6.7.
    pub fn pmd_leaves(&self, pid: u32) -> Result<Vec<(u64, u64)>, CensusError> {
        let Some(pmd) = self.pmd else { return Ok(Vec::new()) };
        if self.source != Source::PagemapScan {
            return Err(CensusError::NeedsPagemapScan);
        }
        let (maps_path, pagemap_path) = (format!("/proc/{pid}/maps"), format!("/proc/{pid}/pagemap"));
        let vmas = maps::parse(&read_text(pid, &maps_path)?, &maps_path)?;
        let failed = |error: io::Error| CensusError::io(pid, &pagemap_path, error);
        let pagemap = File::open(&pagemap_path).map_err(failed)?;
        let (mut scanner, mut found) = (Scanner::new(), Vec::new());
        for vma in vmas.iter().filter(|vma| vma.kind() == VmaKind::Anonymous && vma.length_bytes() >= pmd.bytes()) {
            scanner.scan_for(&pagemap, vma.start..vma.end, scan::HUGE, scan::ZERO, &mut found).map_err(failed)?;
        }
        let is_memory = |region: &&scan::PageRegion| region.categories & scan::ZERO == 0;
        Ok(found.iter().filter(is_memory).map(|region| (region.start, region.end)).collect())
    }
}
