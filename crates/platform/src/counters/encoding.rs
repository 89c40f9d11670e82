//! The events as data: the event numbers with which each processor counts page walks.
//!
//! Sources, all in the kernel's tree. Intel: `tools/perf/pmu-events/arch/x86/*/virtual-memory.json` (`DTLB_LOAD_MISSES`,
//! `DTLB_STORE_MISSES` and `ITLB_MISSES`, `WALK_COMPLETED` and `WALK_ACTIVE`). AMD: `amdzen*/{memory,load-store}.json`
//! (`ls_l1_d_tlb_miss.*_l2_miss`) and `amdzen*/{cache, inst-cache,branch-prediction}.json` (`bp_l1_tlb_miss_l2_tlb_miss`) in
//! AMD's directories. The models: `mapfile.csv` there. Cycles and instructions:
//! `arch/x86/events/{intel,amd}/core.c`. arm64: `include/linux/perf/arm_pmuv3.h`; the numbers are read from sysfs, where the
//! kernel shows only the events that the core implements (`armv8pmu_event_attr_is_visible`, drivers/perf/arm_pmuv3.c).

/// What an event counts, in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Page walks for loads that completed, with or without a fault at their end.
    LoadWalks,
    /// Page walks for stores that completed, with or without a fault at their end.
    StoreWalks,
    /// Page walks for data, loads and stores together: requested after a miss of all data TLBs (AMD),
    /// or caused by a data access (arm64).
    DataWalks,
    /// Page walks for instructions; on Intel those that completed.
    InstructionWalks,
    /// Cycles with at least one page walk for a load in progress.
    LoadWalkCycles,
    /// Cycles with at least one page walk for a store in progress.
    StoreWalkCycles,
    /// Cycles with at least one page walk for an instruction in progress.
    InstructionWalkCycles,
    /// Cycles in which the core was not halted.
    Cycles,
    /// Instructions retired.
    Instructions,
}

/// An event in the form that the kernel takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it counts.
    pub quantity: Quantity,
    /// The PMU's number (`type` in its sysfs directory).
    pub pmu_type: u32,
    /// The event's number.
    pub config: u64,
}

/// A quantity and its number in `perf_event_attr.config`.
pub type Encoding = (Quantity, u64);

const fn x86(event: u64, unit_mask: u64) -> u64 {
    event | unit_mask << 8
}

/// Counts cycles in which at least one such event occurs (CMASK of 1).
const fn cycles_with(config: u64) -> u64 {
    config | 1 << 24
}

const fn intel_core(load: u64, store: u64, instruction: u64) -> [Encoding; 8] {
    [
        (Quantity::LoadWalks, x86(load, 0x0e)),
        (Quantity::StoreWalks, x86(store, 0x0e)),
        (Quantity::InstructionWalks, x86(instruction, 0x0e)),
        (Quantity::LoadWalkCycles, cycles_with(x86(load, 0x10))),
        (Quantity::StoreWalkCycles, cycles_with(x86(store, 0x10))),
        (Quantity::InstructionWalkCycles, cycles_with(x86(instruction, 0x10))),
        (Quantity::Cycles, x86(0x3c, 0)),
        (Quantity::Instructions, x86(0xc0, 0)),
    ]
}

/// Haswell to Rocket Lake.
const INTEL_HASWELL: [Encoding; 8] = intel_core(0x08, 0x49, 0x85);

/// Golden Cove and later: Sapphire Rapids, Granite Rapids, the large cores from Alder Lake on.
const INTEL_GOLDEN_COVE: [Encoding; 8] = intel_core(0x12, 0x13, 0x11);

/// Gracemont and later: the small cores from Alder Lake on, Sierra Forest. No cycles of walks.
const INTEL_GRACEMONT: [Encoding; 5] = [
    (Quantity::LoadWalks, x86(0x08, 0x0e)),
    (Quantity::StoreWalks, x86(0x49, 0x0e)),
    (Quantity::InstructionWalks, x86(0x85, 0x0e)),
    (Quantity::Cycles, x86(0x3c, 0)),
    (Quantity::Instructions, x86(0xc0, 0)),
];

const fn amd(instruction_walks_mask: u64) -> [Encoding; 4] {
    [
        (Quantity::DataWalks, x86(0x45, 0xf0)),
        (Quantity::InstructionWalks, x86(0x85, instruction_walks_mask)),
        (Quantity::Cycles, x86(0x76, 0)),
        (Quantity::Instructions, x86(0xc0, 0)),
    ]
}

