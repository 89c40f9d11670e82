//! Serving a program's memory calls so that its large anonymous memory comes from the hugetlb pool and
//! the program does not notice: lengths are made to fit, parts of pages are kept by bookkeeping
//! (`huge_map`), and what the pool cannot give, or cannot express, is ordinary memory, with the cause noted.
//!
//! Other threads of the program run meanwhile, and their small mappings are not watched. So no range that
//! the program holds is ever unmapped before something else stands in its place: the kernel could give the
//! hole to another thread. New memory is made elsewhere and moved into place (mremap with MREMAP_FIXED).

use study::cause::Cause;
use study::size::PageSize;

use crate::census::{VmaKind, maps};

use super::calls::{CLOSED_GUARD, MAPPED_GUARD, Scene, is_error};
use super::guards;
use super::huge_map::{Action, Dropped, HugeMap, NONE, Protection, interior, outline};
use super::paused::{Lost, Paused};
use super::ptrace;
use super::rewriting::advice;
use super::tasks::Space;

const READ: Protection = libc::PROT_READ as u64;
const WRITE: Protection = libc::PROT_WRITE as u64;
const READ_WRITE: Protection = READ | WRITE;
const PRIVATE_ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
const PRIVATE: u64 = libc::MAP_PRIVATE as u64;
const FIXED: u64 = libc::MAP_FIXED as u64;
const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
const NO_RESERVE: u64 = libc::MAP_NORESERVE as u64;
const MAP_TYPE: u64 = libc::MAP_TYPE as u64;
/// Mappings below 2 GiB, where the hugetlb allocator of addresses does not look.
const LOW: u64 = if cfg!(target_arch = "x86_64") { 0x40 } else { 0 };
/// Mappings that stay as they are: stacks, and those that ask for pool pages themselves.
const LEFT_ALONE: u64 = (libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB) as u64 | LOW;
const MAY_MOVE: u64 = libc::MREMAP_MAYMOVE as u64;
/// mremap to a place of the caller's choice.
const MOVE_TO: u64 = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
const ENOMEM: i64 = -(libc::ENOMEM as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);
const EPERM: i64 = -(libc::EPERM as i64);
/// How much is copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// One call, with all that serving it needs.
struct Call<'a, 'b> {
    scene: &'a mut Scene<'b>,
    map: &'a mut HugeMap,
    paused: &'a mut Paused,
    size: PageSize,
}

/// Why serving a call came to an early end.
enum Halt {
    /// The task is lost.
    Lost(Lost),
    /// The program's call fails with this.
    Error(i64),
}

impl From<Lost> for Halt {
    fn from(lost: Lost) -> Halt {
        Halt::Lost(lost)
    }
}

/// The result of the program's call; `None` where it is to be made as it is.
type Served = Result<Option<i64>, Halt>;

/// Serves a watched call under a hugetlb policy and sends its task on.
pub fn serve(scene: &mut Scene, space: &mut Space, mut paused: Paused) -> Result<(), Lost> {
    let size = scene.rewriting.large;
    let arguments = paused.arguments();
    let number = paused.number();
    let mut call = Call { scene, map: &mut space.huge, paused: &mut paused, size };
    let served = match number {
        libc::SYS_mmap => call.mmap(arguments),
        libc::SYS_munmap => call.munmap(arguments),
        libc::SYS_mprotect => call.mprotect(arguments),
        libc::SYS_pkey_mprotect => call.on_base_pages(arguments),
        libc::SYS_mremap => call.mremap(arguments),
        libc::SYS_madvise => call.madvise(arguments),
        libc::SYS_mbind => call.mbind(arguments),
        libc::SYS_brk => call.brk(arguments[0]),
        _ => Ok(None),
    };
    match served {
        Ok(Some(result)) | Err(Halt::Error(result)) => paused.finish(result),
        Ok(None) => paused.pass(),
        Err(Halt::Lost(lost)) => Err(lost),
    }
}

