//! Compares nested translation with doing it by hand, and the number of references with the formula.

use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::riscv::{RiscV, Stage};
use paging::format::x86_64::X86_64;
use paging::nested::{NestedError, translate};
use paging::{Action, Error, Format, InputAddress, Mapping, Node, OutputAddress, Sizes, Tables, Visitor};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::formats::for_every_format;
use crate::oracle::Oracle;

const GUEST_TABLES: OutputAddress = OutputAddress(1 << 20);
const GUEST_MEMORY: OutputAddress = OutputAddress(1 << 30);
const HOST_TABLES: OutputAddress = OutputAddress(1 << 40);
/// A guest physical address plus this is its address in the host.
const HOST: u64 = 1 << 36;

/// A guest that maps four times the largest leaf, in leaves of `sizes`, over a host that maps the guest in leaves of
/// `host_sizes`.
fn machine<F: Format, G: Format>(guest: F, sizes: Sizes, host: G, host_sizes: Sizes) -> (Tables<F>, Tables<G>) {
    let mut stage1 = Tables::new(guest, GUEST_TABLES, 64 << 20).unwrap();
    let mut stage2 = Tables::new(host, HOST_TABLES, 64 << 20).unwrap();
    let bytes = 64 << 20;
    let attributes = crate::data(&guest);
    stage1.map(&Mapping { va: InputAddress(0), pa: GUEST_MEMORY, bytes, attributes, sizes }).unwrap();
    for of_guest in [OutputAddress(0), GUEST_MEMORY] {
        let (va, pa) = (of_guest.intermediate(), of_guest + HOST);
        let attributes = crate::data(&host);
        stage2.map(&Mapping { va, pa, bytes: 512 << 20, attributes, sizes: host_sizes }).unwrap();
    }
    (stage1, stage2)
}

