//! Arbitrary memory, small: what the fuzz targets do for longer.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::bodies;

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
