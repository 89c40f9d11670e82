//! Serves mremap: memory that grows, shrinks and moves.

use super::mapping::{moved, ordinary};
use super::views::{Action, Protection, outline};
use super::{CallServer, Content, EFAULT, ENOMEM, EarlyReturn, PRIVATE_ANONYMOUS, PartResult, READ_WRITE, Served};
use crate::call::prot::{NONE, WRITE};
use crate::call::{Call, map, mremap};
use crate::carry_out::is_error;

impl CallServer<'_> {
    pub(super) async fn mremap(&mut self, call: &Call) -> Served {
        let Call::Mremap { address: old, old_bytes, new_bytes, flags, new_address: target } = *call else {
            return Ok(None);
        };
        let (Some(old_bytes), Some(bytes)) = (self.base_up(old_bytes), self.base_up(new_bytes)) else {
            return Ok(None);
        };
        let ends = (old.checked_add(old_bytes), old.checked_add(bytes), target.checked_add(bytes));
        let (Some(old_end), Some(grown_end), Some(target_end)) = ends else { return Ok(None) };
        if !self.is_base_aligned(old) {
            return Ok(None);
        }
        self.views.note_heap_hole(old, old_end);
        if flags & mremap::FIXED != 0 {
            self.views.note_heap_hole(target, target_end);
            return self.move_over((old, old_end), (target, target_end)).await;
        }
        if !self.views.concerns(old, old_end) {
            self.views.mark_touched(old, old_end);
            return self.outgrow(old, old_end, bytes, flags).await;
        }
        if flags & !mremap::MAY_MOVE != 0 || old_bytes == 0 || bytes == 0 {
            self.demote_range(old, old_end).await?;
            return Ok(None);
        }
        if grown_end <= old_end {
            let actions = self.views.unmap(grown_end, old_end, self.size());
            self.carry_out(&actions).await?;
            return Ok(Some(old as i64));
        }
        match self.views.uniform_protection(old, old_end) {
            Some(protection) if protection & WRITE != 0 => self.grow(old, old_end, grown_end, flags, protection).await,
            _ => self.grow_on_base_pages(old, old_end, bytes, flags).await,
        }
    }

    /// Grows a writable mapping that hugetlb pages back.
    async fn grow(&mut self, old: u64, old_end: u64, grown_end: u64, flags: u64, protection: Protection) -> Served {
        let fits = self.views.is_slack(old_end, grown_end);
        if fits && self.views.protection_conflicts(old_end, grown_end, protection, self.size()).is_empty() {
            let actions = self.views.map_in_view(old_end, grown_end, protection, self.size());
            self.carry_out(&actions).await?;
            return Ok(Some(old as i64));
        }
        if flags & mremap::MAY_MOVE == 0 {
            return Ok(Some(ENOMEM));
        }
        if self.views.is_exclusive(old, old_end, self.size())
            && let Some(start) = self.grow_elsewhere(old, old_end, grown_end - old, protection).await?
        {
            return Ok(Some(start as i64));
        }
        self.grow_on_base_pages(old, old_end, grown_end - old, flags).await
    }

    /// Grows a mapping that hugetlb pages back only in part or not in one piece. The kernel can move only single mappings, so
    /// memory that is one mapping for the program is copied.
    async fn grow_on_base_pages(&mut self, old: u64, old_end: u64, bytes: u64, flags: u64) -> Served {
        self.demote_range(old, old_end).await?;
        let result = self.original_call().await;
        if result != EFAULT || flags & mremap::MAY_MOVE == 0 || !self.is_plain(old, old_end).await {
            return Ok(Some(result));
        }
        let start = self.call_or_fail(&ordinary(0, bytes, READ_WRITE, 0)).await?;
        if self.copy(old, start, old_end - old, Content::All).await {
            self.discard(old, old_end - old).await;
            return Ok(Some(start as i64));
        }
        self.discard(start, bytes).await;
        Ok(Some(ENOMEM))
    }

    /// Whether a range is ordinary writable memory, without file, name or hole.
    async fn is_plain(&mut self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.vma_at(at).await {
                Some(vma) if vma.is_anonymous && !vma.is_named && vma.protection == READ_WRITE => at = vma.end,
                _ => return false,
            }
        }
        true
    }

    /// Serves mremap with MREMAP_FIXED: the memory is replaced by base pages and moved as the program asked.
    async fn move_over(&mut self, old: (u64, u64), target: (u64, u64)) -> Served {
        let overlap = target.0 < old.1 && old.0 < target.1;
        if overlap || !self.is_base_aligned(target.0) || target.0 == target.1 {
            return Ok(None); // the kernel refuses it
        }
        self.demote_range(old.0, old.1).await?;
        self.views.mark_touched(old.0, old.1);
        if !self.views.concerns(target.0, target.1) {
            self.views.mark_touched(target.0, target.1);
            return Ok(None);
        }
        let edges = self.clear_target(target.0, target.1).await?;
        let result = self.original_call().await;
        self.carry_out(&edges).await?;
        Ok(Some(result))
    }

    /// Serves an ordinary mapping that was too small for the pool and grows to a size that fits: it is copied to hugetlb pages,
    /// once.
    async fn outgrow(&mut self, old: u64, old_end: u64, bytes: u64, flags: u64) -> Served {
        let outgrows = old_end - old < self.size().bytes() && bytes >= self.size().bytes();
        if !outgrows || flags != mremap::MAY_MOVE || old == old_end {
            return Ok(None);
        }
        if !self.is_plain(old, old_end).await {
            return Ok(None);
        }
        let start = self.map_pages(0, bytes, READ_WRITE, PRIVATE_ANONYMOUS).await;
        if is_error(start) {
            self.note_refusal(start, bytes).await;
            return Ok(None);
        }
        let start = start as u64;
        let whole = outline(start, start + bytes, self.size());
        if !self.copy(old, start, old_end - old, Content::All).await {
            self.discard(whole.0, whole.1 - whole.0).await;
            return Ok(None);
        }
        self.views.back(whole, (start, start + bytes), READ_WRITE);
        self.discard(old, old_end - old).await;
        Ok(Some(start as i64))
    }

    /// Grows a mapping at a new address and moves its pages there. Returns `None` where that is not possible.
    async fn grow_elsewhere(
        &mut self,
        old: u64,
        old_end: u64,
        bytes: u64,
        protection: Protection,
    ) -> PartResult<Option<u64>> {
        let Some(whole_bytes) = self.size().align_up(bytes) else { return Err(EarlyReturn(ENOMEM)) };
        let room_bytes = whole_bytes + self.size().bytes();
        let room = self.call_or_fail(&ordinary(0, room_bytes, NONE, map::NORESERVE)).await?;
        let start = self.size().align_up(room).ok_or(EarlyReturn(ENOMEM))?;
        let (end, whole_end, room_end) = (start + bytes, start + whole_bytes, room + room_bytes);
        let pages = outline(old, old_end, self.size());
        let brought = pages.1 - pages.0;
        let result = self.call(&moved((pages.0, brought), start)).await;
        if is_error(result) {
            self.discard(room, room_bytes).await;
            return Ok(None);
        }
        self.views.unmap_in_view(old, old_end, self.size());
        let seen = (start + brought).min(end);
        self.views.back((start, start + brought), (start, seen), protection);
        let mut actions = vec![Action::Zero(start + (old_end - old), seen)];
        actions.extend((room < start).then_some(Action::Unmap(room, start)));
        actions.extend((whole_end < room_end).then_some(Action::Unmap(whole_end, room_end)));
        self.carry_out(&actions).await?;
        if start + brought < whole_end {
            self.open_rest(start + brought, end, protection).await?;
        }
        Ok(Some(start))
    }

    /// Opens the rest of a reservation that the tracer made, up to the end of the page that contains `end`.
    async fn open_rest(&mut self, start: u64, end: u64, protection: Protection) -> PartResult<()> {
        let pages = outline(start, end, self.size());
        self.call_or_fail(&Call::Mprotect { address: start, bytes: pages.1 - start, protection }).await?;
        self.convert(pages, protection).await?;
        let slack = (end, pages.1);
        let rest = self.views.ordinary(slack.0, slack.1);
        self.views.unmap_in_view(slack.0, slack.1, self.size());
        self.carry_out(&rest.into_iter().map(|(s, e)| Action::Unmap(s, e)).collect::<Vec<_>>()).await
    }
}
