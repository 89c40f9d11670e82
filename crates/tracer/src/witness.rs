//! Interface of an observer that inspects the memory of a tree before it is gone.

use super::freed_ranges::Extent;
use super::ptrace::Tid;
use policy::removal::Unwatched;

/// An observer of the tree's memory. The tracer calls it before memory is given back.
pub trait Witness {
    /// The root is about to load its program.
    fn begins(&mut self, process: Tid);
    /// The last task that uses an address space is about to end. It need not be the first task of its process, which
    /// may have ended and have no memory any more. `/proc/TASK` shows the memory anyway.
    fn ends(&mut self, task: Tid);
    /// A task is about to unmap a range, or to drop its content.
    fn unmaps(&mut self, task: Tid, start: u64, end: u64);
    /// A task is about to make a call that takes shared memory, or pages of files, or moves memory to swap space.
    fn lessens(&mut self, _task: Tid) {}
    /// The memory of a task may go, or goes, without being seen. With [`Unwatched::IoUring`] that holds for what it forks, too.
    fn takes_unwatched(&mut self, _task: Tid, _way: Unwatched) {}
    /// How much of the memory that is given back the witness wants to see.
    fn extent(&self) -> Extent {
        Extent::Large
    }
    /// A task is about to make a call that may give back pool pages. Its process has at most this many bytes of them.
    /// The kernel records no peak of them.
    fn shrinks(&mut self, _task: Tid, _process: Tid, _pool_bytes: u64) {}
    /// A process was created with a copy of another's memory.
    fn forked(&mut self, _parent: Tid, _child: Tid) {}
    /// A task is about to replace its memory, which no other process uses, by a new image ([`Extent::All`] only). The
    /// exec can still fail.
    fn replaces(&mut self, _task: Tid) {}
    /// A process has the memory of a new image.
    fn replaced(&mut self, _process: Tid) {}
}
