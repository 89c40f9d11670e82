//! [`Status`]: the direct map of a boot, as `pagelab direct-map status` shows it.

use policy::Unsupported;
use policy::size::PageSize;

use super::{Availability, Changes, Feature, Leaves, Marker, MarkerError, availabilities, changes, features, leaves};
use crate::{Host, HostError};

/// All known facts about the direct map.
#[derive(Debug)]
pub struct Status {
    /// Bytes by leaf size, or why they are not visible.
    pub leaves: Result<Leaves, Unsupported>,
    /// Splits and collapses of each large leaf, smallest first.
    pub changes: Vec<Changes>,
    /// The features that decide the leaves.
    pub features: Vec<Feature>,
    /// For each leaf size, whether this boot has it or can be given it.
    pub availabilities: Vec<(PageSize, Availability)>,
    /// What pagelab did to the direct map of this boot.
    pub marker: Result<Option<Marker>, MarkerError>,
    pub kernel_command_line: String,
    /// Identifies the boot.
    pub boot_id: String,
}

/// Reads the direct map of a host.
pub fn status(host: &Host) -> Result<Status, HostError> {
    let machine = host.machine()?;
    let status = Status {
        leaves: leaves(host),
        changes: changes(host)?,
        features: features(host)?,
        availabilities: availabilities(host),
        marker: Marker::of_boot(host.root(), &machine.boot_id),
        kernel_command_line: machine.kernel_command_line,
        boot_id: machine.boot_id,
    };
    host.root().verify()?;
    Ok(status)
}
