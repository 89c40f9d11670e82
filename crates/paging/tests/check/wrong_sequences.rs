//! Right sequences of steps, made wrong on purpose: every way to make them wrong is found.

use std::collections::{BTreeMap, BTreeSet};

use paging::check::live::{Broken, Violation, check};
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::riscv::{RiscV, Stage};
use paging::format::x86_64::X86_64;
use paging::format::{BreakLevel, Discipline};
use paging::{Attributes, Event, Flags, Format, Mapping, Sizes, Tables};

use crate::formats::for_every_format;
use crate::{data, lines};

const VA: u64 = 0x4000_0000;
const PA: u64 = 0x8_0000_0000;

/// One operation on live tables, as steps that can be made wrong.
#[derive(Clone)]
struct Change<F> {
    format: F,
    what: &'static str,
    /// How the tables came to be.
    before: Vec<Event>,
    steps: Vec<Event>,
}

impl<F: Format> Change<F> {
    /// The operation `act` on what `bytes` of leaves of at most `largest_bytes` map, after `prepare`.
    fn new(
        format: F,
        what: &'static str,
        (bytes, sizes): (u64, Sizes),
        prepare: impl Fn(&mut Tables<F, Vec<Event>>, u64),
        act: impl Fn(&mut Tables<F, Vec<Event>>, u64),
    ) -> Change<F> {
        let va = format.geometry().extended(VA);
        let mut tables = Tables::with_log(format, 1 << 30, 1 << 30, Vec::new()).unwrap();
        let attributes = data(&format);
        // Another table stays in use, so that only what is meant becomes empty.
        let unit = format.geometry().page_bytes() << format.run_bits();
        let far = va + (format.geometry().span(1) << format.run_bits().max(format.group_bits_at(1)));
        tables.map(&Mapping { va: far, pa: 2 * PA, bytes: unit, attributes, sizes: Sizes::up_to(unit) }).unwrap();
        tables.map(&Mapping { va, pa: PA, bytes, attributes, sizes }).unwrap();
        prepare(&mut tables, va);
        let before = tables.log().clone();
        act(&mut tables, va);
        let steps = tables.log()[before.len()..].to_vec();
        assert!(!steps.is_empty(), "{format:?}: {what}");
        let change = Change { format, what, before, steps };
        let violations = change.violations(&change.steps);
        assert!(violations.is_empty(), "{format:?}: {what}\n{}", lines(&violations));
        change
    }

    /// What is wrong with `steps`, if their old values are those that a replay leaves.
    fn violations(&self, steps: &[Event]) -> Vec<Violation> {
        check(&self.format, &replayed(&[self.before.as_slice(), steps].concat()))
    }

    #[track_caller]
    fn assert_wrong(&self, steps: &[Event], how: &str) -> BTreeSet<Broken> {
        let violations = self.violations(steps);
        assert!(!violations.is_empty(), "{:?}: {} {how}: nothing was found\n{steps:#x?}", self.format, self.what);
        assert!(violations.iter().all(|violation| violation.step >= self.before.len()), "{}", lines(&violations));
        violations.iter().map(|violation| violation.broken).collect()
    }

    fn without(&self, index: usize) -> Vec<Event> {
        let mut steps = self.steps.clone();
        steps.remove(index);
        steps
    }

    fn moved(&self, from: usize, to: usize) -> Vec<Event> {
        let mut steps = self.steps.clone();
        let step = steps.remove(from);
        steps.insert(to, step);
        steps
    }

    fn with(&self, index: usize, step: Event) -> Vec<Event> {
        let mut steps = self.steps.clone();
        steps[index] = step;
        steps
    }
}

/// The same events with the old values that the ones before leave.
fn replayed(events: &[Event]) -> Vec<Event> {
    let mut memory = BTreeMap::new();
    let events = events.iter().map(|event| match *event {
        Event::Write { pa, va, level, old, new } => {
            let old = memory.insert(pa, new).unwrap_or(old);
            Event::Write { pa, va, level, old, new }
        }
        // Whoever gets the memory next finds it empty.
        Event::Release { pa, bytes } => {
            memory.retain(|entry, _| !(pa..pa + bytes).contains(entry));
            Event::Release { pa, bytes }
        }
        invalidate => invalidate,
    });
    events.collect()
}

