//! Serving a program's memory calls so that its large anonymous memory comes from the hugetlb pool and
//! the program does not notice: lengths are made to fit, parts of pages are kept by bookkeeping
//! (`huge_map`), and what the pool cannot give is ordinary memory, with the cause noted.

use study::cause::Cause;
use study::size::PageSize;

use super::calls::{Scene, is_error};
use super::huge_map::{Action, HugeMap, Protection, interior, outline};
use super::maps;
use super::paused::{Lost, Paused};
use super::ptrace;
use super::tasks::Space;

const NONE: Protection = libc::PROT_NONE as u64;
const READ_WRITE: Protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
const PRIVATE: u64 = libc::MAP_PRIVATE as u64;
const FIXED: u64 = libc::MAP_FIXED as u64;
const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
const NO_RESERVE: u64 = libc::MAP_NORESERVE as u64;
const MAP_TYPE: u64 = libc::MAP_TYPE as u64;
/// Mappings that stay as they are: stacks, and those that ask for pool pages themselves.
const LEFT_ALONE: u64 = (libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB) as u64;
/// mremap leaves the old mapping in place.
const DONT_UNMAP: u64 = 4;
const ENOMEM: i64 = -(libc::ENOMEM as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
/// How much is copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// One call, with all that serving it needs.
struct Call<'a, 'b> {
    scene: &'a mut Scene<'b>,
    map: &'a mut HugeMap,
    paused: &'a mut Paused,
    size: PageSize,
}

/// Serves a watched call under a hugetlb policy and sends its task on.
pub fn serve(scene: &mut Scene, space: &mut Space, mut paused: Paused) -> Result<(), Lost> {
    let size = scene.rewriting.large;
    let arguments = paused.arguments();
    let number = paused.number();
    let mut call = Call { scene, map: &mut space.huge, paused: &mut paused, size };
    let result = match number {
        libc::SYS_mmap => call.mmap(arguments)?,
        libc::SYS_munmap => call.munmap(arguments)?,
        libc::SYS_mprotect => call.mprotect(arguments)?,
        libc::SYS_mremap => call.mremap(arguments)?,
        libc::SYS_madvise => call.madvise(arguments)?,
        libc::SYS_brk => call.brk(arguments[0])?,
        _ => return paused.pass(),
    };
    match result {
        Some(result) => paused.finish(result),
        None => paused.pass(),
    }
}

/// The result of the program's call; `None` where it is to be made as it is.
type Served = Result<Option<i64>, Lost>;

impl Call<'_, '_> {
    fn mmap(&mut self, [address, bytes, protection, flags, ..]: [u64; 6]) -> Served {
        let anonymous = flags & ANONYMOUS != 0 && flags & MAP_TYPE == PRIVATE && flags & LEFT_ALONE == 0;
        let Some(end) = address.checked_add(bytes).and_then(|end| self.base_up(end)) else { return Ok(None) };
        if flags & FIXED != 0 {
            return self.mmap_over(address, end, protection, anonymous);
        }
        if !anonymous || bytes < self.size.bytes() {
            return Ok(None);
        }
        let bytes = end - address;
        if protection == NONE {
            let start = self.paused.own_call()?;
            if !is_error(start) {
                self.map.reserve(start as u64, start as u64 + bytes);
            }
            return Ok(Some(start));
        }
        let hint = if flags & FIXED_NOREPLACE != 0 { address } else { self.size.align_down(address) };
        let start = self.map_pages(hint, bytes, protection, flags & !NO_RESERVE)?;
        if is_error(start) {
            self.note_refusal(start, bytes);
            return Ok(Some(self.paused.own_call()?));
        }
        let start = start as u64;
        self.map.back(outline(start, start + bytes, self.size), (start, start + bytes), protection);
        Ok(Some(start as i64))
    }

    /// mmap with MAP_FIXED over `[start, end)`.
    fn mmap_over(&mut self, start: u64, end: u64, protection: Protection, anonymous: bool) -> Served {
        if start >= end {
            return Ok(None);
        }
        let (mut from, mut to) = (start, end);
        for page in self.map.shared_ends(start, end, self.size) {
            if !anonymous {
                self.demote(page)?;
                continue;
            }
            let part = (start.max(page.0), end.min(page.1));
            self.map.hide(part.0, part.1, self.size);
            let actions = self.map.show(part.0, part.1, protection, self.size);
            self.carry_out(&actions)?;
            // Only the first and the last page of the range can be shared with something outside of it.
            if page.0 <= start {
                from = part.1;
            }
            if page.1 >= end {
                to = part.0.max(from);
            }
        }
        for (s, e) in self.map.hide(from, to, self.size) {
            self.carry_out(&[Action::Unmap(s, e)])?;
        }
        self.map.spoil(start, end);
        if from >= to {
            return Ok(Some(start as i64));
        }
        let [_, _, _, flags, descriptor, offset] = self.paused.arguments();
        let moved = offset + (from - start);
        let mapped = self.paused.call(libc::SYS_mmap, [from, to - from, protection, flags, descriptor, moved])?;
        if is_error(mapped) {
            return Ok(Some(mapped));
        }
        if anonymous && protection == NONE {
            self.map.reserve(from, to);
        } else if anonymous {
            self.convert(interior(from, to, self.size), (from, to), protection)?;
        }
        Ok(Some(start as i64))
    }

    fn munmap(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = start.checked_add(bytes).and_then(|end| self.base_up(end)) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            self.map.spoil(start, end);
            return Ok(None);
        }
        let actions = self.map.unmap(start, end, self.size);
        self.carry_out(&actions)?;
        Ok(Some(0))
    }

    fn mprotect(&mut self, [start, bytes, protection, ..]: [u64; 6]) -> Served {
        let Some(end) = start.checked_add(bytes).and_then(|end| self.base_up(end)) else { return Ok(None) };
        if protection != NONE {
            for page in self.map.convertible(start, end, self.size) {
                self.convert(page, page, NONE)?;
            }
        }
        if !self.map.concerns(start, end) {
            if protection != NONE {
                self.map.spoil(start, end);
            }
            return Ok(None);
        }
        for (s, e) in self.map.ordinary(start, end) {
            let result = self.paused.call(libc::SYS_mprotect, [s, e - s, protection, 0, 0, 0])?;
            self.map.spoil(s, e);
            if is_error(result) {
                return Ok(Some(result));
            }
        }
        let (actions, widened) = self.map.protect(start, end, protection, self.size);
        if widened {
            self.scene.findings.cause(Cause::ProtectionWidened, end - start);
        }
        self.carry_out(&actions)?;
        Ok(Some(0))
    }

    fn mremap(&mut self, [old, old_bytes, new_bytes, flags, target, _]: [u64; 6]) -> Served {
        let ends = (old.checked_add(old_bytes), old.checked_add(new_bytes), target.checked_add(new_bytes));
        let (Some(old_end), Some(grown_end), Some(target_end)) = ends else { return Ok(None) };
        let (Some(old_end), Some(grown_end)) = (self.base_up(old_end), self.base_up(grown_end)) else {
            return Ok(None);
        };
        let fixed = flags & libc::MREMAP_FIXED as u64 != 0;
        if !self.map.concerns(old, old_end) && !(fixed && self.map.concerns(target, target_end)) {
            self.map.spoil(old, old_end);
            return self.outgrow(old, old_end, grown_end - old, flags);
        }
        if flags & DONT_UNMAP != 0 || old_bytes == 0 || new_bytes == 0 || old % self.scene.rewriting.base.bytes() != 0 {
            return Ok(Some(EINVAL));
        }
        if fixed {
            return self.move_over(old, old_end, target, new_bytes);
        }
        if grown_end <= old_end {
            let actions = self.map.unmap(grown_end, old_end, self.size);
            self.carry_out(&actions)?;
            return Ok(Some(old as i64));
        }
        let protection = self.map.protection_at(old, old_end).unwrap_or(READ_WRITE);
        if self.map.is_slack(old_end, grown_end) {
            let actions = self.map.show(old_end, grown_end, protection, self.size);
            self.carry_out(&actions)?;
            return Ok(Some(old as i64));
        }
        if flags & libc::MREMAP_MAYMOVE as u64 == 0 {
            return Ok(Some(ENOMEM));
        }
        if self.map.is_exclusive(old, old_end, self.size)
            && let Some(start) = self.move_pages(old, old_end, grown_end - old, protection)?
        {
            return Ok(Some(start as i64));
        }
        self.move_by_copy(old, old_end, grown_end - old, protection)
    }

    /// An ordinary mapping that was too small for the pool grows to a size that fits: it moves there once.
    fn outgrow(&mut self, old: u64, old_end: u64, bytes: u64, flags: u64) -> Served {
        let outgrows = old_end - old < self.size.bytes() && bytes >= self.size.bytes();
        if !outgrows || flags != libc::MREMAP_MAYMOVE as u64 {
            return Ok(None);
        }
        let vmas = maps::of_process(self.scene.process);
        let around = vmas.iter().find(|vma| vma.start <= old && old_end <= vma.end);
        match around {
            Some(vma) if vma.anonymous && vma.protection == READ_WRITE && vma.name.is_empty() => {
                self.move_by_copy(old, old_end, bytes, READ_WRITE)
            }
            _ => Ok(None),
        }
    }

    /// Grows a mapping at a new place, taking its pages along. `None` where that cannot be done.
    fn move_pages(&mut self, old: u64, old_end: u64, bytes: u64, protection: Protection) -> Result<Option<u64>, Lost> {
        let start = self.map_pages(0, bytes, protection, PRIVATE | ANONYMOUS)?;
        if is_error(start) {
            self.note_refusal(start, bytes);
            return Ok(None);
        }
        let start = start as u64;
        let pages = outline(old, old_end, self.size);
        let moved = pages.1 - pages.0;
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let result = self.paused.call(libc::SYS_mremap, [pages.0, moved, moved, how, start, 0])?;
        if is_error(result) {
            let whole = outline(start, start + bytes, self.size);
            self.carry_out(&[Action::Unmap(whole.0, whole.1)])?;
            return Ok(None);
        }
        self.map.hide(old, old_end, self.size);
        self.map.back(outline(start, start + bytes, self.size), (start, start + bytes), protection);
        let (used, brought) = (old_end - old, moved.min(bytes));
        self.carry_out(&[
            Action::Protect(start, start + moved, protection),
            Action::Zero(start + used, start + brought),
        ])?;
        Ok(Some(start))
    }

    /// Grows a mapping at a new place by copying it there.
    fn move_by_copy(&mut self, old: u64, old_end: u64, bytes: u64, protection: Protection) -> Served {
        let mut start = self.map_pages(0, bytes, READ_WRITE, PRIVATE | ANONYMOUS)?;
        let backed = !is_error(start);
        if !backed {
            self.note_refusal(start, bytes);
            start = self.paused.call(libc::SYS_mmap, [0, bytes, READ_WRITE, PRIVATE | ANONYMOUS, u64::MAX, 0])?;
        }
        if is_error(start) {
            return Ok(Some(start));
        }
        let start = start as u64;
        self.copy(old, start, old_end - old)?;
        let end = start + bytes;
        let pages = if backed { outline(start, end, self.size) } else { (start, end) };
        if backed {
            self.map.back(pages, (start, end), protection);
        }
        self.carry_out(&[Action::Protect(pages.0, pages.1, protection)])?;
        let actions = self.map.unmap(old, old_end, self.size);
        self.carry_out(&actions)?;
        Ok(Some(start as i64))
    }

    /// mremap with MREMAP_FIXED: ordinary memory at the target, and a copy.
    fn move_over(&mut self, old: u64, old_end: u64, target: u64, bytes: u64) -> Served {
        let Some(end) = target.checked_add(bytes).and_then(|end| self.base_up(end)) else { return Ok(Some(EINVAL)) };
        if target < old_end && old < end || target % self.scene.rewriting.base.bytes() != 0 {
            return Ok(Some(EINVAL));
        }
        let protection = self.map.protection_at(old, old_end).unwrap_or(READ_WRITE);
        for page in self.map.shared_ends(target, end, self.size) {
            self.demote(page)?;
        }
        for (s, e) in self.map.hide(target, end, self.size) {
            self.carry_out(&[Action::Unmap(s, e)])?;
        }
        let flags = PRIVATE | ANONYMOUS | FIXED;
        let mapped = self.paused.call(libc::SYS_mmap, [target, end - target, READ_WRITE, flags, u64::MAX, 0])?;
        if is_error(mapped) {
            return Ok(Some(mapped));
        }
        self.copy(old, target, (old_end - old).min(end - target))?;
        self.carry_out(&[Action::Protect(target, end, protection)])?;
        let actions = self.map.unmap(old, old_end, self.size);
        self.carry_out(&actions)?;
        Ok(Some(target as i64))
    }

    fn madvise(&mut self, [start, bytes, how, ..]: [u64; 6]) -> Served {
        let Some(end) = start.checked_add(bytes).and_then(|end| self.base_up(end)) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            return Ok(None);
        }
        for (s, e) in self.map.ordinary(start, end) {
            let result = self.paused.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            if is_error(result) {
                return Ok(Some(result));
            }
        }
        match how as i32 {
            libc::MADV_DONTNEED => self.drop_content(start, end),
            libc::MADV_DONTFORK | libc::MADV_DOFORK | libc::MADV_DONTDUMP | libc::MADV_DODUMP => {
                self.advise_pages(start, end, how)
            }
            _ if how == super::rewriting::advice::POPULATE_WRITE => self.advise_pages(start, end, how),
            // The rest are hints, which the kernel may ignore, and so may we: pool pages are neither
            // merged, reclaimed nor of another size.
            _ => Ok(Some(0)),
        }
    }

    fn drop_content(&mut self, start: u64, end: u64) -> Served {
        let (whole, partial) = self.map.drop_content(start, end, self.size);
        for (s, e) in whole {
            let how = libc::MADV_DONTNEED as u64;
            let result = self.paused.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            if is_error(result) {
                // Before Linux 5.18 hugetlb pages cannot be dropped.
                self.carry_out(&[Action::Zero(s, e)])?;
            }
        }
        for (s, e) in partial {
            self.carry_out(&[Action::Zero(s, e)])?;
        }
        Ok(Some(0))
    }

    fn advise_pages(&mut self, start: u64, end: u64, how: u64) -> Served {
        for (s, e) in self.map.backed_parts(start, end) {
            let (s, e) = outline(s, e, self.size);
            let result = self.paused.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            if is_error(result) {
                return Ok(Some(result));
            }
        }
        Ok(Some(0))
    }

    fn brk(&mut self, asked: u64) -> Served {
        let mut heap = self.map.heap;
        if heap.start == 0 {
            let kernel = self.paused.call(libc::SYS_brk, [0; 6])? as u64;
            let Some(start) = self.size.align_up(kernel) else { return Ok(None) };
            heap.start = start;
            heap.program_end = start;
            heap.mapped_end = start;
        }
        if asked > heap.mapped_end {
            let Some(end) = self.size.align_up(asked) else { return Ok(Some(heap.program_end as i64)) };
            if self.grow_heap(heap.mapped_end, end)? {
                heap.mapped_end = end;
                heap.program_end = asked;
            }
        } else if asked >= heap.start {
            if asked < heap.program_end {
                self.carry_out(&[Action::Zero(asked, heap.program_end)])?;
            }
            heap.program_end = asked;
        }
        self.map.heap = heap;
        Ok(Some(heap.program_end as i64))
    }

    /// Maps more heap, from the pool if it can. Says whether it could be mapped at all.
    fn grow_heap(&mut self, from: u64, to: u64) -> Result<bool, Lost> {
        let mapped = self.map_pages(from, to - from, READ_WRITE, PRIVATE | ANONYMOUS | FIXED_NOREPLACE)?;
        if mapped as u64 == from {
            self.map.back((from, to), (from, to), READ_WRITE);
            return Ok(true);
        }
        self.note_refusal(mapped, to - from);
        let flags = PRIVATE | ANONYMOUS | FIXED_NOREPLACE;
        let mapped = self.paused.call(libc::SYS_mmap, [from, to - from, READ_WRITE, flags, u64::MAX, 0])?;
        Ok(mapped as u64 == from)
    }

    /// Replaces ordinary memory that holds nothing yet by pool pages, of which the program sees a part.
    fn convert(&mut self, pages: (u64, u64), seen: (u64, u64), protection: Protection) -> Result<(), Lost> {
        if pages.0 >= pages.1 {
            return Ok(());
        }
        let bytes = pages.1 - pages.0;
        let mapped = self.map_pages(pages.0, bytes, protection, PRIVATE | ANONYMOUS | FIXED)?;
        if !is_error(mapped) {
            self.map.back(pages, (seen.0.max(pages.0), seen.1.min(pages.1)), protection);
            return Ok(());
        }
        self.note_refusal(mapped, bytes);
        // A refused MAP_FIXED may have removed what it was to replace.
        let flags = PRIVATE | ANONYMOUS | FIXED | NO_RESERVE;
        self.paused.call(libc::SYS_mmap, [pages.0, bytes, protection, flags, u64::MAX, 0])?;
        self.map.spoil(pages.0, pages.1);
        Ok(())
    }

    /// Gives one page back to base pages, with its content, so that a part of it can be mapped otherwise.
    /// A thread that writes to the page in the same instant may lose that write; this happens only when a
    /// program maps a file over a part of its anonymous memory.
    fn demote(&mut self, page: (u64, u64)) -> Result<(), Lost> {
        let bytes = page.1 - page.0;
        let flags = PRIVATE | ANONYMOUS;
        let copy = self.paused.call(libc::SYS_mmap, [0, bytes, READ_WRITE, flags, u64::MAX, 0])?;
        if is_error(copy) {
            return Ok(());
        }
        let seen = self.map.seen_in(page);
        for (s, e, _) in &seen {
            self.copy(*s, copy as u64 + (s - page.0), e - s)?;
        }
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        self.paused.call(libc::SYS_mremap, [copy as u64, bytes, bytes, how, page.0, 0])?;
        self.map.demote(page);
        self.scene.findings.cause(Cause::Demoted, bytes);
        let mut actions: Vec<Action> = seen.iter().map(|(s, e, p)| Action::Protect(*s, *e, *p)).collect();
        let mut at = page.0;
        for (s, e, _) in seen {
            actions.extend((at < s).then_some(Action::Unmap(at, s)));
            at = e;
        }
        actions.extend((at < page.1).then_some(Action::Unmap(at, page.1)));
        self.carry_out(&actions)
    }

    /// mmap of whole pool pages for `bytes`. The raw result.
    fn map_pages(&mut self, hint: u64, bytes: u64, protection: Protection, flags: u64) -> Result<i64, Lost> {
        let Some(bytes) = self.size.align_up(bytes) else { return Ok(ENOMEM) };
        let size = u64::from(self.size.bytes().trailing_zeros()) << libc::MAP_HUGE_SHIFT;
        let flags = flags | libc::MAP_HUGETLB as u64 | size;
        self.paused.call(libc::SYS_mmap, [hint, bytes, protection, flags, u64::MAX, 0])
    }

    fn note_refusal(&mut self, error: i64, bytes: u64) {
        let cause = if error == ENOMEM { Cause::PoolExhausted { size: self.size } } else { Cause::NoAlignedSlot };
        self.scene.findings.cause(cause, bytes);
    }

    fn carry_out(&mut self, actions: &[Action]) -> Result<(), Lost> {
        for action in actions {
            match *action {
                Action::Unmap(s, e) => drop(self.paused.call(libc::SYS_munmap, [s, e - s, 0, 0, 0, 0])?),
                Action::Protect(s, e, p) => drop(self.paused.call(libc::SYS_mprotect, [s, e - s, p, 0, 0, 0])?),
                Action::Zero(s, e) => self.zero(s, e)?,
            }
        }
        Ok(())
    }

    fn zero(&mut self, start: u64, end: u64) -> Result<(), Lost> {
        let zeros = vec![0u8; COPY_BYTES.min(end.saturating_sub(start)) as usize];
        let mut at = start;
        while at < end {
            let bytes = COPY_BYTES.min(end - at);
            ptrace::write_memory(self.paused.tid(), at, &zeros[..bytes as usize])?;
            at += bytes;
        }
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), Lost> {
        let mut buffer = vec![0u8; COPY_BYTES.min(bytes) as usize];
        let mut done = 0;
        while done < bytes {
            let part = &mut buffer[..COPY_BYTES.min(bytes - done) as usize];
            ptrace::read_memory(self.paused.tid(), from + done, part)?;
            ptrace::write_memory(self.paused.tid(), to + done, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    fn base_up(&self, address: u64) -> Option<u64> {
        self.scene.rewriting.base.align_up(address)
    }
}
