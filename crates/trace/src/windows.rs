//! Counts how many instructions of a thread were recorded: those in windows, not those between them.

use std::collections::VecDeque;

use crate::event::{Call, Event};

/// Counts the recorded instructions of a thread from the file's events and blocks, in their order.
///
/// Figures per instruction divide by these, because no run covers what a thread did between windows.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Windows whose runs are still to come: the run before which each begins, and the instruction count at that point.
    windows: VecDeque<(u64, u64)>,
    /// Instructions of the thread at the end of the previous block, or at the start of the window.
    begin: u64,
}

impl Windows {
    /// Notes the windows among the thread's events.
    pub fn events(&mut self, events: &[Event]) {
        self.windows.extend(events.iter().filter_map(|event| match event.call {
            Call::Window { instructions } => Some((event.run, instructions)),
            _ => None,
        }));
    }

    /// The number of instructions recorded in a block whose runs end before run `end`, and which ends after
    /// `instructions` instructions of the thread.
    pub fn block(&mut self, end: u64, instructions: u64) -> u64 {
        while let Some((_, begin)) = self.windows.front().filter(|(run, _)| *run < end) {
            self.begin = self.begin.max(*begin);
            self.windows.pop_front();
        }
        let recorded = instructions.saturating_sub(self.begin);
        self.begin = self.begin.max(instructions);
        recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(run: u64, instructions: u64) -> Event {
        Event { run, order: 0, call: Call::Window { instructions }, result: 0 }
    }

    #[test]
    fn between_windows_nothing_was_recorded() {
        let mut recorded = Windows::default();
        recorded.events(&[window(0, 100)]);
        assert_eq!(recorded.block(7, 110), 10);
        // A window with two blocks, a window without runs, and a window with one block.
        recorded.events(&[window(7, 210), window(9, 310), window(9, 410)]);
        assert_eq!((recorded.block(8, 215), recorded.block(9, 220), recorded.block(11, 420)), (5, 5, 10));
    }

    #[test]
    fn without_windows_everything_was_recorded() {
        let mut recorded = Windows::default();
        let brk = Event { run: 0, order: 0, call: Call::Brk { address: 0 }, result: 0 };
        recorded.events(&[brk]);
        assert_eq!((recorded.block(5, 50), recorded.block(9, 70), recorded.block(10, 60)), (50, 20, 0));
    }
}
