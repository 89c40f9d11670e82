//! Serves the calls that create and remove memory: mmap, munmap, brk.

use super::views::{Action, Protection, interior, outline};
use super::{CallServer, MOVE_TO, NO_FILE, PRIVATE_ANONYMOUS, PartResult, READ_WRITE, Served, Step};
use crate::call::prot::{NONE, WRITE};
use crate::call::{Call, madv, map};
use crate::carry_out::is_error;
use crate::guards;

impl CallServer<'_> {
    /// Serves mmap, and populates the mapping where the policy asks for it.
    pub(super) async fn mmap_populated(&mut self, call: &Call) -> Served {
        let served = self.mmap(call).await?;
        let Call::Mmap { bytes, protection, flags, .. } = *call else { return Ok(served) };
        if !self.mechanism.populates(protection, flags) {
            return Ok(served);
        }
        let start = match served {
            Some(start) => start,
            None => self.original_call().await,
        };
        if !is_error(start) {
            self.advise((start as u64, bytes), madv::POPULATE_WRITE).await;
        }
        Ok(Some(start))
    }

    async fn mmap(&mut self, call: &Call) -> Served {
        let Call::Mmap { address, bytes, protection, flags, .. } = *call else { return Ok(None) };
        let anonymous = map::can_be_of_pool(flags);
        let Some(bytes) = self.base_up(bytes).filter(|bytes| *bytes > 0) else { return Ok(None) };
        // The program sees the range as free, but for the kernel a page of the pool occupies it.
        let fills = flags & map::FIXED_NOREPLACE != 0
            && self.end_of(address, bytes).is_some_and(|end| self.views.is_slack(address, end));
        if flags & map::FIXED != 0 || fills {
            return self.mmap_over(call, bytes, anonymous, fills).await;
        }
        if map::asks_for_pool(flags) && protection & WRITE != 0 && self.group_limit().await.may_refuse_faults {
            let start = self.original_call().await;
            return Ok(Some(if is_error(start) { start } else { self.fill_requested((start as u64, bytes)).await }));
        }
        if !anonymous || bytes < self.size().bytes() {
            return Ok(None);
        }
        if protection == NONE {
            let start = self.original_call().await;
            if !is_error(start) {
                self.views.reserve(start as u64, start as u64 + bytes);
            }
            return Ok(Some(start));
        }
        let hint = if flags & map::FIXED_NOREPLACE != 0 { address } else { self.size().align_down(address) };
        let start = self.map_pages(hint, bytes, protection, flags & !map::NORESERVE).await;
        if is_error(start) {
            let ordinary = self.original_call().await;
            if !is_error(ordinary) {
                self.note_refusal(start, bytes).await;
            }
            return Ok(Some(ordinary));
        }
        let start = start as u64;
        self.views.back(outline(start, start + bytes, self.size()), (start, start + bytes), protection);
        Ok(Some(start as i64))
    }

    /// Serves mmap with MAP_FIXED, or into an unused part of a hugetlb page.
    async fn mmap_over(&mut self, call: &Call, bytes: u64, anonymous: bool, fills: bool) -> Served {
        let Call::Mmap { address: start, protection, flags, file, offset, .. } = *call else { return Ok(None) };
        let Some(end) = self.end_of(start, bytes).filter(|_| fills || flags & map::FIXED_NOREPLACE == 0) else {
            return Ok(None);
        };
        self.views.note_heap_hole(start, end);
        if self.keeps_guard_open(start, end, protection) && guards::maps_over(protection, flags) {
            self.carry_out(&[Action::Zero(start, end)]).await?;
            self.record_answer(guards::MAPPED_OVER).await;
            return Ok(Some(start as i64));
        }
        if anonymous && protection & WRITE != 0 {
            self.convert_ends(start, end).await?;
        }
        if !self.views.concerns(start, end) {
            let result = self.original_call().await;
            if !is_error(result) {
                self.record_new_mapping(start, end, protection, anonymous).await?;
            }
            return Ok(Some(result));
        }
        let (from, to) = if anonymous && protection & WRITE != 0 {
            self.show_in_shared_pages(start, end, protection).await?
        } else {
            (start, end)
        };
        if from >= to {
            return Ok(Some(start as i64));
        }
        // If the kernel refuses the call, everything must stay as it was, so the mapping is made elsewhere first.
        let flags = flags & !(map::FIXED | map::FIXED_NOREPLACE);
        // The program may pass any offset for anonymous memory.
        let offset = offset.wrapping_add(from - start);
        let made =
            self.call_or_fail(&Call::Mmap { address: 0, bytes: to - from, protection, flags, file, offset }).await?;
        self.move_onto((made, to - from), from, to).await?;
        self.record_new_mapping(from, to, protection, anonymous).await?;
        Ok(Some(start as i64))
    }

    /// Serves the opening of a part of a reservation: the pages at its ends, which it will share with the next parts, are taken
    /// from the pool now.
    async fn convert_ends(&mut self, start: u64, end: u64) -> PartResult<()> {
        let inside = interior(start, end, self.size());
        let inside = if inside.0 < inside.1 { inside } else { (u64::MAX, u64::MAX) };
        for (s, e) in self.views.convertible(start, end, self.size()) {
            self.convert((s, e.min(inside.0)), NONE).await?;
            self.convert((s.max(inside.1), e), NONE).await?;
        }
        Ok(())
    }

    /// Serves those ends of a fresh mapping that share a page with other memory of the program, where the page can stay. Returns
    /// the range that is left to map.
    async fn show_in_shared_pages(&mut self, start: u64, end: u64, protection: Protection) -> PartResult<(u64, u64)> {
        let (mut from, mut to) = (start, end);
        for page in self.views.shared_ends(start, end, self.size()) {
            let part = (start.max(page.0), end.min(page.1));
            self.views.unmap_in_view(part.0, part.1, self.size());
            if !self.views.protection_conflicts(part.0, part.1, protection, self.size()).is_empty() {
                continue;
            }
            let actions = self.views.map_in_view(part.0, part.1, protection, self.size());
            self.carry_out(&actions).await?;
            // Only the first and the last page of the range can be shared with memory outside it.
            if page.0 <= start {
                from = part.1;
            } else {
                to = part.0;
            }
        }
        Ok((from, to.max(from)))
    }

    /// Moves a mapping of `(address, bytes)` onto `[start, end)` and replaces whatever is there.
    async fn move_onto(&mut self, made: (u64, u64), start: u64, end: u64) -> PartResult<()> {
        let edges = match self.clear_target(start, end).await {
            Ok(edges) => edges,
            Err(halt) => {
                self.discard(made.0, made.1).await;
                return Err(halt);
            }
        };
        self.call_or_fail(&moved(made, start)).await?;
        self.carry_out(&edges).await
    }

    /// Replaces the hugetlb pages in a range that is about to be overwritten by ordinary memory. Whole pages with no other
    /// visible part become a reservation; the others are replaced by base pages with their content. Returns what must be unmapped
    /// outside the range after it has been replaced.
    pub(super) async fn clear_target(&mut self, start: u64, end: u64) -> PartResult<Vec<Action>> {
        for page in self.views.shared_ends(start, end, self.size()) {
            self.demote(page).await?;
        }
        let mut edges = Vec::new();
        for (s, e) in self.views.unmap_in_view(start, end, self.size()) {
            self.call_or_fail(&ordinary(s, e - s, NONE, map::FIXED | map::NORESERVE)).await?;
            edges.extend((s < start).then_some(Action::Unmap(s, start)));
            edges.extend((end < e).then_some(Action::Unmap(end, e)));
        }
        self.views.mark_touched(start, end);
        Ok(edges)
    }

    /// Updates the views after a range has been mapped afresh, and takes the part that fits from the pool.
    async fn record_new_mapping(
        &mut self,
        start: u64,
        end: u64,
        protection: Protection,
        anonymous: bool,
    ) -> PartResult<()> {
        self.views.mark_touched(start, end);
        match (anonymous, protection) {
            (false, _) => Ok(()),
            (true, NONE) => {
                self.views.reserve(start, end);
                Ok(())
            }
            (true, _) => self.convert(interior(start, end, self.size()), protection).await,
        }
    }

    pub(super) async fn munmap(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        self.views.note_heap_hole(start, end);
        if !self.views.concerns(start, end) {
            self.views.mark_touched(start, end);
            return Ok(None);
        }
        let actions = self.views.unmap(start, end, self.size());
        self.carry_out(&actions).await?;
        Ok(Some(0))
    }

    pub(super) async fn brk(&mut self, asked: u64) -> Served {
        let mut heap = self.views.heap;
        if heap.start == 0 {
            let kernel = self.result(Step::Call(Call::Brk { end: 0 })).await as u64;
            let Some(start) = self.size().align_up(kernel) else { return Ok(None) };
            heap.start = start;
            heap.program_end = start;
            heap.mapped_end = start;
        }
        if heap.has_holes && asked > heap.program_end {
            self.refill_heap(heap.program_end, asked.min(heap.mapped_end)).await?;
        }
        if asked > heap.mapped_end {
            let Some(end) = self.size().align_up(asked) else { return Ok(Some(heap.program_end as i64)) };
            if self.grow_heap(heap.mapped_end, end).await? {
                if self.mechanism.prefault {
                    self.advise((heap.mapped_end, end - heap.mapped_end), madv::POPULATE_WRITE).await;
                }
                heap.mapped_end = end;
                heap.program_end = asked;
            }
        } else if asked >= heap.start {
            self.shrink_heap(asked, heap.program_end).await?;
            heap.program_end = asked;
        }
        self.views.heap = heap;
        Ok(Some(heap.program_end as i64))
    }

    /// Shrinks the heap from `to` to `from`. The memory stays mapped and must read as zero when the heap grows again.
    async fn shrink_heap(&mut self, from: u64, to: u64) -> PartResult<()> {
        // The kernel also keeps the rest of the last base page (`SYSCALL_DEFINE1(brk)` in mm/mmap.c).
        let (Some(from), Some(to)) = (self.base_up(from), self.base_up(to)) else { return Ok(()) };
        if from < to {
            self.drop_content(from, to, madv::DONTNEED).await?;
        }
        Ok(())
    }

    /// Grows the heap over ranges that the program unmapped or replaced before the heap shrank: maps base pages there again, as
    /// Linux would map new ones.
    async fn refill_heap(&mut self, from: u64, to: u64) -> PartResult<()> {
        let (Some(from), Some(to)) = (self.base_up(from), self.base_up(to)) else { return Ok(()) };
        if from >= to {
            return Ok(());
        }
        self.demote_range(from, to).await?;
        self.call_or_fail(&ordinary(from, to - from, READ_WRITE, map::FIXED)).await?;
        self.views.mark_touched(from, to);
        Ok(())
    }

    /// Maps more heap, from the pool if possible. Returns whether it could be mapped at all.
    async fn grow_heap(&mut self, from: u64, to: u64) -> PartResult<bool> {
        let mapped = self.map_pages(from, to - from, READ_WRITE, PRIVATE_ANONYMOUS | map::FIXED_NOREPLACE).await;
        if mapped as u64 == from {
            self.views.back((from, to), (from, to), READ_WRITE);
            return Ok(true);
        }
        let given = self.call(&ordinary(from, to - from, READ_WRITE, map::FIXED_NOREPLACE)).await;
        if given as u64 == from {
            self.note_refusal(mapped, to - from).await;
        }
        Ok(given as u64 == from)
    }
}

/// The call that maps ordinary memory.
pub(super) fn ordinary(address: u64, bytes: u64, protection: Protection, flags: u64) -> Call {
    Call::Mmap { address, bytes, protection, flags: PRIVATE_ANONYMOUS | flags, file: NO_FILE, offset: 0 }
}

/// The call that moves `(address, bytes)` to another address and replaces whatever is there.
pub(super) fn moved((address, bytes): (u64, u64), to: u64) -> Call {
    Call::Mremap { address, old_bytes: bytes, new_bytes: bytes, flags: MOVE_TO, new_address: to }
}
