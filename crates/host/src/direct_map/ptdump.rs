//! The kernel's dump of its own page tables (arch/arm64/mm/ptdump.c, arch/riscv/mm/ptdump.c).
//!
//! ```text
//! ---[ Linear Mapping start ]---
//! 0xffff000000000000-0xffff000000200000           2M PTE       RW NX SHD AF        CON     UXN    MEM/NORMAL
//! 0xffff000000200000-0xffff000040000000        1022M PMD       RW NX SHD AF            BLK UXN    MEM/NORMAL
//! ```
//! A line is a range of one level and one protection. A range without attributes is not mapped. A range with `F` has invalid
//! entries: its memory was taken out of the map, but still counts under the level of its entries.

use std::collections::BTreeMap;

use policy::PageSizes;
use policy::size::PageSize;

use super::leaves::{Leaves, Source};

/// The leaves in the section "Linear Mapping"; `None` where there is no such section, or a sum exceeds 64 bits.
pub fn parse(dump: &str, page_sizes: &PageSizes) -> Option<Leaves> {
    let mut leaves = Leaves {
        bytes: BTreeMap::new(),
        contiguous_bytes: BTreeMap::new(),
        boot_bytes: BTreeMap::new(),
        split_bytes: BTreeMap::new(),
        memory_bytes: None,
        source: Source::Ptdump,
    };
    let (mut sections, mut sum) = (0, 0u64);
    let mut inside = false;
    for line in dump.lines() {
        if let Some(name) = line.trim().strip_prefix("---[") {
            let name = name.to_ascii_lowercase();
            inside = name.contains("linear mapping") && !name.contains("end");
            sections += usize::from(inside);
        } else if let (true, Some(range)) = (inside, range(line, page_sizes)) {
            sum = sum.checked_add(range.bytes)?;
            *leaves.bytes.entry(range.leaf).or_default() += range.bytes;
            if range.contiguous {
                *leaves.contiguous_bytes.entry(range.leaf).or_default() += range.bytes;
            }
        }
    }
    (sections > 0).then_some(leaves)
}

struct Range {
    leaf: PageSize,
    bytes: u64,
    contiguous: bool,
}

/// A line of a mapped range; `None` for a hole and for other lines.
fn range(line: &str, page_sizes: &PageSizes) -> Option<Range> {
    let (addresses, rest) = line.trim().split_once(char::is_whitespace)?;
    let (from, to) = addresses.split_once('-')?;
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let bytes = address(to)?.checked_sub(address(from)?)?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let at = words.iter().position(|word| level(word).is_some())?;
    let leaf = *page_sizes.direct_map_leaves().get(level(words[at])?)?;
    let attributes = &words[at + 1..];
    (!attributes.is_empty()).then(|| Range { leaf, bytes, contiguous: attributes.contains(&"CON") })
}

/// The index of a level among the leaf sizes of the direct map. Folded levels are named after the topmost one.
fn level(word: &str) -> Option<usize> {
    ["PTE", "PMD", "PUD"].iter().position(|name| *name == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
---[ Linear Mapping start ]---
0xffff000000000000-0xffff000000200000           2M PTE       RW NX SHD AF                UXN    MEM/NORMAL-TAGGED
0xffff000000200000-0xffff000000210000          64K PTE       RW NX SHD AF        CON     UXN    MEM/NORMAL-TAGGED
0xffff000000210000-0xffff000000400000        1984K PTE F     RW NX SHD AF                UXN    MEM/NORMAL-TAGGED
0xffff000000400000-0xffff000040000000        1020M PMD       RW NX SHD AF            BLK UXN    MEM/NORMAL-TAGGED
0xffff000040000000-0xffff000080000000           1G PUD
0xffff000080000000-0xffff0001c0000000           5G PUD       RW NX SHD AF            BLK UXN    MEM/NORMAL-TAGGED
---[ Linear Mapping end ]---
---[ Modules start ]---
0xffff800000000000-0xffff800000001000           4K PTE       ro x  SHD AF                UXN    MEM/NORMAL
";

    fn page_sizes(base: u64) -> PageSizes {
        PageSizes { base: PageSize::new(base << 10).unwrap(), pmd: None, mthp: vec![], hugetlb: vec![] }
    }

    #[test]
    fn sums_a_mixed_map_by_leaf_and_run() {
        let leaves = parse(MIXED, &page_sizes(4)).unwrap();
        let expected = [(PageSize::K4, 4 << 20), (PageSize::M2, 1020 << 20), (PageSize::G1, 5 << 30)];
        assert_eq!(leaves.bytes, BTreeMap::from(expected));
        assert_eq!(leaves.contiguous_bytes, BTreeMap::from([(PageSize::K4, 64 << 10)]));
    }

    #[test]
    fn levels_are_those_of_the_granule() {
        let leaves = parse(MIXED, &page_sizes(64)).unwrap();
        assert_eq!(leaves.of(PageSize::new(512 << 20).unwrap()), 1020 << 20);
        assert_eq!(leaves.bytes.len(), 2, "64K has no PUD leaves");
    }

    #[test]
    fn a_dump_without_a_linear_mapping_has_no_leaves() {
        assert_eq!(parse("", &page_sizes(4)), None);
        assert_eq!(parse("---[ User Space ]---\n0x0-0x1000 4K PTE RW\n", &page_sizes(4)), None);
        let broken = "---[ Linear Mapping ]---\n0x2000-0x1000 4K PTE RW\nzz\n0x-0x 1 PMD RW\n";
        assert!(parse(broken, &page_sizes(4)).unwrap().bytes.is_empty());
        let all = "0x0-0xffffffffffffffff 1 PTE RW\n";
        assert_eq!(parse(&format!("---[ Linear Mapping ]---\n{all}{all}"), &page_sizes(4)), None);
    }
}
