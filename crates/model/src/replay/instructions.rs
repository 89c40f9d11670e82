//! Counts the instructions that the threads of a trace have executed.

use std::collections::BTreeMap;

use trace::{Block, Call, Event};

/// The number of instructions that the threads of a trace have executed, recorded or not.
#[derive(Default)]
pub(super) struct Instructions {
    /// For each thread, its instructions at the end of its last block, and whether it has ended there.
    threads: BTreeMap<u32, (u64, bool)>,
}

impl Instructions {
    /// Counts a block.
    pub(super) fn add(&mut self, block: &Block) {
        let (thread, instructions, ends) = match block {
            Block::Runs { thread, instructions, .. } => (*thread, *instructions, false),
            Block::Events { thread, instructions, events } => {
                let ends = |event: &Event| matches!(event.call, Call::Exit { .. } | Call::Exec { .. });
                (*thread, *instructions, events.iter().any(ends))
            }
            Block::Timestamps(_) | Block::Damaged(_) => return,
        };
        let (count, has_ended) = self.threads.entry(thread).or_default();
        *count = instructions.max(*count);
        *has_ended |= ends;
    }

    /// The sum over all threads; `None` if a thread was killed, because what it executed after its last block is unknown.
    pub(super) fn total(&self) -> Option<u64> {
        let count = |(count, has_ended): &(u64, bool)| has_ended.then_some(*count);
        self.threads.values().map(count).try_fold(0, |sum: u64, count| Some(sum.saturating_add(count?)))
    }
}

#[cfg(test)]
mod tests {
    use trace::Chunk;

    use super::*;

    fn events(thread: u32, instructions: u64, call: Call) -> Block {
        Block::Events { thread, instructions, events: vec![Event { run: 0, order: 0, call, result: 0 }] }
    }

    #[test]
    fn has_a_total_once_every_thread_has_ended() {
        let mut instructions = Instructions::default();
        instructions.add(&Block::Runs { thread: 0, first: 0, instructions: 50, chunk: Chunk::default() });
        instructions.add(&events(1, 70, Call::Exit { status: 0 }));
        assert_eq!(instructions.total(), None);
        instructions.add(&events(0, 60, Call::Exec { program: "sh".to_owned(), unrecorded: None }));
        assert_eq!(instructions.total(), Some(130));
    }
}
