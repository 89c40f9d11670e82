//! The kernel's direct map: a boot has leaves of mainly one size, and no setting that a lease can restore changes it.

use policy::Unsupported;
use policy::size::PageSize;

use super::Lowering;
use crate::Host;
use crate::direct_map::{self, cost_of_leaves, leaves};

/// What the policy needs: nothing where this boot has such leaves. Otherwise the error names the boot that would have them, or a
/// demotion that can give them.
pub fn lower(leaf: PageSize, host: &Host) -> Result<Lowering, Unsupported> {
    direct_map::availability(leaf, host).admitted()?;
    let found = leaves(host)?;
    let (share, file) = (found.share(leaf), found.source.file());
    Ok(Lowering {
        mechanism: format!("{share} of the direct map is in leaves of {leaf} in this boot ({file})"),
        settings: Vec::new(),
        notes: cost_of_leaves(host)?.into_iter().collect(),
    })
}

/// What a boot without a dominant leaf size needs: nothing where no leaf size is certain to map nine tenths. Refused if one
/// size is certain to, because the boot then belongs to the arm of that size, or if the leaves cannot be read.
pub fn lower_mixed(host: &Host) -> Result<Lowering, Unsupported> {
    let found = leaves(host)?;
    if let Some(leaf) = found.dominant() {
        return Err(Unsupported {
            reason: format!("{} of the direct map of this boot is in leaves of {leaf}", found.share(leaf)),
            remedy: format!("compare direct-map-{leaf} here").to_ascii_lowercase(),
        });
    }
    let shares: Vec<String> = found.bytes.keys().map(|leaf| format!("{} in {leaf}", found.share(*leaf))).collect();
    Ok(Lowering {
        mechanism: format!("the direct map as this boot has it: {} ({})", shares.join(", "), found.source.file()),
        settings: Vec::new(),
        notes: cost_of_leaves(host)?.into_iter().collect(),
    })
}
