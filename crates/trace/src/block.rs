//! Blocks: a file is a sequence of them. Each can be read without the others, so damage to one block loses only that block.

use thiserror::Error;

/// The first bytes of every block. The first byte is not ASCII, and the line ends reveal a conversion of line ends, as in the
/// signature of PNG files.
pub const MAGIC: [u8; 8] = *b"\x89PLTRC\r\n";
/// Bytes of a block before its payload: the magic and the prefix.
pub const PREFIX_BYTES: usize = 64;
/// The largest payload, in bytes. A block that claims more is damaged.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Upper bound of the run and event numbers of a thread. A block with higher ones is damaged, so counting never overflows.
pub const MAX_NUMBER: u64 = 1 << 62;

/// The kind of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadKind {
    /// The header of the trace: JSON, [`Header`](crate::Header).
    Header = 1,
    /// Runs of one thread: [`Chunk`](crate::Chunk).
    Runs = 2,
    /// Address-space events of one thread: a list of [`Event`](crate::Event) as JSON, compressed.
    Events = 3,
    /// The positions of the blocks. It is the last block of a complete file.
    Index = 4,
    /// When threads reached positions in their runs: a list of [`Timestamp`](crate::Timestamp), compressed.
    Timestamps = 5,
    /// What is known only after the recording: JSON, [`Notes`](crate::Notes).
    Notes = 6,
}

impl PayloadKind {
    fn from_number(number: u8) -> Option<PayloadKind> {
        let all = [
            PayloadKind::Header,
            PayloadKind::Runs,
            PayloadKind::Events,
            PayloadKind::Index,
            PayloadKind::Timestamps,
            PayloadKind::Notes,
        ];
        all.into_iter().find(|payload_kind| *payload_kind as u8 == number)
    }
}

/// A number of `BYTES` bytes in a prefix, at this offset. All numbers are little-endian; bytes outside the fields are zero.
struct Field<const BYTES: usize>(usize);

const PAYLOAD_KIND: Field<1> = Field(8);
const THREAD: Field<4> = Field(12);
const NUMBER: Field<8> = Field(16);
const FIRST: Field<8> = Field(24);
const COUNT: Field<4> = Field(32);
const PAYLOAD_BYTES: Field<4> = Field(36);
const INSTRUCTIONS: Field<8> = Field(40);
const PAYLOAD_CRC: Field<4> = Field(48);
/// The checksum of all bytes before it.
const CRC: Field<4> = Field(PREFIX_BYTES - 4);

impl<const BYTES: usize> Field<BYTES> {
    fn put(&self, to: &mut [u8; PREFIX_BYTES], value: [u8; BYTES]) {
        to[self.0..self.0 + BYTES].copy_from_slice(&value);
    }

    fn get(&self, from: &[u8; PREFIX_BYTES]) -> [u8; BYTES] {
        std::array::from_fn(|index| from[self.0 + index])
    }
}

/// The part of a block between [`MAGIC`] and the payload. docs/reference/formats/trace.md lists the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The kind of the payload.
    pub payload_kind: PayloadKind,
    /// The thread of the runs or events, numbered from 0 in order of appearance; 0 for timestamps, which cover all threads.
    pub thread: u32,
    /// The number of the block in the file.
    pub number: u64,
    /// The number of the block's first run or event in its thread, or of its first timestamp in the file.
    pub first: u64,
    /// How many runs, events or timestamps the payload holds.
    pub count: u32,
    /// Length of the payload, in bytes.
    pub payload_bytes: u32,
    /// Instructions that the thread had executed when the block ended.
    pub instructions: u64,
    /// CRC-32 of the payload.
    pub payload_crc: u32,
}

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The magic is missing.
    #[error("no block begins here")]
    Magic,
    /// The prefix does not match its checksum.
    #[error("the checksum of the block's prefix is wrong")]
    PrefixChecksum,
    /// The payload does not match its checksum.
    #[error("the checksum of the block's payload is wrong")]
    PayloadChecksum,
    /// A kind of block that this version does not know.
    #[error("a block of the unknown kind {0}")]
    Kind(u8),
    /// The payload is larger than [`MAX_PAYLOAD_BYTES`].
    #[error("a payload of {0} bytes; expected at most {MAX_PAYLOAD_BYTES}")]
    TooLarge(u32),
    /// The number of the first run or event is 2^62 or more.
    #[error("expected a first run or event below {MAX_NUMBER}, found {0}")]
    Number(u64),
    /// The file ends within the block.
    #[error("the file ends within the block")]
    CutOff,
}

impl Prefix {
    /// Encodes the prefix, with its magic and checksum.
    pub fn to_bytes(&self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        PAYLOAD_KIND.put(&mut bytes, [self.payload_kind as u8]);
        THREAD.put(&mut bytes, self.thread.to_le_bytes());
        NUMBER.put(&mut bytes, self.number.to_le_bytes());
        FIRST.put(&mut bytes, self.first.to_le_bytes());
        COUNT.put(&mut bytes, self.count.to_le_bytes());
        PAYLOAD_BYTES.put(&mut bytes, self.payload_bytes.to_le_bytes());
        INSTRUCTIONS.put(&mut bytes, self.instructions.to_le_bytes());
        PAYLOAD_CRC.put(&mut bytes, self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC.0]);
        CRC.put(&mut bytes, crc.to_le_bytes());
        bytes
    }

    /// Decodes a prefix.
    ///
    /// # Errors
    /// The bytes are not a valid prefix.
    pub fn from_bytes(bytes: &[u8; PREFIX_BYTES]) -> Result<Prefix, BlockError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(BlockError::Magic);
        }
        if crc32fast::hash(&bytes[..CRC.0]) != u32::from_le_bytes(CRC.get(bytes)) {
            return Err(BlockError::PrefixChecksum);
        }
        let [payload_kind] = PAYLOAD_KIND.get(bytes);
        let payload_kind = PayloadKind::from_number(payload_kind).ok_or(BlockError::Kind(payload_kind))?;
        let payload_bytes = u32::from_le_bytes(PAYLOAD_BYTES.get(bytes));
        if payload_bytes as usize > MAX_PAYLOAD_BYTES {
            return Err(BlockError::TooLarge(payload_bytes));
        }
        let first = u64::from_le_bytes(FIRST.get(bytes));
        if first >= MAX_NUMBER {
            return Err(BlockError::Number(first));
        }
        Ok(Prefix {
            payload_kind,
            thread: u32::from_le_bytes(THREAD.get(bytes)),
            number: u64::from_le_bytes(NUMBER.get(bytes)),
            first,
            count: u32::from_le_bytes(COUNT.get(bytes)),
            payload_bytes,
            instructions: u64::from_le_bytes(INSTRUCTIONS.get(bytes)),
            payload_crc: u32::from_le_bytes(PAYLOAD_CRC.get(bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> Prefix {
        Prefix {
            payload_kind: PayloadKind::Runs,
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
    fn refuses_numbers_near_the_end_of_the_range() {
        let at = |first| Prefix::from_bytes(&Prefix { first, ..prefix() }.to_bytes());
        assert_eq!(at(MAX_NUMBER), Err(BlockError::Number(MAX_NUMBER)));
        assert_eq!(at(u64::MAX), Err(BlockError::Number(u64::MAX)));
        assert!(at(MAX_NUMBER - 1).is_ok());
    }

    #[test]
    fn detects_every_changed_bit() {
        for bit in 0..PREFIX_BYTES * 8 {
            let mut bytes = prefix().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Prefix::from_bytes(&bytes).is_err(), "bit {bit}");
        }
    }
}
