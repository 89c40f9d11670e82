//! Memory traces: the pages that a program touches, and the changes to its address space.
//!
//! # The language
//!
//! - **run**: consecutive accesses of one thread to one 4K page. pagelab knows no smaller page, so runs lose nothing
//!   that a TLB or a page table could distinguish.
//! - **chunk**: the runs of one thread in one block, column by column.
//! - **event**: a system call that changes the address space, with its position among the runs.
//! - **timestamp**: when a thread reached a position among its runs and events, recorded where the order of threads may matter.
//! - **image**: the execution of a process from its fork, or an execve, to its end or the next execve. Each image has a trace.
//! - **block**: a file is a sequence of blocks. Each has checksums and can be read without the others.
//! - **notes**: what is known only after the recording, such as the program's CPU time without the recorder.
//! - **pace**: how often a recorder writes a block. It determines how much is lost if the recorder is killed.
//! - **filter**: which runs were left out. The header says for which TLBs the rest is exact, and a reader refuses others.
//!
//! # An example
//!
//! ```
//! use trace::{Block, Header, Kind, Reader, Recording};
//!
//! let mut recording = Recording::new(Vec::new(), Header::of("an example"))?;
//! for address in (0x10_0000..0x10_2000).step_by(8) {
//!     recording.access(0, address, 8, Kind::STORE)?;
//! }
//! let bytes = recording.finish()?;
//!
//! let mut reader = Reader::new(bytes.as_slice())?;
//! let mut runs = Vec::new();
//! while let Some(block) = reader.next_block()? {
//!     if let Block::Runs { chunk, .. } = block {
//!         runs.extend(chunk.runs().map(|run| (run.page, run.accesses)));
//!     }
//! }
//! assert_eq!(runs, [(0x100, 512), (0x101, 512)]);
//! assert!(reader.is_whole());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Pure: the caller passes readers and writers in; this crate opens no file and reads no clock.
//! docs/reference/formats/trace.md describes the bytes.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod add_notes;
mod block;
mod builder;
mod chunk;
mod column;
mod dictionary;
mod event;
pub mod executable;
mod footprint;
mod header;
mod image;
pub mod import;
mod index;
mod lru_filter;
mod notes;
pub mod pace;
mod read_error;
mod reader;
mod recording;
mod run;
mod run_cache;
mod runs;
mod timestamp;
mod windows;
mod writer;

pub use access::Access;
pub use add_notes::add_notes;
pub use block::{BlockError, MAGIC, MAX_PAYLOAD_BYTES, PREFIX_BYTES, PayloadKind, Prefix};
pub use builder::Builder;
pub use chunk::{AccessCounts, Chunk, ChunkError, MAX_ACCESSES, MAX_RUNS};
pub use column::{ColumnError, Encoder};
pub use dictionary::MAX_PAGES;
pub use event::{Call, Event};
pub use footprint::{Footprint, SHIFTS};
pub use header::{Columns, Emulator, Filter, Header, Jemalloc, NotExact, Part, Process, SCHEMA, TlbGeometry, Window};
pub use image::Image;
pub use index::IndexEntry;
pub use lru_filter::LruFilter;
pub use notes::{Native, NativeRun, NativeTime, Notes, NotesError};
pub use read_error::{Damage, DamageKind, EventsError, HeaderError, ReadError};
pub use reader::{Block, Reader};
pub use recording::Recording;
pub use run::{Kind, PAGE_SHIFT, Run};
pub use runs::{Runs, page_of};
pub use timestamp::{MAX_TIMESTAMPS, Timestamp, TimestampError};
pub use windows::Windows;
pub use writer::{Checkpoint, Writer};
