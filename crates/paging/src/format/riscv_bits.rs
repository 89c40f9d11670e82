//! The bit fields of RISC-V entries.
//!
//! Source: RISC-V Privileged Specification, "Sv39: Page-Based 39-bit Virtual-Memory System", "Svnapot", "Svpbmt".

use super::bits::{Bits, Encodes, FlagBits, StateBits};
use crate::attributes::Flags;

pub const V: Bits = Bits::one("V", 0);
pub const R: Bits = Bits::one("R", 1);
pub const W: Bits = Bits::one("W", 2);
pub const X: Bits = Bits::one("X", 3);
pub const U: Bits = Bits::one("U", 4);
pub const G: Bits = Bits::one("G", 5);
pub const A: Bits = Bits::one("A", 6);
pub const D: Bits = Bits::one("D", 7);
pub const RSW: Bits = Bits::new("RSW", 9, 8);
pub const PPN: Bits = Bits::new("PPN", 53, 10);
pub const RESERVED: Bits = Bits::new("reserved", 60, 54);
pub const PBMT: Bits = Bits::new("PBMT", 62, 61);
pub const N: Bits = Bits::one("N", 63);
/// Fields that are allowed only in leaves.
pub const OF_LEAVES: u64 = PBMT.mask | N.mask;
pub const STATE: StateBits = StateBits { accessed: A, dirty: D };
/// Any of these makes an entry a leaf.
pub const PERMISSIONS: u64 = R.mask | W.mask | X.mask;
/// The bits that each hold one flag.
pub const FLAGS: FlagBits<6> = FlagBits([
    (R, Encodes::Set(Flags::READ)),
    (W, Encodes::Set(Flags::WRITE)),
    (U, Encodes::Set(Flags::USER)),
    (G, Encodes::Set(Flags::GLOBAL)),
    (A, Encodes::Set(Flags::ACCESSED)),
    (D, Encodes::Set(Flags::DIRTY)),
]);
/// The lowest four bits of PPN[0] in a NAPOT entry of 64K.
pub const NAPOT_64K: u64 = PPN.put(0b1000);
pub const NAPOT_MASK: u64 = PPN.put(0b1111);
