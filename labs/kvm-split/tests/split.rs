//! The stage 2 split matches KVM's: the counts of every variant, and tables that translate as before.

use kvm_split::split::{
    Backing, Build, Counters, Error, Mode, Options, Slot, Splitter, TableCache, Variant, build_slot,
    build_slot_with_log, chunk_sizes, log_slot, split, split_slot, tables_for, write_protect_slot,
};
use paging::format::Kind;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{Attributes, Event, Flags, Format, InputAddress, Log, Mapping, OutputAddress, Sizes, Tables};

const GIB: u64 = 1 << 30;
const FIRST: InputAddress = InputAddress(GIB);
const SLOT: Slot = Slot { ipa: FIRST, bytes: GIB };
const GRANULES: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];

fn format(granule: Granule) -> Arm64Stage2 {
    Arm64Stage2::new(granule, 40)
}

/// Splits `slot` and compares every page of it with the state before; in a large slot, every 61st page.
fn split_and_compare<L: Log>(tables: &mut Tables<Arm64Stage2, L>, slot: Slot, options: Options) -> Counters {
    let before = Tables::in_arena(*tables.format(), tables.arena().clone(), tables.root());
    let counters = split_slot(tables, slot, options).unwrap();
    let step = if slot.bytes < GIB { 1 } else { 61 };
    assert_same_pages(&before, tables, slot, step, &format!("{options:?}"));
    counters
}

fn assert_same_pages<L: Log>(
    before: &Tables<Arm64Stage2>,
    after: &Tables<Arm64Stage2, L>,
    slot: Slot,
    step: usize,
    what: &str,
) {
    let page_bytes = after.geometry().page_bytes() as usize;
    for offset in (0..slot.bytes).step_by(page_bytes * step) {
        let ipa = slot.ipa + offset;
        let (was, is) = (before.leaf(ipa).unwrap(), after.leaf(ipa).unwrap());
        assert_eq!((is.level, is.pa), (0, was.pa), "{what}: {ipa:#x}");
        // All bits of the descriptor except type and address.
        let bits = |entry| entry & !(after.format().address_bits(0, u64::MAX, false) | 0b11);
        assert_eq!(bits(is.entry), bits(was.entry), "{what}: {ipa:#x}");
        assert_eq!(after.attributes(ipa).unwrap(), before.attributes(ipa).unwrap(), "{what}: {ipa:#x}");
    }
}

/// One row of the table of counts for 1 GiB: entries read, callbacks, entries built, tables.
fn row(granule: Granule, backing: Backing, chunk_bytes: u64, variant: Variant, expected: [u64; 4]) {
    for build in [Build::Walk, Build::Fill] {
        let mut tables = build_slot(format(granule), SLOT, backing).unwrap();
        let options = Options { build, ..Options::enable(chunk_bytes, variant) };
        let used_bytes = tables.arena().used_bytes();
        let counters = split_and_compare(&mut tables, SLOT, options);
        let Counters { entries_read, callbacks, entries_built, tables: linked, .. } = counters;
        assert_eq!([entries_read, callbacks, entries_built, linked], expected, "{granule:?} {backing:?} {options:?}");
        let page_bytes = tables.geometry().page_bytes();
        assert_eq!(
            tables.arena().used_bytes() - used_bytes,
            linked * page_bytes,
            "the tables left in the cache are released"
        );
    }
}

#[test]
fn four_k_counts() {
    use Variant::{SkipByReturn, SkipPages, SkipPagesAndChildren, Vanilla};
    let row = |backing, chunk, variant, expected| row(Granule::K4, backing, chunk, variant, expected);
    row(Backing::Pages, GIB, Vanilla, [262_657, 262_144, 0, 0]);
    row(Backing::Pages, GIB, SkipByReturn, [1025, 512, 0, 0]);
    row(Backing::Pages, GIB, SkipPages, [513, 0, 0, 0]);
    row(Backing::Pages, GIB, SkipPagesAndChildren, [513, 0, 0, 0]);
    row(Backing::Blocks, GIB, Vanilla, [262_657, 262_656, 262_144, 512]);
    row(Backing::Blocks, GIB, SkipByReturn, [513, 512, 262_144, 512]);
    row(Backing::Blocks, GIB, SkipPages, [513, 512, 262_144, 512]);
    row(Backing::Blocks, GIB, SkipPagesAndChildren, [513, 512, 262_144, 512]);
    row(Backing::Gigabyte, GIB, Vanilla, [262_657, 262_145, 262_656, 513]);
    row(Backing::Gigabyte, GIB, SkipPages, [513, 1, 262_656, 513]);
    row(Backing::Gigabyte, GIB, SkipByReturn, [1, 1, 262_656, 513]);
    row(Backing::Gigabyte, GIB, SkipPagesAndChildren, [1, 1, 262_656, 513]);
}

