//! One suite for all formats: every operation against an ordered map of pages, the slow and obvious oracle.

mod best_sizes;
mod contiguous;
mod formats;
mod nested;
mod oracle;
mod ranges;
mod requests;
mod resizes;
mod walks;

use formats::for_every_format;
use paging::{Attributes, Flags, Format, Mapping, OutputAddress, Sizes, Tables};

/// Attributes that every format can express: of user data, but at stage 2, which knows no user.
fn data<F: Format>(format: &F) -> Attributes {
    let stage1 = format.leaf(0, Attributes::new(Flags::READ | Flags::USER), false).is_ok();
    let user = if stage1 { Flags::USER } else { Flags::empty() };
    Attributes {
        memory: format.normal_memory(),
        ..Attributes::new(Flags::READ | Flags::WRITE | Flags::ACCESSED | user)
    }
}

fn whole_gigabyte_is_mapped<F: Format>(format: F) {
    let mut tables = Tables::new(format, OutputAddress(1 << 30), 64 << 20).unwrap();
    let unit = format.geometry().page_bytes() << format.run_bits();
    let va = format.geometry().extended(0);
    let (pa, attributes) = (OutputAddress(2 << 30), data(&format));
    let mapping = Mapping { va, pa, bytes: 1 << 30, attributes, sizes: Sizes::up_to(unit) };
    tables.map(&mapping).unwrap();
    for offset in [0, 1, unit - 1, unit, 0x12_3456, (1 << 30) - 1] {
        let found = tables.translate(va + offset).unwrap();
        assert_eq!((found.pa, found.level), (pa + offset, 0), "{format:?} {offset:#x}");
    }
    assert!(tables.translate(va + (1 << 30)).is_err());
    tables.unmap(va, 1 << 30).unwrap();
    assert!(tables.translate(va).is_err());
    let root = format.geometry().table_bytes(format.geometry().root_level());
    assert_eq!(tables.arena().used_bytes(), root, "{format:?}: only the root is left");
}

#[test]
fn a_gigabyte_of_pages_is_mapped_and_unmapped() {
    for_every_format!(whole_gigabyte_is_mapped);
}
