//! The kernel's direct map: a boot has it in leaves of one size, and nothing that can be put back changes it.

use policy::size::PageSize;
use study::comparison::Unsupported;

use super::Lowering;
use crate::Host;
use crate::direct_map::{self, cost_of_leaves, leaves};

/// What it takes: nothing where this boot has such leaves.
///
/// # Errors
/// This boot does not have them; which boot would, or whether a demotion can give them.
pub fn lower(leaf: PageSize, host: &Host) -> Result<Lowering, Unsupported> {
    direct_map::standing(leaf, host).admitted()?;
    let found = leaves(host)?;
    let (share, file) = (found.share(leaf), found.source.file());
    Ok(Lowering {
        mechanism: format!("{share} of the direct map lie in leaves of {leaf} in this boot ({file})"),
        settings: Vec::new(),
        notes: cost_of_leaves(host).into_iter().collect(),
    })
}