#[test]
fn every_page_of_a_gigabyte_is_as_before() {
    for granule in GRANULES {
        let chunk_bytes = *chunk_sizes(granule).last().unwrap();
        for (backing, variant) in
            Backing::ALL.into_iter().zip([Variant::Vanilla, Variant::SkipPages, Variant::SkipByReturn])
        {
            let mut tables = build_slot(format(granule), SLOT, backing).unwrap();
            let before = tables.clone();
            split_slot(&mut tables, SLOT, Options::enable(chunk_bytes, variant)).unwrap();
            assert_same_pages(&before, &tables, SLOT, 1, &format!("{granule:?} {backing:?} {variant:?}"));
        }
    }
}

#[test]
fn four_k_counts_in_chunks_of_2m() {
    row(Granule::K4, Backing::Gigabyte, 2 << 20, Variant::Vanilla, [263_168, 262_657, 262_656, 513]);
    row(Granule::K4, Backing::Gigabyte, 2 << 20, Variant::SkipPages, [1024, 513, 262_656, 513]);
    // The 1G block is split by one level, because the cache holds two tables. So its children are not skipped.
    row(Granule::K4, Backing::Gigabyte, 2 << 20, Variant::SkipPagesAndChildren, [1024, 513, 262_656, 513]);
}

#[test]
fn sixteen_k_and_sixty_four_k_counts() {
    use Variant::{SkipByReturn, SkipPages, SkipPagesAndChildren, Vanilla};
    let (k16, k64) = ((Granule::K16, 32 << 20), (Granule::K64, 512 << 20));
    for chunk in [k16.1, k64.1] {
        let (granule, _) = if chunk == k16.1 { k16 } else { k64 };
        let (pages, tables) = if granule == Granule::K16 { (65_536, 32) } else { (16_384, 2) };
        let row = |backing, variant, expected| row(granule, backing, chunk, variant, expected);
        row(Backing::Pages, Vanilla, [pages + tables, pages, 0, 0]);
        row(Backing::Pages, SkipByReturn, [2 * tables, tables, 0, 0]);
        row(Backing::Pages, SkipPages, [tables, 0, 0, 0]);
        // A 1G hugetlb page is also mapped in blocks at stage 2 of these granules.
        for backing in [Backing::Blocks, Backing::Gigabyte] {
            row(backing, Vanilla, [pages + tables, pages + tables, pages, tables]);
            for variant in [SkipByReturn, SkipPages, SkipPagesAndChildren] {
                row(backing, variant, [tables, tables, pages, tables]);
            }
        }
    }
}

#[test]
fn counts_when_the_log_is_cleared() {
    for (granule, chunk, walks, vanilla, skipping) in [
        (Granule::K4, GIB, 4096, 270_336, 8192),
        (Granule::K16, 32 << 20, 1024, 66_560, 1024),
        (Granule::K64, 512 << 20, 256, 16_640, 256),
    ] {
        for backing in Backing::ALL {
            for (variant, read) in [(Variant::Vanilla, vanilla), (Variant::SkipPages, skipping)] {
                let mut tables = build_slot(format(granule), SLOT, backing).unwrap();
                let counters = split_and_compare(&mut tables, SLOT, Options::clear(chunk, variant));
                let whole = split_slot(
                    &mut build_slot(format(granule), SLOT, backing).unwrap(),
                    SLOT,
                    Options::enable(chunk, variant),
                )
                .unwrap();
                let what = format!("{granule:?} {backing:?} {variant:?}");
                assert_eq!((counters.walks, counters.entries_read), (walks, read), "{what}");
                assert_eq!(counters.entries_built, whole.entries_built, "{what}");
                assert_eq!(counters.tlb_invalidations, whole.tlb_invalidations, "{what}");
            }
        }
    }
}