fn references<F: Format, G: Format>(guest: F, sizes: Sizes, host: G, host_sizes: Sizes) -> u32 {
    let (stage1, stage2) = machine(guest, sizes, host, host_sizes);
    let mut references = None;
    for va in [0, 0x1234, 0x12_3456, (64 << 20) - 1].map(InputAddress) {
        let found = translate(&stage1, &stage2, va).unwrap();
        let ipa = stage1.translate(va).unwrap().pa.intermediate();
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
    // Three levels, with two concatenated tables as the root.
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
    let unmapped = translate(&stage1, &stage2, InputAddress(64 << 20)).unwrap_err();
    assert!(matches!(unmapped, NestedError::Stage1(Error::NotMapped { .. })), "{unmapped}");
    let not_canonical = translate(&stage1, &stage2, InputAddress(1 << 47)).unwrap_err();
    assert!(matches!(not_canonical, NestedError::Stage1(Error::NotCanonical { .. })), "{not_canonical}");
    stage2.unmap((GUEST_MEMORY + 0x5000).intermediate(), 0x1000).unwrap();
    let gone = translate(&stage1, &stage2, InputAddress(0x5678)).unwrap_err();
    assert!(matches!(gone, NestedError::Stage2 { ipa: InputAddress(0x4000_5678), .. }), "{gone}");
    assert!(gone.to_string().starts_with("stage 2, for the guest physical address 0x40005678"), "{gone}");
    // Unmaps the guest's root itself.
    stage2.unmap(GUEST_TABLES.intermediate(), 0x1000).unwrap();
    let root = translate(&stage1, &stage2, InputAddress(0)).unwrap_err();
    assert!(matches!(root, NestedError::Stage2 { ipa, .. } if ipa == GUEST_TABLES.intermediate()), "{root}");
}

/// The path of a walk to one page: the addresses of its entries, and the leaf.
#[derive(Default)]
struct WalkPath {
    entries: Vec<OutputAddress>,
    leaf: Option<Node>,
}

impl Visitor for WalkPath {
    fn table(&mut self, node: &Node) -> Action {
        self.entries.push(node.pa);
        Action::Continue
    }

    fn leaf(&mut self, node: &Node) -> Action {
        self.entries.push(node.pa);
        self.leaf = Some(*node);
        Action::Continue
    }

    fn hole(&mut self, node: &Node) -> Action {
        self.entries.push(node.pa);
        Action::Continue
    }
}

/// Tables with random mappings, whose output addresses are their input addresses plus `distance`, and these mappings.
fn random_tables<F: Format>(
    format: F,
    base: OutputAddress,
    distance: u64,
    random: &mut TestRng,
) -> (Tables<F>, Oracle) {
    let mut tables = Tables::new(format, base, 64 << 20).unwrap();
    let mut oracle = Oracle::default();
    let unit = format.geometry().page_bytes() << format.run_bits();
    for _ in 0..12 {
        let units = [1, 16, 64, 2048][(random.next_u32() % 4) as usize];
        let va = (u64::from(random.next_u32()) % (1 << 30)) & !(units * unit - 1);
        let bytes = units * unit * u64::from(1 + random.next_u32() % 4);
        let (attributes, contiguous) = (crate::data(&format), random.next_u32().is_multiple_of(2));
        let sizes = Sizes { largest_bytes: units * unit, contiguous };
        let (va, pa) = (InputAddress(va), OutputAddress(distance + va));
        let mapped = tables.map(&Mapping { va, pa, bytes, attributes, sizes }).is_ok();
        assert_eq!(mapped, oracle.map(va, pa, bytes, attributes), "{format:?}");
    }
    (tables, oracle)
}

fn translations_are_those_of_both<F: Format, G: Format>(guest: F, host: G, found_of: &mut [u32; 3]) {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for _ in 0..8 {
        // The host maps parts of the guest's memory, and its tables except one page of them.
        let (stage1, inner) = random_tables(guest, GUEST_TABLES, 0, &mut random);
        let (mut stage2, mut outer) = random_tables(host, HOST_TABLES, HOST, &mut random);
        let (page, tables) = (host.geometry().page_bytes(), 64 << 20);
        let va = GUEST_TABLES.intermediate();
        outer.unmap(va, tables);
        stage2.unmap(va, tables).unwrap();
        let attributes = crate::data(&host);
        let pa = OutputAddress(HOST);
        let mapping = Mapping { va, pa, bytes: tables, attributes, sizes: Sizes::up_to(page) };
        stage2.map(&mapping).unwrap();
        assert!(outer.map(va, pa, tables, attributes));
        let gone = va + page * (1 + u64::from(random.next_u32()) % (stage1.arena().bytes() / page).max(1));
        stage2.unmap(gone, page).unwrap();
        outer.unmap(gone, page);
        for _ in 0..64 {
            let borders = inner.borders();
            let near = borders[random.next_u32() as usize % borders.len()].aligned_down(guest.geometry().page_bytes());
            let va = InputAddress(near.0 ^ (u64::from(random.next_u32()) % (32 << 20)));
            let mut path = WalkPath::default();
            let guest_page = guest.geometry().page_bytes();
            stage1.walk(va.aligned_down(guest_page), guest_page, &mut path).unwrap();
            let references = |ipa: InputAddress| {
                let found = stage2.translate(ipa).ok();
                assert_eq!(found.map(|found| found.pa), outer.translate(ipa).map(|(pa, _)| pa));
                found.map(|found| u32::from(host.geometry().levels() - found.level))
            };
            let of_guest = inner.translate(va).map(|(of_guest, _)| of_guest);
            let ipa = of_guest.map(OutputAddress::intermediate);
            let entries = path.entries.iter().map(|entry| entry.intermediate());
            let all: Vec<InputAddress> = entries.chain(ipa).collect();
            let found = translate(&stage1, &stage2, va);
            let place = || format!("{guest:?} over {host:?}: {va:#x}: {found:x?}");
            let first_fault = all.iter().copied().find(|ipa| references(*ipa).is_none());
            match (&found, first_fault, ipa) {
                (Err(NestedError::Stage2 { ipa, .. }), Some(expected), _) => assert_eq!(*ipa, expected, "{}", place()),
                (Err(NestedError::Stage1(Error::NotMapped { va: at, .. })), None, None) => assert_eq!(*at, va),
                (Ok(nested), None, Some(ipa)) => {
                    let reads: u32 = all.iter().filter_map(|ipa| references(*ipa)).sum();
                    assert_eq!(nested.references, reads + path.entries.len() as u32, "{}", place());
                    assert_eq!((nested.ipa, Some(nested.pa)), (ipa, outer.translate(ipa).map(|(pa, _)| pa)));
                    assert_eq!(path.leaf.map(|leaf| leaf.level), stage1.translate(va).ok().map(|found| found.level));
                }
                _ => panic!("{}", place()),
            }
            found_of[match found {
                Ok(_) => 0,
                Err(NestedError::Stage1(_)) => 1,
                Err(NestedError::Stage2 { .. }) => 2,
            }] += 1;
        }
    }
}

fn every_host<F: Format>(guest: F) {
    if guest.geometry().extended(0) != InputAddress(0) {
        return; // The random mappings are in the lower half.
    }
    let mut found = [0; 3];
    translations_are_those_of_both(guest, X86_64::new(4, 46), &mut found);
    translations_are_those_of_both(guest, Arm64Stage2::new(Granule::K4, 40), &mut found);
    translations_are_those_of_both(guest, Arm64Stage2::new(Granule::K64, 48), &mut found);
    translations_are_those_of_both(guest, RiscV::new(3, Stage::Guest).with_napot(), &mut found);
    assert!(found.iter().all(|found| *found > 0), "{guest:?}: {found:?}");
}

#[test]
fn random_tables_over_random_tables_agree_with_the_oracles() {
    for_every_format!(every_host);
}
