//! One access of a run, in two bytes.

use crate::run::PAGE_SHIFT;

/// One access of a run, where addresses are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(u16);

/// Some bits of an access: from which on, and how many.
struct Bits {
    shift: u32,
    count: u32,
}

/// Where in its page it begins.
const OFFSET: Bits = Bits { shift: 0, count: PAGE_SHIFT };
/// log2 of its size.
const SIZE: Bits = Bits { shift: 12, count: 3 };
/// Whether it is a store.
const STORE: Bits = Bits { shift: 15, count: 1 };

/// Sizes that are no power of two up to 64 bytes.
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
    /// Most bytes of an access whose size is told.
    pub const MAX_BYTES: u32 = 64;

    /// An access of `bytes` at `offset` in its page. Sizes that are no power of two up to 64 are told as unknown.
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

    /// Where in its page it begins.
    pub const fn offset(self) -> u16 {
        OFFSET.of(self.0)
    }

    /// How many bytes; `None` if that is not known.
    pub const fn bytes(self) -> Option<u32> {
        match SIZE.of(self.0) {
            UNKNOWN_SIZE => None,
            size => Some(1 << size),
        }
    }

    /// Whether it is a store.
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
