//! Handwritten steps at one position of tables that no operation of the engine would take.

use paging::check::live::{Violation, ViolationKind, check};
use paging::format::BreakLevel;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::riscv::{RiscV, Stage};
use paging::format::x86_64::X86_64;
use paging::{Event, Format, InputAddress, OutputAddress};

use crate::wrong_sequences::{PA, VA, replayed};
use crate::{data, lines};

/// Handwritten steps at one position of tables.
struct Steps<F> {
    format: F,
    events: Vec<Event>,
}

impl<F: Format> Steps<F> {
    fn new(format: F) -> Steps<F> {
        Steps { format, events: Vec::new() }
    }

    fn write(mut self, level: u8, index: u64, new: u64) -> Self {
        let va = VA + index * self.format.geometry().span(level);
        let pa = OutputAddress((1 << 30) + (u64::from(level) << 20) + index * 8);
        self.events.push(Event::Write { pa, va, level, old: 0, new });
        self
    }

    fn invalidate(mut self, level: u8, tables: bool) -> Self {
        self.events.push(Event::Invalidate { va: VA, bytes: self.format.geometry().span(level), tables });
        self
    }

    #[track_caller]
    fn found(self, expected: &[ViolationKind]) {
        let violations = check(&self.format, &replayed(&self.events));
        let found: Vec<ViolationKind> = violations.iter().map(|violation| violation.kind).collect();
        assert_eq!(found, expected, "{}", lines(&violations));
    }

    fn leaf(&self, level: u8, pa: OutputAddress) -> u64 {
        self.format.leaf(level, data(&self.format), false).unwrap() | self.format.address_bits(level, pa.0, false)
    }
}

/// FEAT_BBM level 1: no TLB may hold a block with nT, but one may still hold the block as it was before.
#[test]
fn nt_helps_only_after_an_invalidation() {
    let steps = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::One));
    let (block, table) = (steps().leaf(1, PA), steps().format.table(OutputAddress(1 << 31)));
    let no_tlb = block | 1 << 16;
    let split = || steps().write(1, 0, block).write(1, 0, no_tlb);
    split().invalidate(1, false).write(1, 0, table).invalidate(1, true).found(&[]);
    split().write(1, 0, table).invalidate(1, true).found(&[ViolationKind::NotInvalidated]);
    steps().write(1, 0, block).write(1, 0, table).invalidate(1, true).found(&[ViolationKind::NoBreak]);
    let collapse = || steps().write(1, 0, table).write(1, 0, no_tlb);
    collapse().invalidate(1, true).write(1, 0, block).found(&[]);
    collapse().write(1, 0, block).invalidate(1, true).found(&[ViolationKind::NotInvalidated]);
    collapse()
        .invalidate(1, false)
        .write(1, 0, block)
        .found(&[ViolationKind::LastLevelOnly, ViolationKind::LastLevelOnly]);
}

/// FEAT_BBM level 2: two sizes for the same memory may be cached together, but not two different memories.
#[test]
fn two_sizes_may_be_cached_only_for_the_same_memory() {
    let steps = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::Two));
    let (block, table) = (steps().leaf(1, PA), steps().format.table(OutputAddress(1 << 31)));
    let page = |pa| steps().leaf(0, pa);
    let split = || steps().write(1, 0, block).write(1, 0, table);
    split().write(0, 3, page(PA + 0x3000)).invalidate(1, false).found(&[]);
    split().invalidate(1, false).write(0, 3, page(PA)).found(&[]);
    split().write(0, 3, page(PA)).invalidate(1, false).found(&[ViolationKind::OtherSizeStale]);
    let collapse = |pa| steps().write(1, 0, table).write(0, 3, page(pa)).write(1, 0, block);
    collapse(PA + 0x3000).invalidate(1, true).found(&[]);
    collapse(PA).invalidate(1, true).found(&[ViolationKind::OtherSizeStale]);
}

#[test]
fn other_memory_and_other_attributes_need_a_break_on_arm64_and_a_fence_elsewhere() {
    let arm64 = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::Two));
    let (page, other) = (arm64().leaf(0, PA), arm64().leaf(0, OutputAddress(2 * PA.0)));
    arm64().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[ViolationKind::NoBreak]);
    arm64()
        .write(0, 0, page)
        .write(0, 0, 0)
        .write(0, 0, other)
        .invalidate(0, false)
        .found(&[ViolationKind::NotInvalidated]);
    arm64().write(0, 0, page).write(0, 0, 0).invalidate(0, false).write(0, 0, other).found(&[]);
    // Changes of AttrIndx, of AP[2], and setting AF.
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 2).invalidate(0, false).found(&[ViolationKind::NoBreak]);
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 7).invalidate(0, false).found(&[]);
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 7).found(&[ViolationKind::NeverInvalidated]);
    arm64().write(0, 0, page & !(1 << 10)).write(0, 0, page).found(&[]);
    // A stale value that matches the new entry again need not be invalidated.
    arm64().write(0, 0, page).write(0, 0, 0).write(0, 0, page).found(&[]);
    let x86 = || Steps::new(X86_64::new(4, 46));
    let (page, other) = (x86().leaf(0, PA), x86().leaf(0, OutputAddress(2 * PA.0)));
    x86().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[]);
    x86().write(0, 0, page).write(0, 0, other).found(&[ViolationKind::NeverInvalidated]);
    x86().write(0, 0, page & !2).write(0, 0, page).found(&[]);
    let riscv = || Steps::new(RiscV::new(3, Stage::Supervisor));
    let (page, other) = (riscv().leaf(0, PA), riscv().leaf(0, OutputAddress(2 * PA.0)));
    riscv().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[]);
    riscv().write(0, 0, page).write(0, 0, other).found(&[ViolationKind::NeverInvalidated]);
}