#[test]
fn the_other_counters() {
    let count =
        |backing, options| split_slot(&mut build_slot(format(Granule::K4), SLOT, backing).unwrap(), SLOT, options);
    let walked = count(Backing::Blocks, Options::enable(2 << 20, Variant::Vanilla)).unwrap();
    let filled = Options { build: Build::Fill, ..Options::enable(2 << 20, Variant::Vanilla) };
    assert_eq!(count(Backing::Blocks, filled).unwrap(), walked, "both builds have the same counts");
    // A chunk of 2M takes one table; the cache of two is full again before the next chunk.
    assert_eq!((walked.walks, walked.top_ups, walked.tlb_invalidations), (512, 512, 512));
    // Root and level 2: one line in each walk; then 64 lines of the new table, written and later read.
    assert_eq!(walked.cache_lines, 512 * (1 + 1 + 64 + 64));
    let whole = count(Backing::Gigabyte, Options::enable(GIB, Variant::SkipPagesAndChildren)).unwrap();
    assert_eq!((whole.walks, whole.top_ups, whole.tlb_invalidations), (1, 1, 1));
    assert_eq!(whole.cache_lines, 1 + 513 * 64);
    assert_eq!(whole.visits(), 1 + 262_656);
}

#[test]
fn capacity_of_the_cache() {
    for (granule, bytes, tables) in [
        (Granule::K4, 4096, 2),
        (Granule::K4, 2 << 20, 2),
        (Granule::K4, GIB, 513),
        (Granule::K16, 32 << 20, 1),
        (Granule::K64, 512 << 20, 1),
        (Granule::K16, GIB, 32),
    ] {
        assert_eq!(tables_for(&format(granule), bytes), tables, "{granule:?} {bytes:#x}");
    }
}

#[test]
fn every_chunk_of_every_granule_splits_all() {
    let slot = Slot { ipa: FIRST, bytes: 64 << 20 };
    for granule in GRANULES {
        for chunk_bytes in chunk_sizes(granule) {
            for backing in Backing::ALL {
                for variant in Variant::ALL {
                    for options in [Options::enable(chunk_bytes, variant), Options::clear(chunk_bytes, variant)] {
                        let mut tables = build_slot(format(granule), slot, backing).unwrap();
                        split_and_compare(&mut tables, slot, options);
                    }
                }
            }
        }
    }
}

/// Blocks at the ends of a slot that begins and ends inside them, in the tables of a larger mapping.
#[test]
fn a_slot_inside_a_block() {
    let slot = Slot { ipa: FIRST + (5 << 20), bytes: 90 << 20 };
    for options in [Options::enable(2 << 20, Variant::SkipPages), Options::clear(GIB, Variant::Vanilla)] {
        let mut tables = build_slot(format(Granule::K4), SLOT, Backing::Gigabyte).unwrap();
        split_and_compare(&mut tables, slot, options);
        assert!(tables.translate(FIRST).is_ok(), "the memory before the slot is still mapped");
        assert_eq!(tables.translate(FIRST + (1 << 29)).unwrap().level == 0, options.mode == Mode::Clear);
    }
}

#[test]
fn a_word_is_split_from_its_first_to_its_last_bit() {
    let mut tables = build_slot(format(Granule::K4), SLOT, Backing::Pages).unwrap();
    let mut splitter = Splitter::new(&mut tables, SLOT, Options::clear(GIB, Variant::Vanilla)).unwrap();
    splitter.clear_word(128, 0).unwrap();
    assert_eq!(splitter.counters(), Counters::default());
    splitter.clear_word(128, 1 << 7 | 1 << 20).unwrap();
    assert_eq!(splitter.counters().entries_read, 2 + 14);
    assert_eq!(splitter.clear_word(130, 1), Err(Error::NoWord { page: 130, pages: 262_144 }));
    assert_eq!(splitter.clear_word(262_144, 1), Err(Error::NoWord { page: 262_144, pages: 262_144 }));
    drop(splitter);
    let short = Slot { bytes: 70 << 12, ..SLOT };
    let mut splitter = Splitter::new(&mut tables, short, Options::clear(GIB, Variant::Vanilla)).unwrap();
    splitter.clear_word(64, u64::MAX).unwrap();
    assert_eq!(splitter.counters().entries_read, 2 + 6, "bits past the slot do not count");
}

/// Breaks are logged in order, and no table is linked before its block was broken and invalidated.
#[test]
fn breaks_before_it_makes() {
    let slot = Slot { ipa: FIRST, bytes: 6 << 20 };
    let mut tables = build_slot_with_log(format(Granule::K4), slot, Backing::Blocks, Vec::new()).unwrap();
    tables.log_mut().clear();
    split_and_compare(&mut tables, slot, Options::enable(2 << 20, Variant::SkipPages));
    let events = tables.log();
    assert_eq!(events.len(), 3 * 3);
    for (number, change) in events.chunks(3).enumerate() {
        let block = FIRST + ((number as u64) << 21);
        let [
            Event::Write { pa, va, level: 1, old, new: 0 },
            Event::Invalidate { va: invalidated, bytes: 0x20_0000, .. },
            Event::Write { pa: made_pa, va: made_va, level: 1, old: 0, new },
        ] = *change
        else {
            panic!("expected break, invalidation and make, found {change:?}");
        };
        assert_eq!((va, invalidated, made_va, made_pa), (block, block, block, pa));
        assert_eq!(tables.format().kind(1, old), Kind::Leaf);
        assert_eq!(tables.format().kind(1, new), Kind::Table);
    }
}

