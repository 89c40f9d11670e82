//! The figures of one program in one boot.

use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::census::Backing;
use policy::size::PageSize;

use crate::comparison::Comparison;
use crate::metric::{Unit, names as metrics};
use crate::role::Role;
use crate::trial::TrialRecord;

/// Counts and bytes, by name.
pub type Figures = BTreeMap<String, f64>;

/// The names of figures that do not depend on the program or on sizes.
pub mod names {
    /// Page faults, with and without I/O.
    pub const FAULTS: &str = "faults";
    /// Instructions in user mode and in the kernel.
    pub const INSTRUCTIONS: &str = "instructions";
    /// The part of them in user mode.
    pub const USER_INSTRUCTIONS: &str = "user_instructions";
    /// The part of them in the kernel.
    pub const KERNEL_INSTRUCTIONS: &str = "kernel_instructions";
    /// Page tables, as far as they were seen.
    pub const PAGE_TABLE_BYTES: &str = "page_table_bytes";
    /// The largest resident set.
    pub const PEAK_RESIDENT_BYTES: &str = "peak_resident_bytes";

    /// All of them, in the order in which they are shown.
    pub const ALL: [&str; 6] =
        [FAULTS, INSTRUCTIONS, USER_INSTRUCTIONS, KERNEL_INSTRUCTIONS, PAGE_TABLE_BYTES, PEAK_RESIDENT_BYTES];
}

/// Sorts names of figures: those of every program first, then phases, then sizes.
pub fn ordered<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = names.collect();
    let place = |name: &&str| match names::ALL.iter().position(|one| one == name) {
        Some(place) => (place, 0),
        None if name.ends_with("_instructions") => (names::ALL.len(), 0),
        None => (names::ALL.len() + 1, size_of_name(name)),
    };
    all.sort_by_key(|name| (place(name), *name));
    all
}

/// A figure. Memory of a size that none of the inspected memory has is 0.
pub fn value(figures: &Figures, name: &str) -> Option<f64> {
    const PARTLY: &str = "_seen_bytes";
    let is_partial = name.ends_with(PARTLY);
    let is_size = (name.starts_with("leaf_") || name.starts_with("folio_")) && name.ends_with("_bytes");
    let was_inspected = |other: &String| other.starts_with("leaf_") && other.ends_with(PARTLY) == is_partial;
    let is_zero = is_size && size_of_name(name) > 0 && figures.keys().any(was_inspected);
    figures.get(name).copied().or(is_zero.then_some(0.0))
}

/// The bytes of `64K` in `leaf_64K_bytes`; 0 for other names.
fn size_of_name(name: &str) -> u64 {
    let size = name.split('_').nth(1).and_then(|word| word.parse::<PageSize>().ok());
    size.map_or(0, PageSize::bytes)
}

/// The figures of a comparison of one program under `default`. Faults and instructions are those of the run without the tracer,
/// whose stops cost instructions too; only the traced run shows which pages map the memory. The first block is left out.
pub fn figures_of(comparison: &Comparison) -> Figures {
    let design = &comparison.design;
    let arm_of = |is: fn(&Role) -> bool| design.arms.iter().position(|arm| is(&arm.role));
    let traced = counted(comparison, Some(design.baseline));
    let bare = counted(comparison, arm_of(|role| *role == Role::Bare));
    let untraced = if bare.is_empty() { &traced } else { &bare };
    let mut figures = Figures::new();
    let mut add = |name: String, value: Option<f64>| {
        if let Some(value) = value {
            figures.insert(name, value);
        }
    };
    let faults = |trial: &TrialRecord| Some(trial.value(metrics::MINOR_FAULTS)? + trial.value(metrics::MAJOR_FAULTS)?);
    add(names::FAULTS.into(), least(untraced, faults));
    for (name, metric, trials) in [
        (names::INSTRUCTIONS, metrics::INSTRUCTIONS, untraced),
        (names::USER_INSTRUCTIONS, metrics::USER_INSTRUCTIONS, untraced),
        (names::KERNEL_INSTRUCTIONS, metrics::KERNEL_INSTRUCTIONS, untraced),
        (names::PAGE_TABLE_BYTES, metrics::PAGE_TABLE_SEEN_BYTES, &traced),
        (names::PEAK_RESIDENT_BYTES, metrics::PEAK_RESIDENT_BYTES, &traced),
    ] {
        add(name.into(), least(trials, |trial| trial.value(metric)));
    }
    for metric in design.metrics.iter().filter(|metric| metric.unit == Unit::Custom) {
        add(metric.name.clone(), least(untraced, |trial| trial.value(&metric.name)));
    }
    for (name, value) in sizes(&traced) {
        add(name, Some(value));
    }
    figures
}

/// The trials of an arm that count.
fn counted(comparison: &Comparison, arm: Option<usize>) -> Vec<&TrialRecord> {
    let is_counted =
        |record: &&TrialRecord| Some(record.trial.arm) == arm && record.trial.block > 0 && record.rejected.is_empty();
    comparison.trials.iter().filter(is_counted).collect()
}

/// The least of the trials; `None` unless every trial has the figure. What disturbs a run only adds to its counts: an interrupt, or
/// work of the kernel for others that it does in the program's time.
fn least(trials: &[&TrialRecord], value: impl Fn(&TrialRecord) -> Option<f64>) -> Option<f64> {
    let values = trials.iter().map(|trial| value(trial)).collect::<Option<Vec<f64>>>()?;
    values.into_iter().min_by(f64::total_cmp)
}

/// The memory of each leaf size, and of each size of folios that are larger than their leaves, in the last trial: trials of one boot
/// have the same memory. Where a part could not be inspected, the names say `seen`, so that they are compared only with their like.
fn sizes(trials: &[&TrialRecord]) -> Figures {
    let Some(last) = trials.last().filter(|trial| !trial.census.is_empty()) else { return Figures::new() };
    let unit = if is_whole(last) { "bytes" } else { "seen_bytes" };
    let mut figures = Figures::new();
    let present = last.census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero);
    for (mapping, bytes) in present {
        *figures.entry(format!("leaf_{}_{unit}", mapping.leaf)).or_default() += bytes as f64;
        if let Some(size) = mapping.larger_folio() {
            *figures.entry(format!("folio_{size}_{unit}")).or_default() += bytes as f64;
        }
    }
    figures
}

/// Whether all memory was inspected before it was freed. Kernels before 6.7 show no part of a mapping.
fn is_whole(record: &TrialRecord) -> bool {
    let is_unseen = |cause: &Cause| {
        matches!(
            cause,
            Cause::ProcessUnseen { .. } | Cause::PeakUnseen | Cause::PeakUnwatched { .. } | Cause::FreedBeforeExit
        )
    };
    !record.verdict.causes.iter().any(|share| is_unseen(&share.cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_table() {
        let names = ["leaf_2M_bytes", "leaf_4K_bytes", "fork_instructions", "instructions", "faults"];
        let ordered = ordered(names.into_iter());
        assert_eq!(ordered, ["faults", "instructions", "fork_instructions", "leaf_4K_bytes", "leaf_2M_bytes"]);
    }
}
