//! Small arbitrary memory: a short version of the fuzz targets.

use paging::check::check;
use paging::{
    Action, Arena, Attributes, Error, Flags, Format, InputAddress, Mapping, Node, OutputAddress, Sizes, Tables, Visitor,
};
use proptest::prelude::*;

use crate::bodies;
use crate::formats::for_every_format;

/// Bytes with many repeated values, so that they are meaningful in combination.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => any::<u8>(), 1 => Just(0u8), 1 => 0u8..8, 1 => Just(0xffu8)];
    proptest::collection::vec(byte, 0..700)
}

proptest! {
    #![proptest_config(testing::properties(256))]

    #[test]
    fn arbitrary_entries_are_decoded(data in bytes()) {
        bodies::decode(&data);
    }

    #[test]
    fn arbitrary_memory_and_steps_are_checked(data in bytes()) {
        bodies::check(&data);
    }

    #[test]
    fn arbitrary_memory_is_walked(data in bytes()) {
        bodies::walk(&data);
    }
}

struct Blind;

impl Visitor for Blind {
    fn leaf(&mut self, node: &Node) -> Action {
        panic!("{node:?}: there is no memory");
    }
}

fn a_root_at_the_end_of_memory_is_outside<F: Format>(format: F) {
    for root in [u64::MAX, u64::MAX - 7, u64::MAX - 0xfff, 1 << 63].map(OutputAddress) {
        let arena = Arena::from_image(OutputAddress(0), &[0xff; 0x4000]).unwrap();
        let tables = Tables::in_arena(format, arena, root);
        assert!(!check(&tables).is_legal(), "{format:?} {root:#x}");
        assert!(tables.walk_all(&mut Blind).is_err(), "{format:?} {root:#x}");
        let first = format.geometry().extended(0).0;
        for va in [0, first, first | 0x1ff_f000, u64::MAX, u64::MAX >> 17].map(InputAddress) {
            assert!(tables.translate(va).is_err() && tables.attributes(va).is_err(), "{format:?} {root:#x} {va:#x}");
        }
    }
}

#[test]
fn no_root_wraps_around() {
    for_every_format!(a_root_at_the_end_of_memory_is_outside);
}

/// The address of the tables.
const BASE: OutputAddress = OutputAddress(1 << 32);

/// Maps a page and then points every entry of the table above it to the page's table.
fn does_not_release_a_table_of_many_parents<F: Format>(format: F) {
    let geometry = format.geometry();
    let flags = Flags::READ | Flags::ACCESSED;
    let user = format.leaf(0, Attributes::new(flags | Flags::USER), false).map_or(Flags::empty(), |_| Flags::USER);
    let (va, unit) = (geometry.extended(0), geometry.page_bytes() << format.run_bits());
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(flags | user) };
    let mut tables = Tables::new(format, BASE, 64 << 20).unwrap();
    let mapping = Mapping { va, pa: OutputAddress(1 << 30), bytes: unit, attributes, sizes: Sizes::up_to(unit) };
    tables.map(&mapping).unwrap();
    let mut above = tables.root();
    for level in (2..geometry.levels()).rev() {
        let entry = tables.arena().read(geometry.entry_address(above, level, va)).unwrap();
        above = format.table_address(entry);
    }
    let mut image = tables.arena().image();
    let first = (above - BASE) as usize;
    let run = 8 << format.run_bits();
    let entries = image[first..first + run].to_vec();
    let bytes = (geometry.entries(1) * 8) as usize;
    image[first..first + bytes].chunks_mut(run).for_each(|chunk| chunk.copy_from_slice(&entries));
    let mut tables = Tables::in_arena(format, Arena::from_image(BASE, &image).unwrap(), tables.root());
    let whole = geometry.span(1) * geometry.entries(1) / 2;
    let unmapped = tables.unmap(va, whole);
    assert!(matches!(unmapped, Err(Error::NoTree { .. })), "{format:?}: {unmapped:?}");
}

#[test]
fn does_not_release_tables_of_many_parents() {
    for_every_format!(does_not_release_a_table_of_many_parents);
}
