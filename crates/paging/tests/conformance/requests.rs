//! Requests that are refused: the error, and that nothing changes.

use paging::{Arena, Attributes, Error, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};

use crate::formats::for_every_format;

const BASE: OutputAddress = OutputAddress(1 << 30);

fn refusals<F: Format>(format: F) {
    let geometry = format.geometry();
    let unit = geometry.page_bytes() << format.run_bits();
    let mut tables = Tables::new(format, BASE, 64 << 20).unwrap();
    let va = geometry.extended(0);
    let attributes = crate::data(&format);
    let good = Mapping { va, pa: OutputAddress(1 << 32), bytes: 4 * unit, attributes, sizes: Sizes::BEST };
    tables.map(&good).unwrap();
    let before = tables.arena().clone();
    let mut refused = |mapping: Mapping| {
        let error = tables.map(&mapping).unwrap_err();
        assert_eq!(*tables.arena(), before, "{format:?}: {error}");
        error
    };
    let free = va + 16 * unit;
    assert!(matches!(refused(Mapping { va: free + 1, ..good }), Error::Misaligned { what: "input address", .. }));
    let misaligned = Mapping { va: free, pa: OutputAddress(8), ..good };
    assert!(matches!(refused(misaligned), Error::Misaligned { what: "output address", .. }));
    assert!(matches!(
        refused(Mapping { va: free, bytes: unit + 512, ..good }),
        Error::Misaligned { what: "length", .. }
    ));
    assert!(matches!(refused(Mapping { va: free, bytes: 0, ..good }), Error::Empty { .. }));
    assert_eq!(
        refused(Mapping { va: va + unit, ..good }),
        Error::Overlap { va: va + unit, level: 0, entry: tables_entry(&before, &format, va + unit) }
    );
    let output_bits = geometry.output_bits();
    if output_bits < 63 {
        let last = OutputAddress((1 << output_bits) - unit);
        assert!(matches!(
            refused(Mapping { va: free, pa: last, bytes: 2 * unit, ..good }),
            Error::OutputTooLarge { .. }
        ));
    }
    let last = va.0.wrapping_sub(1).wrapping_add(1 << geometry.input_bits()) & !(unit - 1);
    let outside = InputAddress(last.wrapping_add(unit));
    if !geometry.is_canonical(outside) {
        let error = refused(Mapping { va: outside, bytes: unit, ..good });
        assert!(matches!(error, Error::NotCanonical { .. }), "{format:?}: {error}");
    }
    let small = Sizes { largest_bytes: unit / 2, contiguous: true };
    assert!(matches!(refused(Mapping { va: free, sizes: small, ..good }), Error::NoLeafSize { .. }));
    let key = Attributes { key: 255, ..attributes };
    assert!(matches!(refused(Mapping { va: free, attributes: key, ..good }), Error::Inexpressible { .. }));
    let memory = Attributes { memory: 255, ..attributes };
    assert!(matches!(refused(Mapping { va: free, attributes: memory, ..good }), Error::Inexpressible { .. }));
}

fn tables_entry<F: Format>(arena: &Arena, format: &F, va: InputAddress) -> u64 {
    Tables::in_arena(*format, arena.clone(), BASE).leaf(va).unwrap().entry
}

#[test]
fn a_refused_mapping_changes_nothing() {
    for_every_format!(refusals);
}

/// No entry could point to tables at such an address.
fn tables_past_the_end<F: Format>(format: F) {
    let output_bits = format.geometry().output_bits();
    let end = 1u64 << output_bits;
    for base in [end, end + 0x10000, 1 << 60, !0xffff].map(OutputAddress) {
        let refused = Tables::new(format, base, 1 << 20).err();
        assert_eq!(refused, Some(Error::OutputTooLarge { pa: base, bytes: 1 << 20, output_bits }), "{format:?}");
    }
    let refused = Tables::new(format, OutputAddress(end - 8), 1 << 20).err();
    assert!(matches!(refused, Some(Error::ArenaFull { .. })), "{format:?}: {refused:?}");
    let root = format.geometry().table_bytes(format.geometry().root_level());
    let base = OutputAddress(end - root.next_multiple_of(1 << 17));
    let mut tables = Tables::new(format, base, u64::MAX >> 1).unwrap();
    let bytes = format.geometry().page_bytes() << format.run_bits();
    let attributes = crate::data(&format);
    let far = format.geometry().input_bytes() / 8;
    let mapped = (0..8).map(|at| {
        let va = format.geometry().extended(u64::try_from(at * far).unwrap());
        tables.map(&Mapping { va, pa: OutputAddress(0), bytes, attributes, sizes: Sizes::up_to(bytes) })
    });
    let refused = mapped.filter_map(Result::err).next();
    assert!(matches!(refused, None | Some(Error::ArenaFull { .. })), "{format:?}: {refused:?}");
    assert!(tables.arena().base() + tables.arena().bytes() <= OutputAddress(end), "{format:?}");
}

