//! QEMU's region rule: how the TCG code buffer is divided.
//!
//! Sources: `tcg_region_init`, `tcg_n_regions`, `tcg_region_bounds` and `tcg_code_capacity` of tcg/region.c (QEMU 6.1 to 7.2;
//! later sources, where `max_cpus` is `max_threads`, divide in the same way), and `tcg_n_regions` of tcg/tcg.c (2.11 to 6.0). The
//! rule applies to system emulation with a thread for each vCPU (`thread=multi`); with one thread for all there is one region.

use std::fmt;

/// The intended minimum size of a region in bytes (2 MiB, whatever the host's page size).
const REGION_BYTES: u64 = 2 << 20;
/// The maximum number of regions per vCPU.
const REGIONS_PER_CPU: u64 = 8;

/// The version of QEMU whose rule divides the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 2.11 to 6.0: the largest number of regions for each vCPU, at most 8, that leaves 2 MiB to each region.
    From2_11,
    /// Since 6.1: the largest number of regions that leaves 2 MiB to each, at most 8 for each vCPU.
    From6_1,
}

impl Rule {
    /// The rule of a version of QEMU, as its monitor reports it. Release candidates have the previous version with micro numbers
    /// from 90 on. `None` before 2.11, and for development versions between two versions with different rules, where it is
    /// unknown which rule they have.
    pub fn of_version(version: Version) -> Option<Rule> {
        match version {
            Version(6, 0, 50..90) | Version(2, 10, 50..90) => None,
            version if version >= Version(6, 0, 90) => Some(Rule::From6_1),
            version if version >= Version(2, 10, 90) => Some(Rule::From2_11),
            _ => None,
        }
    }

    /// The versions of QEMU with this rule.
    pub fn versions(self) -> &'static str {
        match self {
            Rule::From2_11 => "2.11 to 6.0",
            Rule::From6_1 => "6.1 and later",
        }
    }

    /// The number of regions of a buffer.
    pub(super) fn regions(self, buffer_bytes: u64, max_cpus: u32) -> u64 {
        let cpus = u64::from(max_cpus);
        if cpus == 1 {
            return 1;
        }
        match self {
            Rule::From2_11 => {
                let enough = |per_cpu: &u64| buffer_bytes / (cpus * per_cpu) >= REGION_BYTES;
                (1..=REGIONS_PER_CPU).rev().find(enough).unwrap_or(1) * cpus
            }
            Rule::From6_1 => (buffer_bytes / REGION_BYTES).clamp(cpus, cpus * REGIONS_PER_CPU),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rule::From2_11 => "2.11",
            Rule::From6_1 => "6.1",
        })
    }
}

/// A version of QEMU: major, minor, micro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64, pub u64, pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_rule_of_their_time() {
        let rule = |major, minor, micro| Rule::of_version(Version(major, minor, micro));
        for (version, expected) in [
            ((2, 10, 2), None),
            ((2, 11, 0), Some(Rule::From2_11)),
            ((6, 0, 1), Some(Rule::From2_11)),
            ((6, 0, 60), None),
            ((6, 0, 92), Some(Rule::From6_1)),
            ((6, 1, 0), Some(Rule::From6_1)),
            ((7, 2, 22), Some(Rule::From6_1)),
            ((10, 0, 50), Some(Rule::From6_1)),
        ] {
            assert_eq!(rule(version.0, version.1, version.2), expected, "{version:?}");
        }
    }
}
