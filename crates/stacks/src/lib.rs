//! Finds the code that first touched the memory of a program.
//!
//! A [`Recorder`] has perf report the page faults of a process tree, with the stacks of some. Where perf is not permitted it takes
//! the stacks of the calls that mapped the memory, at the tracer's stops. When memory is inspected, [`Recorder::look`] gives every
//! page the stack of the fault that made it present.
//!
//! * `faults` reads perf's buffers, and `event` is what perf and the tracer report.
//! * `touches` says which touch a page belongs to, and `samples` which stack a fault has whose own was not copied.
//! * `unwinding` finds the stacks of events, and `memory` applies them to each process.
//! * `modules` reads programs and libraries: how to unwind their functions, and their names. `names` reads the names of generated
//!   code.
//! * `recorder` is the thread that does all of this while the program runs.
//!
//! A page without a fault belongs to the fault in the smallest naturally aligned block that contains both. Folios are such blocks,
//! so a large page always belongs to the fault that made it. Faults on present pages (copies after a fork, NUMA hints) touch no new
//! memory and are ignored: the kernel reports the size of the page before the fault.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod event;
mod faults;
mod memory;
mod modules;
mod names;
mod recorder;
mod registers;
mod samples;
mod touches;
mod unwinding;

pub use event::{InspectedMemory, MappedRange, Moment, PresentMapping};
pub use faults::Unavailable;
pub use recorder::{Method, Recorder, StartError};
pub use registers::Registers;
