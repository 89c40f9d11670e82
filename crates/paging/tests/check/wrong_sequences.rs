//! Makes correct sequences of steps wrong on purpose: the checker finds each fault.

use std::collections::{BTreeMap, BTreeSet};

use paging::check::live::{Violation, ViolationKind, check};
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::{BreakLevel, Discipline};
use paging::{Attributes, Event, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};

use crate::formats::for_every_format;
use crate::{data, lines};

pub const VA: InputAddress = InputAddress(0x4000_0000);
pub const PA: OutputAddress = OutputAddress(0x8_0000_0000);

/// One operation on live tables, as steps that can be made wrong.
#[derive(Clone)]
struct Change<F> {
    format: F,
    what: &'static str,
    /// The steps that created the tables.
    before: Vec<Event>,
    steps: Vec<Event>,
}

impl<F: Format> Change<F> {
    /// The operation `act` on a mapping of `bytes` with leaves of at most `largest_bytes`, after `prepare`.
    fn new(
        format: F,
        what: &'static str,
        (bytes, sizes): (u64, Sizes),
        prepare: impl Fn(&mut Tables<F, Vec<Event>>, InputAddress),
        act: impl Fn(&mut Tables<F, Vec<Event>>, InputAddress),
    ) -> Change<F> {
        let va = format.geometry().extended(VA.0);
        let mut tables = Tables::with_log(format, OutputAddress(1 << 30), 1 << 30, Vec::new()).unwrap();
        let attributes = data(&format);
        // Another table stays in use, so that only the intended table becomes empty.
        let unit = format.geometry().page_bytes() << format.run_bits();
        let far = va + (format.geometry().span(1) << format.run_bits().max(format.group_bits_at(1)));
        tables
            .map(&Mapping { va: far, pa: OutputAddress(2 * PA.0), bytes: unit, attributes, sizes: Sizes::up_to(unit) })
            .unwrap();
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

    /// The violations of `steps`, with the old values that a replay produces.
    fn violations(&self, steps: &[Event]) -> Vec<Violation> {
        check(&self.format, &replayed(&[self.before.as_slice(), steps].concat()))
    }

    #[track_caller]
    fn assert_wrong(&self, steps: &[Event], how: &str) -> BTreeSet<ViolationKind> {
        let violations = self.violations(steps);
        assert!(!violations.is_empty(), "{:?}: {} {how}: nothing was found\n{steps:#x?}", self.format, self.what);
        assert!(violations.iter().all(|violation| violation.step >= self.before.len()), "{}", lines(&violations));
        violations.iter().map(|violation| violation.kind).collect()
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

/// The same events with the old values that the previous events leave in memory.
pub fn replayed(events: &[Event]) -> Vec<Event> {
    let mut memory = BTreeMap::new();
    let events = events.iter().map(|event| match *event {
        Event::Write { pa, va, level, old, new } => {
            let old = memory.insert(pa, new).unwrap_or(old);
            Event::Write { pa, va, level, old, new }
        }
        // The next user of the memory finds it empty.
        Event::Release { pa, bytes } => {
            memory.retain(|entry, _| !(pa..pa + bytes).contains(entry));
            Event::Release { pa, bytes }
        }
        invalidate => invalidate,
    });
    events.collect()
}

/// Every operation that a format has, with whether the architecture requires a break and an invalidation before the
/// replacement is written.
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
    let nothing = |_: &mut Tables<F, Vec<Event>>, _: InputAddress| {};
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

/// Invalidations that are missing, too early, or too small.
fn invalidations_matter<F: Format>(format: F) {
    for (change, needs_break) in changes(format) {
        for (index, step) in change.steps.iter().copied().enumerate() {
            let Event::Invalidate { va, bytes, tables } = step else { continue };
            // The last invalidation covers the whole range, whose entries were already broken, invalidated and made.
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
                assert!(found.contains(&ViolationKind::LastLevelOnly), "{format:?}: {}: {found:?}", change.what);
            }
        }
    }
}

#[test]
fn a_wrong_invalidation_is_found() {
    for_every_format!(invalidations_matter);
}

/// Tables that are released while they are linked, or before the invalidation.
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
            assert!(found.contains(&ViolationKind::ReusedTooEarly), "{format:?}: {}: {found:?}", change.what);
            let found = change.assert_wrong(&change.moved(index, 0), "with a release before all");
            assert!(found.contains(&ViolationKind::ReleasedReachable), "{format:?}: {}: {found:?}", change.what);
            let unlinks = |step: &Event| match *step {
                Event::Write { level, old, .. } if level > 0 => {
                    (pa..pa + bytes).contains(&format.table_address(old)) && old != 0
                }
                _ => false,
            };
            let linked: Vec<Event> = change.steps.iter().filter(|step| !unlinks(step)).copied().collect();
            if linked.len() < change.steps.len() && change.what.starts_with("unmap") {
                let found = change.assert_wrong(&linked, "without the table being unlinked");
                assert!(found.contains(&ViolationKind::ReleasedReachable), "{format:?}: {}: {found:?}", change.what);
            }
        }
    }
    assert!(released >= 3, "{format:?}");
}

#[test]
fn a_release_too_early_is_found() {
    for_every_format!(releases_matter);
}

/// Entries that are overwritten without a break.
fn breaks_matter<F: Format>(format: F) {
    for (change, needs_break) in changes(format) {
        let holes = change.steps.iter().enumerate().filter_map(|(index, step)| match *step {
            Event::Write { pa, new: 0, .. } => Some((index, pa)),
            _ => None,
        });
        let is_made = |pa: OutputAddress| {
            let makes = |step: &&Event| matches!(**step, Event::Write { pa: at, new, .. } if at == pa && new != 0);
            change.steps.iter().any(|step| makes(&step))
        };
        let mut broken = 0;
        for (index, _) in holes.filter(|(_, pa)| is_made(*pa)) {
            broken += 1;
            if needs_break {
                let found = change.assert_wrong(&change.without(index), "without a break");
                assert!(
                    found.iter().any(|broken| matches!(broken, ViolationKind::NoBreak | ViolationKind::NoGroupBreak)),
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

/// Steps that are right where sizes may change without a break are wrong at the other levels.
#[test]
fn steps_that_bbm_level_2_allows_are_faults_at_other_levels() {
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
