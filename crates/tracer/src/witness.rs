//! [`Witness`]: the interface of an observer that inspects the memory of a tree before it is freed.

use super::freed_ranges::InspectedRemovals;
use super::ptrace::Tid;
use policy::call::Call;
use policy::removal::Unwatched;

/// A range of a process's memory, and the window to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRange {
    /// The process that mapped it.
    pub process: Tid,
    /// The first address, and the length in bytes.
    pub range: (u64, u64),
    /// Number of the window.
    pub window: u32,
}

/// Which calls that map memory a witness sees after they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObservedMappings {
    /// None.
    #[default]
    None,
    /// Those after which memory is present without a page fault of the program: it was populated or moved.
    WithoutFaults,
    /// All.
    All,
}

/// A call that mapped, moved or populated memory. It has just been made, and its task is still stopped.
#[derive(Debug)]
pub struct MappingCall {
    /// The task that made the call.
    pub task: Tid,
    /// Its process.
    pub process: Tid,
    /// The call.
    pub call: Call,
    /// What the kernel returned. It is not an error.
    pub result: u64,
    /// Where the program made the call.
    pub caller: Caller,
}

/// The registers and the stack of a task, which a debugger needs to find the functions that called one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The instruction pointer.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The link register; 0 on architectures without one.
    pub link: u64,
    /// Memory from the stack pointer on, as far as it was read.
    pub stack_bytes: Vec<u8>,
}

/// An observer of the tree's memory. The tracer calls it before memory is freed.
pub trait Witness {
    /// The root is about to load its program.
    fn begins(&mut self, process: Tid);
    /// The last task that uses an address space is about to end. It need not be the first task of its process, which
    /// may have ended and have no memory any more. `/proc/TASK` shows the memory anyway.
    fn ends(&mut self, task: Tid);
    /// A task is about to unmap a range, or to drop its content.
    fn unmaps(&mut self, task: Tid, start: u64, end: u64);
    /// A task is about to make a call that frees shared memory or pages of files, or swaps memory out.
    fn reduces_rss(&mut self, _task: Tid) {}
    /// The ranges of a process's anonymous memory that PMD leaves map; empty if the process had no fault since the last call.
    fn new_leaves(&mut self, _process: Tid) -> Vec<(u64, u64)> {
        Vec::new()
    }
    /// A tick of the clock, if accesses to windows are counted. The ranges are those of all windows so far.
    fn ticks(&mut self, _window_ranges: &[WindowRange]) {}
    /// A task frees memory that was not inspected, or can do so from now on. With [`Unwatched::IoUring`] its later forks can, too.
    fn frees_unwatched(&mut self, _task: Tid, _way: Unwatched) {}
    /// Which part of the freed memory the witness wants to inspect.
    fn inspected_removals(&self) -> InspectedRemovals {
        InspectedRemovals::Large
    }
    /// A task is about to make a call that may free pool pages. Its process has at most this many bytes of them. The witness
    /// must remember the maximum itself, because the kernel records no peak for pool pages.
    fn shrinks_pool(&mut self, _task: Tid, _process: Tid, _pool_bytes: u64) {}
    /// Which mapping calls the witness wants to see.
    fn observed_mappings(&self) -> ObservedMappings {
        ObservedMappings::None
    }
    /// A task has made a mapping call that the witness wants to see.
    fn maps(&mut self, _call: MappingCall) {}
    /// A process was created with a copy of another's memory.
    fn forked(&mut self, _parent: Tid, _child: Tid) {}
    /// A task is about to replace its memory, which no other process uses, by a new image ([`InspectedRemovals::All`] only). The
    /// exec can still fail.
    fn replaces(&mut self, _task: Tid) {}
    /// A process has the memory of a new image.
    fn replaced(&mut self, _process: Tid) {}
}
