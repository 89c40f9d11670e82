//! Removes write permission from a slot, which precedes its split.

use super::cache::BLOCK_LEVELS;
use super::chunks::Mode;
use super::counters::Counters;
use super::error::Error;
use super::slot::Slot;
use super::walker::{Flags, Next, Visit, Visited, Visitor, Walk, walk};
use paging::InputAddress;
use paging::Log;
use paging::Tables;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::{Format, Kind};

/// Removes write permission from every leaf of a slot: the walk that KVM makes before it splits
/// (kvm_pgtable_stage2_wrprotect), in ranges of the largest block when logging is enabled, of 64 pages when the log is
/// cleared. The TLBs are invalidated once, at the end.
///
/// # Errors
/// The slot is empty, misaligned or too large, or tables cannot be followed.
pub fn write_protect_slot<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    slot: Slot,
    mode: Mode,
) -> Result<Counters, Error> {
    let geometry = tables.geometry();
    geometry.range(slot.ipa, slot.bytes)?;
    let highest = if tables.format().granule() == Granule::K4 { BLOCK_LEVELS.1 } else { BLOCK_LEVELS.0 };
    let bytes = match mode {
        Mode::Enable => geometry.span(highest),
        Mode::Clear => 64 * geometry.page_bytes(),
    };
    let mut counters = Counters::default();
    let (mut ipa, end) = (slot.ipa, slot.ipa + slot.bytes);
    while ipa < end {
        // Words of the bitmap count from the start of the slot, blocks from address zero.
        let from = if mode == Mode::Enable { InputAddress(0) } else { slot.ipa };
        let next = (from + ((ipa - from) / bytes + 1) * bytes).min(end);
        protect_range(tables, Slot { ipa, bytes: next - ipa }, &mut counters)?;
        ipa = next;
    }
    invalidate(tables, slot, &mut counters);
    Ok(counters)
}

/// Removes write permission from the leaves of one range, in one walk, without a TLB invalidation.
pub(super) fn protect_range<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    range: Slot,
    counters: &mut Counters,
) -> Result<(), Error> {
    walk(tables, range.ipa, range.bytes, Flags::LEAF, &mut WriteProtect, counters)
}

/// Invalidates the TLBs for a slot.
pub(super) fn invalidate<L: Log>(tables: &mut Tables<Arm64Stage2, L>, slot: Slot, counters: &mut Counters) {
    let first = tables.geometry().resolved(slot.ipa);
    tables.invalidate(first, slot.bytes, false);
    counters.tlb_invalidations += 1;
}

struct WriteProtect;

impl<L: Log> Visitor<L> for WriteProtect {
    #[inline(always)]
    fn visit(&mut self, walk: &mut Walk<'_, L>, visited: &Visited, _: Visit) -> Result<Next, Error> {
        let Visited { pa, va, level, entry } = *visited;
        let format = *walk.tables.format();
        if format.kind(level, entry) != Kind::Leaf {
            return Ok(Next::Entry);
        }
        let new = format.without_write(entry);
        if new != entry {
            // The bits above those that stage 2 resolves are zero.
            walk.tables.write(paging::Slot { pa, va: va.0, level, entry }, new)?;
            walk.counters.entries_protected += 1;
        }
        Ok(Next::Entry)
    }
}
