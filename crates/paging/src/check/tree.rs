//! Checks tables as they are at one time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::group::{Members, is_marked};
use super::report::{Fault, Report};
use crate::address::OutputAddress;
use crate::arena::Arena;
use crate::format::{Format, Kind, first_rule};
use crate::geometry::ENTRY_BYTES;
use crate::rule::Rule;

struct Tree<'a, F> {
    format: &'a F,
    arena: &'a Arena,
    report: Report,
    /// The tables that were checked, with their levels.
    checked: BTreeSet<(OutputAddress, u8)>,
    /// Every table that was found, at any level.
    found: BTreeSet<OutputAddress>,
    /// The tables on the path from the root, as first address and end.
    ancestors: Vec<(OutputAddress, OutputAddress)>,
}

pub(super) fn check(format: &impl Format, arena: &Arena, root: OutputAddress) -> Report {
    let (report, checked, found) = (Report::default(), BTreeSet::new(), BTreeSet::new());
    let mut tree = Tree { format, arena, report, checked, found, ancestors: Vec::new() };
    tree.root(root);
    tree.report
}

impl<F: Format> Tree<'_, F> {
    fn root(&mut self, root: OutputAddress) {
        let geometry = self.format.geometry();
        let level = geometry.root_level();
        let to = self.format.root_alignment();
        if !root.is_aligned(to) {
            self.fault(Rule::RootAlignment { to }, level, root, 0, 0);
        }
        if root.0 >> geometry.output_bits() != 0 {
            return self.fault(Rule::AddressTooLarge { pa: root }, level, root, 0, 0);
        }
        match self.arena.table(root, geometry.entries(level)) {
            Some(_) if root.is_aligned(ENTRY_BYTES) => {
                self.found.insert(root);
                self.table(root, level, 0);
            }
            Some(_) => {}
            None => self.fault(Rule::TableOutside { pa: root }, level, root, 0, 0),
        }
    }

    /// Checks the table at `table` for the resolved input addresses from `va` on.
    fn table(&mut self, table: OutputAddress, level: u8, va: u64) {
        let geometry = self.format.geometry();
        let Some(entries) = self.arena.table(table, geometry.entries(level)) else { return };
        self.checked.insert((table, level));
        self.ancestors.push((table, table + geometry.table_bytes(level)));
        self.report.tables += 1;
        let span = geometry.span(level);
        let unit_bits = self.format.group_bits_at(level).max(self.format.run_bits());
        for (index, unit) in (0u64..).step_by(1 << unit_bits).zip(entries.chunks(1 << unit_bits)) {
            if unit.iter().any(|entry| self.format.kind(level, *entry) != Kind::Hole) {
                self.unit(unit, level, table + index * ENTRY_BYTES, va + index * span);
            }
        }
        self.ancestors.pop();
    }

    /// Checks entries that may be one group or one run, and the tables below them.
    fn unit(&mut self, entries: &[u64], level: u8, pa: OutputAddress, va: u64) {
        let span = self.format.geometry().span(level);
        let place = |index: usize| (pa + index as u64 * ENTRY_BYTES, va + index as u64 * span);
        let is_one = self.check_unit(entries, level, pa, va);
        // A rule that every entry of a group or run breaks is one fault.
        let mut reported = Vec::new();
        let mut followed = Vec::new();
        for (index, entry) in entries.iter().copied().enumerate() {
            let (pa, va) = place(index);
            let kind = self.format.kind(level, entry);
            let has_bad_address =
                self.check_entry(entry, kind, level, (pa, va), if is_one { Some(&mut reported) } else { None });
            match kind {
                Kind::Leaf => *self.report.leaves.entry(span).or_default() += 1,
                Kind::Table if level > 0 && !has_bad_address => followed.push((entry, pa, va)),
                _ => {}
            }
        }
        for (entry, pa, va) in followed {
            self.follow(entry, level, pa, va);
        }
    }

    /// Reports the rules that an entry breaks on its own, and returns whether its address is past the address space.
    fn check_entry(
        &mut self,
        entry: u64,
        kind: Kind,
        level: u8,
        at: (OutputAddress, u64),
        reported: Option<&mut Vec<&'static str>>,
    ) -> bool {
        let mut rules = Vec::new();
        self.format.rules(level, entry, &mut |rule| rules.push(rule));
        if kind == Kind::Illegal && rules.is_empty() {
            rules.push(first_rule(self.format, level, entry));
        }
        let has_bad_address = rules.iter().any(|rule| matches!(rule, Rule::AddressTooLarge { .. }));
        if let Some(reported) = reported {
            rules.retain(|rule| !reported.contains(&rule.name()));
            reported.extend(rules.iter().map(|rule| rule.name()));
        }
        for rule in rules {
            self.fault(rule, level, at.0, entry, at.1);
        }
        has_bad_address
    }

    /// Reports the rules that the entries break together, and returns whether they form a group or a run at all.
    fn check_unit(&mut self, entries: &[u64], level: u8, pa: OutputAddress, va: u64) -> bool {
        let format = self.format;
        let is_group = entries.iter().any(|entry| is_marked(format, level, *entry));
        let is_run = format.run_bits() != 0;
        if !is_group && !is_run {
            return false;
        }
        let known: Vec<Option<u64>> = entries.iter().copied().map(Some).collect();
        let members = Members { format, level, va, entries: &known };
        let mut faults = Vec::new();
        if is_group {
            members.group_faults(|index, rule| faults.push((index, rule)))
        } else {
            members.run_faults(|index, rule| faults.push((index, rule)))
        }
        let span = self.format.geometry().span(level);
        for (index, rule) in faults {
            let offset = index as u64;
            self.fault(rule, level, pa + offset * ENTRY_BYTES, entries[index], va + offset * span);
        }
        true
    }

    /// Checks the table that an entry points to, unless that was done already or is not possible.
    fn follow(&mut self, entry: u64, level: u8, pa: OutputAddress, va: u64) {
        let geometry = self.format.geometry();
        let table = self.format.table_address(entry);
        let end = table + geometry.table_bytes(level - 1);
        if self.ancestors.iter().any(|(from, to)| table < *to && *from < end) {
            return self.fault(Rule::Loop { pa: table }, level, pa, entry, va);
        }
        if self.arena.table(table, geometry.entries(level - 1)).is_none() {
            return self.fault(Rule::TableOutside { pa: table }, level, pa, entry, va);
        }
        if !self.found.insert(table) {
            self.fault(Rule::SharedTable { pa: table }, level, pa, entry, va);
        }
        if !self.checked.contains(&(table, level - 1)) {
            self.table(table, level - 1, va);
        }
    }

    fn fault(&mut self, rule: Rule, level: u8, pa: OutputAddress, entry: u64, va: u64) {
        let (level_name, va) = (self.format.level_name(level), self.format.geometry().extended(va));
        self.report.add(Fault { rule, level, level_name, pa, entry, va });
    }
}
