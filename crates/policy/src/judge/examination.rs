//! [`Examination`]: what the memory of one process or several shows about a policy.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Unread;
use super::coverage::Aim;
use super::eligible::Eligibility;
use super::slots::{Shape, ShapeSum};
use crate::cause::Cause;
use crate::census::Census;
use crate::size::PageSize;

/// What the census of one process or several shows about a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// All memory that was present.
    pub census: Census,
    /// Anonymous and hugetlb bytes: the memory that policies apply to.
    pub concerned_bytes: u64,
    /// Concerned bytes that are mapped as asked.
    pub covered_bytes: u64,
    /// Concerned bytes whose folios are not visible.
    pub unseen_bytes: u64,
    /// Why the other bytes are not mapped as asked. Slots for which the size is permitted are not included: [`super::Evidence`]
    /// attributes them.
    pub causes: BTreeMap<Cause, u64>,
    /// Other causes that were noted, with bytes where they are known.
    pub(super) notes: BTreeMap<Cause, u64>,
    /// Completely present slots in which the size is permitted.
    pub(super) full: Slots,
    /// Completely present slots in which the size is permitted, in processes that forked or were forked.
    pub(super) full_after_fork: Slots,
    /// Partly present slots in which the size is permitted.
    pub(super) partial: Slots,
    /// Whether the policy asks for a page size.
    pub(super) asks_for_size: bool,
    /// Covered bytes that count as base pages because PR_SET_THP_DISABLE was in force.
    pub(super) proven_bytes: u64,
    /// Whether larger anonymous pages were seen although PR_SET_THP_DISABLE should be in force; it then proves nothing.
    pub(super) is_disable_undone: bool,
    /// Concerned bytes of processes that could not be examined.
    pub(super) unseen_in_processes: u64,
    /// Whether the memory size of some unexamined process is unknown.
    pub(super) has_unsized_process: bool,
    /// Whether the memory being added belongs to a process that forked or was forked.
    after_fork: bool,
}

/// Slots that have no page of the requested size although it is permitted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    pub count: u64,
    pub bytes: u64,
}

impl Examination {
    /// An examination of no memory. Under a policy that asks for a size, it does not prove that the policy held.
    pub fn empty(aim: Aim) -> Examination {
        Examination { asks_for_size: aim != Aim::Nothing, ..Examination::default() }
    }

    /// An examination of a census before any cause has been found.
    pub(super) fn of(census: &Census, aim: Aim, after_fork: bool) -> Examination {
        let concerned_bytes = census.concerned_bytes();
        Examination { census: census.clone(), concerned_bytes, after_fork, ..Examination::empty(aim) }
    }

    /// An examination of a direct map by its leaves, where only the ends of memory are smaller than asked.
    pub fn of_leaves(asked: PageSize, leaves: impl IntoIterator<Item = (PageSize, u64)>) -> Examination {
        let mut examination = Examination::empty(Aim::Leaf(asked));
        for (leaf, bytes) in leaves {
            examination.concerned_bytes += bytes;
            match leaf.cmp(&asked) {
                Ordering::Equal => examination.covered_bytes += bytes,
                Ordering::Less => examination.add(Cause::NoAlignedSlot, bytes),
                Ordering::Greater => examination.add(Cause::LargerThanAsked, bytes),
            }
        }
        examination
    }

    /// Counts a process that could not be examined, with the reason. `memory_bytes` is its anonymous and hugetlb memory, where it
    /// is known.
    pub fn miss_process(&mut self, reason: String, memory_bytes: Option<u64>) {
        let bytes = memory_bytes.unwrap_or(0);
        self.has_unsized_process |= memory_bytes.is_none();
        self.concerned_bytes += bytes;
        self.unseen_in_processes += bytes;
        *self.causes.entry(Cause::ProcessUnseen { reason }).or_default() += bytes;
    }

    /// Adds the examination of another process or another range.
    pub fn merge(&mut self, other: Examination) {
        self.census.merge(&other.census);
        self.concerned_bytes += other.concerned_bytes;
        self.covered_bytes += other.covered_bytes;
        self.unseen_bytes += other.unseen_bytes;
        other.causes.into_iter().for_each(|(cause, bytes)| self.add(cause, bytes));
        other.notes.into_iter().for_each(|(cause, bytes)| self.note(cause, bytes));
        self.full.add(other.full);
        self.full_after_fork.add(other.full_after_fork);
        self.partial.add(other.partial);
        self.asks_for_size |= other.asks_for_size;
        self.proven_bytes += other.proven_bytes;
        self.is_disable_undone |= other.is_disable_undone;
        self.unseen_in_processes += other.unseen_in_processes;
        self.has_unsized_process |= other.has_unsized_process;
    }

    /// Notes a cause that is known from elsewhere, for example from tracing. For up to `bytes` it replaces the causes
    /// "unexplained" and "pool exhausted".
    pub fn note(&mut self, cause: Cause, bytes: u64) {
        *self.notes.entry(cause).or_default() += bytes;
    }

