//! One suite for all formats: compares every operation with an ordered map of pages, a naive oracle.

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
use paging::{Attributes, Flags, Format, FreeRequest, Mapping, OutputAddress, Sizes, Tables};

/// Attributes that every format can express: those of user data; without the user flag at stage 2, which does not have it.
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

/// Tables are released together with the addresses that they serve, and not earlier.
fn releases_empty_tables_with_their_addresses<F: Format>(format: F) {
    let geometry = format.geometry();
    let (unit, table) = (geometry.page_bytes() << format.run_bits(), geometry.span(1) << format.run_bits());
    let mut tables = Tables::new(format, OutputAddress(1 << 30), 64 << 20).unwrap();
    let va = geometry.extended(geometry.span(geometry.root_level()) << format.run_bits());
    let mapping =
        Mapping { va, pa: OutputAddress(2 << 30), bytes: table, attributes: data(&format), sizes: Sizes::up_to(unit) };
    tables.map(&mapping).unwrap();
    let mapped = tables.arena().used_bytes();
    tables.unmap_leaves(va, table).unwrap();
    assert_eq!((tables.translate(va).is_err(), tables.arena().used_bytes()), (true, mapped), "{format:?}");
    let all = FreeRequest::within(va, table);
    for (enclosing_va, enclosing_bytes) in [(va, table - unit), (va + unit, table)] {
        let bytes = table - unit;
        tables
            .free_empty_tables(&FreeRequest {
                va: va + unit,
                bytes: bytes - unit,
                enclosing_va,
                enclosing_bytes,
                ..all
            })
            .unwrap();
    }
    assert_eq!(tables.arena().used_bytes(), mapped, "{format:?}: part of its addresses is not freed");
    tables.free_empty_tables(&FreeRequest { va: va + unit, bytes: unit, top: 0, ..all }).unwrap();
    let block = geometry.table_bytes(0) << format.run_bits();
    assert_eq!(tables.arena().used_bytes(), mapped - block, "{format:?}: only the table of the pages is released");
    let whole = geometry.span(geometry.root_level()) << format.run_bits();
    tables.make_tables(va + unit, 0).unwrap();
    assert_eq!(tables.arena().used_bytes(), mapped, "{format:?}: the same tables again");
    tables.map(&Mapping { sizes: Sizes::BEST, ..mapping }).unwrap();
    tables.unmap_leaves(va, table).unwrap();
    tables.free_empty_tables(&FreeRequest::within(va, whole)).unwrap();
    let root = geometry.table_bytes(geometry.root_level());
    assert_eq!(tables.arena().used_bytes(), root, "{format:?}: only the root is left");
}

#[test]
fn releases_tables_with_their_addresses() {
    for_every_format!(releases_empty_tables_with_their_addresses);
}
