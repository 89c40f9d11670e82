//! Address types: an input address cannot be mistaken for an output address.
//!
//! Tables do not know whether they are the first stage, the second or the only one. So the types only say on which side
//! of the tables an address is. An address between two stages is both; [`OutputAddress::intermediate`] converts it.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address plus `bytes`; `None` on overflow of 64 bits.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<$name> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some($name(address)),
                    None => None,
                }
            }

            /// The address plus `bytes`, or the highest address on overflow.
            #[inline]
            pub const fn saturating_add(self, bytes: u64) -> $name {
                $name(self.0.saturating_add(bytes))
            }

            /// The address rounded down to a multiple of `bytes`, a power of two.
            #[inline]
            pub const fn aligned_down(self, bytes: u64) -> $name {
                $name(self.0 & !(bytes - 1))
            }

            /// Whether the address is a multiple of `bytes`, a power of two.
            #[inline]
            pub const fn is_aligned(self, bytes: u64) -> bool {
                self.0 & (bytes - 1) == 0
            }
        }

        /// The address plus a number of bytes; the sum must fit in 64 bits.
        impl Add<u64> for $name {
            type Output = $name;

            #[inline]
            fn add(self, bytes: u64) -> $name {
                $name(self.0 + bytes)
            }
        }

        /// The distance between two addresses in bytes.
        impl Sub for $name {
            type Output = u64;

            #[inline]
            fn sub(self, other: $name) -> u64 {
                self.0 - other.0
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

address! {
    /// An address that tables translate: a virtual address, or an intermediate physical one at stage 2. It is in the
    /// form that programs use, including the bits above those that the tables resolve.
    InputAddress
}

address! {
    /// An address that tables translate to, and the address of a table: a physical address, or an intermediate physical
    /// one at stage 1 of a guest.
    OutputAddress
}

impl AddAssign<u64> for OutputAddress {
    #[inline]
    fn add_assign(&mut self, bytes: u64) {
        *self = *self + bytes;
    }
}

impl OutputAddress {
    /// The same address as the input of the next stage.
    #[inline]
    pub const fn intermediate(self) -> InputAddress {
        InputAddress(self.0)
    }
}