/// Serves a process that fork has just made: where the pool may not suffice for the copies that writing
/// will make, beside `promised` pages for other processes, it gets ordinary memory now.
pub fn serve_copy(scene: &mut Scene, space: &mut Space, mut paused: Paused, promised: u64) -> Result<(), Lost> {
    let size = scene.rewriting.large;
    let all = space.huge.all_backed();
    let needed: u64 = all.iter().map(|(start, end)| (end - start) / size.bytes()).sum();
    if needed == 0 || needed + promised <= unreserved_pages(size) {
        space.huge.promised_pages = needed;
    } else {
        let mut call = Call { scene, map: &mut space.huge, paused: &mut paused, size };
        for pages in all {
            match call.demote(pages) {
                Ok(()) | Err(Halt::Error(_)) => {}
                Err(Halt::Lost(lost)) => return Err(lost),
            }
        }
        scene.findings.cause(Cause::PoolExhausted { size }, needed * size.bytes());
    }
    let returned = paused.returned();
    paused.finish(returned)
}

/// Pages of the pool that are free and not reserved for mappings (Documentation/admin-guide/mm/hugetlbpage.rst).
fn unreserved_pages(size: PageSize) -> u64 {
    let read = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/{name}", size.bytes() >> 10);
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    match (read("free_hugepages"), read("resv_hugepages")) {
        (Some(free), Some(reserved)) => free.saturating_sub(reserved),
        _ => 0,
    }
}

