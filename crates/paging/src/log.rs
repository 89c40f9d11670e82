//! What the engine did to live tables, in order: the evidence that [`crate::check::live`] judges.

use alloc::vec::Vec;

use crate::address::{InputAddress, OutputAddress};

/// One step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry was written.
    Write {
        /// Where it is.
        pa: OutputAddress,
        /// The first input address that it is for.
        va: InputAddress,
        /// Its level.
        level: u8,
        /// What it was.
        old: u64,
        /// What it is.
        new: u64,
    },
    /// Translations were dropped from the TLBs and waited for: TLBI and DSB, INVLPG or a CR3 write with the
    /// remote ones, SFENCE.VMA on every hart.
    Invalidate {
        /// The first input address.
        va: InputAddress,
        /// How many bytes.
        bytes: u64,
        /// Also from the caches of table entries: not a last-level-only invalidation.
        tables: bool,
    },
    /// A table was given back to the allocator.
    Release {
        /// Where it is.
        pa: OutputAddress,
        /// Its length.
        bytes: u64,
    },
}

/// Takes events.
pub trait Log {
    /// Whether events are wanted at all; writing many entries at once is faster if not.
    const ENABLED: bool = true;

    /// Takes one event.
    fn event(&mut self, event: Event);
}

/// Nobody looks.
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
