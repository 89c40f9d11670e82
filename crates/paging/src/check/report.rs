//! The result of a check.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::address::{InputAddress, OutputAddress};
use crate::rule::{Rule, Severity};

/// The maximum number of faults that a [`Report`] lists; further ones are only counted.
pub const MAX_FAULTS: usize = 1000;

/// A broken rule and the entry that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule that is broken.
    pub rule: Rule,
    /// The level of the entry; 0 is the level of pages.
    pub level: u8,
    /// The name of that level in the format's specification.
    pub level_name: String,
    /// The physical address of the entry; that of the table if the root itself is at fault.
    pub pa: OutputAddress,
    /// The entry; 0 if the root itself is at fault.
    pub entry: u64,
    /// The lowest input address that is translated through the entry. If several paths lead to its table, that of the path walked
    /// first.
    pub va: InputAddress,
}

impl Fault {
    /// The severity of the broken rule.
    pub const fn severity(&self) -> Severity {
        self.rule.severity()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { rule, level_name, pa, entry, va, .. } = self;
        if let Rule::RootAlignment { .. } = rule {
            return write!(f, "{}: the root table at {pa:#x}: {rule}", rule.name());
        }
        write!(f, "{}: the entry {entry:#018x} at {pa:#x} ({level_name}, for {va:#x}): {rule}", rule.name())
    }
}

/// The result of [`check`](super::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first [`MAX_FAULTS`] faults in the order of the walk: by input address, except within a contiguous group or a run.
    pub faults: Vec<Fault>,
    /// Number of errors that are not listed.
    pub unlisted_errors: u64,
    /// Number of warnings that are not listed.
    pub unlisted_warnings: u64,
    /// Number of tables checked. A table counts once for each level at which it is found.
    pub tables: u64,
    /// Number of leaves by size in bytes. A table with two parents at one level counts once.
    pub leaves: BTreeMap<u64, u64>,
}

impl Report {
    /// Whether no fault is an error. There may be warnings.
    pub fn is_legal(&self) -> bool {
        self.unlisted_errors == 0 && self.faults.iter().all(|fault| fault.severity() < Severity::Error)
    }

    /// Bytes of all [`Report::leaves`]. A leaf of a contiguous group counts with its own size, not the group's.
    pub fn mapped_bytes(&self) -> u128 {
        self.leaves.iter().map(|(bytes, leaves)| u128::from(*bytes) * u128::from(*leaves)).sum()
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
            return;
        }
        match fault.severity() {
            Severity::Warning => self.unlisted_warnings += 1,
            Severity::Error => self.unlisted_errors += 1,
        }
    }
}
