//! The requirements for changing one entry, where a bit has different meanings in different entries.

use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::riscv::{RiscV, Stage};
use paging::format::{BreakLevel, Change, Kind};
use paging::{Format, OutputAddress};

use crate::data;

/// Bit 16 is nT only in a block.
const BIT_16: u64 = 1 << 16;

fn pages_and_tables_have_no_nt<F: Format>(format: F) {
    let page = format.leaf(0, data(&format), false).unwrap();
    assert_eq!(format.change(0, page, page | BIT_16), Change::Break, "{format:?}: a page of other memory");
    let block = format.leaf(1, data(&format), false).unwrap();
    assert_eq!(format.change(1, block, block | BIT_16), Change::Free, "{format:?}: nT alone");
    let table = format.table(OutputAddress(1 << 30 | BIT_16));
    assert_eq!(format.change(1, block, table), Change::Break, "{format:?}: an address bit is not nT");
    assert_eq!(format.change(1, block | BIT_16, table), Change::Invalidate, "{format:?}: a block that no TLB holds");
}

#[test]
fn bit_16_is_nt_only_in_blocks() {
    for granule in [Granule::K4, Granule::K16, Granule::K64] {
        pages_and_tables_have_no_nt(Arm64Stage1::new(granule, 48).with_break_level(BreakLevel::One));
        pages_and_tables_have_no_nt(Arm64Stage2::new(granule, 40).with_break_level(BreakLevel::One));
    }
}

#[test]
fn a_riscv_table_that_becomes_a_leaf_of_the_same_address_needs_a_fence() {
    let format = RiscV::new(3, Stage::Supervisor);
    let table = format.table(OutputAddress(1 << 30));
    let leaf = format.leaf(1, data(&format), false).unwrap() | format.address_bits(1, 1 << 30, false);
    assert_eq!((format.kind(1, table), format.kind(1, leaf)), (Kind::Table, Kind::Leaf));
    assert_eq!(format.change(1, table, leaf & !(1 << 4)), Change::Invalidate);
}

/// "If any of these bits are set, a page-fault exception is raised": this includes pointers to tables.
#[test]
fn reserved_bits_make_a_riscv_table_illegal() {
    let format = RiscV::new(4, Stage::Supervisor).with_napot().with_memory_types();
    for bit in 54..=63 {
        let entry = format.table(OutputAddress(1 << 30)) | 1 << bit;
        assert_eq!(format.kind(1, entry), Kind::Illegal, "bit {bit}");
        let mut broken = 0;
        format.rules(1, entry, &mut |_| broken += 1);
        assert_eq!(broken, 1, "bit {bit}");
    }
}
