//! mremap: memory that grows, shrinks and moves.

use host::maps::{self, VmaKind};

use crate::huge_map::{Action, NONE, Protection, outline};
use crate::registers::is_error;

use super::{Call, ENOMEM, Halt, MOVE_TO, NO_RESERVE, PRIVATE_ANONYMOUS, READ_WRITE, Served, WRITE};

const MAY_MOVE: u64 = libc::MREMAP_MAYMOVE as u64;
const EFAULT: i64 = -(libc::EFAULT as i64);

impl Call<'_, '_> {
    pub(super) fn mremap(&mut self, [old, old_bytes, new_bytes, flags, target, _]: [u64; 6]) -> Served {
        let base = self.context.rewriting.base;
        let (Some(old_bytes), Some(bytes)) = (self.base_up(old_bytes), self.base_up(new_bytes)) else {
            return Ok(None);
        };
        let ends = (old.checked_add(old_bytes), old.checked_add(bytes), target.checked_add(bytes));
        let (Some(old_end), Some(grown_end), Some(target_end)) = ends else { return Ok(None) };
        if base.align_down(old) != old {
            return Ok(None);
        }
        if flags & libc::MREMAP_FIXED as u64 != 0 {
            return self.move_over((old, old_end), (target, target_end));
        }
        if !self.map.concerns(old, old_end) {
            self.map.spoil(old, old_end);
            return self.outgrow(old, old_end, bytes, flags);
        }
        if flags & !MAY_MOVE != 0 || old_bytes == 0 || bytes == 0 {
            self.demote_range(old, old_end)?;
            return Ok(None);
        }
        if grown_end <= old_end {
            let actions = self.map.unmap(grown_end, old_end, self.size);
            self.carry_out(&actions)?;
            return Ok(Some(old as i64));
        }
        match self.map.uniform_protection(old, old_end) {
            Some(protection) if protection & WRITE != 0 => self.grow(old, old_end, grown_end, flags, protection),
            _ => self.grow_on_base_pages(old, old_end, bytes, flags),
        }
    }

    /// Grows a writable mapping of pool pages.
    fn grow(&mut self, old: u64, old_end: u64, grown_end: u64, flags: u64, protection: Protection) -> Served {
        let fits = self.map.is_slack(old_end, grown_end);
        if fits && self.map.misfits(old_end, grown_end, protection, self.size).is_empty() {
            let actions = self.map.show(old_end, grown_end, protection, self.size);
            self.carry_out(&actions)?;
            return Ok(Some(old as i64));
        }
        if flags & MAY_MOVE == 0 {
            return Ok(Some(ENOMEM));
        }
        if self.map.is_exclusive(old, old_end, self.size)
            && let Some(start) = self.grow_elsewhere(old, old_end, grown_end - old, protection)?
        {
            return Ok(Some(start as i64));
        }
        self.grow_on_base_pages(old, old_end, grown_end - old, flags)
    }

