//! Breaks one thing in good tables: the checker finds it at the right entry, and finds nothing else.

use std::collections::BTreeSet;

use paging::check::{Fault, MAX_FAULTS, Report, check, check_arena};
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::riscv::{RiscV, Stage};
use paging::format::software_64k::Software64K;
use paging::format::x86_64::X86_64;
use paging::{Arena, ENTRY_BYTES, Format, InputAddress, Mapping, OutputAddress, Rule, Severity, Sizes, Tables};

use crate::formats::for_every_format;
use crate::{data, lines};

const BASE: OutputAddress = OutputAddress(1 << 30);
const VA: InputAddress = InputAddress(0x4000_0000);
const PA: OutputAddress = OutputAddress(0x8_0000_0000);
/// Bytes after the tables, as many as the largest table.
const SPARE_BYTES: usize = 64 << 10;

/// Tables with a mapping of `bytes` at [`VA`], as an image that can be broken.
struct Image<F> {
    format: F,
    root: OutputAddress,
    bytes: Vec<u8>,
    good: Report,
}

impl<F: Format> Image<F> {
    fn new(format: F, bytes: u64, sizes: Sizes) -> Image<F> {
        Image::of(format, format.geometry().extended(VA.0), PA, bytes, sizes)
    }

    fn of(format: F, va: InputAddress, pa: OutputAddress, bytes: u64, sizes: Sizes) -> Image<F> {
        let mut tables = Tables::new(format, BASE, 64 << 20).unwrap();
        tables.map(&Mapping { va, pa, bytes, attributes: data(&format), sizes }).unwrap();
        let good = check(&tables);
        assert_eq!(good.faults, [], "{format:?}");
        assert_eq!(good.mapped_bytes(), u128::from(bytes), "{format:?}");
        let mut bytes = tables.arena().image();
        bytes.resize(bytes.len().next_multiple_of(SPARE_BYTES) + SPARE_BYTES, 0);
        Image { format, root: tables.root(), bytes, good }
    }

    /// Empty memory outside all tables.
    fn spare(&self) -> OutputAddress {
        BASE + (self.bytes.len() - SPARE_BYTES) as u64
    }

    fn pages(format: F) -> Image<F> {
        let unit = format.geometry().page_bytes() << format.run_bits();
        Image::new(format, 2 * format.geometry().span(1), Sizes::up_to(unit))
    }

    /// Tables with one contiguous group at `level`.
    fn group(format: F, level: u8) -> Image<F> {
        Image::new(format, format.geometry().span(level) << format.group_bits_at(level), Sizes::BEST)
    }

    /// Tables with two leaves of level 1, or two runs of them, in no group.
    fn blocks(format: F) -> Image<F> {
        Image::new(format, format.geometry().span(1) << (1 + format.run_bits()), Sizes::up_to(u64::MAX))
    }

    fn arena(&self) -> Arena {
        Arena::from_image(BASE, &self.bytes).unwrap()
    }

    /// The address and the value of the entry for `va` at `level`.
    fn entry(&self, va: InputAddress, level: u8) -> (OutputAddress, u64) {
        let (geometry, arena) = (self.format.geometry(), self.arena());
        let mut table = self.root;
        for above in (level..geometry.levels()).rev() {
            let pa = geometry.entry_address(table, above, va);
            let entry = arena.read(pa).unwrap();
            if above == level {
                return (pa, entry);
            }
            table = self.format.table_address(entry);
        }
        unreachable!("the level is one of the format")
    }

    /// Changes the entry for `va` at `level`; returns the faults found, and the entry's address and new value.
    fn faults_of(
        &self,
        va: InputAddress,
        level: u8,
        change: impl FnOnce(u64) -> u64,
    ) -> (Vec<Fault>, OutputAddress, u64) {
        let (pa, entry) = self.entry(va, level);
        let changed = change(entry);
        assert_ne!(entry, changed, "{:?}", self.format);
        let mut bytes = self.bytes.clone();
        let at = (pa - BASE) as usize;
        bytes[at..at + 8].copy_from_slice(&changed.to_le_bytes());
        let report = check_arena(&self.format, &Arena::from_image(BASE, &bytes).unwrap(), self.root);
        (report.faults, pa, changed)
    }

