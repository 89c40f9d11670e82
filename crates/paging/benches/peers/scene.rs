//! The ranges to map and the addresses to look up.

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;
const LOOKUPS: usize = 1 << 16;
const SAMPLES: usize = 257;

/// A range to map with leaves of at most `largest_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub va: u64,
    pub pa: u64,
    pub bytes: u64,
    pub largest_bytes: u64,
}

impl Range {
    /// The leaves of the range, the largest that alignment, length and the largest size allow: input address, output
    /// address and bytes of each.
    pub fn leaves(self) -> impl Iterator<Item = (u64, u64, u64)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (va, pa, left) = (self.va + offset, self.pa + offset, self.bytes - offset);
            let fits = |bytes: &u64| (va | pa).is_multiple_of(*bytes) && *bytes <= left.min(self.largest_bytes);
            let bytes = [GIB, 2 << 20, PAGE].into_iter().find(fits)?;
            offset += bytes;
            Some((va, pa, bytes))
        })
    }
}

/// The work of one round.
pub struct Scene {
    pub name: &'static str,
    pub ranges: Vec<Range>,
    /// Random mapped addresses.
    pub random: Vec<u64>,
    /// The same number of mapped addresses, but with only 64 different ones.
    pub few: Vec<u64>,
    sums: [u64; 2],
}

/// Output address minus input address, in all scenes.
const OFFSET: u64 = 3 * GIB;

impl Scene {
    /// One range of 4K pages.
    pub fn pages(bytes: u64) -> Scene {
        Scene::of("pages", vec![Range { va: GIB, pa: GIB + OFFSET, bytes, largest_bytes: PAGE }])
    }

    /// 64 ranges of up to a sixteenth of `bytes` with the largest leaves, one of them of at least 1G.
    pub fn mixed(bytes: u64) -> Scene {
        let mut random = Random(1);
        let mut va = GIB;
        let ranges = (0..64).map(|number| {
            let bytes = if number == 32 { GIB + 5 * PAGE } else { (random.below(bytes / 16 / PAGE) + 1) * PAGE };
            va = if number == 32 { va.next_multiple_of(GIB) } else { va + (random.below(512) + 1) * PAGE };
            let range = Range { va, pa: va + OFFSET, bytes, largest_bytes: GIB };
            va += bytes;
            range
        });
        Scene::of("mixed", ranges.collect())
    }

    fn of(name: &'static str, ranges: Vec<Range>) -> Scene {
        let mut source = Random(2);
        let mut address = |_: usize| {
            let range = ranges[source.below(ranges.len() as u64) as usize];
            range.va + source.below(range.bytes)
        };
        let random: Vec<u64> = (0..LOOKUPS).map(&mut address).collect();
        let few: Vec<u64> = (0..LOOKUPS).map(|index| random[index % 64]).collect();
        let sum = |addresses: &[u64]| addresses.iter().fold(0, |sum: u64, va| sum.wrapping_add(va + OFFSET));
        let sums = [sum(&random), sum(&few)];
        Scene { name, ranges, random, few, sums }
    }

    /// The sums of the output addresses of `random` and `few`.
    pub fn sums(&self) -> [u64; 2] {
        self.sums
    }

    /// Mapped addresses to compare with their output addresses: random ones, and the ends of each range.
    pub fn samples(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.ranges.iter().flat_map(|range| [range.va, range.va + range.bytes - 1]);
        self.random.iter().copied().take(SAMPLES).chain(ends).map(|va| (va, va + OFFSET))
    }
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound.max(1)
    }
}
