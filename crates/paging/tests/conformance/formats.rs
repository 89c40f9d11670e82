//! The formats that the suite tests.

/// Calls a generic function with each format.
macro_rules! for_every_format {
    ($function:ident) => {{
        use paging::Extension;
        use paging::format::BreakLevel;
        use paging::format::arm64::Granule;
        use paging::format::arm64_stage1::Arm64Stage1;
        use paging::format::arm64_stage2::Arm64Stage2;
        use paging::format::riscv::{RiscV, Stage};
        use paging::format::software_64k::Software64K;
        use paging::format::x86_64::X86_64;

        $function(X86_64::new(4, 46));
        $function(X86_64::new(5, 52));
        for (granule, sizes) in [
            (Granule::K4, &[39, 42, 47, 48, 52][..]),
            (Granule::K16, &[39, 42, 47, 48, 52]),
            (Granule::K64, &[39, 42, 47, 48, 52]),
        ] {
            for bits in sizes {
                $function(Arm64Stage1::new(granule, *bits));
            }
            $function(Arm64Stage1::new(granule, 48).with_extension(Extension::Ones).with_hardware_dirty());
            $function(Arm64Stage1::new(granule, 48).with_break_level(BreakLevel::Two));
            // Entries of 52-bit addresses with smaller input addresses.
            $function(Arm64Stage1::new(granule, 48).with_physical_bits(52));
            $function(Arm64Stage2::new(granule, 40));
            $function(Arm64Stage2::new(granule, 48).with_hardware_dirty());
        }
        for levels in 3..=5 {
            $function(RiscV::new(levels, Stage::Supervisor));
            $function(RiscV::new(levels, Stage::Supervisor).with_napot().with_memory_types());
            $function(RiscV::new(levels, Stage::Guest).with_napot());
            $function(Software64K::new(levels, false));
            $function(Software64K::new(levels, true));
        }
    }};
}
pub(crate) use for_every_format;
