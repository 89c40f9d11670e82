//! The levels at which arm64 has contiguous groups, and the number of their entries, according to the architecture's
//! pseudocode: `ContiguousSize` and `AArch64.ContiguousBit`.

use paging::Format;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;

/// log2 of the entries of a group, from the level that holds pages upwards.
fn groups<F: Format>(format: F) -> Vec<u8> {
    (0..format.geometry().levels()).map(|level| format.group_bits_at(level)).collect()
}

#[test]
fn groups_are_where_the_architecture_has_them() {
    for bits in [48, 52] {
        // With more than 48 bits the largest blocks have no groups: 512G with 4K, 64G with 16K, 4T with 64K.
        let levels = |granule| Arm64Stage1::new(granule, bits).geometry().levels() as usize;
        let expected = |granule, some: &[u8]| [some, &[0; 5][..levels(granule) - some.len()]].concat();
        assert_eq!(groups(Arm64Stage1::new(Granule::K4, bits)), expected(Granule::K4, &[4, 4, 4]));
        assert_eq!(groups(Arm64Stage1::new(Granule::K16, bits)), expected(Granule::K16, &[7, 5]));
        assert_eq!(groups(Arm64Stage1::new(Granule::K64, bits)), expected(Granule::K64, &[5, 5]));
    }
    assert_eq!(groups(Arm64Stage2::new(Granule::K4, 48)), [4, 4, 4, 0]);
    assert_eq!(groups(Arm64Stage2::new(Granule::K16, 48)), [7, 5, 0]);
    assert_eq!(groups(Arm64Stage2::new(Granule::K64, 52)), [5, 5, 0]);
}

#[test]
fn no_group_is_larger_than_the_tables() {
    // Eight entries of 2M at the root are too few: a group needs sixteen.
    assert_eq!(groups(Arm64Stage1::new(Granule::K4, 24)), [4, 0]);
    assert_eq!(groups(Arm64Stage1::new(Granule::K4, 25)), [4, 4]);
}