    /// Changes the entry for `va` at `level` and returns the one rule that this breaks.
    #[track_caller]
    fn broken(&self, va: InputAddress, level: u8, change: impl FnOnce(u64) -> u64) -> Rule {
        let (faults, pa, changed) = self.faults_of(va, level, change);
        let [fault] = faults.as_slice() else { panic!("{:?}: expected one fault\n{}", self.format, lines(&faults)) };
        let first = va.aligned_down(self.format.geometry().span(level));
        assert_eq!((fault.pa, fault.entry, fault.va, fault.level), (pa, changed, first, level), "{fault}");
        assert_eq!(fault.level_name, self.format.level_name(level));
        fault.rule
    }
}

/// The rule that was found, and the rule that was broken.
type Case = (Rule, Rule);

fn too_large(pa: u64) -> Rule {
    Rule::AddressTooLarge { pa: OutputAddress(pa) }
}

fn x86() -> Vec<Case> {
    let format = X86_64::new(4, 46);
    let (pages, blocks) = (Image::pages(format), Image::blocks(format));
    let (mut without_xd, mut without_1g) = (format, format);
    (without_xd.execute_disable, without_1g.gigabyte_leaves) = (false, false);
    let (without_xd, without_1g) = (Image::blocks(without_xd), Image::pages(without_1g));
    let page = VA + 0x5000;
    vec![
        (pages.broken(page, 0, |entry| entry | 1 << 46), too_large(1 << 46 | (PA + 0x5000).0)),
        (pages.broken(page, 0, |entry| entry & !2 | 1 << 6), Rule::ShadowStack),
        (pages.broken(page, 3, |entry| entry | 1 << 7), Rule::LeafLevel),
        (without_1g.broken(page, 2, |entry| entry | 1 << 7), Rule::LeafLevel),
        (blocks.broken(VA, 1, |entry| entry | 1 << 13), Rule::MisalignedLeaf { bits: 1 << 13 }),
        (without_xd.broken(VA, 1, |entry| entry | 1 << 63), Rule::Reserved { bits: 1 << 63 }),
    ]
}

fn arm64() -> Vec<Case> {
    let format = Arm64Stage1::new(Granule::K4, 48);
    let (pages, blocks) = (Image::pages(format), Image::blocks(format));
    let (group, blocks_of_a_group) = (Image::group(format, 0), Image::group(format, 1));
    let stage2 = Image::pages(Arm64Stage2::new(Granule::K16, 40));
    let small = Image::pages(format.with_physical_bits(40));
    let small_wide = Image::pages(Arm64Stage1::new(Granule::K16, 52).with_physical_bits(48));
    let small_stage2 = Image::pages(Arm64Stage2::new(Granule::K4, 40).with_physical_bits(40));
    let wide = Arm64Stage1::new(Granule::K64, 52);
    let largest = Image::of(wide, InputAddress(1 << 42), OutputAddress(1 << 44), 1 << 42, Sizes::BEST);
    let (page, block) = (VA + 0x5000, VA + (5 << 21));
    let contiguous = 1 << 52;
    vec![
        (pages.broken(page, 0, |entry| entry & !2), Rule::PageType),
        (stage2.broken(VA, 0, |entry| entry | 1 << 12), Rule::Ignored { bits: 1 << 12 }),
        (pages.broken(page, 3, |entry| entry & !2), Rule::LeafLevel),
        (pages.broken(page, 0, |entry| entry & !(3 << 8) | 1 << 8), Rule::Shareability),
        (blocks.broken(VA, 1, |entry| entry | 1 << 17), Rule::MisalignedLeaf { bits: 1 << 17 }),
        (stage2.broken(VA, 0, |entry| entry & !(0xf << 2) | 0b1000 << 2), Rule::MemoryType),
        (largest.broken(InputAddress(1 << 42), 2, |entry| entry | contiguous), Rule::GroupLevel),
        (group.broken(page, 0, |entry| entry & !contiguous), Rule::GroupIncomplete),
        (group.broken(page, 0, |_| 0), Rule::GroupIncomplete),
        (pages.broken(page, 0, |entry| entry | contiguous), Rule::GroupIncomplete),
        (blocks_of_a_group.broken(block, 1, |_| 0), Rule::GroupIncomplete),
        (group.broken(page, 0, |entry| entry ^ 1 << 16), Rule::GroupAddresses),
        (blocks_of_a_group.broken(VA, 1, |entry| entry ^ 1 << 30), Rule::GroupAddresses),
        // AP[2], UXN, nG and the memory type.
        (group.broken(page, 0, |entry| entry ^ 1 << 7), Rule::GroupAttributes),
        (group.broken(VA, 0, |entry| entry ^ 1 << 54), Rule::GroupAttributes),
        (small.broken(page, 0, |entry| entry | 1 << 40), too_large(1 << 40 | (PA + 0x5000).0)),
        (small_wide.broken(VA, 0, |entry| entry | 1 << 9), too_large(1 << 51 | PA.0)),
        (small_stage2.broken(page, 0, |entry| entry | 1 << 47), too_large(1 << 47 | (PA + 0x5000).0)),
        (group.broken(page, 0, |entry| entry ^ 1 << 11), Rule::GroupAttributes),
        (blocks_of_a_group.broken(block, 1, |entry| entry ^ 1 << 2), Rule::GroupAttributes),
    ]
}

