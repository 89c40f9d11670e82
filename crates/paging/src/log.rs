//! The log of changes to live tables, in order. [`crate::check::live`] checks it.

use alloc::vec::Vec;

use crate::address::{InputAddress, OutputAddress};

/// One step of a change to live tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry was written.
    Write {
        /// Where the entry itself is, not what it maps.
        pa: OutputAddress,
        /// The first input address that it translates.
        va: InputAddress,
        /// Its level; 0 is the level of pages.
        level: u8,
        /// The old value.
        old: u64,
        /// The new value.
        new: u64,
    },
    /// No TLB holds translations of the range any more, and the writer has waited for this (arm64: TLBI and DSB; x86: INVLPG or a CR3
    /// write on every processor; RISC-V: SFENCE.VMA on every hart).
    Invalidate {
        /// The first input address of the range.
        va: InputAddress,
        /// Length of the range in bytes.
        bytes: u64,
        /// Whether cached entries that point to tables were dropped too. An invalidation of the last level alone keeps them.
        tables: bool,
    },
    /// A block of tables was returned to the allocator.
    Release {
        /// Physical address of the block.
        pa: OutputAddress,
        /// Size of the block in bytes.
        bytes: u64,
    },
}

/// Receives the events of changes.
pub trait Log {
    /// Whether events are wanted at all. If not, many entries can be written at once, which is faster.
    const ENABLED: bool = true;

    /// Receives one event.
    fn event(&mut self, event: Event);
}

/// Discards all events.
impl Log for () {
    const ENABLED: bool = false;

    #[inline]
    fn event(&mut self, _event: Event) {}
}

impl Log for Vec<Event> {
    fn event(&mut self, event: Event) {
        self.push(event);
    }
}
