//! Control groups of a guest, for memory limits (version 2).
#![expect(clippy::disallowed_methods, reason = "a guest has no other user")]

use std::fs;
use std::io;

use nix::mount::{MsFlags, mount};

/// The mount point, which sysfs provides.
const PLACE: &str = "/sys/fs/cgroup";
/// The file that names the controllers of the groups below.
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";

/// Why a guest has no memory limits.
#[derive(Debug, thiserror::Error)]
pub enum MemoryGroupsError {
    #[error("control groups of version 2 cannot be mounted: {0} (CONFIG_CGROUPS)")]
    Mount(#[source] nix::Error),
    #[error("{CONTROLLERS}: {0}; this kernel has no memory controller (CONFIG_MEMCG)")]
    Controller(#[source] io::Error),
}

/// Mounts control groups, and lets processes make groups with a memory limit.
///
/// # Errors
/// The kernel has no control groups or no memory controller.
pub fn memory_groups_on() -> Result<(), MemoryGroupsError> {
    let mounted = mount(Some("cgroup2"), PLACE, Some("cgroup2"), MsFlags::empty(), None::<&str>);
    mounted.map_err(MemoryGroupsError::Mount)?;
    fs::write(CONTROLLERS, "+memory").map_err(MemoryGroupsError::Controller)
}