fn riscv() -> Vec<Case> {
    let format = RiscV::new(4, Stage::Supervisor).with_napot().with_memory_types();
    let (pages, blocks, group) = (Image::pages(format), Image::blocks(format), Image::group(format, 0));
    let guest = Image::pages(RiscV::new(3, Stage::Guest));
    let without_napot = Image::pages(RiscV::new(3, Stage::Supervisor));
    let page = VA + 0x5000;
    let small = Image::pages(format.with_physical_bits(40));
    let table = small.format.table_address(small.entry(page, 1).1);
    let napot = 1u64 << 63;
    vec![
        (pages.broken(page, 0, |entry| entry & !0xfe), Rule::TableAtLeafLevel),
        (pages.broken(page, 0, |entry| entry & !(1 << 1)), Rule::WriteWithoutRead),
        (pages.broken(page, 0, |entry| entry | 1 << 54), Rule::Reserved { bits: 1 << 54 }),
        (pages.broken(page, 0, |entry| entry | 3 << 61), Rule::MemoryType),
        (pages.broken(page, 0, |entry| entry | napot), Rule::NapotPattern),
        (blocks.broken(VA, 1, |entry| entry | napot), Rule::NapotPattern),
        (without_napot.broken(page, 0, |entry| entry | napot), Rule::Reserved { bits: napot }),
        (blocks.broken(VA, 1, |entry| entry | 1 << 10), Rule::MisalignedLeaf { bits: 1 << 12 }),
        (pages.broken(page, 1, |entry| entry | napot), Rule::LeafBitInTable { bits: napot }),
        (pages.broken(page, 2, |entry| entry | 1 << 62), Rule::LeafBitInTable { bits: 1 << 62 }),
        (pages.broken(page, 1, |entry| entry | 1 << 4), Rule::Reserved { bits: 1 << 4 }),
        (guest.broken(page, 0, |entry| entry & !(1 << 4)), Rule::GuestWithoutUser),
        (small.broken(page, 0, |entry| entry | 1 << 38), too_large(1 << 40 | (PA + 0x5000).0)),
        (small.broken(page, 1, |entry| entry | 1 << 53), too_large(1 << 55 | table.0)),
        (group.broken(page, 0, |_| 0), Rule::GroupIncomplete),
        (group.broken(page, 0, |entry| entry & !napot), Rule::GroupIncomplete),
        (group.broken(page, 0, |entry| entry ^ 1 << 14), Rule::GroupAddresses),
        (group.broken(page, 0, |entry| entry ^ 1 << 3), Rule::GroupAttributes),
        (group.broken(page, 0, |entry| entry | 1 << 61), Rule::GroupAttributes),
    ]
}

fn software_64k() -> Vec<Case> {
    let (pages, blocks) = (Image::pages(Software64K::new(3, false)), Image::blocks(Software64K::new(4, false)));
    let napot = Image::pages(Software64K::new(3, true));
    let (page, block) = (VA + 0x5000, VA + (5 << 21));
    let spare = pages.format.table(pages.spare());
    vec![
        (pages.broken(page, 0, |_| 0), Rule::RunIncomplete),
        (pages.broken(page, 0, |entry| entry ^ 1 << 3), Rule::RunIncomplete),
        (pages.broken(page, 0, |entry| entry ^ 1 << 30), Rule::RunAddresses),
        (pages.broken(block, 1, |_| 0), Rule::RunIncomplete),
        (pages.broken(block, 1, |_| spare), Rule::RunAddresses),
        (blocks.broken(block, 1, |_| 0), Rule::RunIncomplete),
        (blocks.broken(block, 1, |entry| entry ^ 1 << 30), Rule::RunAddresses),
        (napot.broken(page, 0, |_| 0), Rule::GroupIncomplete),
        (napot.broken(page, 0, |entry| entry ^ 1 << 14), Rule::GroupAddresses),
        (napot.broken(page, 0, |entry| entry ^ 1 << 3), Rule::GroupAttributes),
        (napot.broken(block, 1, |_| 0), Rule::RunIncomplete),
    ]
}

