//! The engine's fast paths give the same results as the slow paths, in every format.

#[path = "conformance/formats.rs"]
mod formats;

use formats::for_every_format;
use paging::format::Kind;
use paging::format::x86_64::X86_64;
use paging::{Attributes, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Entries that are random in several ways: all bits, few bits, and real leaves and tables with one bit changed.
fn entries<F: Format>(format: &F) -> Vec<u64> {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let data = Attributes { memory: format.normal_memory(), ..Attributes::new(Flags::READ | Flags::ACCESSED) };
    let mut whole = vec![format.table(OutputAddress(0x1234_5000_0000))];
    whole.extend((0..2).filter_map(|level| format.leaf(level, data, false).ok()));
    let mut entries = Vec::new();
    for _ in 0..2000 {
        let bits = random.next_u64();
        entries.extend([bits, bits & random.next_u64(), bits | 1]);
        entries.extend(whole.iter().map(|entry| entry ^ 1 << (bits % 64) | bits & 0xf_f000_0000));
    }
    entries
}

fn patterns_are_true<F: Format>(format: F) {
    let mut found = 0;
    for entry in entries(&format) {
        for level in 1..format.geometry().levels() {
            if let Some(table) = format.table_pattern().address(entry, F::ADDRESS_SHIFT) {
                assert_eq!(format.kind(level, entry), Kind::Table, "{format:?} level {level} {entry:#x}");
                assert_eq!(table, format.table_address(entry), "{format:?} level {level} {entry:#x}");
                found += 1;
            }
        }
        for level in 0..format.geometry().levels() {
            if let Some(pa) = format.leaf_pattern(level).address(entry, F::ADDRESS_SHIFT) {
                assert_eq!(format.kind(level, entry), Kind::Leaf, "{format:?} level {level} {entry:#x}");
                for va in [0, 0x5000].map(InputAddress) {
                    assert_eq!(pa, format.leaf_address(level, entry, va), "{format:?} level {level} {entry:#x}");
                }
                found += 1;
            }
        }
    }
    assert!(found > 1000 || format.geometry().output_bits() == 52, "{format:?}: {found}");
}

#[test]
fn patterns_describe_entries_of_every_format() {
    for_every_format!(patterns_are_true);
}

fn state_bits_are_true<F: Format>(format: F) {
    let Some(bits) = format.state_bits() else { return };
    for entry in entries(&format).into_iter().filter(|entry| format.kind(0, *entry) == Kind::Leaf) {
        for state in [Flags::empty(), Flags::ACCESSED, Flags::DIRTY, Flags::STATE] {
            let with = format.with_state(entry, state);
            assert_eq!(with & !bits, entry & !bits, "{format:?} {entry:#x} {state:?}");
        }
        assert_eq!(format.with_state(entry & !bits, format.state(entry)), entry, "{format:?} {entry:#x}");
    }
}

#[test]
fn accessed_and_dirty_are_the_bits_that_the_format_declares() {
    for_every_format!(state_bits_are_true);
}

/// Reused tables behave as new ones, however much of them a mapping fills.
fn compare_reused_tables<F: Format>(format: F) {
    let page = format.geometry().page_bytes() << format.run_bits();
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED;
    let user = if format.leaf(0, Attributes::new(Flags::READ | Flags::USER), false).is_ok() {
        Flags::USER
    } else {
        Flags::empty()
    };
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(flags | user) };
    let base = format.geometry().extended(0) + (1 << 30);
    let mapping = |first: u64, pages: u64| Mapping {
        va: base + first * page,
        pa: OutputAddress((3 << 30) + first * page),
        bytes: pages * page,
        attributes,
        sizes: Sizes::up_to(page),
    };
    let mut used = Tables::new(format, OutputAddress(1 << 32), 64 << 20).unwrap();
    used.map(&mapping(0, 3000)).unwrap();
    used.unmap(base, 3000 * page).unwrap();
    for (first, pages) in [(0, 1), (5, 20), (700, 900), (1601, 3), (1700, 1)] {
        used.map(&mapping(first, pages)).unwrap();
    }
    for index in 0..3000 {
        let mapped =
            index == 0 || (5..25).contains(&index) || (700..1604).contains(&index) && index != 1600 || index == 1700;
        let found = used.translate(base + index * page).ok().map(|found| found.pa);
        assert_eq!(found, mapped.then_some(OutputAddress((3 << 30) + index * page)), "{format:?} {index}");
    }
}

