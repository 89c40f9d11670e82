//! The bit fields of arm64 entries: those of both stages and those of each.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 "Translation table descriptor formats".

use super::bits::{Bits, Encodes, FlagBits};
use crate::attributes::Flags;

pub const VALID: Bits = Bits::one("valid", 0);
/// In a valid entry above level 0 this bit marks a pointer to a table. At level 0 it must be set.
pub const TABLE: Bits = Bits::one("type", 1);
pub const SH: Bits = Bits::new("SH", 9, 8);
pub const SH_INNER: u64 = SH.put(3);
pub const SH_RESERVED: u64 = SH.put(1);
pub const AF: Bits = Bits::one("AF", 10);
/// FEAT_BBM level 1: no TLB may hold this block.
pub const NT: Bits = Bits::one("nT", 16);
pub const DBM: Bits = Bits::one("DBM", 51);
pub const CONTIGUOUS: Bits = Bits::one("Contiguous", 52);
pub const SOFTWARE: Bits = Bits::new("software", 58, 55);
/// Hardware ignores this bit in leaves.
pub const IGNORED: Bits = Bits::one("ignored", 63);
/// Hardware ignores these bits in entries that point to tables. With 52-bit addresses and 4K or 16K, a part of the lower bits
/// belongs to the address.
pub const TABLE_IGNORED_HIGH: Bits = Bits::new("ignored", 58, 51);
pub const TABLE_IGNORED_LOW: Bits = Bits::new("ignored", 11, 2);
pub const TABLE_IGNORED_WIDE: [Bits; 2] = [Bits::new("ignored", 11, 10), Bits::new("ignored", 7, 2)];
/// The relocated high bits of an address of more than 48 bits: with 64K, and with 4K and 16K.
pub const ADDRESS_51_48: Bits = Bits::new("address 51:48", 15, 12);
pub const ADDRESS_51_50: Bits = Bits::new("address 51:50", 9, 8);
/// Ignored, or implementation defined (FEAT_HPDS2).
pub const PBHA: Bits = Bits::new("PBHA", 62, 59);

/// Stage 1: the index into MAIR.
pub const ATTRINDX: Bits = Bits::new("AttrIndx", 4, 2);
pub const NS: Bits = Bits::one("NS", 5);
/// EL0 may access the memory.
pub const AP_USER: Bits = Bits::one("AP[1]", 6);
/// Read-only; with hardware dirty state and DBM, clean.
pub const AP_READ_ONLY: Bits = Bits::one("AP[2]", 7);
pub const NG: Bits = Bits::one("nG", 11);
pub const GP: Bits = Bits::one("GP", 50);
pub const PXN: Bits = Bits::one("PXN", 53);
pub const UXN: Bits = Bits::one("UXN", 54);
pub const POINDEX: Bits = Bits::new("POIndex", 62, 60);
/// The stage 1 bits that each hold one flag.
pub const FLAGS_1: FlagBits<5> = FlagBits([
    (AP_USER, Encodes::Set(Flags::USER)),
    (NG, Encodes::Clear(Flags::GLOBAL)),
    (GP, Encodes::Set(Flags::GUARDED)),
    (PXN, Encodes::Clear(Flags::KERNEL_EXECUTE)),
    (UXN, Encodes::Clear(Flags::USER_EXECUTE)),
]);
/// Fields of stage 1 entries that point to tables.
pub const PXN_TABLE: Bits = Bits::one("PXNTable", 59);
pub const UXN_TABLE: Bits = Bits::one("UXNTable", 60);
pub const AP_TABLE: Bits = Bits::new("APTable", 62, 61);
pub const AP_TABLE_NO_USER: u64 = AP_TABLE.put(1);
pub const AP_TABLE_READ_ONLY: u64 = AP_TABLE.put(2);
pub const NS_TABLE: Bits = Bits::one("NSTable", 63);

/// Fields of stage 2.
pub const MEMATTR: Bits = Bits::new("MemAttr", 5, 2);
pub const S2AP: Bits = Bits::new("S2AP", 7, 6);
pub const S2AP_READ: u64 = S2AP.put(1);
pub const S2AP_WRITE: u64 = S2AP.put(2);
/// A code that separates EL1 from EL0 (FEAT_XNX); without FEAT_XNX, the upper bit applies to both.
pub const XN: Bits = Bits::new("XN", 54, 53);
pub const XN_UPPER: Bits = Bits::one(XN.name, XN.high);
pub const XN_LOWER: Bits = Bits::one(XN.name, XN.low);