impl Call<'_, '_> {
    fn mmap(&mut self, [address, bytes, protection, flags, ..]: [u64; 6]) -> Served {
        let anonymous = flags & ANONYMOUS != 0 && flags & MAP_TYPE == PRIVATE && flags & LEFT_ALONE == 0;
        let Some(bytes) = self.base_up(bytes).filter(|bytes| *bytes > 0) else { return Ok(None) };
        if flags & FIXED != 0 {
            return self.mmap_over(address, bytes, protection, anonymous);
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

    /// mmap with MAP_FIXED.
    fn mmap_over(&mut self, start: u64, bytes: u64, protection: Protection, anonymous: bool) -> Served {
        let [_, _, _, flags, descriptor, offset] = self.paused.arguments();
        let Some(end) = self.end_of(start, bytes).filter(|_| flags & FIXED_NOREPLACE == 0) else { return Ok(None) };
        if self.is_given_up(start, end, protection) && guards::maps_over(self.paused.arguments()) {
            self.carry_out(&[Action::Zero(start, end)])?;
            self.scene.findings.answer(MAPPED_GUARD);
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
        let flags = flags & !FIXED;
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
    fn clear_target(&mut self, start: u64, end: u64) -> Result<Vec<Action>, Halt> {
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

    fn munmap(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            self.map.spoil(start, end);
            return Ok(None);
        }
        let actions = self.map.unmap(start, end, self.size);
        self.carry_out(&actions)?;
        Ok(Some(0))
    }

    fn mprotect(&mut self, [start, bytes, protection, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if protection != NONE {
            for pages in self.map.convertible(start, end, self.size) {
                self.convert(pages, NONE)?;
            }
        }
        if !self.map.concerns(start, end) {
            if protection != NONE {
                self.map.spoil(start, end);
            }
            return Ok(None);
        }
        let misfits = self.map.misfits(start, end, protection, self.size);
        if self.is_given_up(start, end, protection) {
            self.scene.findings.answer(CLOSED_GUARD);
            return Ok(Some(0));
        }
        for page in misfits {
            self.demote(page)?;
        }
        let mut result = 0;
        for (s, e) in self.map.ordinary(start, end) {
            let here = self.call(libc::SYS_mprotect, [s, e - s, protection, 0, 0, 0])?;
            self.map.spoil(s, e);
            result = if result == 0 { here } else { result };
        }
        let (actions, widened) = self.map.protect(start, end, protection, self.size);
        if widened {
            self.scene.findings.cause(Cause::ProtectionWidened, end - start);
        }
        self.carry_out(&actions)?;
        Ok(Some(result))
    }

    /// Whether closing a range makes a guard inside a page of which more is accessible, and guards are left open.
    fn is_given_up(&self, start: u64, end: u64, protection: Protection) -> bool {
        let small = guards::is_small(start, end, self.scene.rewriting.base);
        self.scene.rewriting.no_guards
            && protection == NONE
            && small
            && !self.map.misfits(start, end, NONE, self.size).is_empty()
    }

    /// A call that pool pages do not support as the program means it: the range is given back first.
    fn on_base_pages(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        self.demote_range(start, end)?;
        self.map.spoil(start, end);
        Ok(None)
    }

    /// A memory policy holds for whole pages: what shares a page with the range gets it too.
    fn mbind(&mut self, [start, bytes, mode, nodes, most, flags]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        let mut result = 0;
        let whole = self.map.backed_parts(start, end).into_iter().map(|(s, e)| outline(s, e, self.size));
        let parts: Vec<(u64, u64)> = whole.chain(self.map.ordinary(start, end)).collect();
        for (s, e) in parts {
            let here = self.call(libc::SYS_mbind, [s, e - s, mode, nodes, most, flags])?;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }

    fn mremap(&mut self, [old, old_bytes, new_bytes, flags, target, _]: [u64; 6]) -> Served {
        let base = self.scene.rewriting.base;
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
        if overlap || self.scene.rewriting.base.align_down(target.0) != target.0 || target.0 == target.1 {
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

    fn madvise(&mut self, [start, bytes, how, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            return Ok(None);
        }
        match how {
            DONT_NEED | advice::DONTNEED_LOCKED => self.drop_content(start, end, how),
            DONT_FORK | DO_FORK => {
                for page in self.map.shared_ends(start, end, self.size) {
                    self.demote(page)?;
                }
                self.advise_pages(start, end, how)
            }
            DONT_DUMP | DO_DUMP | advice::POPULATE_READ | advice::POPULATE_WRITE => self.advise_pages(start, end, how),
            WIPE_ON_FORK | KEEP_ON_FORK | advice::GUARD_INSTALL | advice::GUARD_REMOVE => {
                self.demote_range(start, end)?;
                Ok(None)
            }
            // Hints, which the kernel may ignore, and so may we: pool pages are neither merged, reclaimed
            // nor of another size.
            _ if HINTS.contains(&how) => {
                let result = self.advise_ordinary(start, end, how)?;
                Ok(Some(result))
            }
            _ => Ok(None),
        }
    }

    /// The first error that an advice meets on memory that is not the pool's; all of it is advised.
    fn advise_ordinary(&mut self, start: u64, end: u64, how: u64) -> Result<i64, Halt> {
        let mut result = 0;
        for (s, e) in self.map.ordinary(start, end) {
            let here = self.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            result = if result == 0 { here } else { result };
        }
        Ok(result)
    }

    fn drop_content(&mut self, start: u64, end: u64, how: u64) -> Served {
        for (s, e) in self.map.drop_content(start, end, self.size).partial {
            // What cannot be written cannot be zeroed.
            if self.map.seen_in((s, e)).iter().any(|(_, _, protection)| protection & WRITE == 0) {
                self.demote(outline(s, e, self.size))?;
            }
        }
        let result = self.advise_ordinary(start, end, how)?;
        let Dropped { whole, partial } = self.map.drop_content(start, end, self.size);
        for (s, e) in whole {
            let dropped = self.call(libc::SYS_madvise, [s, e - s, libc::MADV_DONTNEED as u64, 0, 0, 0])?;
            if is_error(dropped) {
                // Before Linux 5.18 hugetlb pages cannot be dropped.
                self.carry_out(&[Action::Zero(s, e)])?;
            }
        }
        for (s, e) in partial {
            self.carry_out(&[Action::Zero(s, e)])?;
        }
        Ok(Some(result))
    }

    fn advise_pages(&mut self, start: u64, end: u64, how: u64) -> Served {
        let mut result = self.advise_ordinary(start, end, how)?;
        for (s, e) in self.map.backed_parts(start, end) {
            let (s, e) = outline(s, e, self.size);
            let here = self.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
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

    /// Replaces ordinary memory that holds nothing yet by pool pages; all of them if it can, else as many as
    /// the pool has.
    fn convert(&mut self, pages: (u64, u64), protection: Protection) -> Result<(), Halt> {
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
        self.scene.findings.cause(Cause::PoolExhausted { size: self.size }, pages.1 - start);
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

    fn demote_range(&mut self, start: u64, end: u64) -> Result<(), Halt> {
        for (s, e) in self.map.backed_parts(start, end) {
            self.demote(outline(s, e, self.size))?;
        }
        Ok(())
    }

    /// Gives whole pages back to base pages, with their content. Another thread that writes to them in the
    /// same instant faults, and is sent back until they are there (`Tree::tries_again`). Only the kernel, when
    /// it writes for a system call of another thread in this instant, reports EFAULT.
    fn demote(&mut self, pages: (u64, u64)) -> Result<(), Halt> {
        let (start, bytes) = (pages.0, pages.1 - pages.0);
        let copy = self.must(libc::SYS_mmap, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0])?;
        let seen = self.map.seen_in(pages);
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
        self.map.demote(pages);
        self.scene.findings.cause(Cause::Demoted, bytes);
        self.shape(pages, &seen)
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
    fn map_pages(&mut self, hint: u64, bytes: u64, protection: Protection, flags: u64) -> Result<i64, Halt> {
        let Some(bytes) = self.size.align_up(bytes) else { return Ok(ENOMEM) };
        let size = u64::from(self.size.bytes().trailing_zeros()) << libc::MAP_HUGE_SHIFT;
        let flags = flags | libc::MAP_HUGETLB as u64 | size;
        self.call(libc::SYS_mmap, [hint, bytes, protection, flags, u64::MAX, 0])
    }

    fn note_refusal(&mut self, error: i64, bytes: u64) {
        let cause = if error == ENOMEM { Cause::PoolExhausted { size: self.size } } else { Cause::NoAlignedSlot };
        self.scene.findings.cause(cause, bytes);
    }

    /// Makes a call in the task's name, unless the program's own filters would refuse it. The raw result.
    fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, Halt> {
        if !self.scene.allows(self.paused, number, arguments) {
            self.scene.findings.cause(Cause::FilteredByProgram, 0);
            return Ok(EPERM);
        }
        Ok(self.paused.call(number, arguments)?)
    }

    /// Like [`Call::call`]; where the kernel refuses it the program's own call fails the same way.
    fn must(&mut self, number: i64, arguments: [u64; 6]) -> Result<u64, Halt> {
        match self.call(number, arguments)? {
            error if is_error(error) => Err(Halt::Error(error)),
            result => Ok(result as u64),
        }
    }

    /// Does what the bookkeeping asks for. The first failure (of a split of mappings, at
    /// `vm.max_map_count`) is the program's.
    fn carry_out(&mut self, actions: &[Action]) -> Result<(), Halt> {
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

    /// Copies what a range holds; holes stay holes.
    fn copy_present(&mut self, from: u64, to: u64, bytes: u64) -> bool {
        let parts = self.present_parts(from, from + bytes);
        parts.into_iter().all(|(at, bytes)| self.copy(at, to + (at - from), bytes).is_ok())
    }

    /// The parts of a backed range whose pages hold something, as (address, bytes) of at most `COPY_BYTES`.
    fn present_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let page = self.size.align_down(at);
            let stop = end.min(page + self.size.bytes());
            if ptrace::is_present(self.paused.tid(), page, self.scene.rewriting.base) {
                let starts = (at..stop).step_by(COPY_BYTES as usize);
                parts.extend(starts.map(|at| (at, COPY_BYTES.min(stop - at))));
            }
            at = stop;
        }
        parts
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> std::io::Result<()> {
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

    /// The end of a range as the kernel rounds it; `None` for what it refuses.
    fn end_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let aligned = self.scene.rewriting.base.align_down(start) == start;
        let end = start.checked_add(self.base_up(bytes)?)?;
        (aligned && start < end).then_some(end)
    }
}

const DONT_NEED: u64 = libc::MADV_DONTNEED as u64;
const DONT_FORK: u64 = libc::MADV_DONTFORK as u64;
const DO_FORK: u64 = libc::MADV_DOFORK as u64;
const DONT_DUMP: u64 = libc::MADV_DONTDUMP as u64;
const DO_DUMP: u64 = libc::MADV_DODUMP as u64;
const WIPE_ON_FORK: u64 = libc::MADV_WIPEONFORK as u64;
const KEEP_ON_FORK: u64 = libc::MADV_KEEPONFORK as u64;
const HINTS: [u64; 12] = [
    libc::MADV_NORMAL as u64,
    libc::MADV_RANDOM as u64,
    libc::MADV_SEQUENTIAL as u64,
    libc::MADV_WILLNEED as u64,
    libc::MADV_FREE as u64,
    libc::MADV_MERGEABLE as u64,
    libc::MADV_UNMERGEABLE as u64,
    libc::MADV_HUGEPAGE as u64,
    libc::MADV_NOHUGEPAGE as u64,
    libc::MADV_COLD as u64,
    libc::MADV_PAGEOUT as u64,
    libc::MADV_COLLAPSE as u64,
];