/// Addresses in leaves of all sizes, in holes and outside, each more than once, and addresses of regions that share a
/// slot of the walk cache; the tables change now and then.
fn cached_walks_agree_with_tables<F: Format>(format: F) {
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED;
    let user = if format.leaf(0, Attributes::new(Flags::READ | Flags::USER), false).is_ok() {
        Flags::USER
    } else {
        Flags::empty()
    };
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(flags | user) };
    let page = format.geometry().page_bytes() << format.run_bits();
    let first = format.geometry().extended(0);
    let mut tables = Tables::new(format, OutputAddress(1 << 40), 256 << 20).unwrap();
    let mut ranges = [
        (0, 40 * page, Sizes::up_to(page), 8 << 30),
        (64 << 20, (600 << 20) + 3 * page, Sizes::BEST, 8 << 30),
        (8 << 30, (1 << 30) + (64 << 20) + page, Sizes::BEST, 8 << 30),
    ];
    for (va, bytes, sizes, to) in ranges {
        let (va, pa) = (first + va, OutputAddress(to + va));
        tables.map(&Mapping { va, pa, bytes, attributes, sizes }).unwrap();
    }
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let (mut mapped, mut holes) = (0, 0);
    for round in 0..4000 {
        let near = first.0 + random.next_u64() % [41 * page, 700 << 20, 10 << 30][random.next_u64() as usize % 3];
        for va in [near, near, near ^ 8 << 30, near ^ 1 << 56, random.next_u64()].map(InputAddress) {
            let offset = va.0.wrapping_sub(first.0);
            let range = ranges.iter().find(|(from, bytes, ..)| (*from..from + bytes).contains(&offset));
            let leaf = tables.leaf(va).ok().map(|leaf| (leaf.pa, leaf.level));
            let translated = tables.translate(va).ok().map(|found| (found.pa, found.level));
            assert_eq!(leaf, translated, "{format:?} {va:#x}");
            let found = translated.map(|(pa, _)| pa);
            assert_eq!(found, range.map(|(.., to)| OutputAddress(to + offset)), "{format:?} {va:#x}");
            *(if found.is_some() { &mut mapped } else { &mut holes }) += 1;
        }
        if round % 500 == 499 {
            let (va, bytes, sizes, to) = &mut ranges[round / 500 % 3];
            tables.unmap(first + *va, *bytes).unwrap();
            assert!(tables.translate(first + *va).is_err(), "{format:?}");
            *to = 24 << 30;
            let (va, pa) = (first + *va, OutputAddress(*to + *va));
            let mapping = Mapping { va, pa, bytes: *bytes, attributes, sizes: *sizes };
            tables.map(&mapping).unwrap();
        }
    }
    assert!(mapped > 2000 && holes > 2000, "{format:?}: {mapped} {holes}");
}

#[test]
fn cached_walks_agree_with_tables_of_every_format() {
    for_every_format!(cached_walks_agree_with_tables);
}

#[test]
fn threads_share_the_walk_cache() {
    let mut tables = Tables::new(X86_64::new(4, 52), OutputAddress(1 << 40), 64 << 20).unwrap();
    let attributes = Attributes::new(Flags::READ | Flags::ACCESSED);
    let (va, pa) = (InputAddress(0), OutputAddress(1 << 32));
    let mapping = Mapping { va, pa, bytes: 8 << 30, attributes, sizes: Sizes::up_to(2 << 20) };
    tables.map(&mapping).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tables = &tables;
            scope.spawn(move || {
                for step in 0..100_000_u64 {
                    let offset = (step * (2 * thread + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (8 << 30);
                    assert_eq!(tables.translate(va + offset).map(|found| found.pa), Ok(pa + offset));
                }
            });
        }
    });
}

#[test]
fn reused_tables_behave_as_new_ones() {
    for_every_format!(compare_reused_tables);
}
