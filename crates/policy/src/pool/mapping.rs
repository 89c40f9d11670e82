//! Calls that make memory and take it away: mmap, munmap, brk.

use crate::huge_map::{Action, NONE, Protection, interior, outline};
use crate::registers::is_error;
use policy::call::map;
use policy::guards;

use super::{Call, DONT_NEED, Halt, MOVE_TO, NO_RESERVE, PRIVATE_ANONYMOUS, READ_WRITE, Served, WRITE};

const FIXED: u64 = libc::MAP_FIXED as u64;
const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;

impl Call<'_, '_> {
    pub(super) fn mmap(&mut self, [address, bytes, protection, flags, ..]: [u64; 6]) -> Served {
        let anonymous = map::can_be_of_pool(flags);
        let Some(bytes) = self.base_up(bytes).filter(|bytes| *bytes > 0) else { return Ok(None) };
        // To the kernel nothing is free there.
        let fills = flags & FIXED_NOREPLACE != 0
            && self.end_of(address, bytes).is_some_and(|end| self.map.is_slack(address, end));
        if flags & FIXED != 0 || fills {
            return self.mmap_over(address, bytes, protection, anonymous, fills);
        }
        if !anonymous || bytes < self.size.bytes() {
            return Ok(None);
        }
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
            let ordinary = self.paused.own_call()?;
            if !is_error(ordinary) {
                self.note_refusal(start, bytes);
            }
            return Ok(Some(ordinary));
        }
        let start = start as u64;
        self.map.back(outline(start, start + bytes, self.size), (start, start + bytes), protection);
        Ok(Some(start as i64))
    }

    /// mmap with MAP_FIXED; or into a hole inside a page of the pool, which it fills.
    fn mmap_over(&mut self, start: u64, bytes: u64, protection: Protection, anonymous: bool, fills: bool) -> Served {
        let [_, _, _, flags, descriptor, offset] = self.paused.arguments();
        let Some(end) = self.end_of(start, bytes).filter(|_| fills || flags & FIXED_NOREPLACE == 0) else {
            return Ok(None);
        };
        if self.is_given_up(start, end, protection) && guards::maps_over(protection, flags) {
            self.carry_out(&[Action::Zero(start, end)])?;
            self.context.findings.answer(guards::MAPPED_OVER);
            return Ok(Some(start as i64));
        }
        if anonymous && protection & WRITE != 0 {
            self.convert_ends(start, end)?;
        }
        if !self.map.concerns(start, end) {
            let result = self.paused.own_call()?;
            if !is_error(result) {
                self.renewed(start, end, protection, anonymous)?;
            }
            return Ok(Some(result));
        }
        let (from, to) = match anonymous && protection & WRITE != 0 {
            true => self.show_in_shared_pages(start, end, protection)?,
            false => (start, end),
        };
        if from >= to {
            return Ok(Some(start as i64));
        }
        // What the kernel refuses must leave everything as it was, so it is made elsewhere first.
        let flags = flags & !(FIXED | FIXED_NOREPLACE);
        let made = self.must(libc::SYS_mmap, [0, to - from, protection, flags, descriptor, offset + (from - start)])?;
        self.move_onto((made, to - from), from, to)?;
        self.renewed(from, to, protection, anonymous)?;
        Ok(Some(start as i64))
    }

    /// A piece of a reservation is opened: the pages at its ends, of which the next pieces will be parts, come
    /// from the pool now.
    fn convert_ends(&mut self, start: u64, end: u64) -> Result<(), Halt> {
        let inside = interior(start, end, self.size);
        let inside = if inside.0 < inside.1 { inside } else { (u64::MAX, u64::MAX) };
        for (s, e) in self.map.convertible(start, end, self.size) {
            self.convert((s, e.min(inside.0)), NONE)?;
            self.convert((s.max(inside.1), e), NONE)?;
        }
        Ok(())
    }

    /// Serves those ends of a fresh mapping that share a page with other memory of the program, where the
    /// page can stay. Returns what is left to map.
    fn show_in_shared_pages(&mut self, start: u64, end: u64, protection: Protection) -> Result<(u64, u64), Halt> {
        let (mut from, mut to) = (start, end);
        for page in self.map.shared_ends(start, end, self.size) {
            let part = (start.max(page.0), end.min(page.1));
            self.map.hide(part.0, part.1, self.size);
            if !self.map.misfits(part.0, part.1, protection, self.size).is_empty() {
                continue;
            }
            let actions = self.map.show(part.0, part.1, protection, self.size);
            self.carry_out(&actions)?;
            // Only the first and the last page of the range can be shared with something outside of it.
            if page.0 <= start {
                from = part.1;
            } else {
                to = part.0;
            }
        }
        Ok((from, to.max(from)))
    }

    /// Moves a mapping of `(address, bytes)` onto `[start, end)`, whatever is there.
    fn move_onto(&mut self, made: (u64, u64), start: u64, end: u64) -> Result<(), Halt> {
        let edges = match self.clear_target(start, end) {
            Ok(edges) => edges,
            Err(halt) => {
                self.call(libc::SYS_munmap, [made.0, made.1, 0, 0, 0, 0])?;
                return Err(halt);
            }
        };
        self.must(libc::SYS_mremap, [made.0, made.1, made.1, MOVE_TO, start, 0])?;
        self.carry_out(&edges)
    }

    /// Makes ordinary memory of the pool pages in a range that is about to be replaced: whole pages of which
    /// nobody sees anything else become a reservation, the others are given back with their content. Returns
    /// what is to be unmapped beside the range when it has been replaced.
    pub(super) fn clear_target(&mut self, start: u64, end: u64) -> Result<Vec<Action>, Halt> {
        for page in self.map.shared_ends(start, end, self.size) {
            self.demote(page)?;
        }
        let mut edges = Vec::new();
        for (s, e) in self.map.hide(start, end, self.size) {
            let flags = PRIVATE_ANONYMOUS | FIXED | NO_RESERVE;
            self.must(libc::SYS_mmap, [s, e - s, NONE, flags, u64::MAX, 0])?;
            edges.extend((s < start).then_some(Action::Unmap(s, start)));
            edges.extend((end < e).then_some(Action::Unmap(end, e)));
        }
        self.map.spoil(start, end);
        Ok(edges)
    }

    /// A range has been mapped afresh: what fits of it comes from the pool.
    fn renewed(&mut self, start: u64, end: u64, protection: Protection, anonymous: bool) -> Result<(), Halt> {
        self.map.spoil(start, end);
        match (anonymous, protection) {
            (false, _) => Ok(()),
            (true, NONE) => {
                self.map.reserve(start, end);
                Ok(())
            }
            (true, _) => self.convert(interior(start, end, self.size), protection),
        }
    }

    pub(super) fn munmap(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            self.map.spoil(start, end);
            return Ok(None);
        }
        let actions = self.map.unmap(start, end, self.size);
        self.carry_out(&actions)?;
        Ok(Some(0))
    }

    pub(super) fn brk(&mut self, asked: u64) -> Served {
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
            self.shrink_heap(asked, heap.program_end)?;
            heap.program_end = asked;
        }
        self.map.heap = heap;
        Ok(Some(heap.program_end as i64))
    }

    /// The heap shrinks from `to` to `from`. It stays mapped, and must read as zero when it grows again.
    fn shrink_heap(&mut self, from: u64, to: u64) -> Result<(), Halt> {
        // The kernel keeps the rest of the last base page too (`SYSCALL_DEFINE1(brk)` in mm/mmap.c).
        let (Some(from), Some(to)) = (self.base_up(from), self.base_up(to)) else { return Ok(()) };
        if from < to {
            self.drop_content(from, to, DONT_NEED)?;
        }
        Ok(())
    }

    /// Maps more heap, from the pool if it can. Says whether it could be mapped at all.
    fn grow_heap(&mut self, from: u64, to: u64) -> Result<bool, Halt> {
        let mapped = self.map_pages(from, to - from, READ_WRITE, PRIVATE_ANONYMOUS | FIXED_NOREPLACE)?;
        if mapped as u64 == from {
            self.map.back((from, to), (from, to), READ_WRITE);
            return Ok(true);
        }
        let flags = PRIVATE_ANONYMOUS | FIXED_NOREPLACE;
        let ordinary = self.call(libc::SYS_mmap, [from, to - from, READ_WRITE, flags, u64::MAX, 0])?;
        if ordinary as u64 == from {
            self.note_refusal(mapped, to - from);
        }
        Ok(ordinary as u64 == from)
    }
}
