//! Tables that change while hardware walks them: whether every step leaves the TLBs with what they may hold.
//!
//! The check replays the steps and keeps, for every entry, the values that a TLB or a cache of table entries may
//! still hold. It knows what the architectures say, and nothing of how steps are chosen:
//!
//! - A valid entry may be cached from when it is written until it is replaced *and* an invalidation has covered
//!   all that it maps (Arm ARM D8.13; Intel SDM vol. 3, "Caching translation information"; RISC-V privileged
//!   specification, SFENCE.VMA).
//! - On arm64 two translations of one address that break-before-make keeps apart ([`Format::change`]) must never be
//!   cached together, and neither must entries of a contiguous group and entries of their place that are none (Arm ARM
//!   D8.16.1). RISC-V asks the same of NAPOT groups ("Svnapot").
//! - A table that was reachable may be walked until an invalidation that covers table entries, and not only leaves:
//!   arm64 TLBI without "last level", RISC-V SFENCE.VMA with rs1 = x0, any on x86. On arm64 one for any address
//!   below the entry drops the entry; on RISC-V and x86 it drops all table entries, whatever its address. The
//!   leaves below must be covered one by one.
//! - What a leaf or a group maps must be covered as a whole, which is more than what some hardware needs.
//!
//! Of tables that were linked before the first step, and of those that were filled before they were linked, only
//! what is written is known. Everything else in them is taken for mapped.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use super::group::{Members, is_marked, moved};
use crate::attributes::Flags;
use crate::format::{Change, Discipline, Format, Kind};
use crate::geometry::{ENTRY_BYTES, Geometry};
use crate::log::Event;

/// How a step breaks the order that live tables must be changed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// The new entry was written over a valid one that had to be made a hole and invalidated first.
    NotBroken,
    /// The old entry was made a hole, but a TLB may still hold it when the new one is written.
    NotInvalidated,
    /// An entry of a contiguous group, or one in the place of a group, was written while another entry there was
    /// valid that cannot be cached together with it.
    GroupNotBroken,
    /// The same, where the other entry was made a hole but a TLB may still hold it.
    GroupNotInvalidated,
    /// The entry translates addresses that a TLB may still hold a leaf of another size for, to other memory.
    OtherSizeHeld,
    /// The entries of a contiguous group are not one when the change is over: at an invalidation, or at the end.
    GroupMixed,
    /// The change needed an invalidation, and until the end none covered all of it.
    NeverInvalidated,
    /// A table entry was invalidated for the last level only: a table walk may still use it.
    LastLevelOnly,
    /// A table was given back while an entry pointed to it.
    ReleasedReachable,
    /// A table was given back, or linked elsewhere, while a walk could still use an entry that pointed to it.
    ReusedTooEarly,
    /// The entry was not what an earlier step left there, more than accessed and dirty.
    Untold,
    /// No entry can be there: its address, its level or its input address is none.
    NoEntry,
}

impl Broken {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Broken::NotBroken => "not-broken",
            Broken::NotInvalidated => "not-invalidated",
            Broken::GroupNotBroken => "group-not-broken",
            Broken::GroupNotInvalidated => "group-not-invalidated",
            Broken::OtherSizeHeld => "other-size-held",
            Broken::GroupMixed => "group-mixed",
            Broken::NeverInvalidated => "never-invalidated",
            Broken::LastLevelOnly => "last-level-only",
            Broken::ReleasedReachable => "released-reachable",
            Broken::ReusedTooEarly => "reused-too-early",
            Broken::Untold => "untold",
            Broken::NoEntry => "no-entry",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::NotBroken => "written over a valid entry; expected a hole and an invalidation first",
            Broken::NotInvalidated => {
                "written while a TLB may hold the old entry; expected an invalidation of all of it"
            }
            Broken::GroupNotBroken => "written while another entry of the group is valid; expected all to be holes",
            Broken::GroupNotInvalidated => {
                "written while a TLB may hold another entry of the group; expected an invalidation of the whole group"
            }
            Broken::OtherSizeHeld => "written while a TLB may hold a leaf of another size for other memory",
            Broken::GroupMixed => "the entries of its contiguous group do not agree",
            Broken::NeverInvalidated => "a TLB may hold the old entry for ever; expected an invalidation of all of it",
            Broken::LastLevelOnly => "pointed to a table; expected an invalidation that is not of the last level only",
            Broken::ReleasedReachable => "points to a table that is given back",
            Broken::ReusedTooEarly => "may still be walked to a table that is given back or used elsewhere",
            Broken::Untold => "was not what an earlier step left there",
            Broken::NoEntry => "no entry can be there",
        })
    }
}

