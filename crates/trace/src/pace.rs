//! How often a recorder writes a block of a thread: what a recording that is killed loses.
//!
//! A short program gets small blocks, so that most of it is there whenever it ends; a long one blocks that compress well.

/// Fewest instructions of a thread between two blocks, unless these are full.
pub const LEAST_INSTRUCTIONS: u64 = 1 << 16;
/// Most instructions of a thread between two blocks: what is missing at the end of a file that was cut off.
pub const MOST_INSTRUCTIONS: u64 = 1 << 22;
/// A block has at most one of so many parts of what the thread had executed before.
const PART: u64 = 8;

/// After how many instructions of a thread its next block is due, if the last was written after `instructions`.
pub const fn due(instructions: u64) -> u64 {
    let part = instructions / PART;
    let next = if part < LEAST_INSTRUCTIONS {
        LEAST_INSTRUCTIONS
    } else if part > MOST_INSTRUCTIONS {
        MOST_INSTRUCTIONS
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
        assert_eq!(due(0), LEAST_INSTRUCTIONS);
        assert_eq!(due(1 << 20) - (1 << 20), 1 << 17);
        assert_eq!(due(1 << 40) - (1 << 40), MOST_INSTRUCTIONS);
        assert_eq!(due(u64::MAX), u64::MAX);
    }
}
