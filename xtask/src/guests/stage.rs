//! The boots of a guest ([`Stage`]): the name, the kernel arguments and the memory of each.

use super::transcript::CheckOutput;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first boot, with most checks. The last of its checks resets the guest.
    Together,
    /// The boot after the reset, with the files that a disk would have kept.
    AfterReset,
    /// With a clock that counts instructions.
    Counted,
    /// With memory that has not been used yet.
    Fresh,
    /// With leaves of 1G in the direct map, if the memory has room for them.
    WithGigabyte,
    /// Without leaves of 1G in the direct map.
    WithoutGigabyte,
    /// With disks and modules, for the matrix of capabilities.
    Capabilities,
}

impl Stage {
    /// All boots, in order.
    pub const ALL: [Stage; 7] = [
        Stage::Together,
        Stage::AfterReset,
        Stage::Counted,
        Stage::Fresh,
        Stage::WithGigabyte,
        Stage::WithoutGigabyte,
        Stage::Capabilities,
    ];

    /// The name of the boot in the names of its logs.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Together => "together",
            Stage::AfterReset => "after-reset",
            Stage::Counted => "counted",
            Stage::Fresh => "fresh",
            Stage::WithGigabyte => "with-1g",
            Stage::WithoutGigabyte => "without-1g",
            Stage::Capabilities => "capabilities",
        }
    }

    /// Additional words of the kernel's command line.
    pub fn arguments(self) -> &'static str {
        if self == Stage::WithoutGigabyte { "nogbpages" } else { "" }
    }

    /// The guest's memory in QEMU's syntax. The largest mapping of the checks is four pages of 32M, of which there is also a
    /// copy. Leaves of 1G need memory above the first GiB. So do pools of 1G pages: one page for the memory of a trial, and one
    /// for its copy after a fork.
    pub fn memory(self) -> &'static str {
        match self {
            Stage::WithGigabyte | Stage::WithoutGigabyte => "3G",
            Stage::Capabilities => "4G",
            Stage::Together | Stage::AfterReset | Stage::Counted | Stage::Fresh => "2G",
        }
    }
}

/// The output of a boot.
#[derive(Clone, Debug)]
pub struct BootOutput {
    /// The outputs of its checks.
    pub parts: Vec<CheckOutput>,
    /// Why the output lacks the other checks.
    pub unreached: String,
}
