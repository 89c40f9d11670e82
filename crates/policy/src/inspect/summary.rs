//! [`Summary`]: one row for a process. [`explained`]: causes summed over regions.

use std::collections::BTreeMap;

use super::Inspection;
use super::process::Process;
use super::region::{Explained, Region};
use crate::cause::Cause;
use crate::census::Census;
use crate::remedy::Remedy;

/// One row for a process: the part of an inspection that is kept when many processes are inspected.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The inspected process.
    pub process: Process,
    /// Present memory of the process.
    pub census: Census,
    /// Bytes that are present, without the zero page.
    pub resident_bytes: u64,
    /// Bytes that could be larger.
    pub could_be_larger_bytes: u64,
    /// Bytes that larger pages would add.
    pub bloat_bytes: u64,
    /// The cause that explains most of the bytes that could be larger, with those bytes.
    pub first_cause: Option<(Cause, u64)>,
    /// Reasons why the result is incomplete.
    pub partial: Vec<String>,
}

impl Summary {
    /// The summary of an inspection.
    pub fn of(inspection: &Inspection) -> Summary {
        let first = explained(&inspection.regions).into_iter().find(|one| one.is_removable());
        Summary {
            process: inspection.process.clone(),
            census: inspection.census(),
            resident_bytes: inspection.resident_bytes(),
            could_be_larger_bytes: inspection.could_be_larger_bytes(),
            bloat_bytes: inspection.bloat_bytes(),
            first_cause: first.map(|one| (one.cause, one.bytes)),
            partial: inspection.partial.clone(),
        }
    }
}

/// What makes two causes the same: the cause, those that hold with it, the candidates, and the remedies.
type Key<'a> = (&'a Cause, [&'a [Cause]; 2], &'a [Remedy]);

/// The causes of many regions, largest first; each combination of cause, candidates and remedies occurs once. The evidence comes
/// from the region in which the cause explains most.
pub fn explained<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Vec<Explained> {
    let mut by_cause: BTreeMap<Key, (u64, &Explained)> = BTreeMap::new();
    for one in regions.into_iter().flat_map(|region| &region.causes) {
        let entry = by_cause.entry((&one.cause, [&one.also, &one.or], &one.remedies)).or_insert((0, one));
        entry.0 += one.bytes;
        if one.bytes > entry.1.bytes {
            entry.1 = one;
        }
    }
    let summed = |(bytes, one): (u64, &Explained)| Explained { bytes, ..one.clone() };
    let mut all: Vec<Explained> = by_cause.into_values().map(summed).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    all
}