#[test]
fn a_group_is_changed_as_a_whole() {
    let format = Arm64Stage1::new(Granule::K4, 48);
    let steps = || Steps::new(format);
    let member = |index: u64| steps().leaf(0, PA + (index << 12)) | 1 << 52;
    let group = || (0..16).fold(steps(), |steps, index| steps.write(0, index, member(index)));
    group().found(&[]);
    // Only a part of the group is made read-only.
    let some = (0..15).fold(group(), |steps, index| steps.write(0, index, member(index) | 1 << 7));
    some.invalidate(1, false).found(&[ViolationKind::GroupMixed]);
    let all = (0..16).fold(group(), |steps, index| steps.write(0, index, member(index) | 1 << 7));
    all.invalidate(1, false).found(&[]);
    // Each entry is broken and invalidated, but separately instead of as a group.
    let one = group().write(0, 0, 0).invalidate(1, false).write(0, 0, steps().leaf(0, PA));
    one.found(&[ViolationKind::GroupMixed, ViolationKind::NoGroupBreak]);
    // Pages in the place of a group that a TLB may still hold.
    let pages = (0..3).fold(steps(), |steps, index| {
        let page = steps.leaf(0, PA + (index << 12));
        steps.write(0, index, page).write(0, index, 0)
    });
    pages
        .write(0, 5, member(6))
        .invalidate(1, false)
        .found(&[ViolationKind::GroupNotInvalidated, ViolationKind::GroupMixed]);
    let napot = RiscV::new(3, Stage::Supervisor).with_napot();
    let steps = || Steps::new(napot);
    let member = napot.leaf(0, data(&napot), true).unwrap() | napot.address_bits(0, PA.0, true);
    let group = || (0..16).fold(steps(), |steps, index| steps.write(0, index, member));
    group().found(&[]);
    let unmapped = (0..16).fold(group(), |steps, index| steps.write(0, index, 0));
    unmapped.invalidate(1, false).write(0, 3, steps().leaf(0, OutputAddress(0))).found(&[]);
    let unfenced = (0..16).fold(group(), |steps, index| steps.write(0, index, 0));
    let unfenced = unfenced.invalidate(0, false).write(0, 3, steps().leaf(0, PA));
    unfenced.found(&[ViolationKind::NotInvalidated, ViolationKind::NeverInvalidated]);
}

#[test]
fn a_table_is_not_linked_elsewhere_while_it_may_be_walked() {
    let steps = || Steps::new(X86_64::new(4, 46));
    let table = steps().format.table(OutputAddress(1 << 31));
    let unlinked = || steps().write(1, 0, table).write(1, 0, 0);
    unlinked().invalidate(1, true).write(1, 7, table).found(&[]);
    unlinked().write(1, 7, table).invalidate(1, true).found(&[ViolationKind::ReusedTooEarly]);
    unlinked().invalidate(1, false).found(&[ViolationKind::LastLevelOnly]);
    unlinked().found(&[ViolationKind::NeverInvalidated]);
}

#[test]
fn finds_changes_that_a_log_omits() {
    let format = X86_64::new(4, 46);
    let leaf = format.leaf(0, data(&format), false).unwrap();
    let write = |pa, va, level, old, new| {
        let (pa, va) = (OutputAddress(pa), InputAddress(va));
        Event::Write { pa, va, level, old, new }
    };
    let broken = |events: &[Event]| check(&format, events).iter().map(|one| one.kind).collect::<Vec<_>>();
    assert_eq!(
        broken(&[write(8, 0, 0, 0, leaf), write(8, 0, 0, leaf | 0x60, leaf)]),
        [ViolationKind::NeverInvalidated]
    );
    let unlogged = [write(8, 0, 0, 0, leaf), write(8, 0, 0, 0, leaf)];
    assert_eq!(broken(&unlogged), [ViolationKind::UnloggedChange]);
    let nowhere = [write(4, 0, 0, 0, 1), write(8, 1, 0, 0, 1), write(8, 0, 9, 0, 1), write(8, 1 << 60, 0, 0, 1)];
    assert_eq!(broken(&nowhere), [ViolationKind::InvalidEntry; 4]);
    let everything = Event::Invalidate { va: InputAddress(u64::MAX), bytes: u64::MAX, tables: true };
    let release = Event::Release { pa: OutputAddress(u64::MAX), bytes: u64::MAX };
    assert_eq!(broken(&[everything, release]), []);
}

#[test]
fn a_violation_reports_its_position_and_kind() {
    let steps = Steps::new(Arm64Stage1::new(Granule::K4, 48));
    let page = steps.leaf(0, PA);
    let events = steps.write(0, 2, page).write(0, 2, 0).write(0, 2, page ^ 1 << 2).invalidate(1, false).events;
    let expected = Violation {
        step: 2,
        kind: ViolationKind::NotInvalidated,
        level: 0,
        pa: OutputAddress((1 << 30) + 16),
        va: VA + 0x2000,
        old: page,
        new: page ^ 1 << 2,
        entries: 1,
    };
    assert_eq!(check(&Arm64Stage1::new(Granule::K4, 48), &replayed(&events)), [expected]);
    let message = expected.to_string();
    assert!(
        message.starts_with("step 2: not-invalidated: the entry at 0x40000010 (level 0, for 0x40002000)"),
        "{message}"
    );
}
