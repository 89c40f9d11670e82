//! How a format divides an input address: page, levels, indexes.
//!
//! The rule is the same for every format with 8-byte entries: a table of one page holds `page / 8` entries, so a level
//! resolves `log2(page) - 3` bits (Arm ARM D8.2, arch/arm64/include/asm/pgtable-hwdef.h; Intel SDM vol. 3 chapter 5;
//! RISC-V privileged specification, "Sv39"). Level 0 is the lowest level: its entries map pages. Every table below the
//! root has the size of a page. The root may be smaller (arm64) or larger (up to sixteen concatenated tables of arm64
//! stage 2, the 16K root of a RISC-V G-stage).

use crate::address::{InputAddress, OutputAddress};
use crate::error::Error;
use crate::extension::Extension;

/// Size of one entry in bytes.
pub const ENTRY_BYTES: u64 = 8;

/// The shape of the tables of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    page_shift: u8,
    /// Index bits of a table below the root.
    index_bits: u8,
    /// Index bits of the root.
    root_bits: u8,
    levels: u8,
    input_bits: u8,
    output_bits: u8,
    extension: Extension,
}

impl Geometry {
    /// Tables of `levels` levels over pages of `1 << page_shift` bytes that translate addresses of `input_bits` bits to
    /// addresses of `output_bits` bits.
    ///
    /// The root resolves the bits that the levels below it do not: at least one, and at most four more than another
    /// table (sixteen concatenated tables).
    pub const fn new(page_shift: u8, levels: u8, input_bits: u8, output_bits: u8, extension: Extension) -> Geometry {
        let index_bits = page_shift - 3;
        let root_bits = input_bits as i32 - page_shift as i32 - (levels as i32 - 1) * index_bits as i32;
        assert!(root_bits > 0 && root_bits <= index_bits as i32 + 4, "the root resolves the bits left over");
        let root_bits = root_bits as u8;
        Geometry { page_shift, index_bits, root_bits, levels, input_bits, output_bits, extension }
    }

    /// The same shape, but with another required value of the bits above the input bits.
    pub const fn with_extension(self, extension: Extension) -> Geometry {
        Geometry { extension, ..self }
    }

    /// The same shape, but for output addresses of `output_bits` bits.
    pub(crate) const fn with_output_bits(self, output_bits: u8) -> Geometry {
        Geometry { output_bits, ..self }
    }

    /// log2 of the page size in bytes.
    pub const fn page_shift(self) -> u8 {
        self.page_shift
    }

    /// The page size in bytes, which is also the size of every table below the root.
    pub const fn page_bytes(self) -> u64 {
        1 << self.page_shift
    }

    /// The number of levels, including the root.
    pub const fn levels(self) -> u8 {
        self.levels
    }

    /// The level of the root table.
    pub const fn root_level(self) -> u8 {
        self.levels - 1
    }

    /// Number of input address bits that are resolved, including the page offset.
    pub const fn input_bits(self) -> u8 {
        self.input_bits
    }

    /// Number of bits of an output address.
    pub const fn output_bits(self) -> u8 {
        self.output_bits
    }

    /// The required value of the bits above the input bits.
    pub const fn extension(self) -> Extension {
        self.extension
    }

    /// Number of bits of the index into a table below the root.
    pub const fn index_bits(self) -> u8 {
        self.index_bits
    }

    /// log2 of the bytes that one entry at `level` spans.
    #[inline]
    pub const fn shift(self, level: u8) -> u32 {
        self.page_shift as u32 + level as u32 * self.index_bits as u32
    }

    /// Bytes that one entry at `level` spans.
    #[inline]
    pub const fn span(self, level: u8) -> u64 {
        1 << self.shift(level)
    }

    /// Number of entries of a table at `level`.
    #[inline]
    pub const fn entries(self, level: u8) -> u64 {
        1 << if level == self.root_level() { self.root_bits } else { self.index_bits }
    }

    /// Size of a table at `level` in bytes. Concatenated root tables count as one table.
    pub const fn table_bytes(self, level: u8) -> u64 {
        self.entries(level) * ENTRY_BYTES
    }

    /// The index of a resolved input address in a table at `level`.
    #[inline]
    pub const fn index(self, level: u8, resolved: u64) -> u64 {
        (resolved >> self.shift(level)) & (self.entries(level) - 1)
    }

    /// The output address of the entry for `va` in the table of level `level` that begins at `table`.
    #[inline]
    pub fn entry_address(self, table: OutputAddress, level: u8, va: InputAddress) -> OutputAddress {
        table + self.index(level, va.0) * ENTRY_BYTES
    }

    /// Size of the whole input address space in bytes.
    pub const fn input_bytes(self) -> u128 {
        1 << self.input_bits
    }

