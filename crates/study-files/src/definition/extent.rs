//! Computes the extent of a study, which is its number of trials, before the study is built.

use std::cell::Cell;

use super::wire::{WireSize, WireWorkload};
use super::{DefinitionError, HOST};
use study::comparison::Design;

/// Maximum number of trials of a study. At a second each they take more than a day.
pub const MAX_TRIALS: u64 = 100_000;
/// Maximum bytes of the words of all rows after their placeholders are filled in.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// The factors of a study's number of trials.
pub(super) struct Extent {
    rows: u128,
    policies: u128,
    runs: u128,
}

impl Extent {
    /// The extent of these rows under each policy: the blocks of each boot on the host, and one run on each model machine.
    pub fn new(rows: u128, policies: usize, machines: &[String], wire_size: &WireSize, boots: usize) -> Extent {
        let hosts = machines.iter().filter(|machine| *machine == HOST).count();
        let blocks = wire_size.blocks.unwrap_or_else(|| wire_size.min_blocks.unwrap_or(Design::MIN_BLOCKS));
        let boots = u128::from(wire_size.boots.unwrap_or(1).max(1)) * boots.max(1) as u128;
        let measured = (hosts as u128 * boots).saturating_mul(u128::from(blocks));
        let runs = measured.saturating_add((machines.len() - hosts) as u128);
        Extent { rows, policies: policies as u128, runs }
    }

    /// Refuses an extent of more than [`MAX_TRIALS`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        let Extent { rows, policies, runs } = *self;
        match rows.saturating_mul(policies).saturating_mul(runs) {
            trials if trials <= u128::from(MAX_TRIALS) => Ok(()),
            trials => Err(DefinitionError::TooManyTrials { max: MAX_TRIALS, trials, rows, policies, runs }),
        }
    }
}

/// Number of rows of workloads: each combination of axis values, for each variant. `of_study` is the number of variants
/// of a workload without variants of its own.
pub(super) fn rows<'a>(workloads: impl IntoIterator<Item = &'a WireWorkload>, of_study: usize) -> u128 {
    let rows = |workload: &WireWorkload| {
        let variants = if workload.variants.is_empty() { of_study } else { workload.variants.len() };
        let lengths = workload.axes.values().map(Vec::len).chain([variants.max(1)]);
        lengths.fold(1u128, |product, length| product.saturating_mul(length as u128))
    };
    workloads.into_iter().map(rows).fold(0, u128::saturating_add)
}

/// Limits the bytes of all words of a study.
pub(super) struct TextBudget {
    remaining_bytes: Cell<usize>,
}

impl TextBudget {
    pub fn new() -> TextBudget {
        TextBudget { remaining_bytes: Cell::new(MAX_TEXT_BYTES) }
    }

    /// Takes the bytes of a text, or refuses the study.
    pub fn take(&self, bytes: usize) -> Result<(), DefinitionError> {
        let remaining_bytes = self.remaining_bytes.get().checked_sub(bytes);
        self.remaining_bytes.set(remaining_bytes.ok_or(DefinitionError::TooMuchText { max_bytes: MAX_TEXT_BYTES })?);
        Ok(())
    }
}
