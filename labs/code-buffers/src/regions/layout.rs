//! [`Layout`]: a code buffer that is divided into regions, and how many huge pages can map it.

use std::ops::Range;

use policy::size::{PageSize, format_bytes};

use super::placement::{Placement, Windows};
use super::rule::Rule;

/// A translation that ends in the last bytes of a region is the region's last one (TCG_HIGHWATER).
pub const HIGHWATER_BYTES: u64 = 1024;
/// The smallest and the largest buffer in bytes; other sizes are clamped. The largest is that of x86-64 hosts and, since 5.0, of
/// arm64 hosts (MAX_CODE_GEN_BUFFER_SIZE in tcg-target.h): the reach of a direct branch.
pub const BUFFER_BYTES: (u64, u64) = (1 << 20, 2 << 30);

/// The buffer has too many regions for its size, and QEMU aborts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a buffer of {buffer} in {regions} regions leaves {stride_bytes} bytes to each; QEMU aborts below two base pages \
     ({page} each): a larger --tb-size, or fewer vCPUs"
)]
pub struct TooManyRegions {
    buffer: String,
    regions: u64,
    stride_bytes: u64,
    page: PageSize,
}

/// A divided buffer. Addresses are offsets from its first byte, which is page aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the whole buffer in bytes.
    pub buffer_bytes: u64,
    pub regions: u64,
    /// Distance from the start of one region to the next in bytes.
    pub stride_bytes: u64,
    /// The host's base page, which is the size of a guard.
    pub page: PageSize,
}

impl Layout {
    /// Divides a buffer for `max_cpus` vCPUs (at least 1) on a host with this base page. Fails where QEMU would abort.
    pub fn of(rule: Rule, tb_size_bytes: u64, max_cpus: u32, page: PageSize) -> Result<Layout, TooManyRegions> {
        let buffer_bytes = tb_size_bytes.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
        let regions = rule.regions(buffer_bytes, max_cpus);
        let stride_bytes = page.align_down(buffer_bytes / regions);
        if stride_bytes < 2 * page.bytes() {
            return Err(TooManyRegions { buffer: format_bytes(buffer_bytes), regions, stride_bytes, page });
        }
        Ok(Layout { buffer_bytes, regions, stride_bytes, page })
    }

    /// The range of a region without its guard; the last region also has the remaining pages.
    pub fn region(&self, index: u64) -> Range<u64> {
        let start = index * self.stride_bytes;
        let end = if index + 1 == self.regions { self.buffer_bytes } else { start + self.stride_bytes };
        start..end - self.page.bytes()
    }

    /// The ranges of all regions.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        (0..self.regions).map(|index| self.region(index))
    }

    /// Usable bytes of a region without its guard; the last one may have more.
    pub fn usable_bytes(&self) -> u64 {
        self.stride_bytes - self.page.bytes()
    }

    /// Bytes of code that the buffer holds before it is flushed, as in the monitor's `info jit` (with the prologue).
    pub fn capacity_bytes(&self) -> u64 {
        self.buffer_bytes - self.regions * (self.page.bytes() + HIGHWATER_BYTES)
    }

    /// Number of aligned windows of PMD size in the whole buffer, including those with guards, for any possible address.
    pub fn windows(&self, pmd: PageSize, placement: Placement) -> Windows {
        self.over_placements(pmd, placement, |offset_bytes| {
            windows_in(&(offset_bytes..offset_bytes + self.buffer_bytes), pmd)
        })
    }

    /// Number of windows without a guard, each of which one leaf can map.
    pub fn free_windows(&self, pmd: PageSize, placement: Placement) -> Windows {
        let moved = |range: Range<u64>, offset_bytes| range.start + offset_bytes..range.end + offset_bytes;
        self.over_placements(pmd, placement, |offset_bytes| {
            self.ranges().map(|range| windows_in(&moved(range, offset_bytes), pmd)).sum()
        })
    }

    /// The share of the buffer that PMD leaves can map in any case; 0 if there may be no such window.
    pub fn free_share(&self, pmd: PageSize, placement: Placement) -> f64 {
        self.free_windows(pmd, placement).min as f64 / self.windows(pmd, placement).max.max(1) as f64
    }

    /// The minimum and maximum of `count` over all distances of the first byte from an aligned address.
    fn over_placements(&self, pmd: PageSize, placement: Placement, count: impl Fn(u64) -> u64) -> Windows {
        let last_bytes = match placement {
            Placement::Aligned => 0,
            Placement::AnyPage => pmd.bytes() - self.page.bytes(),
        };
        let of = |offset_bytes| {
            let windows = count(offset_bytes);
            Windows { min: windows, max: windows }
        };
        let offsets = (self.page.bytes()..=last_bytes).step_by(self.page.bytes() as usize);
        offsets.map(of).fold(of(0), Windows::or)
    }

    /// The ranges that `code_bytes` of translations touch if one vCPU makes them all: regions are filled in order, and a full
    /// region counts without its highwater bytes (`tcg_region_alloc`).
    pub fn touched(&self, code_bytes: u64) -> Vec<Range<u64>> {
        let mut left_bytes = code_bytes;
        let mut touched = Vec::new();
        for range in self.ranges() {
            let counted_bytes = range.end - range.start - HIGHWATER_BYTES;
            if left_bytes < counted_bytes {
                touched.push(range.start..range.start + left_bytes);
                break;
            }
            left_bytes -= counted_bytes;
            touched.push(range);
        }
        touched
    }
}