/// A broken order, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The index of the step that breaks it; of the change, for one that needs an invalidation and gets none.
    pub step: usize,
    /// What is broken.
    pub broken: Broken,
    /// The level of the entry.
    pub level: u8,
    /// Where the entry is.
    pub pa: u64,
    /// The first input address that it is for.
    pub va: u64,
    /// The value that a TLB may hold, or that it had.
    pub old: u64,
    /// The value that it got.
    pub new: u64,
    /// How many entries side by side break the same, this one included.
    pub entries: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { step, broken, level, pa, va, old, new, entries } = self;
        write!(f, "step {step}: {}: the entry at {pa:#x} (level {level}, for {va:#x}), ", broken.name())?;
        if *entries > 1 {
            write!(f, "and {} after it, ", entries - 1)?;
        }
        write!(f, "{old:#018x} then {new:#018x}: {broken}")
    }
}

/// Replays `events`, in order, and tells every step that the architecture of `format` does not allow.
pub fn check(format: &impl Format, events: &[Event]) -> Vec<Violation> {
    let mut replay = Replay::new(format);
    for (step, event) in events.iter().enumerate() {
        match *event {
            Event::Write { pa, va, level, old, new } => replay.write(Step { step, pa, va, level, old, new }),
            Event::Invalidate { va, bytes, tables } => replay.invalidate(step, va, bytes, tables),
            Event::Release { pa, bytes } => replay.release(step, pa, bytes),
        }
    }
    replay.end(events.len());
    replay.violations
}

#[derive(Clone, Copy)]
struct Step {
    step: usize,
    pa: u64,
    va: u64,
    level: u8,
    old: u64,
    new: u64,
}

/// A value that a TLB, or a cache of table entries, may still hold.
#[derive(Clone, Debug)]
struct Held {
    value: u64,
    /// What was written over it, and when.
    new: u64,
    step: usize,
    /// Using it any longer would be wrong.
    must_go: bool,
    /// The resolved input addresses of leaves that are still to be invalidated.
    left: Vec<(u64, u64)>,
    /// It points to a table, and no invalidation of table entries has covered it.
    is_walked: bool,
    /// An invalidation of the last level only has covered it since.
    last_level_only: bool,
}

impl Held {
    fn is_gone(&self) -> bool {
        self.left.is_empty() && !self.is_walked
    }

    fn reaches(&self, from: u64, to: u64) -> bool {
        self.left.iter().any(|(start, end)| *start < to && from < *end)
    }

    /// What is missing, if it is held for ever.
    fn reproach(&self, otherwise: Broken) -> Broken {
        let only_walked = self.is_walked && self.last_level_only && self.left.is_empty();
        if only_walked { Broken::LastLevelOnly } else { otherwise }
    }
}

/// What is known of the memory of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Unknown,
    /// It follows from another entry of its group.
    Implied(u64),
    Known(u64),
}

impl Memory {
    fn value(self) -> Option<u64> {
        match self {
            Memory::Unknown => None,
            Memory::Implied(value) | Memory::Known(value) => Some(value),
        }
    }
}

/// What is known of the table that an entry points to, besides the entries that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// Linked before the first step.
    Older,
    /// Linked where there was a hole; nothing was written to it.
    Untouched,
    /// The first value of every entry that was written was a hole: it was empty.
    WasEmpty,
    /// It was filled before it was linked.
    WasFilled,
}

