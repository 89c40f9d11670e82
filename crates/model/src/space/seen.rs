//! What was seen of memory that a policy concerns, and the verdict that follows.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use paging::Census;
use serde::Serialize;
use study::cause::{Cause, CauseShare};
use study::verdict::Verdict;

/// What was seen of the memory that a policy concerns.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) concerned_bytes: u64,
    pub(super) covered_bytes: u64,
    causes: BTreeMap<Cause, u64>,
    full: Slots,
    partial: Slots,
    pub(super) left_out: LeftOut,
    /// Whether `pagelab compare` would look at what is about to go.
    pub(super) is_looked_at: bool,
}

/// What a verdict counts before it goes and `pagelab compare` does not look at without `--prove-all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Bytes that the policy concerns.
    pub concerned_bytes: u64,
    /// Those of them that are mapped as asked.
    pub covered_bytes: u64,
}

/// Slots in which huge pages were allowed, and yet there are others.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    count: u64,
    bytes: u64,
}

impl Slots {
    /// Takes up to `count` slots away and returns their bytes, at the average of these slots.
    fn take(&mut self, count: u64) -> u64 {
        let count = count.min(self.count);
        let bytes = u128::from(self.bytes) * u128::from(count) / u128::from(self.count.max(1));
        *self = Slots { count: self.count - count, bytes: self.bytes - bytes as u64 };
        bytes as u64
    }
}

/// A slot that is being looked at.
pub(super) struct Slot {
    pub(super) begin: u64,
    pub(super) present_bytes: u64,
    pub(super) missing_bytes: u64,
    pub(super) has_zeros: bool,
}

impl Seen {
    pub(super) fn add(&mut self, cause: Cause, bytes: u64) {
        if bytes > 0 {
            *self.causes.entry(cause).or_default() += bytes;
        }
    }

    /// A direct map has no VMAs; only the ends of memory are mapped smaller than asked.
    pub(super) fn direct(&mut self, census: &Census, leaf_bytes: u64) {
        for (size, bytes) in &census.mapped_bytes {
            self.concerned_bytes += bytes;
            match size.leaf_bytes.cmp(&leaf_bytes) {
                Ordering::Equal => self.covered_bytes += bytes,
                Ordering::Less => self.add(Cause::NoAlignedSlot, *bytes),
                Ordering::Greater => self.add(Cause::LargerThanAsked, *bytes),
            }
        }
    }

    pub(super) fn close(&mut self, slot: Option<Slot>, slot_bytes: u64) {
        let Some(slot) = slot.filter(|slot| slot.missing_bytes > 0) else { return };
        let slots = match () {
            () if slot.has_zeros => return self.add(Cause::ZeroPageInSlot, slot.missing_bytes),
            () if slot.present_bytes < slot_bytes => &mut self.partial,
            () => &mut self.full,
        };
        slots.count += 1;
        slots.bytes += slot.missing_bytes;
    }

    /// The verdict. Allocations that fell back explain at most as many slots as they were, full ones first.
    pub(super) fn verdict(mut self, fallbacks: u64) -> Verdict {
        let left = fallbacks.saturating_sub(self.full.count);
        let fell_back = self.full.take(fallbacks) + self.partial.take(left);
        self.add(Cause::AllocationFellBack { counter: "allocation_fallbacks".to_owned(), times: fallbacks }, fell_back);
        self.add(Cause::TouchedBeforeEligible, self.full.bytes);
        self.add(Cause::SlotPartlyPresent, self.partial.bytes);
        let share = |(cause, bytes)| CauseShare { cause, bytes: Some(bytes) };
        let mut causes: Vec<CauseShare> = self.causes.into_iter().map(share).collect();
        if self.concerned_bytes == 0 {
            causes.push(CauseShare { cause: Cause::NothingToSee, bytes: None });
        }
        causes.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        Verdict {
            holding: Verdict::holding_of(self.concerned_bytes, self.covered_bytes),
            concerned_bytes: self.concerned_bytes,
            covered_bytes: self.covered_bytes,
            peak: None,
            causes,
            answered: Vec::new(),
        }
    }
}
