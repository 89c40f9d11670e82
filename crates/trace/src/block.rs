//! Blocks: what a file is a sequence of. Each stands for itself, so that damage to one costs that one.

use thiserror::Error;

/// Begins every block. The first byte is no ASCII, and the line ends catch what changes those, as with PNG files.
pub const MAGIC: [u8; 8] = *b"\x89PLTRC\r\n";
/// Bytes of a block before its payload.
pub const PREFIX_BYTES: usize = 64;
/// Most bytes of a payload; a block that says more is damaged.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// No thread has so many runs or events: a block with later ones is damaged, and nobody who counts overflows.
pub const MAX_NUMBER: u64 = 1 << 62;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Holds {
    /// What the trace says about itself: JSON, [`crate::Header`].
    Header = 1,
    /// Runs of one thread: [`crate::Chunk`].
    Runs = 2,
    /// Address-space events of one thread: a list of [`crate::Event`] as JSON, compressed.
    Events = 3,
    /// Where the blocks are: the last one of a file that is whole.
    Index = 4,
}

impl Holds {
    fn from_number(number: u8) -> Option<Holds> {
        [Holds::Header, Holds::Runs, Holds::Events, Holds::Index].into_iter().find(|holds| *holds as u8 == number)
    }
}

/// What stands before the payload of a block. All numbers are little-endian.
///
/// | bytes | what |
/// |---|---|
/// | 0..8 | [`MAGIC`] |
/// | 8 | [`Holds`] |
/// | 9..12 | zero |
/// | 12..16 | thread |
/// | 16..24 | number of the block in the file, from 0 |
/// | 24..32 | number of the first run or event among those of the thread |
/// | 32..36 | how many runs or events |
/// | 36..40 | bytes of the payload |
/// | 40..48 | instructions that the thread had executed at the end of the block |
/// | 48..52 | CRC-32 of the payload |
/// | 52..60 | zero |
/// | 60..64 | CRC-32 of the bytes before |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// What the payload is.
    pub holds: Holds,
    /// The thread that runs or events are of, numbered from 0 in the order of appearance.
    pub thread: u32,
    /// The number of the block.
    pub number: u64,
    /// The number of its first run or event in its thread.
    pub first: u64,
    /// How many runs or events.
    pub count: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Instructions that the thread had executed when the block ended.
    pub instructions: u64,
    /// The checksum of the payload.
    pub payload_crc: u32,
}

/// Why bytes are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The magic is missing.
    #[error("no block begins here")]
    Magic,
    /// The prefix does not have its checksum.
    #[error("the checksum of the block's prefix is wrong")]
    PrefixChecksum,
    /// The payload does not have its checksum.
    #[error("the checksum of the block's payload is wrong")]
    PayloadChecksum,
    /// A kind of block that this version does not know.
    #[error("a block of the unknown kind {0}")]
    Kind(u8),
    /// A payload larger than any that is written.
    #[error("a payload of {0} bytes; expected at most {MAX_PAYLOAD_BYTES}")]
    TooLarge(u32),
    /// Runs or events with higher numbers than there can be.
    #[error("it begins with the run or event {0}; expected a number below {MAX_NUMBER}")]
    Number(u64),
    /// The file ends within the block.
    #[error("the file ends within the block")]
    CutOff,
}

impl Prefix {
    /// The prefix as bytes.
    pub fn to_bytes(&self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &[self.holds as u8]);
        put(12, &self.thread.to_le_bytes());
        put(16, &self.number.to_le_bytes());
        put(24, &self.first.to_le_bytes());
        put(32, &self.count.to_le_bytes());
        put(36, &self.payload_bytes.to_le_bytes());
        put(40, &self.instructions.to_le_bytes());
        put(48, &self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The prefix that `bytes` hold.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn from_bytes(bytes: &[u8; PREFIX_BYTES]) -> Result<Prefix, BlockError> {
        let short = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(short(at)) | u64::from(short(at + 4)) << 32;
        if bytes[..8] != MAGIC {
            return Err(BlockError::Magic);
        }
        if crc32fast::hash(&bytes[..60]) != short(60) {
            return Err(BlockError::PrefixChecksum);
        }
        let holds = Holds::from_number(bytes[8]).ok_or(BlockError::Kind(bytes[8]))?;
        let payload_bytes = short(36);
        if payload_bytes as usize > MAX_PAYLOAD_BYTES {
            return Err(BlockError::TooLarge(payload_bytes));
        }
        let first = long(24);
        if first >= MAX_NUMBER {
            return Err(BlockError::Number(first));
        }
        Ok(Prefix {
            holds,
            thread: short(12),
            number: long(16),
            first,
            count: short(32),
            payload_bytes,
            instructions: long(40),
            payload_crc: short(48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> Prefix {
        Prefix {
            holds: Holds::Runs,
            thread: 7,
            number: 1 << 40,
            first: 3,
            count: 9,
            payload_bytes: 100,
            instructions: u64::MAX,
            payload_crc: 0xdead_beef,
        }
    }

    #[test]
    fn a_prefix_is_read_back() {
        assert_eq!(Prefix::from_bytes(&prefix().to_bytes()), Ok(prefix()));
    }

    #[test]
    fn numbers_that_nobody_can_count_on_from_are_refused() {
        let at = |first| Prefix::from_bytes(&Prefix { first, ..prefix() }.to_bytes());
        assert_eq!(at(MAX_NUMBER), Err(BlockError::Number(MAX_NUMBER)));
        assert_eq!(at(u64::MAX), Err(BlockError::Number(u64::MAX)));
        assert!(at(MAX_NUMBER - 1).is_ok());
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for bit in 0..PREFIX_BYTES * 8 {
            let mut bytes = prefix().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Prefix::from_bytes(&bytes).is_err(), "bit {bit}");
        }
    }
}