/// One entry, by its place in the tree.
#[derive(Clone, Debug)]
struct Slot {
    pa: u64,
    memory: Memory,
    contents: Contents,
    held: Vec<Held>,
}

struct Replay<'a, F> {
    format: &'a F,
    geometry: Geometry,
    /// By level, and by resolved input address.
    slots: Vec<BTreeMap<u64, Slot>>,
    /// Those of which something is held.
    stale: Vec<BTreeSet<u64>>,
    /// The entries that point, or may still be held to point, to a table.
    pointers: BTreeMap<u64, BTreeSet<(u8, u64)>>,
    /// Where in the tree the entry at a physical address is.
    places: BTreeMap<u64, (u8, u64)>,
    /// What the leaves of a group, current or held, say about its first entry: by level and first input address.
    /// Some may be gone.
    forms: BTreeMap<(u8, u64), Vec<u64>>,
    /// Groups that were written since they were last looked at, by level and first input address.
    groups: BTreeSet<(u8, u64)>,
    violations: Vec<Violation>,
}

impl<'a, F: Format> Replay<'a, F> {
    fn new(format: &'a F) -> Replay<'a, F> {
        let geometry = format.geometry();
        let levels = usize::from(geometry.levels());
        Replay {
            format,
            geometry,
            slots: alloc::vec![BTreeMap::new(); levels],
            stale: alloc::vec![BTreeSet::new(); levels],
            pointers: BTreeMap::new(),
            places: BTreeMap::new(),
            forms: BTreeMap::new(),
            groups: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    fn tell(&mut self, broken: Broken, at: Step) {
        let Step { step, pa, va, level, old, new } = at;
        let va = self.geometry.extended(va);
        if let Some(last) = self.violations.last_mut() {
            let follows = last.pa.wrapping_add(last.entries * ENTRY_BYTES) == pa;
            if last.broken == broken && last.level == level && follows {
                last.entries += 1;
                return;
            }
        }
        self.violations.push(Violation { step, broken, level, pa, va, old, new, entries: 1 });
    }

    fn is_entry(&self, at: Step) -> bool {
        at.level < self.geometry.levels()
            && at.pa.is_multiple_of(ENTRY_BYTES)
            && self.geometry.is_canonical(at.va)
            && self.geometry.resolved(at.va) & (self.geometry.span(at.level) - 1) == 0
    }

    fn is_leaf(&self, level: u8, entry: u64) -> bool {
        self.format.kind(level, entry) == Kind::Leaf
    }

    fn is_table(&self, level: u8, entry: u64) -> bool {
        level > 0 && self.format.kind(level, entry) == Kind::Table
    }

    fn slot(&self, level: u8, va: u64) -> Option<&Slot> {
        self.slots.get(usize::from(level))?.get(&va)
    }

    /// The entry at a place in the tree; nothing is known of it if it is new.
    fn slot_mut(&mut self, level: u8, va: u64, pa: u64) -> &mut Slot {
        let empty = Slot { pa, memory: Memory::Unknown, contents: Contents::Older, held: Vec::new() };
        self.slots[usize::from(level)].entry(va).or_insert(empty)
    }

    /// The entries of the group around `va` at `level`, and its bytes; `None` where there are no groups.
    fn group(&self, level: u8, va: u64) -> Option<(u64, u64)> {
        let bits = self.format.group_bits_at(level);
        let bytes = self.geometry.span(level) << bits;
        (bits != 0).then_some((va & !(bytes - 1), bytes))
    }

    fn write(&mut self, at: Step) {
        if !self.is_entry(at) {
            return self.tell(Broken::NoEntry, at);
        }
        let at = Step { va: self.geometry.resolved(at.va), ..at };
        self.meet(at);
        if at.old != at.new {
            let left = self.leaves_behind(at);
            if self.is_unlinked(at) {
                self.unlink(at);
            }
            self.judge(at);
            self.replace(at, left);
        }
        for entry in [at.old, at.new] {
            if let Some((group, _)) = self.group(at.level, at.va).filter(|_| is_marked(self.format, at.level, entry)) {
                self.groups.insert((at.level, group));
            }
        }
        let slot = self.slot_mut(at.level, at.va, at.pa);
        slot.memory = Memory::Known(at.new);
    }

    /// Compares what the step says of the old entry with what is known.
    fn meet(&mut self, at: Step) {
        let is_new = self.slot(at.level, at.va).is_none_or(|slot| slot.memory == Memory::Unknown);
        let slot = self.slot_mut(at.level, at.va, at.pa);
        if slot.pa != at.pa {
            (slot.pa, slot.memory) = (at.pa, Memory::Unknown);
        }
        let memory = slot.memory;
        self.places.insert(at.pa, (at.level, at.va));
        match memory {
            Memory::Known(known) if !self.is_same(at.level, known, at.old) => {
                self.tell(Broken::Untold, Step { old: known, new: at.old, ..at });
                let left = self.leaves_behind(Step { old: known, ..at });
                self.hold(Step { old: known, ..at }, true, left);
            }
            _ => {}
        }
        if is_new {
            self.learn(at);
            self.imply_group(at);
        }
    }

    /// The first value of an entry tells how its table was when it was linked.
    fn learn(&mut self, at: Step) {
        let above = at.level + 1;
        if above >= self.geometry.levels() {
            return;
        }
        let is_hole = self.format.kind(at.level, at.old) == Kind::Hole;
        let span = self.geometry.span(above);
        let va = at.va & !(span - 1);
        let slots = &mut self.slots[usize::from(above)];
        let Some(parent) = slots.get_mut(&va) else { return };
        let before = parent.contents;
        parent.contents = match (before, is_hole) {
            (Contents::Older, _) => Contents::Older,
            (Contents::Untouched | Contents::WasEmpty, true) => Contents::WasEmpty,
            _ => Contents::WasFilled,
        };
        // The tables of a run are linked together, and empty together.
        if before == Contents::Untouched && parent.contents == Contents::WasEmpty {
            let run = span << self.format.run_bits();
            let start = va & !(run - 1);
            let untouched = slots.range_mut(start..start + run).map(|(_, slot)| &mut slot.contents);
            untouched.filter(|contents| **contents == Contents::Untouched).for_each(|it| *it = Contents::WasEmpty);
        }
    }

    /// Whether two values of an entry differ in nothing that software must tell: not in what hardware sets, and
    /// not in what a hole holds.
    fn is_same(&self, level: u8, a: u64, b: u64) -> bool {
        let is_hole = |entry| self.format.kind(level, entry) == Kind::Hole;
        let stateless = |entry| self.format.with_state(entry, Flags::empty());
        a == b || is_hole(a) && is_hole(b) || self.is_leaf(level, a) && stateless(a) == stateless(b)
    }

    /// Takes the other entries of a contiguous group for legal when the first of them is met.
    fn imply_group(&mut self, at: Step) {
        if !is_marked(self.format, at.level, at.old) {
            return;
        }
        let Some((start, bytes)) = self.group(at.level, at.va) else { return };
        let span = self.geometry.span(at.level);
        self.note_form(at.level, at.va, at.old);
        for va in members_of(start, bytes, span) {
            let pa = at.pa.wrapping_add((va / span).wrapping_sub(at.va / span).wrapping_mul(ENTRY_BYTES));
            let implied = Memory::Implied(moved(self.format, at.level, at.old, at.va, va));
            let slot = self.slot_mut(at.level, va, pa);
            if slot.memory == Memory::Unknown && slot.pa == pa {
                slot.memory = implied;
            }
        }
    }

    /// Tells what is wrong with writing the new entry now.
    fn judge(&mut self, at: Step) {
        let Step { level, va, old, new, .. } = at;
        match self.format.kind(level, new) {
            Kind::Table if level > 0 => self.judge_reuse(at),
            Kind::Leaf => {}
            _ => return,
        }
        if self.format.change(level, old, new) == Change::Break {
            return self.tell(Broken::NotBroken, at);
        }
        let held = self.slot(level, va).map(|slot| slot.held.as_slice()).unwrap_or_default();
        let conflict = held.iter().find(|held| self.format.change(level, held.value, new) == Change::Break);
        if let Some((old, broken)) = conflict.map(|held| (held.value, held.reproach(Broken::NotInvalidated))) {
            return self.tell(broken, Step { old, ..at });
        }
        if self.is_leaf(level, new) {
            self.judge_leaf(at);
        }
    }

    fn judge_leaf(&mut self, at: Step) {
        let found = self.group_conflict(at).or_else(|| self.size_conflict(at));
        if let Some((old, broken)) = found {
            self.tell(broken, Step { old, ..at });
        }
    }

    /// Another entry of the group that must not be cached together with the new one.
    fn group_conflict(&mut self, at: Step) -> Option<(u64, Broken)> {
        let Step { level, va, new, .. } = at;
        let (start, bytes) = self.group(level, va)?;
        let forms = self.forms.get(&(level, start))?.clone();
        let format = self.format;
        let conflicts = |old: u64| {
            let matters = is_marked(format, level, old) || is_marked(format, level, new);
            matters && format.change(level, old, moved(format, level, new, va, start)) == Change::Break
        };
        for form in forms.into_iter().filter(|form| conflicts(*form)) {
            let found = self.of_form(level, start, bytes, form);
            if found.is_some() {
                return found;
            }
            self.forms.entry((level, start)).or_default().retain(|other| *other != form);
        }
        None
    }

    /// The entry of a group that says `form` about the first one.
    fn of_form(&self, level: u8, start: u64, bytes: u64, form: u64) -> Option<(u64, Broken)> {
        let says =
            |va: u64, value: u64| self.is_leaf(level, value) && moved(self.format, level, value, va, start) == form;
        for (va, slot) in self.slots.get(usize::from(level))?.range(start..start + bytes) {
            if let Some(value) = slot.memory.value().filter(|value| says(*va, *value)) {
                return Some((value, Broken::GroupNotBroken));
            }
            if let Some(held) = slot.held.iter().find(|held| says(*va, held.value)) {
                return Some((held.value, Broken::GroupNotInvalidated));
            }
        }
        None
    }

    /// Remembers what a leaf in the place of a group says about the first entry of that.
    fn note_form(&mut self, level: u8, va: u64, value: u64) {
        let Some((start, _)) = self.group(level, va).filter(|_| self.is_leaf(level, value)) else { return };
        let form = moved(self.format, level, value, va, start);
        let forms = self.forms.entry((level, start)).or_default();
        if forms.contains(&form) {
            return;
        }
        forms.push(form);
        // Those that are gone need not be kept for ever.
        if forms.len() as u64 > 4 << self.format.group_bits_at(level) {
            let forms = core::mem::take(forms);
            let bytes = self.geometry.span(level) << self.format.group_bits_at(level);
            let left =
                forms.into_iter().filter(|old| *old == form || self.of_form(level, start, bytes, *old).is_some());
            let left = left.collect();
            self.forms.insert((level, start), left);
        }
    }

    /// A leaf of another level that is still held for addresses of the new one, for other memory. Only arm64
    /// forbids that.
    fn size_conflict(&self, at: Step) -> Option<(u64, Broken)> {
        if !matches!(self.format.discipline(), Discipline::BreakBeforeMake(_)) {
            return None;
        }
        let (from, to) = (at.va, at.va + self.geometry.span(at.level));
        let is_other = |level: u8, va: u64, value: u64| {
            let both = from.max(va);
            let pa = |level, value, va: u64| self.format.leaf_address(level, value, va).wrapping_add(both - va);
            let memory = |level, value| self.format.attributes(level, value).memory;
            let same = pa(level, value, va) == pa(at.level, at.new, from);
            !same || memory(level, value) != memory(at.level, at.new)
        };
        for level in (0..self.geometry.levels()).filter(|level| *level != at.level) {
            let first = from & !(self.geometry.span(level) - 1);
            for va in self.stale[usize::from(level)].range(first..to) {
                let held = self.slot(level, *va).map(|slot| slot.held.as_slice()).unwrap_or_default();
                let mut leaves = held.iter().filter(|held| self.is_leaf(level, held.value) && held.reaches(from, to));
                if let Some(held) = leaves.find(|held| is_other(level, *va, held.value)) {
                    return Some((held.value, Broken::OtherSizeHeld));
                }
            }
        }
        None
    }

    /// A table that is linked while a walk could still come to it on another way.
    fn judge_reuse(&mut self, at: Step) {
        let table = self.format.table_address(at.new);
        let held = self.held_pointers(table, self.geometry.table_bytes(at.level - 1));
        let elsewhere = |(level, va): (u8, u64)| (level, va) != (at.level, at.va);
        if let Some((_, held)) = held.into_iter().find(|(place, _)| elsewhere(*place)) {
            self.tell(held.reproach(Broken::ReusedTooEarly), Step { old: held.value, ..at });
        }
    }

    /// The entries that may still be held to point to a table in `bytes` from `pa` on, and point there no more.
    fn held_pointers(&self, pa: u64, bytes: u64) -> Vec<((u8, u64), Held)> {
        let mut found = Vec::new();
        for ((level, va), table) in self.pointers_to(pa, bytes) {
            let points = |value| self.is_table(level, value) && self.format.table_address(value) == table;
            let Some(slot) = self.slot(level, va).filter(|slot| !slot.memory.value().is_some_and(points)) else {
                continue;
            };
            let held = slot.held.iter().find(|held| points(held.value) && held.is_walked);
            found.extend(held.map(|held| ((level, va), held.clone())));
        }
        found
    }

    fn pointers_to(&self, pa: u64, bytes: u64) -> Vec<((u8, u64), u64)> {
        let pointers = self.pointers.range(pa..pa.saturating_add(bytes));
        pointers.flat_map(|(table, places)| places.iter().map(|place| (*place, *table))).collect()
    }

    /// Replaces the entry: what it was may be held from now on.
    fn replace(&mut self, at: Step, left: Vec<(u64, u64)>) {
        let Step { level, old, new, .. } = at;
        let format = self.format;
        self.note_form(level, at.va, new);
        self.hold(at, format.change(level, old, new) != Change::Free, left);
        if self.is_table(level, new) {
            self.pointers.entry(format.table_address(new)).or_default().insert((level, at.va));
            if !self.is_table(level, old) || self.is_unlinked(at) {
                self.slot_mut(level, at.va, at.pa).contents = Contents::Untouched;
            }
        }
        // What is right again need not go.
        let slot = self.slot_mut(level, at.va, at.pa);
        for held in &mut slot.held {
            held.must_go &= format.change(level, held.value, new) != Change::Free;
        }
    }

    /// Whether the step takes a table from the place that it was linked at.
    fn is_unlinked(&self, at: Step) -> bool {
        let table = |entry| self.is_table(at.level, entry).then(|| self.format.table_address(entry));
        table(at.old).is_some_and(|old| table(at.new) != Some(old))
    }

    /// The addresses for which leaves may be cached through the old entry of a step.
    fn leaves_behind(&self, at: Step) -> Vec<(u64, u64)> {
        let Step { va, level, old, .. } = at;
        let own = (va, va + self.geometry.span(level));
        if let Some((start, bytes)) = self.group(level, va).filter(|_| is_marked(self.format, level, old)) {
            return alloc::vec![(start, start + bytes)];
        }
        match self.slot(level, va).map_or(Contents::Older, |slot| slot.contents) {
            _ if !self.is_unlinked(at) => alloc::vec![own],
            // All that was ever in it is known, and held for itself.
            Contents::WasEmpty => Vec::new(),
            Contents::Older | Contents::Untouched | Contents::WasFilled => self.unknown_below(level, own),
        }
    }

    /// The part of a table's addresses whose entries were never written.
    fn unknown_below(&self, level: u8, (from, to): (u64, u64)) -> Vec<(u64, u64)> {
        let span = self.geometry.span(level - 1);
        let (mut unknown, mut start) = (Vec::new(), from);
        for (va, slot) in self.slots[usize::from(level - 1)].range(from..to) {
            if slot.memory != Memory::Unknown {
                unknown.push((start, *va));
                start = va + span;
            }
        }
        unknown.push((start, to));
        unknown.retain(|(start, end)| start < end);
        unknown
    }

    /// Keeps the old entry of a step as one that may be cached, with leaves for the addresses `left`.
    fn hold(&mut self, at: Step, must_go: bool, left: Vec<(u64, u64)>) {
        let Step { step, pa, va, level, old, new } = at;
        let is_table = self.is_table(level, old);
        if !is_table && !self.is_leaf(level, old) {
            return;
        }
        if is_table {
            self.pointers.entry(self.format.table_address(old)).or_default().insert((level, va));
        }
        self.stale[usize::from(level)].insert(va);
        self.note_form(level, va, old);
        let slot = self.slot_mut(level, va, pa);
        let must_go = must_go || slot.held.iter().any(|held| held.value == old && held.must_go);
        slot.held.retain(|held| held.value != old);
        slot.held.push(Held { value: old, new, step, must_go, left, is_walked: is_table, last_level_only: false });
    }

    /// The table of an entry can be reached no more: what was in it is held, and its memory is not looked at.
    fn unlink(&mut self, at: Step) {
        let end = at.va + self.geometry.span(at.level);
        for level in (0..at.level).rev() {
            let below: Vec<u64> = self.slots[usize::from(level)].range(at.va..end).map(|(va, _)| *va).collect();
            for va in below {
                let Some(slot) = self.slot(level, va) else { continue };
                let (pa, memory) = (slot.pa, slot.memory);
                if let Memory::Known(old) | Memory::Implied(old) = memory {
                    let child = Step { step: at.step, pa, va, level, old, new: 0 };
                    let left = self.leaves_behind(child);
                    self.hold(child, true, left);
                }
                let slot = self.slot_mut(level, va, pa);
                slot.memory = Memory::Unknown;
                slot.contents = Contents::Older;
                if slot.held.is_empty() {
                    self.slots[usize::from(level)].remove(&va);
                }
            }
        }
    }

    fn invalidate(&mut self, step: usize, va: u64, bytes: u64, tables: bool) {
        let from = self.geometry.resolved(va);
        let to = from.saturating_add(bytes);
        let every_walk = tables && !matches!(self.format.discipline(), Discipline::BreakBeforeMake(_));
        if every_walk {
            self.end_walks();
        }
        for level in 0..self.geometry.levels() {
            let reach = self.geometry.span(level) << self.format.group_bits_at(level);
            let (first, last) = (from.saturating_sub(reach), to.saturating_add(reach));
            let at = usize::from(level);
            let stale: Vec<u64> = self.stale[at].range(first..last).copied().collect();
            for va in stale {
                let end = va + self.geometry.span(level);
                let Some(slot) = self.slots[at].get_mut(&va) else { continue };
                for held in &mut slot.held {
                    held.left = without(&held.left, from, to);
                    let touches = va < to && from < end;
                    held.last_level_only |= touches && !tables;
                    held.is_walked &= !(touches && tables);
                }
                slot.held.retain(|held| !held.is_gone());
                if slot.held.is_empty() {
                    self.stale[at].remove(&va);
                }
            }
        }
        self.judge_groups(step, from, to);
    }

    /// Drops every table entry from the caches of those.
    fn end_walks(&mut self) {
        for (stale, slots) in self.stale.iter_mut().zip(&mut self.slots) {
            stale.retain(|va| {
                let Some(slot) = slots.get_mut(va) else { return false };
                slot.held.iter_mut().for_each(|held| held.is_walked = false);
                slot.held.retain(|held| !held.is_gone());
                !slot.held.is_empty()
            });
        }
    }

    /// Looks at the groups that were written and that the range reaches.
    fn judge_groups(&mut self, step: usize, from: u64, to: u64) {
        let groups = core::mem::take(&mut self.groups);
        for (level, start) in groups {
            let bytes = self.geometry.span(level) << self.format.group_bits_at(level);
            if start < to && from < start + bytes {
                self.judge_group(step, level, start, bytes);
            } else {
                self.groups.insert((level, start));
            }
        }
    }

    fn judge_group(&mut self, step: usize, level: u8, start: u64, bytes: u64) {
        let span = self.geometry.span(level);
        let entry = |va| self.slot(level, va).and_then(|slot| slot.memory.value());
        let entries: Vec<Option<u64>> = members_of(start, bytes, span).map(entry).collect();
        let mut mixed = None;
        let members = Members { format: self.format, level, va: start, entries: &entries };
        members.group_faults(|index, _| mixed = mixed.or(Some(index)));
        let Some(index) = mixed else { return };
        let va = start + index as u64 * span;
        let (pa, value) = self.slot(level, va).map_or((0, 0), |slot| (slot.pa, slot.memory.value().unwrap_or(0)));
        self.tell(Broken::GroupMixed, Step { step, pa, va, level, old: value, new: value });
    }

    fn release(&mut self, step: usize, pa: u64, bytes: u64) {
        for ((level, va), table) in self.pointers_to(pa, bytes) {
            let Some(slot) = self.slot(level, va) else { continue };
            let points = |value: u64| self.is_table(level, value) && self.format.table_address(value) == table;
            let at = Step { step, pa: slot.pa, va, level, old: 0, new: 0 };
            let held = slot.held.iter().find(|held| points(held.value) && held.is_walked);
            let told = match (slot.memory.value().filter(|value| points(*value)), held) {
                (Some(value), _) => Some((Broken::ReleasedReachable, value, value)),
                (None, Some(held)) => Some((held.reproach(Broken::ReusedTooEarly), held.value, held.new)),
                (None, None) => None,
            };
            if let Some((broken, old, new)) = told {
                self.tell(broken, Step { old, new, ..at });
            }
        }
        let tables: Vec<u64> = self.pointers.range(pa..pa.saturating_add(bytes)).map(|(table, _)| *table).collect();
        for table in tables {
            self.pointers.remove(&table);
        }
        self.forget(pa, bytes);
    }

    /// The memory is no table any more.
    fn forget(&mut self, pa: u64, bytes: u64) {
        let places: Vec<(u64, (u8, u64))> =
            self.places.range(pa..pa.saturating_add(bytes)).map(|(pa, place)| (*pa, *place)).collect();
        for (pa, (level, va)) in places {
            self.places.remove(&pa);
            if let Some(slot) = self.slots[usize::from(level)].get_mut(&va).filter(|slot| slot.pa == pa) {
                slot.memory = Memory::Unknown;
            }
        }
    }

    fn end(&mut self, step: usize) {
        self.judge_groups(step, 0, u64::MAX);
        // What was in a table that was unlinked is no violation of its own.
        let mut tables: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for level in (0..self.geometry.levels()).rev() {
            let span = self.geometry.span(level);
            let stale: Vec<u64> = self.stale[usize::from(level)].iter().copied().collect();
            for va in stale {
                let Some(slot) = self.slot(level, va) else { continue };
                let pa = slot.pa;
                let Some(held) = slot.held.iter().find(|held| held.must_go).cloned() else { continue };
                if tables.get(&held.step).is_some_and(|(from, to)| *from <= va && va < *to) {
                    continue;
                }
                if self.is_table(level, held.value) {
                    tables.insert(held.step, (va, va + span));
                }
                let at = Step { step: held.step, pa, va, level, old: held.value, new: held.new };
                self.tell(held.reproach(Broken::NeverInvalidated), at);
            }
        }
    }
}

/// The first input addresses of the entries, of `span` bytes each, of a group.
fn members_of(start: u64, bytes: u64, span: u64) -> impl Iterator<Item = u64> {
    (0..bytes / span).map(move |index| start + index * span)
}

/// The parts of `ranges` outside `from` to `to`.
fn without(ranges: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let parts = ranges.iter().flat_map(|(start, end)| [(*start, (*end).min(from)), ((*start).max(to), *end)]);
    parts.filter(|(start, end)| start < end).collect()
}