    pub(super) fn add(&mut self, cause: Cause, bytes: u64) {
        if bytes > 0 {
            *self.causes.entry(cause).or_default() += bytes;
        }
    }

    /// Adds memory of one shape under a policy that asks for transparent folios.
    pub(super) fn add_transparent(&mut self, sum: &ShapeSum, eligibility: &Eligibility) {
        if let Some(cause) = certain_cause(sum.shape) {
            self.add(cause, sum.missing_bytes + sum.unseen_bytes);
            return;
        }
        match eligibility {
            // Sysfs is compared around every trial, but a prctl or advice may have come late.
            Eligibility::Refused(cause @ Cause::SizeDisabled { .. }) => {
                self.add(cause.clone(), sum.missing_bytes + sum.unseen_bytes);
            }
            Eligibility::Refused(cause) => {
                self.add(cause.clone(), sum.missing_bytes);
                self.unseen_bytes += sum.unseen_bytes;
            }
            Eligibility::Eligible | Eligibility::Unknown => self.add_permitted(sum, eligibility),
        }
    }

    fn add_permitted(&mut self, sum: &ShapeSum, eligibility: &Eligibility) {
        let (missing, both) = (sum.missing_bytes, sum.missing_bytes + sum.unseen_bytes);
        match sum.shape {
            Shape::ZeroInSlot => self.add(Cause::ZeroPageInSlot, both),
            Shape::Refilled if self.after_fork => self.add(Cause::SplitAfterFork, both),
            Shape::Refilled => self.add(Cause::RefilledAfterDrop, both),
            Shape::Holes => self.partial.add(Slots { count: sum.slots, bytes: both }),
            _ if *eligibility == Eligibility::Unknown => {
                self.add(Cause::Unexplained, missing);
                self.unseen_bytes += sum.unseen_bytes;
            }
            _ => {
                let count = if missing > 0 { sum.slots } else { 0 };
                let full = if self.after_fork { &mut self.full_after_fork } else { &mut self.full };
                full.add(Slots { count, bytes: missing });
                self.unseen_bytes += sum.unseen_bytes;
            }
        }
    }

    /// Adds memory of one shape under a policy that asks for hugetlb pages.
    pub(super) fn add_hugetlb(&mut self, sum: &ShapeSum, size: PageSize, refused: bool, exhausted: bool) {
        let cause = match certain_cause(sum.shape) {
            Some(cause) => cause,
            None if refused => Cause::AdvisedAgainst,
            None if exhausted => Cause::PoolExhausted { size },
            None => Cause::Unexplained,
        };
        self.add(cause, sum.missing_bytes);
    }

    /// Adds the memory that no shape accounts for: a census without addresses has no shapes.
    pub(super) fn add_unexplained(&mut self) {
        let slots = self.full.bytes + self.full_after_fork.bytes + self.partial.bytes;
        let known = self.covered_bytes + self.unseen_bytes + slots;
        let explained: u64 = self.causes.values().sum();
        self.add(Cause::Unexplained, self.concerned_bytes.saturating_sub(known + explained));
    }
}

impl Examination {
    /// Records what could not be read. Unexplained memory is attributed to the first of these reasons, and all reasons are
    /// reported.
    pub(super) fn add_unread(&mut self, reasons: Vec<Unread>) {
        if let Some(Unread(first)) = reasons.first() {
            let bytes = self.causes.remove(&Cause::Unexplained).unwrap_or(0);
            self.add(Cause::Unread { reason: first.clone() }, bytes);
        }
        reasons.into_iter().for_each(|Unread(reason)| self.note(Cause::Unread { reason }, 0));
    }
}

impl Slots {
    pub(super) fn add(&mut self, other: Slots) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    /// Removes up to `count` slots and returns their bytes, at the average of these slots.
    pub(super) fn take(&mut self, count: u64) -> u64 {
        let count = count.min(self.count);
        if count == 0 {
            return 0;
        }
        let bytes = (u128::from(self.bytes) * u128::from(count) / u128::from(self.count)) as u64;
        *self = Slots { count: self.count - count, bytes: self.bytes - bytes };
        bytes
    }
}

impl Slots {
    /// Removes slots until at most `bytes` are left; returns the removed slots.
    pub(super) fn take_bytes_above(&mut self, bytes: u64) -> Slots {
        let above = self.bytes.saturating_sub(bytes);
        let average = self.bytes.checked_div(self.count).unwrap_or(0).max(1);
        let before = *self;
        self.take(above.div_ceil(average));
        Slots { count: before.count - self.count, bytes: before.bytes - self.bytes }
    }
}

/// The cause that follows from the shape alone, whatever the settings permit.
pub fn certain_cause(shape: Shape) -> Option<Cause> {
    match shape {
        Shape::Stack => Some(Cause::Stack),
        Shape::FileCopy => Some(Cause::PrivateFileCopy),
        Shape::TooSmall => Some(Cause::MappingTooSmall),
        Shape::NoSlot => Some(Cause::NoAlignedSlot),
        Shape::ZeroInSlot | Shape::Holes | Shape::Refilled | Shape::Full => None,
    }
}