/// Every operation that a format has, with whether the architecture asks that what it replaces is a hole and
/// invalidated before.
fn changes<F: Format>(format: F) -> Vec<(Change<F>, bool)> {
    let geometry = format.geometry();
    let unit = geometry.page_bytes() << format.run_bits();
    let block = geometry.span(1) << format.run_bits();
    let pages = (16 * unit, Sizes::up_to(unit));
    let blocks = (block, Sizes::up_to(block));
    let read_only = Attributes { flags: data(&format).flags - Flags::WRITE, ..data(&format) };
    let arm64 = matches!(
        format.discipline(),
        Discipline::BreakBeforeMake(BreakLevel::Zero) | Discipline::BreakBeforeMake(BreakLevel::One)
    );
    let nothing = |_: &mut Tables<F, Vec<Event>>, _| {};
    let mut changes = vec![
        (Change::new(format, "unmap pages", pages, nothing, |tables, va| tables.unmap(va, 16 * unit).unwrap()), false),
        (Change::new(format, "unmap some", pages, nothing, |tables, va| tables.unmap(va, 8 * unit).unwrap()), false),
        (Change::new(format, "unmap a block", blocks, nothing, |tables, va| tables.unmap(va, block).unwrap()), false),
        (
            Change::new(format, "protect", blocks, nothing, |tables, va| tables.protect(va, block, read_only).unwrap()),
            false,
        ),
        (Change::new(format, "split", blocks, nothing, |tables, va| tables.split(va).unwrap()), arm64),
        (
            Change::new(
                format,
                "collapse",
                blocks,
                |tables, va| tables.split(va).unwrap(),
                |tables, va| tables.collapse(va, 1).unwrap(),
            ),
            arm64,
        ),
        (
            Change::new(
                format,
                "unmap what was split",
                blocks,
                |tables, va| tables.split(va).unwrap(),
                |tables, va| tables.unmap(va, block).unwrap(),
            ),
            false,
        ),
    ];
    let group_bits = format.group_bits_at(0);
    if group_bits != 0 && format.run_bits() == 0 {
        let bytes = geometry.page_bytes() << group_bits;
        let needs_break = arm64 || format.discipline() == Discipline::FenceGroups;
        let (alone, group) = ((bytes, Sizes::up_to(unit)), (bytes, Sizes::BEST));
        changes.extend([
            (Change::new(format, "fold", alone, nothing, |tables, va| tables.fold(va).unwrap()), needs_break),
            (Change::new(format, "unfold", group, nothing, |tables, va| tables.unfold(va).unwrap()), needs_break),
            (
                Change::new(format, "protect a group", group, nothing, |tables, va| {
                    tables.protect(va, bytes, read_only).unwrap();
                }),
                format.discipline() == Discipline::FenceGroups,
            ),
        ]);
    }
    changes
}

/// Invalidations that are left out, that come too early, or that cover too little.
fn invalidations_matter<F: Format>(format: F) {
    for (change, needs_break) in changes(format) {
        for (index, step) in change.steps.iter().copied().enumerate() {
            let Event::Invalidate { va, bytes, tables } = step else { continue };
            // One for the whole range follows what was broken, invalidated and made already.
            if needs_break && change.what == "protect a group" && index + 1 == change.steps.len() {
                continue;
            }
            change.assert_wrong(&change.without(index), "without an invalidation");
            change.assert_wrong(&change.moved(index, 0), "with the invalidation first");
            let half = bytes / 2;
            for va in [va, va + half] {
                let small = Event::Invalidate { va, bytes: half, tables };
                change.assert_wrong(&change.with(index, small), "with half an invalidation");
            }
            let last_level = Event::Invalidate { va, bytes, tables: false };
            if tables {
                let found = change.assert_wrong(&change.with(index, last_level), "invalidated for the last level");
                assert!(found.contains(&Broken::LastLevelOnly), "{format:?}: {}: {found:?}", change.what);
            }
        }
    }
}

#[test]
fn a_wrong_invalidation_is_found() {
    for_every_format!(invalidations_matter);
}

