//! The direct map of a boot, as `pagelab direct-map status` shows it.

use study::comparison::Unsupported;
use study::size::PageSize;

use super::{Feature, Leaves, Marker, MarkerError, Standing, features, leaves, standings};
use crate::{Host, HostError};

/// How often leaves of one level were split and joined since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The leaf.
    pub leaf: PageSize,
    /// `direct_map_levelN_splits` of /proc/vmstat; absent where the kernel does not count them.
    pub splits: Option<u64>,
    /// `direct_map_levelN_collapses` (Linux 6.15); absent where the kernel does not count them.
    pub collapses: Option<u64>,
}

/// Everything that is known of the direct map.
#[derive(Debug)]
pub struct Status {
    /// Bytes by leaf, or why they cannot be seen.
    pub leaves: Result<Leaves, Unsupported>,
    /// Splits and collapses of each large leaf, smallest first.
    pub changes: Vec<Changes>,
    /// What decides the leaves here.
    pub features: Vec<Feature>,
    /// What this boot can give.
    pub standings: Vec<(PageSize, Standing)>,
    /// What pagelab did to this boot.
    pub marker: Result<Option<Marker>, MarkerError>,
    /// The kernel's command line.
    pub kernel_command_line: String,
    /// Identifies the boot.
    pub boot_id: String,
}

/// Reads the direct map of a host.
///
/// # Errors
/// A file that every kernel has cannot be read.
pub fn status(host: &Host) -> Result<Status, HostError> {
    let machine = host.machine()?;
    Ok(Status {
        leaves: leaves(host),
        changes: changes(host)?,
        features: features(host),
        standings: standings(host),
        marker: Marker::of_boot(host.root(), &machine.boot_id),
        kernel_command_line: machine.kernel_command_line,
        boot_id: machine.boot_id,
    })
}

/// Level 2 is the PMD, level 3 the PUD (mm/vmstat.c, arch/x86/mm/pat/set_memory.c: PG_LEVEL_2M, PG_LEVEL_1G).
pub fn changes(host: &Host) -> Result<Vec<Changes>, HostError> {
    let counters = host.counters()?;
    let of_level = |(at, leaf): (usize, &PageSize)| {
        let count = |what: &str| counters.get(&format!("direct_map_level{}_{what}", at + 1));
        Changes { leaf: *leaf, splits: count("splits"), collapses: count("collapses") }
    };
    Ok(host.geometry().direct_map_leaves().iter().enumerate().skip(1).map(of_level).collect())
}