    /// The bits of `va` that the tables resolve.
    #[inline]
    pub const fn resolved(self, va: InputAddress) -> u64 {
        va.0 & ((1u64 << self.input_bits) - 1)
    }

    /// The canonical input address with these resolved bits.
    #[inline]
    pub const fn extended(self, resolved: u64) -> InputAddress {
        let above = u64::MAX << self.input_bits;
        InputAddress(match self.extension {
            Extension::Zero => resolved,
            Extension::Ones => resolved | above,
            Extension::Sign if resolved >> (self.input_bits - 1) & 1 == 1 => resolved | above,
            Extension::Sign => resolved,
        })
    }

    /// Whether `va` is canonical: the bits above the input bits have the required value.
    #[inline]
    pub const fn is_canonical(self, va: InputAddress) -> bool {
        // Adding this moves the canonical addresses to 0..1 << input_bits.
        let bias = match self.extension {
            Extension::Zero => 0,
            Extension::Ones => 1 << self.input_bits,
            Extension::Sign => 1 << (self.input_bits - 1),
        };
        va.0.wrapping_add(bias) >> self.input_bits == 0
    }

    /// The resolved first address and the resolved end (exclusive) of a range.
    ///
    /// # Errors
    /// The range is empty or not aligned to pages, its first or last address is not canonical, it crosses the hole
    /// between the two halves, or it wraps around.
    pub fn range(self, va: InputAddress, bytes: u64) -> Result<(u64, u64), Error> {
        self.aligned("input address", va.0)?;
        self.aligned("length", bytes)?;
        let last = bytes.checked_sub(1).ok_or(Error::Empty { va })?;
        let last = va.checked_add(last).ok_or(Error::PastTheEnd { va, bytes })?;
        for address in [va, last] {
            if !self.is_canonical(address) {
                return Err(Error::NotCanonical {
                    va: address,
                    input_bits: self.input_bits,
                    extension: self.extension,
                });
            }
        }
        let (first, last) = (self.resolved(va), self.resolved(last));
        if last < first || last - first != bytes - 1 {
            return Err(Error::PastTheEnd { va, bytes });
        }
        Ok((first, last + 1))
    }

    /// Checks that a range of output addresses is aligned and fits in the output bits. `bytes` must not be 0.
    ///
    /// # Errors
    /// The first address is misaligned, or the last one has too many bits.
    pub fn output(self, pa: OutputAddress, bytes: u64) -> Result<(), Error> {
        self.aligned("output address", pa.0)?;
        match pa.checked_add(bytes - 1) {
            Some(last) if last.0 >> self.output_bits == 0 => Ok(()),
            _ => Err(Error::OutputTooLarge { pa, bytes, output_bits: self.output_bits }),
        }
    }

    fn aligned(self, what: &'static str, value: u64) -> Result<(), Error> {
        let to = self.page_bytes();
        if value & (to - 1) == 0 { Ok(()) } else { Err(Error::Misaligned { what, value, to }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_and_table_sizes_match_the_specifications() {
        // Intel SDM vol. 3, figure "Linear-Address Translation to a 4-KByte Page Using 4-Level Paging".
        let x86 = Geometry::new(12, 4, 48, 52, Extension::Sign);
        assert_eq!([3, 2, 1, 0].map(|level| x86.shift(level)), [39, 30, 21, 12]);
        // Arm ARM D8.2, 16K granule, 48 bits: the root resolves one bit, each lower level eleven.
        let arm = Geometry::new(14, 4, 48, 48, Extension::Zero);
        assert_eq!([3, 2, 1, 0].map(|level| arm.entries(level)), [2, 2048, 2048, 2048]);
        // Sv39x4: the root has 2048 entries.
        assert_eq!(Geometry::new(12, 3, 41, 56, Extension::Zero).table_bytes(2), 16 << 10);
    }

    #[test]
    fn ranges_do_not_cross_the_hole_between_the_halves() {
        let sign = Geometry::new(12, 3, 39, 56, Extension::Sign);
        let canonical = |va| sign.is_canonical(InputAddress(va));
        assert!(canonical(0x3f_ffff_ffff) && canonical(0xffff_ffc0_0000_0000));
        assert!(!canonical(0x40_0000_0000) && !canonical(1 << 63));
        let range = |va, bytes| sign.range(InputAddress(va), bytes);
        assert_eq!(range(0xffff_ffff_ffff_f000, 0x1000), Ok((0x7f_ffff_f000, 0x80_0000_0000)));
        assert!(matches!(
            range(0x3f_ffff_f000, 0x2000),
            Err(Error::NotCanonical { va: InputAddress(0x40_0000_0fff), .. })
        ));
        assert!(matches!(range(0x3f_ffff_f000, 0xffff_ff80_0000_2000), Err(Error::PastTheEnd { .. })));
        assert_eq!(range(0, 0), Err(Error::Empty { va: InputAddress(0) }));
    }
}
