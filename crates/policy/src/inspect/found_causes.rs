//! [`FoundCauses`]: causes with their bytes, evidence and remedies, collected over a region.

use std::collections::BTreeMap;

use super::region::Explained;
use crate::cause::Cause;
use crate::remedy::{Memory, Remedy, remedies};

/// Bytes and evidence collected so far, by cause.
#[derive(Default)]
pub struct FoundCauses(BTreeMap<Reason, (u64, Vec<String>)>);

/// A cause, with the causes that hold at the same time and the candidates that cannot be distinguished from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reason {
    cause: Cause,
    also: Vec<Cause>,
    or: Vec<Cause>,
}

impl FoundCauses {
    /// The largest number of pieces of evidence kept for one cause.
    const MAX_EVIDENCE: usize = 4;

    /// Adds memory for a cause and its other candidates.
    pub fn add(&mut self, cause: Cause, or: Vec<Cause>, bytes: u64, evidence: impl FnOnce() -> Vec<String>) {
        self.add_reason(Reason { cause, also: Vec::new(), or }, bytes, evidence);
    }

    /// Adds memory for which all these causes hold.
    pub fn add_all(&mut self, causes: Vec<Cause>, bytes: u64, evidence: Vec<String>) {
        let mut causes = causes.into_iter();
        if let Some(cause) = causes.next() {
            self.add_reason(Reason { cause, also: causes.collect(), or: Vec::new() }, bytes, || evidence);
        }
    }

    fn add_reason(&mut self, reason: Reason, bytes: u64, evidence: impl FnOnce() -> Vec<String>) {
        if bytes == 0 {
            return;
        }
        let (sum, found) = self.0.entry(reason).or_default();
        *sum += bytes;
        if found.len() < FoundCauses::MAX_EVIDENCE {
            let new = evidence().into_iter().filter(|line| !found.contains(line)).collect::<Vec<_>>();
            found.extend(new);
            found.truncate(FoundCauses::MAX_EVIDENCE);
        }
    }

    /// The index of the cause that explains most, among causes that were collected before.
    pub fn largest_among(self, causes: &[Explained]) -> Option<usize> {
        let (largest, _) = self.0.into_iter().max_by_key(|(_, (bytes, _))| *bytes)?;
        let is_it = |one: &Explained| one.cause == largest.cause && one.also == largest.also && one.or == largest.or;
        causes.iter().position(is_it)
    }

    /// The causes with their remedies, largest first.
    pub fn explained(self, memory: &Memory) -> Vec<Explained> {
        let explained = |(Reason { cause, also, or }, (bytes, evidence))| {
            let remedies = remedies_for(memory, &cause, &also, &or);
            Explained { cause, also, or, bytes, evidence, remedies }
        };
        let mut all: Vec<Explained> = self.0.into_iter().map(explained).collect();
        all.sort_by_key(|explained| std::cmp::Reverse(explained.bytes));
        all
    }
}

/// The remedies for a cause and all that hold with it, then those for each of the other candidates.
fn remedies_for(memory: &Memory, cause: &Cause, also: &[Cause], or: &[Cause]) -> Vec<Remedy> {
    let together: Vec<&Cause> = std::iter::once(cause).chain(also).collect();
    let mut found = remedies(memory, &together);
    let of_candidates: Vec<(&Cause, Vec<Remedy>)> =
        or.iter().map(|candidate| (candidate, remedies(memory, &[candidate]))).collect();
    for remedy in &mut found {
        let helps = |others: &[Remedy]| others.iter().any(|other| other.changes == remedy.changes);
        let without: Vec<String> = of_candidates
            .iter()
            .filter(|(_, others)| !helps(others))
            .map(|(candidate, _)| candidate.describe())
            .collect();
        let unless = (!without.is_empty()).then(|| format!("unless {}", without.join("; or ")));
        remedy.only = remedy.only.take().or(unless);
    }
    for (candidate, others) in of_candidates {
        let only = format!("if {}", candidate.describe());
        for remedy in others {
            if !found.iter().any(|other| other.changes == remedy.changes) {
                found.push(Remedy { only: Some(remedy.only.unwrap_or_else(|| only.clone())), ..remedy });
            }
        }
    }
    found
}