    /// Grows what pool pages back in part, or not in one piece. The kernel only moves single mappings, so
    /// what was one to the program is copied.
    fn grow_on_base_pages(&mut self, old: u64, old_end: u64, bytes: u64, flags: u64) -> Served {
        self.demote_range(old, old_end)?;
        let result = self.paused.own_call()?;
        if result != EFAULT || flags & MAY_MOVE == 0 || !self.is_plain(old, old_end) {
            return Ok(Some(result));
        }
        let start = self.must(libc::SYS_mmap, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0])?;
        match self.copy(old, start, old_end - old) {
            Ok(()) => {
                self.call(libc::SYS_munmap, [old, old_end - old, 0, 0, 0, 0])?;
                Ok(Some(start as i64))
            }
            Err(_) => {
                self.call(libc::SYS_munmap, [start, bytes, 0, 0, 0, 0])?;
                Ok(Some(ENOMEM))
            }
        }
    }

    /// Whether a range is ordinary writable memory without a file or a hole.
    fn is_plain(&self, start: u64, end: u64) -> bool {
        let vmas = maps::of_process(self.paused.tid());
        let mut at = start;
        for vma in vmas.iter().filter(|vma| vma.start < end && start < vma.end) {
            let anonymous = vma.kind() == VmaKind::Anonymous;
            if vma.start > at || !anonymous || vma.protection != READ_WRITE || !vma.name.is_empty() {
                return false;
            }
            at = vma.end;
        }
        at >= end
    }

    /// mremap with MREMAP_FIXED: the memory is given back and moved as the program says.
    fn move_over(&mut self, old: (u64, u64), target: (u64, u64)) -> Served {
        let overlap = target.0 < old.1 && old.0 < target.1;
        if overlap || self.context.rewriting.base.align_down(target.0) != target.0 || target.0 == target.1 {
            return Ok(None); // the kernel refuses it
        }
        self.demote_range(old.0, old.1)?;
        self.map.spoil(old.0, old.1);
        if !self.map.concerns(target.0, target.1) {
            self.map.spoil(target.0, target.1);
            return Ok(None);
        }
        let edges = self.clear_target(target.0, target.1)?;
        let result = self.paused.own_call()?;
        self.carry_out(&edges)?;
        Ok(Some(result))
    }

    /// An ordinary mapping that was too small for the pool grows to a size that fits: it moves there once.
    fn outgrow(&mut self, old: u64, old_end: u64, bytes: u64, flags: u64) -> Served {
        let outgrows = old_end - old < self.size.bytes() && bytes >= self.size.bytes();
        if !outgrows || flags != MAY_MOVE || old == old_end {
            return Ok(None);
        }
        if !self.is_plain(old, old_end) {
            return Ok(None);
        }
        let start = self.map_pages(0, bytes, READ_WRITE, PRIVATE_ANONYMOUS)?;
        if is_error(start) {
            self.note_refusal(start, bytes);
            return Ok(None);
        }
        let start = start as u64;
        let whole = outline(start, start + bytes, self.size);
        if self.copy(old, start, old_end - old).is_err() {
            self.call(libc::SYS_munmap, [whole.0, whole.1 - whole.0, 0, 0, 0, 0])?;
            return Ok(None);
        }
        self.map.back(whole, (start, start + bytes), READ_WRITE);
        self.call(libc::SYS_munmap, [old, old_end - old, 0, 0, 0, 0])?;
        Ok(Some(start as i64))
    }

    /// Grows a mapping at a new place, taking its pages along. `None` where that cannot be done.
    fn grow_elsewhere(
        &mut self,
        old: u64,
        old_end: u64,
        bytes: u64,
        protection: Protection,
    ) -> Result<Option<u64>, Halt> {
        let Some(whole_bytes) = self.size.align_up(bytes) else { return Err(Halt::Error(ENOMEM)) };
        let room_bytes = whole_bytes + self.size.bytes();
        let room = self.must(libc::SYS_mmap, [0, room_bytes, NONE, PRIVATE_ANONYMOUS | NO_RESERVE, u64::MAX, 0])?;
        let start = self.size.align_up(room).ok_or(Halt::Error(ENOMEM))?;
        let (end, whole_end, room_end) = (start + bytes, start + whole_bytes, room + room_bytes);
        let pages = outline(old, old_end, self.size);
        let brought = pages.1 - pages.0;
        let moved = self.call(libc::SYS_mremap, [pages.0, brought, brought, MOVE_TO, start, 0])?;
        if is_error(moved) {
            self.call(libc::SYS_munmap, [room, room_bytes, 0, 0, 0, 0])?;
            return Ok(None);
        }
        self.map.hide(old, old_end, self.size);
        let seen = (start + brought).min(end);
        self.map.back((start, start + brought), (start, seen), protection);
        let mut actions = vec![Action::Zero(start + (old_end - old), seen)];
        actions.extend((room < start).then_some(Action::Unmap(room, start)));
        actions.extend((whole_end < room_end).then_some(Action::Unmap(whole_end, room_end)));
        self.carry_out(&actions)?;
        if start + brought < whole_end {
            self.open_rest(start + brought, end, protection)?;
        }
        Ok(Some(start))
    }

    /// Opens the rest of a reservation that the tracer made, up to the end of the page behind `end`.
    fn open_rest(&mut self, start: u64, end: u64, protection: Protection) -> Result<(), Halt> {
        let pages = outline(start, end, self.size);
        self.must(libc::SYS_mprotect, [start, pages.1 - start, protection, 0, 0, 0])?;
        self.convert(pages, protection)?;
        let slack = (end, pages.1);
        let ordinary = self.map.ordinary(slack.0, slack.1);
        self.map.hide(slack.0, slack.1, self.size);
        self.carry_out(&ordinary.into_iter().map(|(s, e)| Action::Unmap(s, e)).collect::<Vec<_>>())
    }
}
