//! What a check found.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::address::{InputAddress, OutputAddress};
use crate::rule::{Rule, Severity};

/// How many faults a [`Report`] lists; the others are only counted.
pub const MAX_FAULTS: usize = 1000;

/// A rule that is broken, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule.
    pub rule: Rule,
    /// The level of the entry.
    pub level: u8,
    /// What the format's specification calls that level.
    pub level_name: String,
    /// The physical address of the entry; of the table, if the root itself is at fault.
    pub pa: OutputAddress,
    /// The entry; 0 if the root itself is at fault.
    pub entry: u64,
    /// The first input address that the entry is for, on the first way to it.
    pub va: InputAddress,
}

impl Fault {
    /// How bad it is.
    pub const fn severity(&self) -> Severity {
        self.rule.severity()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { rule, level_name, pa, entry, va, .. } = self;
        write!(f, "{}: the entry {entry:#018x} at {pa:#x} ({level_name}, for {va:#x}): {rule}", rule.name())
    }
}

/// What [`check`](super::check) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first [`MAX_FAULTS`] broken rules, in order of input addresses.
    pub faults: Vec<Fault>,
    /// Broken rules that are not listed.
    pub unlisted_errors: u64,
    /// Warnings that are not listed.
    pub unlisted_warnings: u64,
    /// Tables that were looked at; one that is met at two levels counts for each.
    pub tables: u64,
    /// How many leaves, by the bytes that one maps. A table with two parents counts once.
    pub leaves: BTreeMap<u64, u64>,
}

impl Report {
    /// Whether no rule is broken; warnings may be left.
    pub fn is_legal(&self) -> bool {
        self.unlisted_errors == 0 && self.faults.iter().all(|fault| fault.severity() < Severity::Error)
    }

    /// Bytes mapped by leaves, of all sizes together. A contiguous leaf counts what it maps itself.
    pub fn mapped_bytes(&self) -> u128 {
        self.leaves.iter().map(|(bytes, leaves)| u128::from(*bytes) * u128::from(*leaves)).sum()
    }

    pub(super) fn add(&mut self, fault: Fault) {
        match fault.severity() {
            _ if self.faults.len() < MAX_FAULTS => self.faults.push(fault),
            Severity::Warning => self.unlisted_warnings += 1,
            Severity::Error => self.unlisted_errors += 1,
        }
    }
}
