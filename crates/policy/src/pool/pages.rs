//! Pages of the pool and base pages in each other's place, with their content, and what the bookkeeping asks
//! to have done.

use policy::cause::Cause;

use crate::huge_map::{Action, Protection, outline};
use crate::ptrace;
use crate::registers::is_error;

use super::{Call, ENOMEM, Halt, MOVE_TO, PRIVATE_ANONYMOUS, READ_WRITE};

const READ: Protection = libc::PROT_READ as u64;
/// How much is copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Call<'_, '_> {
    /// Replaces ordinary memory that holds nothing yet by pool pages; all of them if it can, else as many as
    /// the pool has.
    pub(super) fn convert(&mut self, pages: (u64, u64), protection: Protection) -> Result<(), Halt> {
        if pages.0 >= pages.1 || self.place(pages, protection)? {
            return Ok(());
        }
        let mut start = pages.0;
        while pages.1 - pages.0 > self.size.bytes() && start < pages.1 {
            let page = (start, start + self.size.bytes());
            if !self.place(page, protection)? {
                break;
            }
            start = page.1;
        }
        self.context.findings.cause(Cause::PoolExhausted { size: self.size }, pages.1 - start);
        self.map.spoil(start, pages.1);
        Ok(())
    }

    /// Puts fresh pool pages in the place of other memory; says whether the pool had them.
    fn place(&mut self, pages: (u64, u64), protection: Protection) -> Result<bool, Halt> {
        let bytes = pages.1 - pages.0;
        let made = self.map_pages(0, bytes, protection, PRIVATE_ANONYMOUS)?;
        if is_error(made) {
            return Ok(false);
        }
        let moved = self.call(libc::SYS_mremap, [made as u64, bytes, bytes, MOVE_TO, pages.0, 0])?;
        if is_error(moved) {
            self.call(libc::SYS_munmap, [made as u64, bytes, 0, 0, 0, 0])?;
            return Ok(false);
        }
        self.map.back(pages, pages, protection);
        Ok(true)
    }

    pub(super) fn demote_range(&mut self, start: u64, end: u64) -> Result<(), Halt> {
        for (s, e) in self.map.backed_parts(start, end) {
            self.demote(outline(s, e, self.size))?;
        }
        Ok(())
    }

    /// Gives whole pages back to base pages, with their content. Another thread that writes to them in the
    /// same instant faults, and is sent back until they are there (`Tree::tries_again`). Only the kernel, when
    /// it writes for a system call of another thread in this instant, reports EFAULT.
    ///
    /// What held nothing but zeros is fresh memory afterwards: who waits for first touches there (userfaultfd) sees
    /// them, as where the program never wrote.
    pub(super) fn demote(&mut self, pages: (u64, u64)) -> Result<(), Halt> {
        let (seen, locked) = (self.map.seen_in(pages), self.map.locked_parts(pages.0, pages.1));
        match self.replace_by_base_pages(pages, &seen) {
            Err(Halt::Error(error)) => {
                self.context.findings.cause(Cause::NotGivenBack, pages.1 - pages.0);
                return Err(Halt::Error(error));
            }
            replaced => replaced?,
        }
        self.map.demote(pages);
        self.context.findings.cause(Cause::Demoted, pages.1 - pages.0);
        self.shape(pages, &seen)?;
        for (s, e) in locked {
            // Beyond RLIMIT_MEMLOCK, which does not count pool pages, it stays unlocked.
            self.call(libc::SYS_mlock, [s, e - s, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    fn replace_by_base_pages(&mut self, pages: (u64, u64), seen: &[(u64, u64, Protection)]) -> Result<(), Halt> {
        let (start, bytes) = (pages.0, pages.1 - pages.0);
        let copy = self.must(libc::SYS_mmap, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0])?;
        self.map.moves(pages);
        let frozen = self.call(libc::SYS_mprotect, [start, bytes, READ, 0, 0, 0])?;
        let copied = !is_error(frozen) && seen.iter().all(|(s, e, _)| self.copy_present(*s, copy + (s - start), e - s));
        let moved = copied && !is_error(self.call(libc::SYS_mremap, [copy, bytes, bytes, MOVE_TO, start, 0])?);
        if !moved {
            let unions = self.map.unions(pages.0, pages.1, self.size);
            self.carry_out(&unions)?;
            self.call(libc::SYS_munmap, [copy, bytes, 0, 0, 0, 0])?;
            return Err(Halt::Error(ENOMEM));
        }
        Ok(())
    }

    /// Gives ordinary memory in the place of pages the shape that the program sees.
    fn shape(&mut self, pages: (u64, u64), seen: &[(u64, u64, Protection)]) -> Result<(), Halt> {
        let mut actions = Vec::new();
        let mut at = pages.0;
        for (s, e, protection) in seen {
            actions.extend((at < *s).then_some(Action::Unmap(at, *s)));
            actions.extend((*protection != READ_WRITE).then_some(Action::Protect(*s, *e, *protection)));
            at = *e;
        }
        actions.extend((at < pages.1).then_some(Action::Unmap(at, pages.1)));
        self.carry_out(&actions)
    }

    /// mmap of whole pool pages for `bytes`. The raw result.
    pub(super) fn map_pages(&mut self, hint: u64, bytes: u64, protection: Protection, flags: u64) -> Result<i64, Halt> {
        let Some(bytes) = self.size.align_up(bytes) else { return Ok(ENOMEM) };
        let size = u64::from(self.size.bytes().trailing_zeros()) << libc::MAP_HUGE_SHIFT;
        let flags = flags | libc::MAP_HUGETLB as u64 | size;
        self.call(libc::SYS_mmap, [hint, bytes, protection, flags, u64::MAX, 0])
    }

    pub(super) fn note_refusal(&mut self, error: i64, bytes: u64) {
        let cause = if error == ENOMEM { Cause::PoolExhausted { size: self.size } } else { Cause::NoAlignedSlot };
        self.context.findings.cause(cause, bytes);
    }

    /// Does what the bookkeeping asks for. The first failure (of a split of mappings, at
    /// `vm.max_map_count`) is the program's.
    pub(super) fn carry_out(&mut self, actions: &[Action]) -> Result<(), Halt> {
        for action in actions {
            match *action {
                Action::Unmap(s, e) => drop(self.must(libc::SYS_munmap, [s, e - s, 0, 0, 0, 0])?),
                Action::Protect(s, e, p) => drop(self.must(libc::SYS_mprotect, [s, e - s, p, 0, 0, 0])?),
                Action::Zero(s, e) => self.zero(s, e)?,
            }
        }
        Ok(())
    }

    fn zero(&mut self, start: u64, end: u64) -> Result<(), Halt> {
        let zeros = vec![0u8; COPY_BYTES.min(end.saturating_sub(start)) as usize];
        for (at, bytes) in self.present_parts(start, end) {
            if ptrace::write_memory(self.paused.tid(), at, &zeros[..bytes as usize]).is_err() {
                return Err(Halt::Error(ENOMEM));
            }
        }
        Ok(())
    }

    /// Copies what a range holds, base pages of zeros excepted; holes stay holes.
    fn copy_present(&mut self, from: u64, to: u64, bytes: u64) -> bool {
        let base = self.context.rewriting.base.bytes() as usize;
        let tid = self.paused.tid();
        let mut buffer = vec![0u8; COPY_BYTES.min(bytes) as usize];
        self.present_parts(from, from + bytes).into_iter().all(|(at, bytes)| {
            let part = &mut buffer[..bytes as usize];
            ptrace::read_memory(tid, at, part).is_ok()
                && filled_runs(part, base).into_iter().all(|(first, end)| {
                    ptrace::write_memory(tid, to + (at - from) + first as u64, &part[first..end]).is_ok()
                })
        })
    }

    /// The parts of a backed range whose pages hold something, as (address, bytes) of at most `COPY_BYTES`.
    fn present_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let page = self.size.align_down(at);
            let stop = end.min(page + self.size.bytes());
            if ptrace::is_present(self.paused.tid(), page, self.context.rewriting.base) {
                let starts = (at..stop).step_by(COPY_BYTES as usize);
                parts.extend(starts.map(|at| (at, COPY_BYTES.min(stop - at))));
            }
            at = stop;
        }
        parts
    }

    pub(super) fn copy(&mut self, from: u64, to: u64, bytes: u64) -> std::io::Result<()> {
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
}

/// The runs of pages that hold something else than zeros, as offsets.
fn filled_runs(memory: &[u8], page_bytes: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, page) in memory.chunks(page_bytes).enumerate() {
        let first = number * page_bytes;
        match runs.last_mut() {
            _ if page.iter().all(|byte| *byte == 0) => {}
            Some((_, end)) if *end == first => *end += page.len(),
            _ => runs.push((first, first + page.len())),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_leave_out_pages_of_zeros() {
        let mut memory = vec![0u8; 22];
        assert!(filled_runs(&memory, 4).is_empty() && filled_runs(&[], 4).is_empty());
        for at in [0, 7, 13, 21] {
            memory[at] = 1;
        }
        assert_eq!(filled_runs(&memory, 4), [(0, 8), (12, 16), (20, 22)]);
    }
}