/// A match over every rule, so that a new rule cannot be forgotten; `false` for rules about tables, which apply to
/// every format.
fn is_of_entries(rule: Rule) -> bool {
    match rule {
        Rule::Reserved { .. }
        | Rule::LeafLevel
        | Rule::PageType
        | Rule::Ignored { .. }
        | Rule::TableAtLeafLevel
        | Rule::MisalignedLeaf { .. }
        | Rule::AddressTooLarge { .. }
        | Rule::WriteWithoutRead
        | Rule::LeafBitInTable { .. }
        | Rule::NapotPattern
        | Rule::GuestWithoutUser
        | Rule::MemoryType
        | Rule::Shareability
        | Rule::ShadowStack
        | Rule::GroupIncomplete
        | Rule::GroupAddresses
        | Rule::GroupAttributes
        | Rule::GroupLevel
        | Rule::RunIncomplete
        | Rule::RunAddresses => true,
        Rule::TableOutside { .. } | Rule::Loop { .. } | Rule::SharedTable { .. } | Rule::RootAlignment { .. } => false,
    }
}

const RULES_OF_ENTRIES: usize = 20;

#[test]
fn finds_each_broken_rule_at_its_entry() {
    let cases = [x86(), arm64(), riscv(), software_64k()].concat();
    for (found, broken) in &cases {
        assert_eq!(found, broken);
    }
    let names: BTreeSet<&str> = cases.iter().filter(|case| is_of_entries(case.1)).map(|case| case.1.name()).collect();
    assert_eq!(names.len(), RULES_OF_ENTRIES, "{names:?}");
}

/// The one broken rule, without the faults that result from changing only one of sixteen hardware entries.
fn only<F: Format>(image: &Image<F>, va: InputAddress, change: impl FnOnce(u64) -> u64) -> Rule {
    let (faults, pa, entry) = image.faults_of(va, 1, change);
    let of_run = |fault: &&Fault| image.format.run_bits() != 0 && fault.rule == Rule::RunAddresses;
    let others: Vec<&Fault> = faults.iter().filter(|fault| !of_run(fault)).collect();
    let [fault] = others.as_slice() else { panic!("{:?}: expected one fault\n{}", image.format, lines(&others)) };
    assert_eq!((fault.pa, fault.entry, fault.va, fault.level), (pa, entry, va, 1));
    fault.rule
}

fn tables_are_a_tree_in_memory<F: Format>(format: F) {
    let image = Image::pages(format);
    let va = format.geometry().extended(VA.0);
    let second = va + format.geometry().span(1);
    let first_table = format.table_address(image.entry(va, 1).1);
    let outside = image.spare() + SPARE_BYTES as u64;
    let found = |table: OutputAddress| only(&image, second, |_| format.table(table));
    assert_eq!(found(outside), Rule::TableOutside { pa: outside });
    assert_eq!(found(image.root), Rule::Loop { pa: image.root });
    assert_eq!(found(first_table), Rule::SharedTable { pa: first_table });
    let pa = OutputAddress(0);
    assert_eq!(Rule::SharedTable { pa }.severity(), Severity::Warning);
    assert!(![Rule::Loop { pa }, Rule::TableOutside { pa }].into_iter().any(is_of_entries));
}

#[test]
fn tables_outside_with_two_parents_or_in_a_loop_are_found() {
    for_every_format!(tables_are_a_tree_in_memory);
}

