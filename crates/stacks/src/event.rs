//! [`Event`]: what happens to the memory and the code of a process, in order of time.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use policy::census::Region;

use crate::registers::Registers;

/// An event of a process and its time (CLOCK_MONOTONIC), in nanoseconds.
#[derive(Debug)]
pub struct Timed<T> {
    pub time_ns: u64,
    pub process: u32,
    pub event: T,
}

#[derive(Debug)]
pub enum Event {
    /// The process has the memory of a new program, and its name.
    Exec(String),
    /// The process has another name.
    Named(String),
    /// The process was created by this one. It shares its memory, until there is a copy or an exec.
    ForkedFrom(u32),
    /// The process has a copy of this one's memory.
    CopyOf(u32),
    /// Memory was mapped executable.
    Code(CodeMapping),
    /// A page fault on a page that was not present.
    Fault(PageFault),
    /// A page fault with a large part of its stack.
    Sample(PageFault),
    /// Memory was mapped.
    Mapped(Range<u64>, Caller),
    /// Memory that may have been touched before was populated.
    Populated(Range<u64>, Caller),
    /// Memory was moved.
    Moved { from: u64, to: u64, bytes: u64 },
    /// Memory is about to be unmapped or dropped.
    Freed(Range<u64>),
    /// Memory was inspected.
    Inspected(InspectedMemory),
    /// The recording ends.
    End,
}

/// Executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    pub addresses: Range<u64>,
    /// The file whose code it is; `None` for code that the program generated.
    pub file: Option<CodeFile>,
}

/// A part of a file that is mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    pub path: PathBuf,
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// A page fault.
#[derive(Debug)]
pub struct PageFault {
    pub task: u32,
    pub address: u64,
    pub is_in_kernel: bool,
    pub caller: Caller,
}

/// Where a task had a page fault. Two faults at the same place have the same stack, at least as far as `pattern` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub task: u32,
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    pub is_in_kernel: bool,
    /// The return addresses and frame pointers next to the stack pointer, as a hash.
    pub pattern: u64,
}

/// The number of a stack that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackId(pub u32);

/// An [`Event`] that concerns memory, with its stack.
#[derive(Debug)]
pub enum Step {
    Exec(String),
    Named(String),
    ForkedFrom(u32),
    CopyOf(u32),
    /// A page at this address was touched at this place. The stack is that part of it which every fault has.
    Touched(u64, Place, StackId),
    Mapped(Range<u64>, StackId),
    Populated(Range<u64>, StackId),
    Moved {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Freed(Range<u64>),
    Inspected(InspectedMemory),
}

/// The registers of a task and the memory at its stack pointer.
#[derive(Debug, Default)]
pub struct Caller {
    pub registers: Registers,
    pub stack: Vec<u8>,
}

/// A call that mapped, moved or populated memory.
#[derive(Debug)]
pub enum MappedRange {
    /// This range was mapped.
    Mapped(Range<u64>),
    /// This range was populated. It may have been touched before.
    Populated(Range<u64>),
    /// `bytes` at `from` are at `to` now, where `to_bytes` are mapped.
    Moved { from: u64, bytes: u64, to: u64, to_bytes: u64 },
}

/// When memory was inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While the program ran. A later look replaces it.
    Running,
    /// When its process ended.
    Exit,
}

/// What an inspection found.
#[derive(Debug)]
pub struct InspectedMemory {
    /// When.
    pub moment: Moment,
    /// The mappings with present memory.
    pub mappings: Vec<PresentMapping>,
    /// The file in which the program names the functions that it generated (/tmp/perf-PID.map), if it has one.
    pub generated_names: Option<File>,
}

/// A mapping with present memory.
#[derive(Debug)]
pub struct PresentMapping {
    pub addresses: Range<u64>,
    /// The path of the file, or the kernel's name; empty for anonymous memory.
    pub name: String,
    /// The present memory, in address order.
    pub regions: Vec<Region>,
}