/// Tables that are given back while they are linked, or before the invalidation.
fn releases_matter<F: Format>(format: F) {
    let mut released = 0;
    for (change, _) in changes(format) {
        let is_invalidation = |step: &Event| matches!(step, Event::Invalidate { .. });
        let Some(invalidation) = change.steps.iter().position(is_invalidation) else { continue };
        for (index, step) in change.steps.iter().enumerate() {
            let Event::Release { pa, bytes } = *step else { continue };
            released += 1;
            let found =
                change.assert_wrong(&change.moved(index, invalidation), "with a release before the invalidation");
            assert!(found.contains(&Broken::ReusedTooEarly), "{format:?}: {}: {found:?}", change.what);
            let found = change.assert_wrong(&change.moved(index, 0), "with a release before all");
            assert!(found.contains(&Broken::ReleasedReachable), "{format:?}: {}: {found:?}", change.what);
            let unlinks = |step: &Event| match *step {
                Event::Write { level, old, .. } if level > 0 => {
                    (pa..pa + bytes).contains(&format.table_address(old)) && old != 0
                }
                _ => false,
            };
            let linked: Vec<Event> = change.steps.iter().filter(|step| !unlinks(step)).copied().collect();
            if linked.len() < change.steps.len() && change.what.starts_with("unmap") {
                let found = change.assert_wrong(&linked, "without the table being unlinked");
                assert!(found.contains(&Broken::ReleasedReachable), "{format:?}: {}: {found:?}", change.what);
            }
        }
    }
    assert!(released >= 3, "{format:?}");
}

#[test]
fn a_release_too_early_is_found() {
    for_every_format!(releases_matter);
}

/// Entries that are written over without a break.
fn breaks_matter<F: Format>(format: F) {
    for (change, needs_break) in changes(format) {
        let holes = change.steps.iter().enumerate().filter_map(|(index, step)| match *step {
            Event::Write { pa, new: 0, .. } => Some((index, pa)),
            _ => None,
        });
        let is_made = |pa: u64| {
            let makes = |step: &&Event| matches!(**step, Event::Write { pa: at, new, .. } if at == pa && new != 0);
            change.steps.iter().any(|step| makes(&step))
        };
        let mut broken = 0;
        for (index, _) in holes.filter(|(_, pa)| is_made(*pa)) {
            broken += 1;
            if needs_break {
                let found = change.assert_wrong(&change.without(index), "without a break");
                assert!(
                    found.iter().any(|broken| matches!(broken, Broken::NotBroken | Broken::GroupNotBroken)),
                    "{format:?}: {}: {found:?}",
                    change.what
                );
            }
        }
        assert!(broken > 0 || !needs_break, "{format:?}: {}: nothing is broken", change.what);
    }
}

#[test]
fn a_missing_break_is_found() {
    for_every_format!(breaks_matter);
}

fn arm64_at_every_level(check: impl Fn(Arm64Stage1)) {
    for level in [BreakLevel::Zero, BreakLevel::One, BreakLevel::Two] {
        for granule in [Granule::K4, Granule::K16, Granule::K64] {
            check(Arm64Stage1::new(granule, 48).with_break_level(level));
        }
    }
}

#[test]
fn wrong_sequences_are_found_at_every_level_of_bbm() {
    arm64_at_every_level(|format| {
        invalidations_matter(format);
        releases_matter(format);
        breaks_matter(format);
    });
}

/// The steps that are right where sizes may change without a break are wrong where not.
#[test]
fn what_bbm_level_2_allows_is_found_at_the_others() {
    for granule in [Granule::K4, Granule::K16, Granule::K64] {
        let format = Arm64Stage1::new(granule, 48);
        for (change, _) in changes(format.with_break_level(BreakLevel::Two)) {
            for (level, allowed) in [(BreakLevel::Zero, false), (BreakLevel::One, false), (BreakLevel::Two, true)] {
                let strict = Change { format: format.with_break_level(level), ..change.clone() };
                let mut violations = strict.violations(&strict.steps);
                violations.retain(|violation| violation.step >= strict.before.len());
                let resizes = ["split", "collapse", "fold", "unfold"].contains(&change.what);
                assert_eq!(
                    violations.is_empty(),
                    allowed || !resizes,
                    "{level:?} {}: {}",
                    change.what,
                    lines(&violations)
                );
            }
        }
    }
}

/// Steps at one place of tables, written by hand.
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
        let pa = (1 << 30) + (u64::from(level) << 20) + index * 8;
        self.events.push(Event::Write { pa, va, level, old: 0, new });
        self
    }

    fn invalidate(mut self, level: u8, tables: bool) -> Self {
        self.events.push(Event::Invalidate { va: VA, bytes: self.format.geometry().span(level), tables });
        self
    }

    #[track_caller]
    fn found(self, expected: &[Broken]) {
        let violations = check(&self.format, &replayed(&self.events));
        let found: Vec<Broken> = violations.iter().map(|violation| violation.broken).collect();
        assert_eq!(found, expected, "{}", lines(&violations));
    }

    fn leaf(&self, level: u8, pa: u64) -> u64 {
        self.format.leaf(level, data(&self.format), false).unwrap() | self.format.address_bits(level, pa, false)
    }
}

