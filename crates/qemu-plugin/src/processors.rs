// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Processors`] counts the processors of a machine: how many have begun, and how many are completely recorded.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The counts of processors.
pub struct Processors {
    /// Processors that have executed an instruction.
    begun: AtomicUsize,
    /// Processors that have been recorded up to the requested limit.
    complete: AtomicUsize,
}

impl Processors {
    /// No processor yet.
    pub const fn new() -> Processors {
        Processors { begun: AtomicUsize::new(0), complete: AtomicUsize::new(0) }
    }

    /// A processor is about to execute its first instruction.
    pub fn begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a processor that has been recorded up to the requested limit. Returns whether every processor that has begun is
    /// complete, so that nothing more will be recorded.
    pub fn complete(&self) -> bool {
        self.complete.fetch_add(1, Ordering::SeqCst) + 1 >= self.begun.load(Ordering::SeqCst)
    }
}