/// Zen and Zen+, where the event for instruction walks has no unit mask.
const AMD_ZEN1: [Encoding; 4] = amd(0);
/// Zen 2: instruction walks for 4K, 2M and 1G.
const AMD_ZEN2: [Encoding; 4] = amd(0x07);
/// Zen 3 to Zen 5: as Zen 2, and for coalesced 4K.
const AMD_ZEN3: [Encoding; 4] = amd(0x0f);

/// The events of the core PMU called `pmu` (its name in sysfs) of an Intel processor of family 6; `None` for a model whose events
/// are not listed here.
pub fn intel(model: u32, pmu: &str) -> Option<&'static [Encoding]> {
    match (model, pmu) {
        (0x3c | 0x3f | 0x45 | 0x46, "cpu")
        | (0x3d | 0x47 | 0x4f | 0x56, "cpu")
        | (0x4e | 0x55 | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6, "cpu")
        | (0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7, "cpu") => Some(&INTEL_HASWELL),
        (0x8f | 0xad | 0xae | 0xcf, "cpu") => Some(&INTEL_GOLDEN_COVE),
        (0xaf | 0xb6 | 0xbe, "cpu") => Some(&INTEL_GRACEMONT),
        (0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0xaa | 0xac | 0xb5 | 0xbd | 0xc5 | 0xc6, "cpu_core") => {
            Some(&INTEL_GOLDEN_COVE)
        }
        (0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0xaa | 0xac | 0xb5 | 0xbd | 0xc5 | 0xc6, "cpu_atom") => {
            Some(&INTEL_GRACEMONT)
        }
        _ => None,
    }
}

/// The events of an AMD processor; `None` for a family whose events are not listed here. AMD documents no event for the cycles of
/// walks.
pub fn amd_zen(family: u32, model: u32) -> Option<&'static [Encoding]> {
    match (family, model) {
        (0x17, ..0x30) => Some(&AMD_ZEN1),
        (0x17, _) => Some(&AMD_ZEN2),
        (0x19 | 0x1a, _) => Some(&AMD_ZEN3),
        _ => None,
    }
}

/// The events of an arm64 core PMU by their names in sysfs. A miss of the second-level TLB (`l2d_tlb_refill`) does not replace
/// `dtlb_walk` where that is missing: in a unified TLB it counts walks for instructions too.
pub const ARM64: [(Quantity, &str); 4] = [
    (Quantity::DataWalks, "dtlb_walk"),
    (Quantity::InstructionWalks, "itlb_walk"),
    (Quantity::Cycles, "cpu_cycles"),
    (Quantity::Instructions, "inst_retired"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn config(encodings: Option<&'static [Encoding]>, quantity: Quantity) -> Option<u64> {
        encodings.unwrap().iter().find(|(candidate, _)| *candidate == quantity).map(|(_, config)| *config)
    }

    #[test]
    fn skylake_is_as_its_event_file_says() {
        let skylake = intel(0x55, "cpu");
        assert_eq!(config(skylake, Quantity::LoadWalks), Some(0x0e08));
        assert_eq!(config(skylake, Quantity::StoreWalks), Some(0x0e49));
        assert_eq!(config(skylake, Quantity::InstructionWalks), Some(0x0e85));
        assert_eq!(config(skylake, Quantity::LoadWalkCycles), Some(0x0100_1008));
    }

    #[test]
    fn hybrid_processors_have_two_sets_of_events() {
        assert_eq!(config(intel(0x97, "cpu_core"), Quantity::StoreWalkCycles), Some(0x0100_1013));
        assert_eq!(config(intel(0x97, "cpu_atom"), Quantity::StoreWalks), Some(0x0e49));
        assert_eq!(config(intel(0x97, "cpu_atom"), Quantity::StoreWalkCycles), None);
        assert!(intel(0x97, "cpu").is_none() && intel(0x55, "cpu_core").is_none());
    }

    #[test]
    fn zen_differs_in_the_mask_of_instruction_walks() {
        for (family, model, instruction_walks) in [
            (0x17, 0x01, 0x0085),
            (0x17, 0x31, 0x0785),
            (0x19, 0x01, 0x0f85),
            (0x19, 0x11, 0x0f85),
            (0x1a, 0x02, 0x0f85),
        ] {
            let zen = amd_zen(family, model);
            assert_eq!(config(zen, Quantity::InstructionWalks), Some(instruction_walks));
            assert_eq!(config(zen, Quantity::DataWalks), Some(0xf045));
            assert_eq!(config(zen, Quantity::LoadWalkCycles), None);
        }
    }

    #[test]
    fn unknown_processors_have_no_events_rather_than_another_ones() {
        assert!(intel(0x2a, "cpu").is_none(), "Sandy Bridge numbers its masks differently");
        assert!(amd_zen(0x15, 0x02).is_none() && amd_zen(0x1b, 0).is_none());
    }
}
