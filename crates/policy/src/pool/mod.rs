//! Serving a program's memory calls so that its large anonymous memory comes from a hugetlb pool and the program does not
//! notice: lengths are made to fit, parts of pages are kept by bookkeeping (`views`), and what the pool cannot give, or cannot
//! express, is ordinary memory, with the cause noted.
//!
//! What is done next depends on what came of the call before, so nothing is decided ahead: [`serve`] makes calls through a
//! [`PoolKernel`]. The tracer's is a stopped task, the model's has addresses and VMAs, and no content.
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
mod views;

pub use views::{PoolHeap, Views};

use crate::call::{Call, Deed, map, mremap, prot};
use crate::carry_out::{Kernel, Outcome, is_error};
use crate::cause::Cause;
use crate::mechanism::Mechanism;
use crate::size::PageSize;
use views::Protection;

const READ_WRITE: Protection = prot::READ | prot::WRITE;
const PRIVATE_ANONYMOUS: u64 = map::PRIVATE | map::ANONYMOUS;
/// mremap to a place of the caller's choice.
const MOVE_TO: u64 = mremap::MAY_MOVE | mremap::FIXED;
/// No file.
const NO_FILE: u64 = u64::MAX;
// include/uapi/asm-generic/errno-base.h, negated.
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;

/// What is copied of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Base pages that hold something else than zeros; the others stay holes.
    Filled,
    /// All of it.
    All,
}

/// Where the kernel writes before a task runs on, as the task has registered it by rseq(2). Where it cannot write it kills the
/// task (`__rseq_handle_notify_resume`, kernel/rseq.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// What the task proves itself with.
    pub signature: u64,
}

/// Who makes calls in a program's name where its memory comes from a pool.
pub trait PoolKernel: Kernel {
    /// Makes the call that the program came for, about another range: `(address, bytes)`.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn own_call_on(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Copies what a range of so many bytes holds to another one; says whether it could.
    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool;

    /// Has the kernel write no more to the task's rseq(2) area by itself, where that lies in these pages; returns it then.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn give_up_rseq(&mut self, _pages: (u64, u64)) -> Result<Option<RseqArea>, Self::Error> {
        Ok(None)
    }

    /// Has the kernel write there again.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn take_up_rseq(&mut self, _area: RseqArea) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Pages of the pool that are free and not promised to any mapping.
    fn unreserved_pages(&mut self) -> u64;

    /// Notes why memory is not as asked, and how much.
    fn note(&mut self, cause: Cause, bytes: u64);
}

/// Does to a call what a policy of pages of a pool does.
///
/// # Errors
/// Those of the kernel.
pub fn serve<K: PoolKernel>(
    mechanism: &Mechanism,
    views: &mut Views,
    call: &Call,
    kernel: &mut K,
) -> Result<Outcome, K::Error> {
    let mut serving = Serving { mechanism, views, kernel };
    let served = match *call {
        Call::Mmap { .. } => serving.mmap_populated(call),
        Call::Munmap { address, bytes } => serving.munmap(address, bytes),
        Call::Mprotect { address, bytes, protection } => serving.mprotect(address, bytes, protection),
        Call::Mremap { .. } => serving.mremap(call),
        Call::Madvise { address, bytes, advice } => serving.madvise(address, bytes, advice),
        Call::Brk { end } => serving.brk(end),
        Call::OnRange { address, bytes, deed } => serving.on_range(address, bytes, deed),
        Call::ProcessMadvise { .. } | Call::Prctl { .. } => Ok(None),
    };
    match served {
        Ok(Some(result)) | Err(Halt::Error(result)) => Ok(Outcome::Returned(result)),
        Ok(None) => Ok(Outcome::Pass),
        Err(Halt::Lost(error)) => Err(error),
    }
}

