//! Serving a program's memory calls so that its large anonymous memory comes from the hugetlb pool and
//! the program does not notice: lengths are made to fit, parts of pages are kept by bookkeeping
//! (`huge_map`), and what the pool cannot give, or cannot express, is ordinary memory, with the cause noted.
//!
//! Other threads of the program run meanwhile, and their small mappings are not watched. So no range that
//! the program holds is ever unmapped before something else stands in its place: the kernel could give the
//! hole to another thread. New memory is made elsewhere and moved into place (mremap with MREMAP_FIXED).
//!
//! `mapping`, `moving`, `changing` and `parts` each serve some of the calls; `pages` puts pool pages and base pages in
//! each other's place for all of them.

mod changing;
mod mapping;
mod moving;
mod pages;
mod parts;

pub use parts::watches as parts_watches;

use policy::cause::Cause;
use policy::size::PageSize;

use super::call_context::CallContext;
use super::huge_map::{HugeMap, Protection};
use super::paused::{Lost, Paused};
use super::registers::is_error;
use super::tasks::Space;

const WRITE: Protection = libc::PROT_WRITE as u64;
const READ_WRITE: Protection = libc::PROT_READ as u64 | WRITE;
const PRIVATE_ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const NO_RESERVE: u64 = libc::MAP_NORESERVE as u64;
const DONT_NEED: u64 = libc::MADV_DONTNEED as u64;
/// mremap to a place of the caller's choice.
const MOVE_TO: u64 = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
const ENOMEM: i64 = -(libc::ENOMEM as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const EPERM: i64 = -(libc::EPERM as i64);

/// One call, with all that serving it needs.
struct Call<'a, 'b> {
    context: &'a mut CallContext<'b>,
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
pub fn serve(context: &mut CallContext, space: &mut Space, mut paused: Paused) -> Result<(), Lost> {
    let size = context.rewriting.large;
    let arguments = paused.arguments();
    let number = paused.number();
    let mut call = Call { context, map: &mut space.huge, paused: &mut paused, size };
    let served = match number {
        libc::SYS_mmap => call.mmap(arguments),
        libc::SYS_munmap => call.munmap(arguments),
        libc::SYS_mprotect => call.mprotect(arguments),
        libc::SYS_pkey_mprotect => call.on_base_pages(arguments),
        libc::SYS_mremap => call.mremap(arguments),
        libc::SYS_madvise => call.madvise(arguments),
        libc::SYS_mbind => call.on_whole_pages(number, arguments),
        libc::SYS_brk => call.brk(arguments[0]),
        _ => call.of_parts(arguments),
    };
    match served {
        Ok(Some(result)) | Err(Halt::Error(result)) => paused.finish(result),
        Ok(None) => paused.pass(),
        Err(Halt::Lost(lost)) => Err(lost),
    }
}

/// Serves a process that fork has just made: where the pool may not suffice for the copies that writing
/// will make, beside `promised` pages for other processes, it gets ordinary memory now.
pub fn serve_copy(context: &mut CallContext, space: &mut Space, mut paused: Paused, promised: u64) -> Result<(), Lost> {
    let size = context.rewriting.large;
    let all = space.huge.all_backed();
    let needed: u64 = all.iter().map(|(start, end)| (end - start) / size.bytes()).sum();
    if needed == 0 || needed + promised <= unreserved_pages(size) {
        space.huge.promised_pages = needed;
    } else {
        let mut call = Call { context, map: &mut space.huge, paused: &mut paused, size };
        for pages in all {
            match call.demote(pages) {
                Ok(()) | Err(Halt::Error(_)) => {}
                Err(Halt::Lost(lost)) => return Err(lost),
            }
        }
        context.findings.cause(Cause::PoolExhausted { size }, needed * size.bytes());
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
    /// Makes a call in the task's name, unless the program's own filters would refuse it. The raw result.
    fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, Halt> {
        if !self.context.allows(self.paused, number, arguments) {
            self.context.findings.cause(Cause::FilteredByProgram, 0);
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

    fn base_up(&self, address: u64) -> Option<u64> {
        self.context.rewriting.base.align_up(address)
    }

    /// What the kernel answers where memory is missing, in place of a success.
    fn unless_hole(&self, start: u64, end: u64, result: i64) -> i64 {
        if result == 0 && self.map.has_hole(start, end) { ENOMEM } else { result }
    }

    /// The end of a range as the kernel rounds it; `None` for what it refuses.
    fn end_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let aligned = self.context.rewriting.base.align_down(start) == start;
        let end = start.checked_add(self.base_up(bytes)?)?;
        (aligned && start < end).then_some(end)
    }
}