/// A cache too small for a whole 1G block: one level first, then its blocks one by one, until the cache is empty.
#[test]
fn a_short_cache_splits_one_level_at_a_time() {
    let mut tables = build_slot(format(Granule::K4), SLOT, Backing::Gigabyte).unwrap();
    let before = tables.clone();
    let mut cache = TableCache::default();
    cache.top_up(&mut tables, 4).unwrap();
    let mut counters = Counters::default();
    let ended = split(&mut tables, SLOT, Variant::SkipPagesAndChildren, Build::Walk, &mut cache, &mut counters);
    let fourth = FIRST + (3 << 21);
    assert_eq!(ended, Err(Error::CacheEmpty { va: fourth, level: 1, needed: 1, cached: 0 }));
    assert_eq!((counters.tables, counters.tlb_invalidations, counters.entries_built), (4, 4, 4 * 512));
    assert_same_pages(&before, &tables, Slot { bytes: 3 << 21, ..SLOT }, 1, "before the end of the cache");
    assert_eq!(tables.translate(fourth).unwrap().level, 1);
    assert_eq!(tables.translate(fourth + 5).unwrap().pa, before.translate(fourth + 5).unwrap().pa);
    // One table short of the whole: still one level at a time, and enough for all but the last block.
    cache.top_up(&mut tables, 508).unwrap();
    let ended = split(&mut tables, SLOT, Variant::Vanilla, Build::Fill, &mut cache, &mut counters);
    assert_eq!(ended, Err(Error::CacheEmpty { va: FIRST + (GIB - (1 << 21)), level: 1, needed: 1, cached: 0 }));
    cache.top_up(&mut tables, 1).unwrap();
    split(&mut tables, SLOT, Variant::Vanilla, Build::Fill, &mut cache, &mut counters).unwrap();
    assert_same_pages(&before, &tables, SLOT, 1, "at the end");
    assert_eq!((cache.is_empty(), counters.tables), (true, 513));
}

#[test]
fn an_arena_that_is_full_ends_the_split_between_chunks() {
    let format = format(Granule::K4);
    // The root, and three tables for three chunks; the fourth chunk finds only one table for its cache of two.
    let mut tables = Tables::new(format, OutputAddress(1 << 40), 0x2000 + 0x1000 + 4 * 0x1000).unwrap();
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(Flags::READ | Flags::ACCESSED) };
    let mapping =
        Mapping { va: FIRST, pa: OutputAddress(GIB), bytes: 16 << 20, attributes, sizes: Sizes::up_to(2 << 20) };
    tables.map(&mapping).unwrap();
    let slot = Slot { ipa: FIRST, bytes: 16 << 20 };
    let used_bytes = tables.arena().used_bytes();
    let ended = split_slot(&mut tables, slot, Options::enable(2 << 20, Variant::SkipPages));
    let full = paging::Error::ArenaFull { bytes: 0x1000, limit_bytes: 0x7000 };
    assert_eq!(ended, Err(Error::TopUp { va: FIRST + (6 << 20), capacity: 2, cached: 1, source: full }));
    assert_eq!(tables.arena().used_bytes() - used_bytes, 3 * 0x1000);
    assert_eq!(tables.translate(FIRST + (4 << 20)).unwrap().level, 0);
    assert_eq!(tables.translate(FIRST + (6 << 20)).unwrap().level, 1);
}

#[test]
fn holes_stay_holes() {
    let mut tables = build_slot(format(Granule::K4), SLOT, Backing::Blocks).unwrap();
    tables.unmap(FIRST + (8 << 20), 4 << 20).unwrap();
    let counters = split_slot(&mut tables, SLOT, Options::enable(GIB, Variant::SkipPages)).unwrap();
    assert_eq!((counters.callbacks, counters.tables), (512, 510));
    assert!(tables.translate(FIRST + (8 << 20)).is_err() && tables.translate(FIRST + (12 << 20)).is_ok());
}

