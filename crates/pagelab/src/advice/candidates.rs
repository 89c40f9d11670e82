//! The settings that could give a program the pages of a policy, from what its memory is without one.

use std::collections::BTreeMap;

use policy::Granularity;
use policy::cause::Cause;
use policy::inspect::Region;
use policy::judge::Rules;
use policy::remedy::{Change, Deciding, Memory, Remedy, remedies};

use super::attempt::Looked;
use super::goal::Goal;

/// The settings to try, least intrusive first. They are those of the memory without a policy that is smaller than the goal's pages;
/// changes of the program's source, and those that do not last, are left out.
pub fn candidates(goal: &Goal, by_default: &Looked) -> Vec<Remedy> {
    let takes_pool = matches!(goal.policy.granularity, Granularity::Hugetlb(_));
    let is_setting = |change: &Change| {
        matches!(
            change,
            Change::Environment { .. } | Change::Arguments { .. } | Change::Setting { .. } | Change::Pool { .. }
        )
    };
    let is_pool = |remedy: &Remedy| remedy.changes.iter().any(|change| matches!(change, Change::Pool { .. }));
    let mut found: BTreeMap<Vec<Change>, Remedy> = BTreeMap::new();
    for remedy in by_default.regions().flat_map(|region| of_region(goal, by_default, region)) {
        if remedy.changes.iter().all(is_setting) && is_pool(&remedy) == takes_pool {
            found.entry(remedy.changes.clone()).or_insert(remedy);
        }
    }
    let mut found: Vec<Remedy> = found.into_values().collect();
    found.sort_by_key(Remedy::intrusiveness);
    found
}

/// The remedies for a region: those of its causes, or, for pages that are not its largest ones, those for that size.
fn of_region(goal: &Goal, by_default: &Looked, region: &Region) -> Vec<Remedy> {
    if region.win.bytes == 0 {
        return Vec::new();
    }
    if region.target == Some(goal.size) {
        return region.causes.iter().flat_map(|one| one.remedies.clone()).collect();
    }
    let supply = by_default.supply();
    let rules = Rules { settings: &supply.settings, disabled_for_process: None };
    let causes = rules.refusals(goal.size, Some(policy::census::Advice::None));
    let memory = Memory {
        kind: &region.kind,
        size: goal.size,
        is_pmd: matches!(goal.policy.granularity, Granularity::Hugetlb(_)),
        length_bytes: region.length_bytes(),
        runtimes: by_default.runtimes(),
        deciding: Deciding { size: rules.deciding(goal.size), mounted_file: None },
    };
    remedies(&memory, &causes.iter().collect::<Vec<&Cause>>())
}
