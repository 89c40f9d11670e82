//! The second stage of a process's virtual machines, as KVM counts it.

use crate::size::{PageSize, format_bytes};

/// What maps the memory of guests in the second stage. It can differ from what maps the process: while the dirty log is on, KVM
/// maps by 4K what the host maps by 2M.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecondStage {
    /// Leaves by size, in number, largest size first.
    Leaves(Vec<(PageSize, u64)>),
    /// It was not read, for this reason.
    NotRead(String),
}

impl SecondStage {
    /// One clause.
    pub fn describe(&self) -> String {
        match self {
            SecondStage::NotRead(reason) => format!("second stage: not looked at: {reason}"),
            SecondStage::Leaves(leaves) => {
                let mapped = leaves.iter().filter(|(_, count)| *count > 0);
                let mapped: Vec<String> =
                    mapped.map(|(size, count)| format!("{} by {size}", format_bytes(size.bytes() * count))).collect();
                let all = if mapped.is_empty() { "nothing is mapped".to_owned() } else { mapped.join(", ") };
                format!("second stage: {all} (KVM, debugfs)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_given_in_bytes() {
        let leaves = SecondStage::Leaves(vec![(PageSize::G1, 0), (PageSize::M2, 256), (PageSize::K4, 768)]);
        assert_eq!(leaves.describe(), "second stage: 512M by 2M, 3M by 4K (KVM, debugfs)");
        assert_eq!(SecondStage::Leaves(vec![]).describe(), "second stage: nothing is mapped (KVM, debugfs)");
    }
}
