//! The index at the end of a file: the positions of its blocks.

use crate::block::{MAGIC, MAX_PAYLOAD_BYTES, PREFIX_BYTES, PayloadKind, Prefix};

/// One entry of the index: the position of a block and its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the block in the file, in bytes.
    pub offset: u64,
    /// The block's prefix.
    pub prefix: Prefix,
}

/// The maximum number of entries in one block of the index.
pub const MAX_PLACES: usize = MAX_PAYLOAD_BYTES / PLACE_BYTES / 2;

/// Size of a [`IndexEntry`] in the index, in bytes.
pub const PLACE_BYTES: usize = 8 + PREFIX_BYTES - MAGIC.len();

impl IndexEntry {
    /// Encodes the offset and the prefix without its magic, so that a search for the next block does not stop here.
    pub fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.prefix.to_bytes()[MAGIC.len()..]);
        bytes
    }

    /// Decodes an entry of the index, if it is valid.
    fn from_bytes(bytes: &[u8; PLACE_BYTES]) -> Option<IndexEntry> {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..MAGIC.len()].copy_from_slice(&MAGIC);
        prefix[MAGIC.len()..].copy_from_slice(rest);
        Some(IndexEntry { offset: u64::from_le_bytes(*offset), prefix: Prefix::from_bytes(&prefix).ok()? })
    }
}

/// Decodes an index, which has one or more blocks; `None` if any of them is invalid.
pub fn places(mut blocks: &[u8]) -> Option<Vec<IndexEntry>> {
    let mut places = Vec::new();
    while !blocks.is_empty() {
        let (prefix, rest) = blocks.split_first_chunk::<PREFIX_BYTES>()?;
        let prefix = Prefix::from_bytes(prefix).ok().filter(|prefix| prefix.payload_kind == PayloadKind::Index)?;
        let (payload, rest) = rest.split_at_checked(prefix.payload_bytes as usize)?;
        if prefix.payload_crc != crc32fast::hash(payload) {
            return None;
        }
        places.extend(payload.as_chunks::<PLACE_BYTES>().0.iter().filter_map(IndexEntry::from_bytes));
        blocks = rest;
    }
    Some(places)
}
