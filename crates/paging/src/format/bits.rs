//! The bit fields of an entry. A format defines each field once, with its name. Encoding, decoding, naming and the
//! check of reserved bits all use this definition.

use crate::attributes::Flags;

/// A field: its name in the specification, and its bit positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    pub name: &'static str,
    pub high: u8,
    pub low: u8,
    /// The mask of its bits.
    pub mask: u64,
}

impl Bits {
    /// The bits `high` to `low`.
    pub const fn new(name: &'static str, high: u8, low: u8) -> Bits {
        Bits { name, high, low, mask: mask(high, low) }
    }

    /// One bit.
    pub const fn one(name: &'static str, bit: u8) -> Bits {
        Bits::new(name, bit, bit)
    }

    /// Its value in an entry, shifted down.
    #[inline(always)]
    pub const fn get(self, entry: u64) -> u64 {
        (entry & self.mask) >> self.low
    }

    /// A value that fits, shifted to its position.
    #[inline(always)]
    pub const fn put(self, value: u64) -> u64 {
        value << self.low
    }

    /// Whether any bit of it is set.
    #[inline(always)]
    pub const fn is_set(self, entry: u64) -> bool {
        entry & self.mask != 0
    }

    /// The mask of the field if `condition` holds, otherwise 0.
    #[inline(always)]
    pub const fn when(self, condition: bool) -> u64 {
        if condition { self.mask } else { 0 }
    }
}

/// How a bit represents a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encodes {
    /// The bit is set if the flag is set.
    Set(Flags),
    /// The bit is clear if the flag is set.
    Clear(Flags),
}

/// Bits that hold one flag each. The same table encodes and decodes entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagBits<const N: usize>(pub [(Bits, Encodes); N]);

impl<const N: usize> FlagBits<N> {
    /// The mask of all these bits.
    pub const fn mask(&self) -> u64 {
        let (mut mask, mut at) = (0, 0);
        while at < N {
            mask |= self.0[at].0.mask;
            at += 1;
        }
        mask
    }

    /// Encodes flags.
    #[inline(always)]
    pub fn encode(&self, flags: Flags) -> u64 {
        let bit = |(bits, encodes): &(Bits, Encodes)| match *encodes {
            Encodes::Set(flag) => bits.when(flags.contains(flag)),
            Encodes::Clear(flag) => bits.when(!flags.contains(flag)),
        };
        self.0.iter().map(bit).fold(0, |all, bit| all | bit)
    }

    /// Decodes the flags of an entry.
    #[inline(always)]
    pub fn decode(&self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        for (bits, encodes) in &self.0 {
            match *encodes {
                Encodes::Set(flag) => flags.set(flag, bits.is_set(entry)),
                Encodes::Clear(flag) => flags.set(flag, !bits.is_set(entry)),
            }
        }
        flags
    }
}

/// The accessed and dirty bits of formats in which every leaf has one bit for each.
#[derive(Clone, Copy)]
pub(crate) struct StateBits {
    pub accessed: Bits,
    pub dirty: Bits,
}

impl StateBits {
    pub const fn all(self) -> u64 {
        self.accessed.mask | self.dirty.mask
    }

    #[inline]
    pub fn read(self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::ACCESSED, self.accessed.is_set(entry));
        flags.set(Flags::DIRTY, self.dirty.is_set(entry));
        flags
    }

    /// The entry with its accessed and dirty bits replaced by `state`.
    #[inline]
    pub fn write(self, entry: u64, state: Flags) -> u64 {
        let accessed = self.accessed.when(state.contains(Flags::ACCESSED));
        entry & !self.all() | accessed | self.dirty.when(state.contains(Flags::DIRTY))
    }
}

/// A mask with the bits `high` to `low` set.
pub(crate) const fn mask(high: u8, low: u8) -> u64 {
    (u64::MAX >> (63 - high)) & (u64::MAX << low)
}
