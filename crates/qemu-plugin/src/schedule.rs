// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Schedule`]: when recording is on, counted in instructions of a thread.

use trace::Header;

/// The windows that are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Instructions that are skipped before every window.
    pub skip: u64,
    /// Instructions in a window.
    window: u64,
    /// Instructions that may still be recorded.
    left: u64,
}

impl Schedule {
    /// The schedule for a header and a limit.
    pub fn new(header: &Header, max_instructions: Option<u64>) -> Schedule {
        let window = header.window.and_then(|window| window.record_instructions);
        Schedule {
            skip: header.window.map_or(0, |window| window.skip_instructions),
            window: window.unwrap_or(u64::MAX),
            left: max_instructions.unwrap_or(u64::MAX),
        }
    }

    /// Begins a window after `instructions`; returns where it ends.
    pub fn open(&mut self, instructions: u64) -> u64 {
        let length = self.window.min(self.left);
        if self.left != u64::MAX {
            self.left -= length;
        }
        instructions.saturating_add(length)
    }

    /// Ends a window after `instructions`; returns where the next one begins.
    pub fn close(&self, instructions: u64) -> u64 {
        if self.is_over() { u64::MAX } else { instructions.saturating_add(self.skip) }
    }

    /// Whether the limit of recorded instructions has been reached.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}
