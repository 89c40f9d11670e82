//! Takes one sample for `pagelab metrics` ([`Gatherer`]): inspects every process, and adds up memory by control group.

use std::collections::BTreeMap;
use std::io;

use census::inspect::{Detail, InspectError, Inspector, which};
use census::{CensusError, Observer};
use host::{Host, HostError, if_exists};
use policy::inspect::Supply;
use results::metrics::{Group, GroupName, Look, MAX_GROUPS, System, Uninspected, bounded};

use crate::failure::Failure;

/// Takes samples of this system.
pub struct Gatherer {
    host: Host,
    inspector: Inspector,
}

/// A control group that was found, with its figures. Groups are identified by their printable name.
struct FoundGroup {
    group: Group,
    /// The path of the group in the kernel's spelling.
    path: String,
    /// The content of /proc/PID/cgroup of one of its processes, from which the directories of the group are found. `None` if groups
    /// with different paths have the same printable name, so that charges cannot be assigned.
    memberships: Option<String>,
}

/// Why a process has no inspection.
enum NotInspected {
    /// The process has memory, but could not be inspected. The function selects the counter for the reason.
    Uninspected(fn(&mut Uninspected) -> &mut u64),
    /// The process has no memory: a kernel thread or a zombie.
    WithoutMemory,
}

impl Gatherer {
    /// Prepares samples of this system, with causes or only with sizes.
    ///
    /// # Errors
    /// The kernel has no control groups, or /proc or /sys cannot be read.
    pub fn open(sizes_only: bool) -> Result<Gatherer, Failure> {
        let host = Host::open("/").map_err(Failure::input)?;
        let own = memberships(&host, "self").map_err(Failure::input)?;
        if own.as_deref().and_then(host::memory_group).is_none() {
            return Err(Failure::Input(
                "expected a control group for memory in /proc/self/cgroup, found none: metrics are by control group; mount the \
                 unified hierarchy (mount -t cgroup2 none /sys/fs/cgroup), or use inspect --all"
                    .into(),
            ));
        }
        let detail = Detail { sizes_only, memory_only: true, ..Detail::default() };
        let observer = Observer::open().map_err(Failure::input)?;
        // Folios of the page cache are left out: reading them costs more than everything else, and no setting of a group changes
        // them.
        let inspector = Inspector::new(host.clone(), observer, detail);
        Ok(Gatherer { host, inspector })
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// /proc or /sys cannot be read.
    pub fn look(&self) -> Result<Look, Failure> {
        let start_s = cpu_time_s()?;
        let supply = self.inspector.supply().map_err(Failure::input)?;
        let (mut groups, mut without_group) = (BTreeMap::new(), Uninspected::default());
        for pid in which::all().map_err(Failure::input)?.into_iter().filter(|pid| *pid != std::process::id()) {
            self.add(pid, &supply, &mut groups, &mut without_group);
        }
        let all_groups = groups.len() as u64;
        let groups = self.with_charges(groups).map_err(Failure::input)?;
        let system = self.system(supply).map_err(Failure::input)?;
        Ok(Look { groups, all_groups, without_group, system, cost_s: cpu_time_s()? - start_s })
    }

    /// Adds a process to its group. The group is read before the memory, so that a process that ends meanwhile still
    /// counts there.
    fn add(
        &self,
        pid: u32,
        supply: &Supply,
        groups: &mut BTreeMap<String, FoundGroup>,
        without_group: &mut Uninspected,
    ) {
        let memberships = memberships(&self.host, &pid.to_string());
        let inspected = self.inspector.process(pid, supply);
        let (path, memberships) = match memberships {
            Ok(Some(text)) => (host::memory_group(&text).map(String::from), text),
            Ok(None) | Err(_) => (None, String::new()),
        };
        let Some(path) = path else {
            match inspected.as_ref().map_err(not_inspected) {
                // The process could be inspected, but its group is unknown: the process ended, or the group may not be
                // read.
                Ok(_) => without_group.failed += 1,
                Err(NotInspected::Uninspected(count)) => *count(without_group) += 1,
                Err(NotInspected::WithoutMemory) => {}
            }
            return;
        };
        if matches!(inspected.as_ref().map_err(not_inspected), Err(NotInspected::WithoutMemory)) {
            return;
        }
        let name = results::printable(&path);
        let new = || FoundGroup {
            group: Group::new(GroupName::Path(name.clone())),
            path: path.clone(),
            memberships: Some(memberships),
        };
        let found = groups.entry(name.clone()).or_insert_with(new);
        if found.path != path {
            found.memberships = None;
        }
        let group = &mut found.group;
        match inspected.map_err(|error| not_inspected(&error)) {
            Ok(inspection) => group.totals.add(&inspection),
            Err(NotInspected::Uninspected(count)) => *count(&mut group.uninspected) += 1,
            Err(NotInspected::WithoutMemory) => {}
        }
    }

    /// The largest groups with what the kernel charges to them; the other groups are combined.
    fn with_charges(&self, groups: BTreeMap<String, FoundGroup>) -> Result<Vec<Group>, HostError> {
        let (mut memberships, mut all) = (BTreeMap::new(), Vec::new());
        for (name, found) in groups {
            memberships.extend(found.memberships.map(|memberships| (name, memberships)));
            all.push(found.group);
        }
        let mut groups = bounded(all, MAX_GROUPS);
        let sizes = &self.host.page_sizes().hugetlb;
        for group in &mut groups {
            let GroupName::Path(name) = &group.name else { continue };
            if let Some(memberships) = memberships.get(name) {
                group.charges = host::charges(self.host.root(), memberships, sizes)?;
            }
        }
        Ok(groups)
    }

    fn system(&self, supply: Supply) -> Result<System, HostError> {
        let (activity, sizes) = (self.host.activity()?, self.host.page_sizes());
        Ok(System {
            base: sizes.base,
            pmd: sizes.pmd,
            mthp: sizes.mthp.clone(),
            free_blocks_by_node: activity.free_blocks_by_node,
            counters: activity.counters.iter().map(|(name, count)| (name.to_string(), count)).collect(),
            anonymous_folios: activity.anonymous_folios,
            pools: supply.pools,
        })
    }
}

/// The control groups of a process; `None` if the process has ended.
fn memberships(host: &Host, process: &str) -> io::Result<Option<String>> {
    if_exists(host.root().text(&format!("/proc/{process}/cgroup")))
}

/// Why a process was not inspected.
fn not_inspected(error: &InspectError) -> NotInspected {
    match error {
        InspectError::KernelThread { .. } | InspectError::Zombie { .. } => NotInspected::WithoutMemory,
        InspectError::NoSuchProcess { .. }
        | InspectError::Replaced { .. }
        | InspectError::Census(CensusError::Gone { .. } | CensusError::NoAddressSpace { .. }) => {
            NotInspected::Uninspected(|all| &mut all.ended)
        }
        InspectError::Census(CensusError::Forbidden { .. }) => NotInspected::Uninspected(|all| &mut all.forbidden),
        _ => NotInspected::Uninspected(|all| &mut all.failed),
    }
}

/// Processor time of this process so far, in seconds.
fn cpu_time_s() -> Result<f64, Failure> {
    tracer::child::cpu_s(std::process::id()).map_err(Failure::input)
}