/// FEAT_BBM level 1: no TLB may hold a block with nT, but one may still hold the block as it was before.
#[test]
fn nt_is_of_use_only_after_an_invalidation() {
    let steps = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::One));
    let (block, table) = (steps().leaf(1, PA), steps().format.table(1 << 31));
    let no_tlb = block | 1 << 16;
    let split = || steps().write(1, 0, block).write(1, 0, no_tlb);
    split().invalidate(1, false).write(1, 0, table).invalidate(1, true).found(&[]);
    split().write(1, 0, table).invalidate(1, true).found(&[Broken::NotInvalidated]);
    steps().write(1, 0, block).write(1, 0, table).invalidate(1, true).found(&[Broken::NotBroken]);
    let collapse = || steps().write(1, 0, table).write(1, 0, no_tlb);
    collapse().invalidate(1, true).write(1, 0, block).found(&[]);
    collapse().write(1, 0, block).invalidate(1, true).found(&[Broken::NotInvalidated]);
    collapse().invalidate(1, false).write(1, 0, block).found(&[Broken::LastLevelOnly, Broken::LastLevelOnly]);
}

/// FEAT_BBM level 2: two sizes may be held together, two memories not.
#[test]
fn another_size_may_be_held_for_the_same_memory_only() {
    let steps = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::Two));
    let (block, table) = (steps().leaf(1, PA), steps().format.table(1 << 31));
    let page = |pa| steps().leaf(0, pa);
    let split = || steps().write(1, 0, block).write(1, 0, table);
    split().write(0, 3, page(PA + 0x3000)).invalidate(1, false).found(&[]);
    split().invalidate(1, false).write(0, 3, page(PA)).found(&[]);
    split().write(0, 3, page(PA)).invalidate(1, false).found(&[Broken::OtherSizeHeld]);
    let collapse = |pa| steps().write(1, 0, table).write(0, 3, page(pa)).write(1, 0, block);
    collapse(PA + 0x3000).invalidate(1, true).found(&[]);
    collapse(PA).invalidate(1, true).found(&[Broken::OtherSizeHeld]);
}

#[test]
fn other_memory_and_other_attributes_need_a_break_on_arm64_and_a_fence_elsewhere() {
    let arm64 = || Steps::new(Arm64Stage1::new(Granule::K4, 48).with_break_level(BreakLevel::Two));
    let (page, other) = (arm64().leaf(0, PA), arm64().leaf(0, 2 * PA));
    arm64().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[Broken::NotBroken]);
    arm64().write(0, 0, page).write(0, 0, 0).write(0, 0, other).invalidate(0, false).found(&[Broken::NotInvalidated]);
    arm64().write(0, 0, page).write(0, 0, 0).invalidate(0, false).write(0, 0, other).found(&[]);
    // AttrIndx; AP[2]; AF being set.
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 2).invalidate(0, false).found(&[Broken::NotBroken]);
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 7).invalidate(0, false).found(&[]);
    arm64().write(0, 0, page).write(0, 0, page ^ 1 << 7).found(&[Broken::NeverInvalidated]);
    arm64().write(0, 0, page & !(1 << 10)).write(0, 0, page).found(&[]);
    // What is right again need not be invalidated.
    arm64().write(0, 0, page).write(0, 0, 0).write(0, 0, page).found(&[]);
    let x86 = || Steps::new(X86_64::new(4, 46));
    let (page, other) = (x86().leaf(0, PA), x86().leaf(0, 2 * PA));
    x86().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[]);
    x86().write(0, 0, page).write(0, 0, other).found(&[Broken::NeverInvalidated]);
    x86().write(0, 0, page & !2).write(0, 0, page).found(&[]);
    let riscv = || Steps::new(RiscV::new(3, Stage::Supervisor));
    let (page, other) = (riscv().leaf(0, PA), riscv().leaf(0, 2 * PA));
    riscv().write(0, 0, page).write(0, 0, other).invalidate(0, false).found(&[]);
    riscv().write(0, 0, page).write(0, 0, other).found(&[Broken::NeverInvalidated]);
}