#[test]
fn tables_stay_in_the_physical_address_space() {
    for_every_format!(tables_past_the_end);
}

/// The arena becomes full in the middle of a mapping.
fn full_arena<F: Format>(format: F) {
    let geometry = format.geometry();
    let unit = geometry.page_bytes() << format.run_bits();
    let va = geometry.extended(0);
    let attributes = crate::data(&format);
    let block = geometry.page_bytes() << format.run_bits();
    let root = geometry.table_bytes(geometry.root_level());
    // The root, at most one table of each level below, and no more. The base is aligned to all of them.
    for below in 0..=u64::from(geometry.root_level()) {
        let mut tables = Tables::new(format, BASE, root.next_multiple_of(block) + below * block).unwrap();
        let table_span = geometry.span(0) * geometry.entries(0).max(block / 8);
        let mapping =
            Mapping { va, pa: OutputAddress(1 << 40), bytes: 2 * table_span, attributes, sizes: Sizes::up_to(unit) };
        let error = tables.map(&mapping).unwrap_err();
        assert!(matches!(error, Error::ArenaFull { .. }), "{format:?}: {error}");
        assert_eq!(tables.census().unwrap().total_bytes(), 0, "{format:?}: nothing stays mapped");
        assert_eq!(tables.arena().used_bytes(), root, "{format:?}: every table is released");
        let fits = tables.map(&Mapping { bytes: unit, ..mapping }).is_ok();
        assert_eq!(fits, below == u64::from(geometry.root_level()), "{format:?} with {below} tables");
    }
}

#[test]
fn a_mapping_that_does_not_fit_leaves_nothing_behind() {
    for_every_format!(full_arena);
}

/// Every combination of flags is either refused or read back as written, in leaves of every level.
fn attributes_are_exact<F: Format>(format: F) {
    let mut expressible = 0;
    for bits in 0..=Flags::all().bits() {
        let flags = Flags::from_bits_truncate(bits);
        for memory in 0..16 {
            let attributes = Attributes { memory, ..Attributes::new(flags) };
            for level in (0..format.geometry().levels()).filter(|level| format.has_leaf(*level)) {
                let grouped = format.group_bits_at(level) != 0;
                let Ok(leaf) = format.leaf(level, attributes, grouped) else { continue };
                expressible += 1;
                assert_eq!(format.attributes(level, leaf), attributes, "{format:?} level {level} {leaf:#x}");
                assert_eq!(format.with_attributes(level, leaf, attributes), Ok(leaf));
                let state = format.state(leaf);
                assert_eq!(state, flags & Flags::STATE, "{format:?} {leaf:#x}");
                assert_eq!(format.with_state(leaf, state), leaf, "{format:?} {leaf:#x}");
                let pa = 0x2_4000_0000 & !((format.geometry().span(level) << format.group_bits_at(level)) - 1);
                let entry = leaf | format.address_bits(level, pa, grouped);
                let mut broken = Vec::new();
                format.rules(level, entry, &mut |rule| broken.push(rule));
                broken.retain(|rule| rule.severity() == paging::Severity::Error);
                let reserved_memory = matches!(broken[..], [paging::Rule::MemoryType]);
                assert!(broken.is_empty() || reserved_memory, "{format:?} level {level} {entry:#x}: {broken:?}");
            }
        }
    }
    assert!(expressible > 0, "{format:?}");
}

#[test]
fn attributes_are_refused_or_read_back_as_written() {
    for_every_format!(attributes_are_exact);
}
