//! [`Windows`]: equal parts of a program's memory, of which some have large pages and the others do not.
//!
//! The memory that a policy advises has an order: bytes are counted from the first request for memory, in the order of the
//! requests. This order is the same in every run of a deterministic program, although addresses are not. A window is a part
//! of this order. The memory of a window is advised when it is mapped, before its first fault: MADV_HUGEPAGE in large
//! windows, MADV_NOHUGEPAGE in the others.

use std::fmt;
use std::str::FromStr;

use crate::call::madv;
use crate::size::PageSize;

/// Equal parts of the memory that is advised, and which of them are large. Memory behind the last window belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Windows {
    /// Bytes in a window: a multiple of 1K, and at least `block`.
    pub bytes: u64,
    /// The size of large pages.
    pub block: PageSize,
    /// Bit `n` is set if window `n` is large.
    pub large: u32,
}

/// A range of addresses, `(first, length in bytes)`.
type Range = (u64, u64);

impl Windows {
    /// The largest number of windows.
    pub const COUNT: u32 = u32::BITS;

    /// One large window that holds all memory.
    pub fn whole(block: PageSize) -> Windows {
        Windows { bytes: block.bytes(), block, large: u32::MAX }
    }

    /// These windows, of which every other one is large: each is a mapping (VMA) of its own.
    pub fn alternating(self) -> Windows {
        Windows { large: 0x5555_5555, ..self }
    }

    /// Windows for `bytes` of advised memory, as small as their greatest number allows; none is large.
    pub fn of(bytes: u64, block: PageSize) -> Windows {
        let bytes = bytes.div_ceil(u64::from(Windows::COUNT)).next_multiple_of(UNIT);
        Windows { bytes: bytes.clamp(block.bytes(), MAX_BYTES), block, large: 0 }
    }

    /// The number of windows that `bytes` of advised memory reach.
    pub fn count_in(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.bytes).min(u64::from(Windows::COUNT)) as u32
    }

    /// The share of `bytes` of advised memory that is in large windows.
    pub fn share_of(&self, bytes: u64) -> f64 {
        let all: u64 = (0..Windows::COUNT).map(|window| self.bytes_in(window, bytes)).sum();
        let large: u64 = (0..Windows::COUNT).filter(|at| self.is_large(*at)).map(|at| self.bytes_in(at, bytes)).sum();
        if all == 0 { 0.0 } else { large as f64 / all as f64 }
    }

    fn bytes_in(&self, window: u32, bytes: u64) -> u64 {
        let start = self.bytes * u64::from(window);
        let end = if window + 1 == Windows::COUNT { u64::MAX } else { start + self.bytes };
        bytes.min(end).saturating_sub(start)
    }

    fn is_large(&self, window: u32) -> bool {
        self.large >> window & 1 == 1
    }

    /// The parts of a range and their advice. `before` bytes were advised earlier.
    pub fn parts(&self, before: u64, range: Range) -> Vec<(Range, u64)> {
        let mut parts: Vec<(Range, u64)> = Vec::new();
        for ((start, bytes), window) in self.pieces(before, range) {
            let advice = if self.is_large(window) { madv::HUGEPAGE } else { madv::NOHUGEPAGE };
            match parts.last_mut().filter(|(_, last)| *last == advice) {
                Some(((_, length), _)) => *length += bytes,
                None => parts.push(((start, bytes), advice)),
            }
        }
        parts
    }

    /// The parts of a range and their windows. They begin at multiples of the large page size, so that no large page is lost where
    /// two windows meet.
    pub fn pieces(&self, before: u64, (start, bytes): Range) -> Vec<(Range, u32)> {
        let end = start + bytes;
        let mut pieces: Vec<(Range, u32)> = Vec::new();
        let mut from = start;
        while from < end {
            let window = ((before + (from - start)) / self.bytes).min(u64::from(Windows::COUNT) - 1) as u32;
            let is_last = window + 1 == Windows::COUNT;
            let border = (start + self.bytes * u64::from(window + 1)).saturating_sub(before);
            let to = self.block.align_up(border).filter(|_| !is_last).unwrap_or(end).clamp(from + 1, end);
            pieces.push(((from, to - from), window));
            from = to;
        }
        pieces
    }
}

/// `windows-8192k-2m-0000ffff`: windows of 8M that begin at multiples of 2M, of which the first 16 are large.
impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = self.block.to_string().to_ascii_lowercase();
        write!(f, "{PREFIX}{}k-{block}-{:08x}", self.bytes / UNIT, self.large)
    }
}

const PREFIX: &str = "windows-";

/// The unit of a window's size in its name.
const UNIT: u64 = 1 << 10;

/// The largest size of a window, so that no sum overflows.
const MAX_BYTES: u64 = 1 << 42;

/// The text does not describe windows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected windows such as windows-8192k-2m-0000ffff (their size, that of large pages, the large windows in hexadecimal)"
)]
pub struct WindowsError;

impl FromStr for Windows {
    type Err = WindowsError;

