//! `--arm-of-boot`: measures the one arm that matches the state of this boot.

use host::Host;
use policy::{DirectMapLeaves, Granularity, Policy};
use results::store::Store;
use study::comparison::Comparison;
use study::stats::boots::{self, MeasuredBoots, same_design};

use crate::failure::{Failure, report};
use crate::merge::parts;
use crate::publish::{Forms, publish_merged};

/// The arms of a design over boots: the named policies. Without any, every leaf size that this kernel's direct map can
/// have, largest first, followed by the arm in which leaf sizes are mixed.
///
/// # Errors
/// A policy that cannot be an arm over boots.
pub fn policies(named: &[Policy], host: &Host) -> Result<Vec<Policy>, Failure> {
    if let Some(other) = named.iter().find(|policy| policy.direct_map().is_none()) {
        return Err(Failure::Input(format!(
            "--arm-of-boot: {other} does not depend on the boot; expected policies such as direct-map-2m, and for others \
             compare without --arm-of-boot"
        )));
    }
    let mut leaves = host.page_sizes().direct_map_leaves();
    leaves.reverse();
    let all = leaves.into_iter().map(DirectMapLeaves::Of).chain([DirectMapLeaves::Mixed]);
    let all = all.map(|leaves| Policy::plain(Granularity::DirectMap(leaves))).collect();
    Ok(if named.is_empty() { all } else { named.to_vec() })
}

/// Shows the merged result of the boots in a store, including the comparison that was just made.
///
/// # Errors
/// The boots cannot be merged.
pub fn publish_with(store: &Store, comparison: &Comparison, forms: &Forms) -> Result<(), Failure> {
    let Some(own) = MeasuredBoots::of(comparison) else { return Ok(()) };
    let stored = parts::of_store(store).unwrap_or_else(|error| {
        report(format_args!("pagelab: only this boot is shown: {}", results::printable(&error.to_string())));
        Vec::new()
    });
    let others = stored.into_iter().filter(|part| same_design(&own, part).is_ok());
    let mut parts: Vec<MeasuredBoots> = others.chain([own.clone()]).collect();
    // Two parts may each match a part with a single arm and still not match each other, so the part with the most arms
    // is used.
    let fullest = boots::part_with_most_arms(&parts).unwrap_or(&own).clone();
    parts.retain(|part| same_design(&fullest, part).is_ok());
    publish_merged(&boots::merge(&parts).map_err(Failure::input)?, forms)
}
