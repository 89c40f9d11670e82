//! [`PageSize`], and sizes in bytes, written in the kernel's way: `64K`, `2M`, `1G` (always binary).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A page, folio or leaf size in bytes; always a power of two and at least 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct PageSize(u64);

/// A size that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a number with an optional binary suffix.
    #[error("expected a size such as 64K, 2M or 1G, found {0:?}")]
    Syntax(String),
    /// The number does not fit in 64 bits.
    #[error("the size {0:?} does not fit in 64 bits")]
    TooLarge(String),
    /// A page size that is not a power of two of at least 1024 bytes.
    #[error("a page size is a power of two of at least 1K, found {0} bytes")]
    NotAPage(u64),
}

impl PageSize {
    /// 4 KiB, the base page of x86-64 and the smallest arm64 granule.
    pub const K4: PageSize = PageSize(4 << 10);
    /// 16 KiB, a granule of arm64.
    pub const K16: PageSize = PageSize(16 << 10);
    /// 64 KiB.
    pub const K64: PageSize = PageSize(64 << 10);
    /// 2 MiB, the PMD leaf of a 4K granule.
    pub const M2: PageSize = PageSize(2 << 20);
    /// 1 GiB, the PUD leaf of a 4K granule.
    pub const G1: PageSize = PageSize(1 << 30);

    /// The size of `bytes`, if that is a power of two of at least 1024.
    pub fn new(bytes: u64) -> Result<PageSize, SizeError> {
        if bytes.is_power_of_two() && bytes >= 1024 { Ok(PageSize(bytes)) } else { Err(SizeError::NotAPage(bytes)) }
    }

    /// Bytes in one page of this size.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// `address` rounded down to a multiple of this size.
    pub const fn align_down(self, address: u64) -> u64 {
        address & !(self.0 - 1)
    }

    /// `address` rounded up to a multiple of this size; `None` where that overflows.
    pub const fn align_up(self, address: u64) -> Option<u64> {
        match address.checked_add(self.0 - 1) {
            Some(sum) => Some(sum & !(self.0 - 1)),
            None => None,
        }
    }

    /// The buddy order of a folio of this size on a kernel with `base` pages.
    pub fn order(self, base: PageSize) -> u32 {
        self.0.trailing_zeros().saturating_sub(base.0.trailing_zeros())
    }
}

impl TryFrom<u64> for PageSize {
    type Error = SizeError;
    fn try_from(bytes: u64) -> Result<Self, SizeError> {
        PageSize::new(bytes)
    }
}

impl From<PageSize> for u64 {
    fn from(size: PageSize) -> u64 {
        size.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&exact(self.0))
    }
}

impl FromStr for PageSize {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<Self, SizeError> {
        PageSize::new(parse_bytes(text)?)
    }
}

const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Parses `4096`, `64K`, `2M`, `1g`, `1GiB` or `64kB`; suffixes are binary and case does not matter.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let syntax = || SizeError::Syntax(text.to_string());
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[digits.len()..].to_ascii_uppercase();
    let number: u64 = match digits.parse() {
        Ok(number) => number,
        Err(_) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(SizeError::TooLarge(text.to_string()));
        }
        Err(_) => return Err(syntax()),
    };
    let shift = match suffix.trim_end_matches('B').trim_end_matches('I') {
        "" if suffix.contains('I') => return Err(syntax()),
        "" => 0,
        one => SUFFIXES
            .iter()
            .find(|(letter, _)| one.len() == 1 && one.starts_with(*letter))
            .map(|(_, shift)| *shift)
            .ok_or_else(syntax)?,
    };
    number.checked_mul(1 << shift).ok_or_else(|| SizeError::TooLarge(text.to_string()))
}

/// Formats bytes for people: exact where the value is a whole number of a unit (`2M`), otherwise rounded to three significant
/// digits (`1.34G`).
pub fn format_bytes(bytes: u64) -> String {
    let text = exact(bytes);
    if text.len() <= 4 {
        return text;
    }
    let (letter, shift) = *SUFFIXES.iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(&('K', 10));
    let value = bytes as f64 / (1u64 << shift) as f64;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$}{letter}")
}

fn exact(bytes: u64) -> String {
    SUFFIXES
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(letter, shift)| format!("{}{letter}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_in_binary_units() {
        for (text, bytes) in [("4096", 4096), ("64K", 65536), ("2m", 2 << 20), ("1GiB", 1 << 30), ("16kB", 16384)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!("64K".parse::<PageSize>().unwrap().to_string(), "64K");
        assert_eq!(format_bytes(1 << 30), "1G");
        assert_eq!(format_bytes(1_438_814_044), "1.34G");
        assert_eq!(format_bytes(0), "0");
    }

    #[test]
    fn refuses_text_that_is_not_a_size() {
        for text in ["", "K", "-1", "3X", "1IB", "1KK", "0x10"] {
            assert!(matches!(parse_bytes(text), Err(SizeError::Syntax(_))), "{text}");
        }
        assert!(matches!(parse_bytes("99999999999999999999"), Err(SizeError::TooLarge(_))));
        assert!(matches!(parse_bytes("18446744073709551615K"), Err(SizeError::TooLarge(_))));
        assert_eq!("3M".parse::<PageSize>(), Err(SizeError::NotAPage(3 << 20)));
    }
}