/// Number of whole aligned windows inside a range.
fn windows_in(range: &Range<u64>, pmd: PageSize) -> u64 {
    let first = range.start.div_ceil(pmd.bytes());
    (range.end / pmd.bytes()).saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn layout(rule: Rule, tb_mib: u64, cpus: u32) -> Layout {
        Layout::of(rule, tb_mib * MIB, cpus, PageSize::K4).unwrap()
    }

    /// One row for each buffer size in MiB; number of regions and stride in KiB for 1, 2, 4, ... 128 vCPUs. Computed by hand from
    /// the sources.
    const TABLE: [(u64, [(u64, u64); 8]); 7] = [
        (32, [(1, 32768), (16, 2048), (16, 2048), (16, 2048), (16, 2048), (32, 1024), (64, 512), (128, 256)]),
        (64, [(1, 65536), (16, 4096), (32, 2048), (32, 2048), (32, 2048), (32, 2048), (64, 1024), (128, 512)]),
        (128, [(1, 131072), (16, 8192), (32, 4096), (64, 2048), (64, 2048), (64, 2048), (64, 2048), (128, 1024)]),
        (256, [(1, 262144), (16, 16384), (32, 8192), (64, 4096), (128, 2048), (128, 2048), (128, 2048), (128, 2048)]),
        (512, [(1, 524288), (16, 32768), (32, 16384), (64, 8192), (128, 4096), (256, 2048), (256, 2048), (256, 2048)]),
        (
            1024,
            [(1, 1048576), (16, 65536), (32, 32768), (64, 16384), (128, 8192), (256, 4096), (512, 2048), (512, 2048)],
        ),
        (
            2048,
            [
                (1, 2097152),
                (16, 131072),
                (32, 65536),
                (64, 32768),
                (128, 16384),
                (256, 8192),
                (512, 4096),
                (1024, 2048),
            ],
        ),
    ];

    #[test]
    fn both_rules_give_the_worked_table() {
        for (tb_mib, row) in TABLE {
            for (shift, (regions, stride_kib)) in row.into_iter().enumerate() {
                for rule in [Rule::From2_11, Rule::From6_1] {
                    let layout = layout(rule, tb_mib, 1 << shift);
                    let found = (layout.regions, layout.stride_bytes / 1024);
                    assert_eq!(found, (regions, stride_kib), "{rule}: {tb_mib} MiB, {} vCPUs", 1 << shift);
                }
            }
        }
    }

    #[test]
    fn the_rules_differ_between_multiples_of_the_vcpus() {
        assert_eq!((layout(Rule::From2_11, 30, 4).regions, layout(Rule::From6_1, 30, 4).regions), (12, 15));
        assert_eq!((layout(Rule::From2_11, 10, 8).regions, layout(Rule::From6_1, 10, 8).regions), (8, 8));
    }

    #[test]
    fn capacities_match_those_of_qemu() {
        assert_eq!(layout(Rule::From6_1, 1024, 8).capacity_bytes(), 1_073_414_144);
        assert_eq!(layout(Rule::From6_1, 256, 16).capacity_bytes(), 267_780_096);
        assert_eq!(layout(Rule::From6_1, 32, 1).capacity_bytes(), 33_549_312);
        assert_eq!(layout(Rule::From6_1, 1024, 64).capacity_bytes(), 1_071_120_384);
    }

    #[test]
    fn a_guard_costs_its_window() {
        let windows = |layout: &Layout, pmd| layout.windows(pmd, Placement::Aligned).known().unwrap();
        let free = |layout: &Layout, pmd| layout.free_windows(pmd, Placement::Aligned).known().unwrap();
        let of = |tb_mib, cpus| free(&layout(Rule::From6_1, tb_mib, cpus), PageSize::M2);
        assert_eq!((of(1024, 1), windows(&layout(Rule::From6_1, 1024, 1), PageSize::M2)), (511, 512));
        assert_eq!((of(1024, 8), of(1024, 64), of(256, 8)), (448, 0, 64));
        let large_pages = Layout::of(Rule::From6_1, 1024 * MIB, 64, PageSize::K64).unwrap();
        assert_eq!(free(&large_pages, PageSize::new(512 * MIB).unwrap()), 0);
    }

    /// A slow reference that checks every window separately.
    fn count_slowly(layout: &Layout, offset_bytes: u64) -> (u64, u64) {
        let inside = |range: Range<u64>, window: u64| {
            range.start + offset_bytes <= window && window + 2 * MIB <= range.end + offset_bytes
        };
        let windows = (0..layout.buffer_bytes + 2 * MIB).step_by(2 << 20);
        let windows: Vec<u64> = windows.filter(|window| inside(0..layout.buffer_bytes, *window)).collect();
        let free = windows.iter().filter(|window| layout.ranges().any(|range| inside(range, **window)));
        (windows.len() as u64, free.count() as u64)
    }

    #[test]
    fn a_buffer_at_an_unknown_address_has_a_range_of_windows() {
        for (tb_mib, cpus) in [(33, 7), (33, 16), (341, 8), (777, 5), (1, 1), (32, 4)] {
            let layout = layout(Rule::From6_1, tb_mib, cpus);
            let places = || (0..512).map(|page| count_slowly(&layout, page * 4096));
            let ends = |of: fn((u64, u64)) -> u64| Windows {
                min: places().map(of).min().unwrap(),
                max: places().map(of).max().unwrap(),
            };
            assert_eq!(layout.windows(PageSize::M2, Placement::AnyPage), ends(|(windows, _)| windows), "{tb_mib}");
            assert_eq!(layout.free_windows(PageSize::M2, Placement::AnyPage), ends(|(_, free)| free), "{tb_mib}");
            let aligned = layout.free_windows(PageSize::M2, Placement::Aligned);
            assert_eq!(aligned.known(), Some(count_slowly(&layout, 0).1), "{tb_mib}");
        }
    }

    #[test]
    fn the_last_region_takes_the_rest() {
        let layout = Layout::of(Rule::From6_1, 32 * MIB, 3, PageSize::K4).unwrap();
        assert_eq!((layout.regions, layout.stride_bytes), (16, 2 * MIB));
        let layout = Layout::of(Rule::From6_1, 5 * MIB, 3, PageSize::K4).unwrap();
        assert_eq!(layout.stride_bytes, 426 * 4096);
        assert_eq!(layout.region(2), 852 * 4096..5 * MIB - 4096);
    }

    #[test]
    fn sizes_are_clamped_as_qemu_does_and_an_abort_is_an_error() {
        assert_eq!(layout(Rule::From6_1, 4096, 1).buffer_bytes, 2048 * MIB);
        assert_eq!(Layout::of(Rule::From6_1, 1, 1, PageSize::K4).unwrap().buffer_bytes, MIB);
        let refused = Layout::of(Rule::From6_1, MIB, 256, PageSize::K4).unwrap_err().to_string();
        assert!(refused.contains("256 regions leaves 4096 bytes") && refused.contains("--tb-size"), "{refused}");
    }

    #[test]
    fn code_fills_regions_in_order() {
        let layout = layout(Rule::From6_1, 1024, 64);
        assert_eq!((layout.touched(100).len(), &layout.touched(100)[0]), (1, &(0..100)));
        let full = 2 * MIB - 4096;
        let touched = layout.touched(2 * (full - HIGHWATER_BYTES) + 5);
        assert_eq!(touched, [0..full, 2 * MIB..2 * MIB + full, 4 * MIB..4 * MIB + 5]);
    }
}
