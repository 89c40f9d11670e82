//! Nested translation, against doing it by hand, and the number of references against the formula.

use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::riscv::{RiscV, Stage};
use paging::format::x86_64::X86_64;
use paging::nested::{NestedError, translate};
use paging::{Error, Format, Mapping, Sizes, Tables};

const GUEST_TABLES: u64 = 1 << 20;
const GUEST_MEMORY: u64 = 1 << 30;
/// Where the guest's physical addresses are in the host, plus them.
const HOST: u64 = 1 << 36;

/// A guest that maps four times the largest leaf, in leaves of `sizes`, over a host that maps the guest in leaves of
/// `host_sizes`.
fn machine<F: Format, G: Format>(guest: F, sizes: Sizes, host: G, host_sizes: Sizes) -> (Tables<F>, Tables<G>) {
    let mut stage1 = Tables::new(guest, GUEST_TABLES, 64 << 20).unwrap();
    let mut stage2 = Tables::new(host, 1 << 40, 64 << 20).unwrap();
    let bytes = 64 << 20;
    let attributes = crate::data(&guest);
    stage1.map(&Mapping { va: 0, pa: GUEST_MEMORY, bytes, attributes, sizes }).unwrap();
    for ipa in [0, GUEST_MEMORY] {
        let attributes = crate::data(&host);
        stage2.map(&Mapping { va: ipa, pa: HOST + ipa, bytes: 512 << 20, attributes, sizes: host_sizes }).unwrap();
    }
    (stage1, stage2)
}

fn references<F: Format, G: Format>(guest: F, sizes: Sizes, host: G, host_sizes: Sizes) -> u32 {
    let (stage1, stage2) = machine(guest, sizes, host, host_sizes);
    let mut references = None;
    for va in [0, 0x1234, 0x12_3456, (64 << 20) - 1] {
        let found = translate(&stage1, &stage2, va).unwrap();
        let ipa = stage1.translate(va).unwrap().pa;
        assert_eq!((found.ipa, found.pa), (ipa, stage2.translate(ipa).unwrap().pa), "{va:#x}");
        let (inner, outer) = (stage1.translate(va).unwrap().level, stage2.translate(ipa).unwrap().level);
        assert_eq!(found.bytes, guest.geometry().span(inner).min(host.geometry().span(outer)));
        assert_eq!(*references.get_or_insert(found.references), found.references);
    }
    references.unwrap()
}

/// `(n + 1)(m + 1) - 1`: 24 references for four levels over four.
#[test]
fn references_are_those_of_the_formula() {
    let page = Sizes::up_to(4096);
    let x86 = X86_64::new(4, 46);
    assert_eq!(references(x86, page, x86, page), 24);
    assert_eq!(references(x86, Sizes::up_to(2 << 20), x86, page), 19);
    assert_eq!(references(x86, page, x86, Sizes::up_to(2 << 20)), 19);
    assert_eq!(references(x86, Sizes::up_to(2 << 20), x86, Sizes::up_to(2 << 20)), 15);
    let five = X86_64::new(5, 52);
    assert_eq!(references(five, page, five, page), 35);
    // Three levels, of which the root is two concatenated tables.
    let stage2 = Arm64Stage2::new(Granule::K4, 40);
    assert_eq!(references(Arm64Stage1::new(Granule::K4, 48), page, stage2, page), 19);
    let (sv39, guest) = (RiscV::new(3, Stage::Supervisor), RiscV::new(3, Stage::Guest));
    assert_eq!(references(sv39.with_napot(), Sizes::BEST, guest, page), 11);
    assert_eq!(references(sv39.with_napot(), Sizes { largest_bytes: 4096, contiguous: true }, guest, page), 15);
}

#[test]
fn the_stage_that_failed_is_named() {
    let x86 = X86_64::new(4, 46);
    let (stage1, mut stage2) = machine(x86, Sizes::up_to(4096), x86, Sizes::up_to(4096));
    let unmapped = translate(&stage1, &stage2, 64 << 20).unwrap_err();
    assert!(matches!(unmapped, NestedError::Stage1(Error::NotMapped { .. })), "{unmapped}");
    let not_canonical = translate(&stage1, &stage2, 1 << 47).unwrap_err();
    assert!(matches!(not_canonical, NestedError::Stage1(Error::NotCanonical { .. })), "{not_canonical}");
    stage2.unmap(GUEST_MEMORY + 0x5000, 0x1000).unwrap();
    let gone = translate(&stage1, &stage2, 0x5678).unwrap_err();
    assert!(matches!(gone, NestedError::Stage2 { ipa: 0x4000_5678, .. }), "{gone}");
    assert!(gone.to_string().starts_with("stage 2, for the guest physical address 0x40005678"), "{gone}");
    // The guest's root itself.
    stage2.unmap(GUEST_TABLES, 0x1000).unwrap();
    let root = translate(&stage1, &stage2, 0).unwrap_err();
    assert!(matches!(root, NestedError::Stage2 { ipa: GUEST_TABLES, .. }), "{root}");
}
