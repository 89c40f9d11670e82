//! Which TLB geometries a sweep simulates ([`Chosen`]).

use model::tlb_geometry::{MAX_WAYS, SET_SHIFTS};
use policy::size::{SizeError, format_bytes, parse_bytes};
use results::simulation::TlbGeometry;

/// log2 of the accepted page sizes: 4K to 1G.
const PAGE_SHIFTS: std::ops::RangeInclusive<u32> = 12..=30;

/// An inclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lower bound, included.
    pub least: u32,
    /// The upper bound, included.
    pub most: u32,
}

/// The requested numbers of sets, numbers of ways and page sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Numbers of sets.
    pub sets: Range,
    /// Numbers of ways.
    pub ways: Range,
    /// log2 of the page sizes in bytes, ascending, without duplicates.
    pub page_shifts: Vec<u32>,
}

/// An invalid choice of geometries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChosenError {
    /// The argument is not a valid number or range of sets.
    #[error("expected powers of two from 1 to {most}, as 16..{most} or 64, found {0:?}", most = most_sets())]
    Sets(String),
    /// The argument is not a valid number or range of ways.
    #[error("expected 1 to {MAX_WAYS}, as 4..8 or 8, found {0:?}")]
    Ways(String),
    /// The argument is not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The page size is out of range or not a power of two.
    #[error("expected a power of two from 4K to 1G, found {0}")]
    Page(String),
}

/// A filtered trace is exact only for geometries that were not chosen.
#[derive(Debug, thiserror::Error)]
#[error(
    "the trace was filtered, and is not exact for any of the chosen sets and page sizes (`pagelab trace info` lists the exact \
     ones); choose more sets (--sets), or use the unfiltered trace"
)]
pub struct NoneExact;

fn most_sets() -> u32 {
    1 << (SET_SHIFTS.end - 1)
}

impl Chosen {
    /// A choice of these geometries; duplicate page sizes are removed.
    pub fn of(sets: Range, ways: Range, page_shifts: &[u32]) -> Chosen {
        let mut page_shifts = page_shifts.to_vec();
        page_shifts.sort_unstable();
        page_shifts.dedup();
        Chosen { sets, ways, page_shifts }
    }

    /// Whether a geometry is part of the choice.
    pub fn has(&self, geometry: &TlbGeometry) -> bool {
        let within = |range: &Range, number: u32| (range.least..=range.most).contains(&number);
        within(&self.sets, geometry.sets) && within(&self.ways, geometry.ways)
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", describe_range(self.sets, "set"), describe_range(self.ways, "way"))
    }
}

/// Formats a range: `1 to 15 ways`, `8 ways`, `1 way`.
pub fn describe_range(range: Range, what: &str) -> String {
    match (range.least, range.most) {
        (1, 1) => format!("1 {what}"),
        (least, most) if least == most => format!("{least} {what}s"),
        (least, most) => format!("{least} to {most} {what}s"),
    }
}

/// Parses `LEAST..MOST` or a number.
fn parse_range(text: &str, fits: impl Fn(u32) -> bool) -> Option<Range> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (least.parse().ok()?, most.parse().ok()?);
    (least <= most && fits(least) && fits(most)).then_some(Range { least, most })
}

/// Parses numbers of sets: `16..2048` or `64`.
pub fn parse_sets(text: &str) -> Result<Range, ChosenError> {
    let fits = |sets: u32| sets.is_power_of_two() && sets <= most_sets();
    parse_range(text, fits).ok_or_else(|| ChosenError::Sets(text.to_owned()))
}

/// Parses numbers of ways: `4..8` or `8`.
pub fn parse_ways(text: &str) -> Result<Range, ChosenError> {
    let fits = |ways: u32| (1..=MAX_WAYS).contains(&ways);
    parse_range(text, fits).ok_or_else(|| ChosenError::Ways(text.to_owned()))
}

/// Parses a page size and returns its log2.
pub fn parse_page(text: &str) -> Result<u32, ChosenError> {
    let bytes = parse_bytes(text)?;
    let fits = bytes.is_power_of_two() && PAGE_SHIFTS.contains(&bytes.trailing_zeros());
    if fits { Ok(bytes.trailing_zeros()) } else { Err(ChosenError::Page(format_bytes(bytes))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_refused() {
        let range = |least, most| Ok(Range { least, most });
        assert_eq!((parse_sets("1..2048"), parse_sets("64")), (range(1, 2048), range(64, 64)));
        assert_eq!((parse_ways("4..8"), parse_ways("1..128")), (range(4, 8), range(1, 128)));
        assert_eq!((parse_page("4K"), parse_page("1G")), (Ok(12), Ok(30)));
        for wrong in ["", "0", "3", "4096", "16..", "..16", "64..16", "1..3", "16...64", "a..b", "-1"] {
            assert_eq!(parse_sets(wrong), Err(ChosenError::Sets(wrong.to_owned())));
        }
        for wrong in ["0", "129", "8..4", "1..256", "x"] {
            assert_eq!(parse_ways(wrong), Err(ChosenError::Ways(wrong.to_owned())));
        }
        assert!(parse_page("3M").unwrap_err().to_string().contains("from 4K to 1G, found 3M"));
        assert!(parse_page("2G").unwrap_err().to_string().contains("found 2G"));
        assert!(parse_sets("4096").unwrap_err().to_string().contains("from 1 to 2048, as 16..2048 or 64"));
    }

    #[test]
    fn each_page_size_is_swept_once() {
        let all = |text| parse_sets(text).unwrap();
        let chosen = Chosen::of(all("16..64"), parse_ways("4").unwrap(), &[21, 12, 21]);
        assert_eq!(chosen.page_shifts, [12, 21]);
        assert_eq!(chosen.to_string(), "16 to 64 sets, 4 ways");
        assert_eq!(describe_range(Range { least: 1, most: 1 }, "way"), "1 way");
        let has = |sets, ways| chosen.has(&TlbGeometry { page_bytes: 4096, sets, ways, misses: 0 });
        assert!(has(16, 4) && has(64, 4) && !has(8, 4) && !has(128, 4) && !has(16, 5));
    }
}
