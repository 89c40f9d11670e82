//! Accessed and dirty state: set as hardware sets it, and collected by software.

use super::Tables;
use super::slot::end_of;
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::Flags;
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
    /// Sets the flags that hardware sets when `va` is read or written: only in the entry that it walks to, even if that
    /// belongs to a group. Without hardware dirty state a write sets only accessed.
    ///
    /// # Errors
    /// As [`Tables::translate`].
    pub fn access(&mut self, va: InputAddress, write: bool) -> Result<(), Error> {
        self.translate(va)?;
        let slot = self.slot(self.geometry().resolved(va))?;
        let set = if write { Flags::STATE } else { Flags::ACCESSED };
        let new = self.format.with_state(slot.entry, self.format.state(slot.entry) | set);
        match self.arena.entry_mut(slot.pa) {
            Some(entry) => *entry = new,
            None => return Err(self.outside(slot.pa, va, slot.level)),
        }
        Ok(())
    }

    /// Collects the accessed and dirty flags of the leaves in a range, and clears those in `clear`. `found` gets the
    /// first input address, the bytes and the flags of each leaf. For a contiguous group the flags of all its entries
    /// are combined, because hardware sets them in any one.
    ///
    /// # Errors
    /// The range is misaligned or not canonical, or tables cannot be followed.
    pub fn harvest(
        &mut self,
        va: InputAddress,
        bytes: u64,
        clear: Flags,
        mut found: impl FnMut(InputAddress, u64, Flags),
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        // Leaves and groups that extend past the ends are invalidated as a whole, because they were changed as a whole.
        let (mut from, mut to) = (first, end);
        let mut found = |va, bytes, state| {
            let va_resolved = geometry.resolved(va);
            (from, to) = (from.min(va_resolved), to.max(va_resolved + bytes));
            found(va, bytes, state);
        };
        self.harvest_table(self.root, geometry.root_level(), first, end, clear & Flags::STATE, &mut found)?;
        if !clear.is_empty() {
            self.invalidate(from, to - from, false);
        }
        Ok(())
    }

    fn harvest_table(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        clear: Flags,
        found: &mut impl FnMut(InputAddress, u64, Flags),
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let span = geometry.span(level);
        let mut va = va;
        while va < end {
            let slot = self.slot_in(table, level, va)?;
            let group_bits = self.format.group_bits(level, slot.entry).max(self.format.run_bits());
            let next = match self.format.kind(level, slot.entry) {
                Kind::Table if level > 0 => {
                    let next = end_of(va, span).min(end);
                    let below = self.format.table_address(slot.entry);
                    self.harvest_table(below, level - 1, va, next, clear, found)?;
                    next
                }
                Kind::Leaf => {
                    // A group is harvested as a whole, even if the range contains only a part of it.
                    let group = span << group_bits;
                    let (group_va, next) = (va & !(group - 1), end_of(va, group));
                    let state = self.harvest_group(table, level, group_va, 1 << group_bits, clear)?;
                    found(geometry.extended(group_va), group, state);
                    next
                }
                _ => end_of(va, span),
            };
            va = next.min(end);
        }
        Ok(())
    }

    fn harvest_group(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        count: u64,
        clear: Flags,
    ) -> Result<Flags, Error> {
        let span = self.geometry().span(level);
        let mut state = Flags::empty();
        for index in 0..count {
            let slot = self.slot_in(table, level, va + index * span)?;
            let found = self.format.state(slot.entry);
            state |= found;
            if found.intersects(clear) {
                self.write(slot, self.format.with_state(slot.entry, found - clear))?;
            }
        }
        Ok(state)
    }
}
