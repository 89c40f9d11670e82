//! Memory traces: what a program touches, page by page, and what happens to its address space.
//!
//! # The language
//!
//! - **run**: consecutive accesses of one thread to one 4K page. No page that pagelab knows is smaller, so that runs lose
//!   nothing that a TLB or a page table could tell apart.
//! - **chunk**: the runs of one thread that stand together in a block, column by column.
//! - **event**: a system call that changes the address space, with its place among the runs.
//! - **block**: what a file is a sequence of; each stands for itself, with checksums.
//! - **log**: what a recorder has not written yet, for whoever survives it.
//! - **filter**: what was left out of the runs. The header says for which TLBs the rest is exact, and a reader refuses
//!   others.
//!
//! Pure: readers and writers are handed in; no file is opened and no clock is read here. FORMATS.md describes the bytes.

#![forbid(unsafe_code)]

mod block;
mod builder;
mod chunk;
mod column;
mod event;
mod footprint;
mod header;
pub mod import;
pub mod log;
mod lru_filter;
mod reader;
mod run_cache;
mod windows;
mod recording;
mod rescue;
mod run;
mod writer;

pub use block::{BlockError, Holds, MAGIC, MAX_PAYLOAD_BYTES, PREFIX_BYTES, Prefix};
pub use builder::Builder;
pub use chunk::{Access, Chunk, ChunkError, MAX_ACCESSES, MAX_PAGES, MAX_RUNS};
pub use column::Encoder;
pub use event::{Call, Event};
pub use footprint::{Footprint, SHIFTS};
pub use header::{Columns, Emulator, Filter, Geometry, Header, NotExact, Part, Process, SCHEMA, Window};
pub use lru_filter::MostRecent;
pub use reader::{Block, Damage, DamageKind, ReadError, Reader};
pub use windows::Recorded;
pub use recording::Recording;
pub use rescue::{Rescue, Rescued};
pub use run::{Kind, PAGE_SHIFT, Run, Runs};
pub use writer::{Checkpoint, Place, Writer};
