//! One access of a run, in two bytes.

use crate::run::PAGE_SHIFT;

/// One access of a run, for traces that keep addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(u16);

/// A bit field of an access.
struct Bits {
    shift: u32,
    count: u32,
}

/// Offset in the page, in bytes.
const OFFSET: Bits = Bits { shift: 0, count: PAGE_SHIFT };
/// log2 of the size in bytes, or [`UNKNOWN_SIZE`].
const SIZE: Bits = Bits { shift: 12, count: 3 };
/// 1 for a store.
const STORE: Bits = Bits { shift: 15, count: 1 };

/// The size field of an access whose size is not a power of two up to 64 bytes.
const UNKNOWN_SIZE: u16 = 7;

impl Bits {
    const fn of(&self, word: u16) -> u16 {
        word >> self.shift & ((1 << self.count) - 1)
    }

    const fn with(&self, value: u16) -> u16 {
        (value & ((1 << self.count) - 1)) << self.shift
    }
}

impl Access {
    /// The largest access whose size is recorded, in bytes.
    pub const MAX_BYTES: u32 = 64;

    /// An access of `bytes` at `offset` in its page. A size that is not a power of two up to 64 is recorded as unknown.
    pub fn new(offset: u16, bytes: u32, store: bool) -> Access {
        let is_known = bytes.is_power_of_two() && bytes <= Access::MAX_BYTES;
        let size = if is_known { bytes.trailing_zeros() as u16 } else { UNKNOWN_SIZE };
        Access(OFFSET.with(offset) | SIZE.with(size) | STORE.with(u16::from(store)))
    }

    pub(crate) const fn from_word(word: u16) -> Access {
        Access(word)
    }

    pub(crate) const fn to_word(self) -> u16 {
        self.0
    }

    /// Offset of its first byte in the page.
    pub const fn offset(self) -> u16 {
        OFFSET.of(self.0)
    }

    /// Its size in bytes; `None` if that is not known.
    pub const fn bytes(self) -> Option<u32> {
        match SIZE.of(self.0) {
            UNKNOWN_SIZE => None,
            size => Some(1 << size),
        }
    }

    /// Whether the access is a store.
    pub const fn is_store(self) -> bool {
        STORE.of(self.0) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_has_two_bytes() {
        let access = Access::new(0xff8, 8, true);
        assert_eq!((access.offset(), access.bytes(), access.is_store()), (0xff8, Some(8), true));
        assert_eq!(Access::new(0, 24, false).bytes(), None);
    }
}
