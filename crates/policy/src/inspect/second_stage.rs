//! [`SecondStage`]: the leaves that map guest memory in the second-stage page tables of a process's virtual machines, as KVM
//! counts them.

use crate::size::{PageSize, format_bytes};

/// The leaves that map the memory of guests in the second stage. They can differ from those of the process: while the dirty
/// log is on, KVM maps by 4K what the host maps by 2M.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecondStage {
    /// The number of leaves of each size, largest size first, and the source of these counts.
    Leaves(Vec<(PageSize, u64)>, Statistics),
    /// It was not read, for this reason.
    NotRead(String),
}

/// The source of KVM's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Files of debugfs.
    Debugfs,
    /// A statistics descriptor of the process (KVM_GET_STATS_FD).
    Descriptor,
}

impl SecondStage {
    /// The leaves in one clause.
    pub fn describe(&self) -> String {
        match self {
            SecondStage::NotRead(reason) => format!("second stage: not read: {reason}"),
            SecondStage::Leaves(leaves, from) => {
                let mapped = leaves.iter().filter(|(_, count)| *count > 0);
                let mapped: Vec<String> =
                    mapped.map(|(size, count)| format!("{} by {size}", format_bytes(size.bytes() * count))).collect();
                let all = if mapped.is_empty() { "nothing is mapped".to_owned() } else { mapped.join(", ") };
                let from = match from {
                    Statistics::Debugfs => "debugfs",
                    Statistics::Descriptor => "a descriptor of the process",
                };
                format!("second stage: {all} (KVM, {from})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_given_in_bytes() {
        let leaves = vec![(PageSize::G1, 0), (PageSize::M2, 256), (PageSize::K4, 768)];
        let leaves = SecondStage::Leaves(leaves, Statistics::Debugfs);
        assert_eq!(leaves.describe(), "second stage: 512M by 2M, 3M by 4K (KVM, debugfs)");
        assert_eq!(
            SecondStage::Leaves(vec![], Statistics::Descriptor).describe(),
            "second stage: nothing is mapped (KVM, a descriptor of the process)"
        );
    }
}
