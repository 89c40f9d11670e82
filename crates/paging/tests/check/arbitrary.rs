//! Arbitrary memory, small: what the fuzz targets do for longer.

use std::time::{Duration, Instant};

use paging::check::check;
use paging::{Action, Arena, Format, Node, Tables, Visitor};
use proptest::prelude::*;

use crate::bodies;
use crate::formats::for_every_format;

/// Bytes of which many are alike, so that they mean something together.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => any::<u8>(), 1 => Just(0u8), 1 => 0u8..8, 1 => Just(0xffu8)];
    proptest::collection::vec(byte, 0..700)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_entries_are_decoded(data in bytes()) {
        bodies::decode(&data);
    }

    #[test]
    fn arbitrary_memory_and_steps_are_checked(data in bytes()) {
        let start = Instant::now();
        bodies::check(&data);
        prop_assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn arbitrary_memory_is_walked(data in bytes()) {
        let start = Instant::now();
        bodies::walk(&data);
        prop_assert!(start.elapsed() < Duration::from_secs(20));
    }
}

struct Blind;

impl Visitor for Blind {
    fn leaf(&mut self, node: &Node) -> Action {
        panic!("{node:?}: there is no memory");
    }
}

fn a_root_at_the_end_of_all_memory_is_outside<F: Format>(format: F) {
    for root in [u64::MAX, u64::MAX - 7, u64::MAX - 0xfff, 1 << 63] {
        let tables = Tables::in_arena(format, Arena::from_image(0, &[0xff; 0x4000]).unwrap(), root);
        assert!(!check(&tables).is_legal(), "{format:?} {root:#x}");
        assert!(tables.walk_all(&mut Blind).is_err(), "{format:?} {root:#x}");
        let first = format.geometry().extended(0);
        for va in [0, first, first | 0x1ff_f000, u64::MAX, u64::MAX >> 17] {
            assert!(tables.translate(va).is_err() && tables.attributes(va).is_err(), "{format:?} {root:#x} {va:#x}");
        }
    }
}

#[test]
fn no_root_wraps_around() {
    for_every_format!(a_root_at_the_end_of_all_memory_is_outside);
}