fn checks_the_position_of_the_root<F: Format>(format: F) {
    let empty = Arena::from_image(BASE, &vec![0; 512 << 10]).unwrap();
    let rules = |root| check_arena(&format, &empty, root).faults.iter().map(|fault| fault.rule).collect::<Vec<_>>();
    let geometry = format.geometry();
    let to = format.root_alignment();
    assert!(to >= geometry.table_bytes(geometry.root_level()), "{format:?}");
    assert_eq!(rules(BASE), [], "{format:?}");
    assert_eq!(rules(BASE + to / 2), [Rule::RootAlignment { to }]);
    let before = OutputAddress(BASE.0 - to);
    assert_eq!(rules(before), [Rule::TableOutside { pa: before }]);
    let past = 1 << geometry.output_bits();
    assert_eq!(rules(OutputAddress(past)), [too_large(past)]);
    assert_eq!(rules(OutputAddress(u64::MAX)), [Rule::RootAlignment { to }, too_large(u64::MAX)]);
}

#[test]
fn finds_invalid_roots() {
    for_every_format!(checks_the_position_of_the_root);
}

/// Hardware state and software bits may differ within a group and a run.
#[test]
fn accepts_permitted_differences_within_a_group() {
    let page = VA + 0x5000;
    let clean = |(faults, ..): (Vec<Fault>, OutputAddress, u64)| assert!(faults.is_empty(), "{}", lines(&faults));
    let arm64 = Image::group(Arm64Stage1::new(Granule::K4, 48).with_hardware_dirty(), 0);
    clean(arm64.faults_of(page, 0, |entry| entry ^ 1 << 10));
    clean(arm64.faults_of(page, 0, |entry| entry ^ 1 << 7));
    clean(arm64.faults_of(page, 0, |entry| entry ^ 1 << 55));
    let riscv = Image::group(RiscV::new(3, Stage::Supervisor).with_napot(), 0);
    clean(riscv.faults_of(page, 0, |entry| entry ^ 1 << 6));
    clean(riscv.faults_of(page, 0, |entry| entry ^ 1 << 7));
    clean(riscv.faults_of(page, 0, |entry| entry ^ 3 << 8));
    let software = Image::pages(Software64K::new(3, false));
    clean(software.faults_of(page, 0, |entry| entry ^ 3 << 6));
}

/// If all sixteen entries of a group break a rule in the same way, that is one fault.
#[test]
fn reports_a_fault_of_a_whole_group_once() {
    let image = Image::group(Arm64Stage1::new(Granule::K4, 48), 0);
    let (first, _) = image.entry(VA, 0);
    let faults_after = |change: &dyn Fn(u64) -> u64| {
        let mut arena = image.arena();
        for index in 0..16 {
            let entry = arena.entry_mut(first + index * ENTRY_BYTES).unwrap();
            *entry = change(*entry);
        }
        check_arena(&image.format, &arena, image.root).faults
    };
    let shareability = faults_after(&|entry| entry & !(3 << 8) | 1 << 8);
    assert_eq!(
        shareability.iter().map(|fault| (fault.rule, fault.pa)).collect::<Vec<_>>(),
        [(Rule::Shareability, first)]
    );
    let misaligned = faults_after(&|entry| entry + 0x1000);
    assert_eq!(
        misaligned.iter().map(|fault| (fault.rule, fault.pa)).collect::<Vec<_>>(),
        [(Rule::GroupAddresses, first)]
    );
}

#[test]
fn counts_are_those_of_the_mapping() {
    let pages = Image::pages(X86_64::new(4, 46));
    assert_eq!((pages.good.tables, pages.good.leaves.clone()), (5, [(0x1000, 1024)].into()));
    let group = Image::group(Arm64Stage1::new(Granule::K16, 48), 1);
    assert_eq!((group.good.tables, group.good.leaves.clone()), (3, [(32 << 20, 32)].into()));
}

/// Each table points with all its entries to the next one: there are 512 to the fourth power paths to the last.
#[test]
fn checks_tables_with_many_parents_once() {
    let format = RiscV::new(5, Stage::Supervisor);
    let next = |table: u64| format.table(BASE + (table + 1) * 4096);
    let mut entries: Vec<u64> = (0..4).flat_map(|table| [next(table); 512]).collect();
    entries.resize(5 * 512, 0);
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    let report = check_arena(&format, &Arena::from_image(BASE, &bytes).unwrap(), BASE);
    assert_eq!((report.tables, report.faults.len()), (5, MAX_FAULTS));
    assert_eq!(report.unlisted_warnings as usize, 4 * 511 - MAX_FAULTS);
    assert!(report.is_legal());
}
