//! Page tables: formats, walks, splits, contiguous groups, and a checker of their rules.
//!
//! Pure: no std, no I/O, no unsafe code. Tables are real entries in real layouts, in an [`Arena`] that can be written
//! out as an image of physical memory. So hardware and emulators can check that they see the same mappings.
//!
//! # The language
//!
//! - **entry**: eight bytes of a table; a *hole* (not valid), a pointer to a *table*, or a *leaf* that maps memory.
//! - **level**: level 0 holds pages, in every format; the root is at the highest level. Specifications count
//!   differently: [`Format::level_name`] returns their names.
//! - **span**: how many bytes one entry of a level translates.
//! - **group**: leaves that are marked as one: the contiguous bit of arm64, a NAPOT size of RISC-V. *Fold* and *unfold*
//!   make and dissolve a group.
//! - **run**: hardware entries that software always writes as one: sixteen, with 64K software pages.
//! - **split** and **collapse**: one leaf becomes a table of smaller ones, and back.
//! - **input address**: the address to translate (virtual, or intermediate physical at stage 2); **output address**:
//!   the result. They are called `va` and `pa` in code; [`InputAddress`] and [`OutputAddress`] keep them apart. An input
//!   address is *resolved* if it has only those bits that the tables resolve; inside this crate that is a plain number.
//! - **break-before-make**: an entry is made a hole and dropped from all TLBs before its replacement is written.
//!
//! # An example
//!
//! ```
//! use paging::format::x86_64::X86_64;
//! use paging::{Attributes, Flags, InputAddress, LeafSize, Mapping, OutputAddress, Sizes, Tables};
//!
//! // Four levels, 46 bits of physical address; the tables begin at 1G and take at most 1M.
//! let mut tables = Tables::new(X86_64::new(4, 46), OutputAddress(1 << 30), 1 << 20)?;
//! let va = InputAddress(0x7f00_0000_0000);
//! let attributes = Attributes::new(Flags::READ | Flags::WRITE | Flags::USER);
//! tables.map(&Mapping { va, pa: OutputAddress(1 << 32), bytes: 4 << 20, attributes, sizes: Sizes::BEST })?;
//! assert_eq!(tables.translate(InputAddress(va.0 + 0x1234))?.pa, OutputAddress((1 << 32) + 0x1234));
//!
//! tables.split(va)?;
//! let census = tables.census()?;
//! let of = |bytes: u64| census.mapped_bytes[&LeafSize { leaf_bytes: bytes, group_bytes: bytes }];
//! assert_eq!((of(4 << 10), of(2 << 20)), (2 << 20, 2 << 20));
//! assert!(paging::check::check(&tables).is_legal());
//! # Ok::<(), paging::Error>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

extern crate alloc;

mod address;
mod arena;
mod attributes;
mod census;
pub mod check;
mod error;
mod extension;
pub mod format;
mod geometry;
mod log;
pub mod nested;
mod rule;
mod tables;
mod walk;
mod written;

pub use address::{InputAddress, OutputAddress};
pub use arena::Arena;
pub use attributes::{Attributes, Flags};
pub use census::{Census, LeafSize};
pub use error::Error;
pub use extension::Extension;
pub use format::Format;
pub use geometry::{ENTRY_BYTES, Geometry};
pub use log::{Event, Log};
pub use rule::{Rule, Severity};
pub use tables::{FreeRequest, Leaf, Mapping, Sizes, Slot, Tables, Translation};
pub use walk::{Action, Node, Visitor};