#[test]
fn write_protection_is_a_separate_walk() {
    for (mode, walks, read) in [(Mode::Enable, 1, 262_657), (Mode::Clear, 4096, 270_336)] {
        let mut tables = build_slot(format(Granule::K4), SLOT, Backing::Pages).unwrap();
        let counters = write_protect_slot(&mut tables, SLOT, mode).unwrap();
        assert_eq!((counters.walks, counters.entries_read, counters.tlb_invalidations), (walks, read, 1));
        for ipa in [FIRST, FIRST + 0x12_3000, FIRST + (GIB - 0x1000)] {
            let flags = tables.attributes(ipa).unwrap().flags;
            assert!(flags.contains(Flags::READ) && !flags.contains(Flags::WRITE), "{ipa:#x}");
        }
    }
}

#[test]
fn a_log_is_protected_and_split_in_the_order_of_kvm() {
    for backing in Backing::ALL {
        for mode in [Mode::Enable, Mode::Clear] {
            let options = Options { mode, ..Options::enable(GIB, Variant::Vanilla) };
            let mut tables = build_slot(format(Granule::K4), SLOT, backing).unwrap();
            let alone = split_slot(&mut tables.clone(), SLOT, options).unwrap();
            let logged = log_slot(&mut tables, SLOT, options).unwrap();
            assert_eq!(logged.split, alone, "{backing:?} {mode:?}: the split sees the same tables");
            let leaf = tables.leaf(FIRST + (GIB - 0x1000)).unwrap();
            assert_eq!((leaf.level, tables.attributes(FIRST).unwrap().flags.contains(Flags::WRITE)), (0, false));
        }
    }
    let protect = |backing, mode| {
        let mut tables = build_slot(format(Granule::K4), SLOT, backing).unwrap();
        let options = Options { mode, ..Options::enable(GIB, Variant::Vanilla) };
        log_slot(&mut tables, SLOT, options).unwrap().protect
    };
    let counts = |of: Counters| (of.walks, of.entries_read, of.entries_protected, of.tlb_invalidations);
    assert_eq!(counts(protect(Backing::Blocks, Mode::Enable)), (1, 513, 512, 1));
    // Of the 8 words of a block the first finds the block. The others find 64 of its pages, read-only as it was.
    assert_eq!(counts(protect(Backing::Blocks, Mode::Clear)), (4096, 512 * 2 + 3584 * 66, 512, 1));
    assert_eq!(counts(protect(Backing::Pages, Mode::Clear)), (4096, 4096 * 66, 262_144, 1));
}

#[test]
fn bad_requests_are_refused() {
    let mut tables = build_slot(format(Granule::K16), SLOT, Backing::Pages).unwrap();
    let odd = split_slot(&mut tables, SLOT, Options::enable(2 << 20, Variant::Vanilla));
    assert_eq!(odd, Err(Error::ChunkSize { bytes: 2 << 20, offered: "0x4000, 0x2000000".into() }));
    let off = split_slot(&mut tables, SLOT, Options::enable(0, Variant::Vanilla));
    assert_eq!(off, Ok(Counters::default()), "0 is off");
    for slot in [
        Slot { bytes: 0, ..SLOT },
        Slot { ipa: InputAddress(0x1000), ..SLOT },
        Slot { ipa: InputAddress(1 << 40), ..SLOT },
        Slot { ipa: InputAddress((1 << 40) - GIB), bytes: 2 * GIB },
        Slot { ipa: InputAddress(!0x3fff), bytes: 1 << 63 },
    ] {
        for options in [Options::enable(32 << 20, Variant::Vanilla), Options::clear(32 << 20, Variant::SkipPages)] {
            assert!(matches!(split_slot(&mut tables, slot, options), Err(Error::Tables(_))), "{slot:x?}");
        }
        assert!(build_slot(format(Granule::K16), slot, Backing::Pages).is_err(), "{slot:x?}");
        assert!(write_protect_slot(&mut tables, slot, Mode::Clear).is_err(), "{slot:x?}");
    }
}

#[test]
fn groups_are_refused() {
    let format = format(Granule::K4);
    let mut tables = Tables::new(format, OutputAddress(1 << 40), 16 << 20).unwrap();
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(Flags::READ | Flags::ACCESSED) };
    let sizes = Sizes { largest_bytes: 2 << 20, contiguous: true };
    let mapping = Mapping { va: FIRST, pa: OutputAddress(GIB), bytes: 32 << 20, attributes, sizes };
    tables.map(&mapping).unwrap();
    let before = tables.arena().image();
    let slot = Slot { ipa: FIRST, bytes: 32 << 20 };
    let ended = split_slot(&mut tables, slot, Options::enable(2 << 20, Variant::SkipPages));
    assert!(matches!(ended, Err(Error::Grouped { va: FIRST, level: 1, .. })), "{ended:?}");
    assert_eq!(tables.arena().image()[..before.len()], before);
}
