//! Addresses as types: what is translated is never taken for what it is translated to.
//!
//! Tables do not know whether theirs is the first stage, the second or the only one, so the types say on which side of
//! the tables an address stands. What lies between two stages is both, and says so: [`OutputAddress::intermediate`].

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, if 64 bits hold it.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<$name> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some($name(address)),
                    None => None,
                }
            }

            /// The address `bytes` further on, or the last one.
            #[inline]
            pub const fn saturating_add(self, bytes: u64) -> $name {
                $name(self.0.saturating_add(bytes))
            }

            /// The multiple of `bytes`, a power of two, at or before it.
            #[inline]
            pub const fn aligned_down(self, bytes: u64) -> $name {
                $name(self.0 & !(bytes - 1))
            }

            /// Whether it is a multiple of `bytes`, a power of two.
            #[inline]
            pub const fn is_aligned(self, bytes: u64) -> bool {
                self.0 & (bytes - 1) == 0
            }
        }

        /// The address so many bytes further on, which 64 bits must hold.
        impl Add<u64> for $name {
            type Output = $name;

            #[inline]
            fn add(self, bytes: u64) -> $name {
                $name(self.0 + bytes)
            }
        }

        /// How far one lies behind another.
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
    /// What tables translate: a virtual address, or an intermediate physical one at stage 2. As programs have it: with
    /// what stands above the bits that the tables resolve.
    InputAddress
}

address! {
    /// What tables translate to, and where they are themselves: a physical address, or an intermediate physical one at
    /// stage 1 of a guest.
    OutputAddress
}

impl AddAssign<u64> for OutputAddress {
    #[inline]
    fn add_assign(&mut self, bytes: u64) {
        *self = *self + bytes;
    }
}

impl OutputAddress {
    /// As the address that the next stage translates.
    #[inline]
    pub const fn intermediate(self) -> InputAddress {
        InputAddress(self.0)
    }
}
