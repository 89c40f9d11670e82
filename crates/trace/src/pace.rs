//! How often a recorder writes a block of a thread, which determines how much of a killed recording is lost.
//!
//! A short program gets small blocks, so that most of it is written whenever it ends. A long program gets blocks that
//! compress well.

/// The minimum number of instructions of a thread between two blocks, unless the blocks are full.
pub const MIN_INSTRUCTIONS: u64 = 1 << 16;
/// The maximum number of instructions of a thread between two blocks, and so the most that a truncated file lacks at its end.
pub const MAX_INSTRUCTIONS: u64 = 1 << 22;
/// A block covers at most this fraction (one in `BLOCK_DIVISOR`) of what the thread had executed before.
const BLOCK_DIVISOR: u64 = 8;

/// The instruction count of a thread at which its next block is due, if the last was written after `instructions`.
pub const fn due(instructions: u64) -> u64 {
    let part = instructions / BLOCK_DIVISOR;
    let next = if part < MIN_INSTRUCTIONS {
        MIN_INSTRUCTIONS
    } else if part > MAX_INSTRUCTIONS {
        MAX_INSTRUCTIONS
    } else {
        part
    };
    instructions.saturating_add(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_with_what_was_executed() {
        assert_eq!(due(0), MIN_INSTRUCTIONS);
        assert_eq!(due(1 << 20) - (1 << 20), 1 << 17);
        assert_eq!(due(1 << 40) - (1 << 40), MAX_INSTRUCTIONS);
        assert_eq!(due(u64::MAX), u64::MAX);
    }
}