    fn from_str(text: &str) -> Result<Windows, WindowsError> {
        let rest = text.strip_prefix(PREFIX).ok_or(WindowsError)?;
        let (sizes, large) = rest.rsplit_once('-').ok_or(WindowsError)?;
        let (size, block) = sizes.split_once("k-").ok_or(WindowsError)?;
        let units: u64 = size.parse().map_err(|_| WindowsError)?;
        let windows = Windows {
            bytes: units.checked_mul(UNIT).ok_or(WindowsError)?,
            block: block.parse().map_err(|_| WindowsError)?,
            large: u32::from_str_radix(large, 16).map_err(|_| WindowsError)?,
        };
        // No sum overflows, and one policy has one name.
        let is_valid = (windows.block.bytes()..=MAX_BYTES).contains(&windows.bytes) && windows.to_string() == text;
        is_valid.then_some(windows).ok_or(WindowsError)
    }
}

impl Windows {
    /// Whether the text is meant to describe windows.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;

    const M: u64 = 1 << 20;

    fn windows(blocks: u32, large: u32) -> Windows {
        Windows { bytes: u64::from(blocks) * 2 * M, block: PageSize::M2, large }
    }

    #[test]
    fn names_survive_a_round_trip_and_others_are_refused() {
        let named = windows(4, 0xffff);
        assert_eq!(named.to_string(), "windows-8192k-2m-0000ffff");
        assert_eq!("windows-8192k-2m-0000ffff".parse(), Ok(named));
        for text in [
            "windows-0k-2m-00000001",
            "windows-1024k-2m-0000ffff",
            "windows-8192k-3m-000000ff",
            "windows-8192k-2m-ff",
            "windows-8192k-2m",
            "8192k-2m-0000ffff",
            "windows--",
            "windows-18446744073709551615k-2m-0000ffff",
        ] {
            assert_eq!(text.parse::<Windows>(), Err(WindowsError), "{text}");
        }
    }

    #[test]
    fn a_range_is_cut_at_large_pages_where_the_advice_changes() {
        let (huge, none) = (madv::HUGEPAGE, madv::NOHUGEPAGE);
        let half = windows(2, 0xffff);
        assert_eq!(half.parts(0, (0, 64 * M)), [((0, 64 * M), huge)]);
        assert_eq!(half.parts(0, (0, 128 * M)), [((0, 64 * M), huge), ((64 * M, 64 * M), none)]);
        assert_eq!(half.parts(500 * M, (0, 10 * M)), [((0, 10 * M), none)], "memory behind the last window");
        // 63 M were advised before, so the border is 1 M behind the start, and the next large page begins after 2 M.
        assert_eq!(half.parts(63 * M, (0, 6 * M)), [((0, 2 * M), huge), ((2 * M, 4 * M), none)]);
        assert_eq!(half.parts(63 * M, (0, M)), [((0, M), huge)]);
        let other = windows(1, 0x5555_5555);
        assert_eq!(other.parts(0, (0, 6 * M)).len(), 3);
        assert_eq!(Windows::whole(PageSize::M2).parts(7, (4096, 999 * M)), [((4096, 999 * M), huge)]);
    }

    /// A slow reference: each large page of memory belongs to the window in which the first byte behind its border is.
    #[test]
    fn parts_cover_the_range_and_each_large_page_has_one_advice() {
        let mut random = Random::new();
        for _ in 0..300 {
            let made = windows(1 + random.below(3) as u32, random.below(1 << 32) as u32);
            let (start, bytes) = (random.below(1 << 23) & !4095, (1 + random.below(1 << 14)) << 12);
            let before = random.below(1 << 27) & !4095;
            let parts = made.parts(before, (start, bytes));
            let mut at = start;
            for (part, _) in &parts {
                assert_eq!(part.0, at);
                assert!(part.1 > 0);
                at += part.1;
            }
            assert_eq!(at, start + bytes);
            assert!(parts.windows(2).all(|pair| pair[0].1 != pair[1].1), "{parts:?}");
            for page in (start..start + bytes).step_by(4096) {
                let own = parts.iter().find(|((from, length), _)| (*from..from + length).contains(&page)).unwrap();
                let head = PageSize::M2.align_down(page).max(start);
                let window = ((before + head - start) / made.bytes).min(31) as u32;
                let previous = window.saturating_sub(1);
                let is_one_of = |window: u32| (own.1 == madv::HUGEPAGE) == made.is_large(window);
                assert!(is_one_of(window) || is_one_of(previous), "{made} {before} {start} {bytes} {page}");
            }
        }
    }

    #[test]
    fn the_share_of_memory_is_that_of_its_windows() {
        let half = windows(1, 0xffff);
        assert_eq!((half.count_in(0), half.count_in(3 * M), half.count_in(128 * M)), (0, 2, 32));
        assert_eq!(
            [0, 1, 64 * M, 96 * M].map(|bytes| Windows::of(bytes, PageSize::M2).bytes / UNIT),
            [2048, 2048, 2048, 3072]
        );
        assert_eq!((half.share_of(0), half.share_of(16 * M), half.share_of(64 * M)), (0.0, 1.0, 0.5));
        assert_eq!(half.share_of(128 * M), 0.25, "the last window has all the rest");
    }
}