/// Serves a process that fork has just made: where the pool may not suffice for the copies that writing
/// will make, beside `promised` pages for other processes, it gets ordinary memory now.
///
/// # Errors
/// Those of the kernel.
pub fn serve_copy<K: PoolKernel>(
    mechanism: &Mechanism,
    views: &mut Views,
    promised: u64,
    kernel: &mut K,
) -> Result<(), K::Error> {
    let size = mechanism.large;
    let all = views.all_backed();
    let needed: u64 = all.iter().map(|(start, end)| (end - start) / size.bytes()).sum();
    if needed == 0 || needed + promised <= kernel.unreserved_pages() {
        views.promised_pages = needed;
        return Ok(());
    }
    let mut serving = Serving { mechanism, views, kernel };
    for pages in all {
        match serving.demote(pages) {
            Ok(()) | Err(Halt::Error(_)) => {}
            Err(Halt::Lost(error)) => return Err(error),
        }
    }
    kernel.note(Cause::PoolExhausted { size }, needed * size.bytes());
    Ok(())
}

/// One call, with all that serving it needs.
struct Serving<'a, K> {
    mechanism: &'a Mechanism,
    views: &'a mut Views,
    kernel: &'a mut K,
}

/// Why serving a call came to an early end.
enum Halt<E> {
    /// The program cannot go on.
    Lost(E),
    /// The program's call fails with this.
    Error(i64),
}

impl<E> From<E> for Halt<E> {
    fn from(error: E) -> Halt<E> {
        Halt::Lost(error)
    }
}

/// The result of the program's call; `None` where it is to be made as it is.
type Served<K> = Result<Option<i64>, Halt<<K as Kernel>::Error>>;
/// What comes of a step.
type Step<T, K> = Result<T, Halt<<K as Kernel>::Error>>;

impl<K: PoolKernel> Serving<'_, K> {
    /// Makes a call in the program's name, unless its own filters would refuse it. The raw result.
    fn call(&mut self, call: &Call) -> Step<i64, K> {
        if !self.kernel.allows(call) {
            self.kernel.note(Cause::FilteredByProgram, 0);
            return Ok(EPERM);
        }
        Ok(self.kernel.call(call)?)
    }

    /// Like [`Serving::call`]; where the kernel refuses it the program's own call fails the same way.
    fn must(&mut self, call: &Call) -> Step<u64, K> {
        must(self.call(call)?)
    }

    /// munmap of whole ranges that nobody needs any more.
    fn discard(&mut self, address: u64, bytes: u64) -> Step<(), K> {
        self.call(&Call::Munmap { address, bytes })?;
        Ok(())
    }

    fn size(&self) -> PageSize {
        self.mechanism.large
    }

    fn base_up(&self, address: u64) -> Option<u64> {
        self.mechanism.base.align_up(address)
    }

    fn is_base_aligned(&self, address: u64) -> bool {
        self.mechanism.base.align_down(address) == address
    }

    /// What the kernel answers where memory is missing, in place of a success.
    fn unless_hole(&self, start: u64, end: u64, result: i64) -> i64 {
        if result == 0 && self.views.has_hole(start, end) { ENOMEM } else { result }
    }

    /// The end of a range as the kernel rounds it; `None` for what it refuses.
    fn end_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let end = start.checked_add(self.base_up(bytes)?)?;
        (self.is_base_aligned(start) && start < end).then_some(end)
    }

    fn on_range(&mut self, start: u64, bytes: u64, deed: Deed) -> Served<K> {
        match deed {
            Deed::Lock => self.lock(start, bytes),
            Deed::Unlock => self.unlock(start, bytes),
            Deed::Ask => self.ask(start, bytes),
            Deed::Name => self.name(start, bytes),
            Deed::Bind => self.on_whole_pages(start, bytes),
            Deed::NeedBasePages => self.on_base_pages(start, bytes),
        }
    }
}

/// The result of a call that must succeed.
fn must<E>(result: i64) -> Result<u64, Halt<E>> {
    if is_error(result) { Err(Halt::Error(result)) } else { Ok(result as u64) }
}