#[test]
fn a_group_is_changed_as_a_whole() {
    let format = Arm64Stage1::new(Granule::K4, 48);
    let steps = || Steps::new(format);
    let member = |index: u64| steps().leaf(0, PA + (index << 12)) | 1 << 52;
    let group = || (0..16).fold(steps(), |steps, index| steps.write(0, index, member(index)));
    group().found(&[]);
    // Only a part is made read-only.
    let some = (0..15).fold(group(), |steps, index| steps.write(0, index, member(index) | 1 << 7));
    some.invalidate(1, false).found(&[Broken::GroupMixed]);
    let all = (0..16).fold(group(), |steps, index| steps.write(0, index, member(index) | 1 << 7));
    all.invalidate(1, false).found(&[]);
    // Each entry is broken and invalidated, but for itself and not for the group.
    let one = group().write(0, 0, 0).invalidate(1, false).write(0, 0, steps().leaf(0, PA));
    one.found(&[Broken::GroupMixed, Broken::GroupNotBroken]);
    // Pages that a TLB may still hold, in the place of a group.
    let pages = (0..3).fold(steps(), |steps, index| {
        let page = steps.leaf(0, PA + (index << 12));
        steps.write(0, index, page).write(0, index, 0)
    });
    pages.write(0, 5, member(6)).invalidate(1, false).found(&[Broken::GroupNotInvalidated, Broken::GroupMixed]);
    let napot = RiscV::new(3, Stage::Supervisor).with_napot();
    let steps = || Steps::new(napot);
    let member = napot.leaf(0, data(&napot), true).unwrap() | napot.address_bits(0, PA, true);
    let group = || (0..16).fold(steps(), |steps, index| steps.write(0, index, member));
    group().found(&[]);
    let unmapped = (0..16).fold(group(), |steps, index| steps.write(0, index, 0));
    unmapped.invalidate(1, false).write(0, 3, steps().leaf(0, 0)).found(&[]);
    let unfenced = (0..16).fold(group(), |steps, index| steps.write(0, index, 0));
    let unfenced = unfenced.invalidate(0, false).write(0, 3, steps().leaf(0, PA));
    unfenced.found(&[Broken::NotInvalidated, Broken::NeverInvalidated]);
}

#[test]
fn a_table_is_not_linked_elsewhere_while_it_may_be_walked() {
    let steps = || Steps::new(X86_64::new(4, 46));
    let table = steps().format.table(1 << 31);
    let unlinked = || steps().write(1, 0, table).write(1, 0, 0);
    unlinked().invalidate(1, true).write(1, 7, table).found(&[]);
    unlinked().write(1, 7, table).invalidate(1, true).found(&[Broken::ReusedTooEarly]);
    unlinked().invalidate(1, false).found(&[Broken::LastLevelOnly]);
    unlinked().found(&[Broken::NeverInvalidated]);
}

#[test]
fn what_a_log_does_not_tell_is_found() {
    let format = X86_64::new(4, 46);
    let leaf = format.leaf(0, data(&format), false).unwrap();
    let write = |pa, va, level, old, new| Event::Write { pa, va, level, old, new };
    let broken = |events: &[Event]| check(&format, events).iter().map(|one| one.broken).collect::<Vec<_>>();
    assert_eq!(broken(&[write(8, 0, 0, 0, leaf), write(8, 0, 0, leaf | 0x60, leaf)]), [Broken::NeverInvalidated]);
    let untold = [write(8, 0, 0, 0, leaf), write(8, 0, 0, 0, leaf)];
    assert_eq!(broken(&untold), [Broken::Untold]);
    let nowhere = [write(4, 0, 0, 0, 1), write(8, 1, 0, 0, 1), write(8, 0, 9, 0, 1), write(8, 1 << 60, 0, 0, 1)];
    assert_eq!(broken(&nowhere), [Broken::NoEntry; 4]);
    let everything = Event::Invalidate { va: u64::MAX, bytes: u64::MAX, tables: true };
    assert_eq!(broken(&[everything, Event::Release { pa: u64::MAX, bytes: u64::MAX }]), []);
}

#[test]
fn a_violation_says_where_and_what() {
    let steps = Steps::new(Arm64Stage1::new(Granule::K4, 48));
    let page = steps.leaf(0, PA);
    let events = steps.write(0, 2, page).write(0, 2, 0).write(0, 2, page ^ 1 << 2).invalidate(1, false).events;
    let expected = Violation {
        step: 2,
        broken: Broken::NotInvalidated,
        level: 0,
        pa: (1 << 30) + 16,
        va: VA + 0x2000,
        old: page,
        new: page ^ 1 << 2,
        entries: 1,
    };
    assert_eq!(check(&Arm64Stage1::new(Granule::K4, 48), &replayed(&events)), [expected]);
    let said = expected.to_string();
    assert!(said.starts_with("step 2: not-invalidated: the entry at 0x40000010 (level 0, for 0x40002000)"), "{said}");
}
