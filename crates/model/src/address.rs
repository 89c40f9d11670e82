//! Addresses that are not a program's: types of their own, so that none is taken for another. Virtual ones are plain
//! numbers, as traces and calls have them.

use std::ops::{Add, Sub};

/// A physical address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pa(pub u64);

impl Add<u64> for Pa {
    type Output = Pa;

    #[inline]
    fn add(self, bytes: u64) -> Pa {
        Pa(self.0 + bytes)
    }
}

/// How far one lies behind another.
impl Sub for Pa {
    type Output = u64;

    #[inline]
    fn sub(self, other: Pa) -> u64 {
        self.0 - other.0
    }
}

/// An intermediate physical address: what a guest takes for a physical one, and the second stage translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Ipa(pub u64);

impl From<Pa> for Ipa {
    #[inline]
    fn from(of_guest: Pa) -> Ipa {
        Ipa(of_guest.0)
    }
}
