//! The figures of control groups ([`Group`]), and which groups are combined so that their number is bounded.

use policy::inspect::{Charges, Totals};

/// Maximum number of groups with figures of their own: whatever is exported must have a bounded number of labels.
pub const MAX_GROUPS: usize = 200;
/// Maximum length of the name of a group with figures of its own, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// The control group, or the combination of groups, to which figures belong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupName {
    /// The printable path of a control group below the root of its hierarchy. It begins with a slash.
    Path(String),
    /// All groups without figures of their own.
    Other,
}

impl GroupName {
    /// The name as a label. A path begins with a slash, so it never equals the label of [`GroupName::Other`].
    pub fn label(&self) -> &str {
        match self {
            GroupName::Path(path) => path,
            GroupName::Other => "other",
        }
    }
}

/// A control group: its processes, and what the kernel charges to the group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Which group, or the combination of the others.
    pub name: GroupName,
    /// The memory of the processes in this group, without that of groups below it.
    pub totals: Totals,
    /// How many of its processes could not be inspected.
    pub uninspected: Uninspected,
    /// What the kernel charges to the group. Absent for [`GroupName::Other`]: the charges of a group include those of groups below
    /// it, so they cannot be summed.
    pub charges: Charges,
}

/// Numbers of processes that could not be inspected, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uninspected {
    /// The process ended meanwhile.
    pub ended: u64,
    /// This user may not inspect the process.
    pub forbidden: u64,
    /// Another error.
    pub failed: u64,
}

impl Uninspected {
    /// The sum over all reasons.
    pub fn all(&self) -> u64 {
        self.ended + self.forbidden + self.failed
    }

    fn merge(&mut self, other: &Uninspected) {
        self.ended += other.ended;
        self.forbidden += other.forbidden;
        self.failed += other.failed;
    }
}

impl Group {
    /// A group without processes.
    pub fn new(name: GroupName) -> Group {
        Group { name, totals: Totals::default(), uninspected: Uninspected::default(), charges: Charges::default() }
    }

    /// The memory of the group's processes; `None` if none of them could be inspected, which leaves the memory unknown.
    pub fn memory(&self) -> Option<&Totals> {
        Some(&self.totals).filter(|totals| totals.processes > 0)
    }
}

/// The groups, largest first. Groups beyond the first `max`, and groups whose name is longer than [`MAX_NAME_BYTES`], are combined
/// into one at the end.
pub fn bounded(mut groups: Vec<Group>, max: usize) -> Vec<Group> {
    groups.sort_by(|one, next| {
        let size = |group: &Group| std::cmp::Reverse(group.totals.resident_bytes());
        size(one).cmp(&size(next)).then_with(|| one.name.cmp(&next.name))
    });
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for group in groups {
        let has_own = own.len() < max && group.name.label().len() <= MAX_NAME_BYTES;
        if has_own { own.push(group) } else { others.push(group) }
    }
    if !others.is_empty() {
        let mut other = Group::new(GroupName::Other);
        for group in &others {
            other.totals.merge(&group.totals);
            other.uninspected.merge(&group.uninspected);
        }
        own.push(other);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::super::sample::group;
    use super::*;

    #[test]
    fn groups_beyond_the_bound_are_summed_and_none_is_lost() {
        let mut groups: Vec<Group> = (1..=5).map(|at| group(&format!("/{at}"), at << 20)).collect();
        groups[4].name = GroupName::Path("/".repeat(MAX_NAME_BYTES + 1));
        groups[0].uninspected.ended = 7;
        let all: u64 = groups.iter().map(|group| group.totals.resident_bytes()).sum();
        let bounded = bounded(groups, 2);
        assert_eq!(bounded.iter().map(|group| group.name.label()).collect::<Vec<_>>(), ["/4", "/3", "other"]);
        assert_eq!(bounded.iter().map(|group| group.totals.resident_bytes()).sum::<u64>(), all);
        assert_eq!((bounded[2].totals.processes, bounded[2].uninspected.ended), (3, 7));
    }
}
