//! Who sees the memory of a tree while it is still there.

use super::leaving::Extent;
use super::ptrace::Tid;

/// Sees the memory of the tree's processes while it is still there.
pub trait Witness {
    /// The root is about to load its program.
    fn begins(&mut self, process: Tid);
    /// The last task that uses a memory is about to end. It need not be the first task of its process:
    /// that one can have ended, and have no memory any more. `/proc/TASK` shows the memory all the same.
    fn ends(&mut self, task: Tid);
    /// A task is about to unmap a range, or to drop its content.
    fn unmaps(&mut self, task: Tid, start: u64, end: u64);
    /// How much of the memory that goes it wants to see.
    fn extent(&self) -> Extent {
        Extent::Large
    }
    /// A task is about to make a call that may give back pages of a pool, of which its process has at most so many bytes. The
    /// kernel keeps no peak of them.
    fn shrinks(&mut self, _task: Tid, _process: Tid, _pool_bytes: u64) {}
    /// A process was made with a copy of another's memory.
    fn forked(&mut self, _parent: Tid, _child: Tid) {}
    /// A task is about to have its memory, which no other process has, replaced by that of a new image ([`Extent::All`] only); it
    /// can still fail.
    fn replaces(&mut self, _task: Tid) {}
    /// A process has the memory of a new image.
    fn replaced(&mut self, _process: Tid) {}
}
