// SPDX-License-Identifier: GPL-2.0-or-later
//! The processors of a machine: how many are at work, and of how many of them all is recorded that was asked for.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are.
pub struct Processors {
    /// Those that have executed something.
    begun: AtomicUsize,
    /// Those of them of which as much is recorded as was asked for.
    complete: AtomicUsize,
}

impl Processors {
    /// None yet.
    pub const fn new() -> Processors {
        Processors { begun: AtomicUsize::new(0), complete: AtomicUsize::new(0) }
    }

    /// A processor is about to execute its first instruction.
    pub fn begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// As much is recorded of a processor as was asked for. Whether that is true of each one that was ever at work: nothing
    /// more will be recorded.
    pub fn is_complete(&self) -> bool {
        self.complete.fetch_add(1, Ordering::SeqCst) + 1 >= self.begun.load(Ordering::SeqCst)
    }
}
