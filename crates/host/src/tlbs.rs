//! [`ReportedTlb`]: TLBs from CPUID, leaf 18H (Intel SDM, volume 2, CPUID), leaves 80000005H and 80000006H (AMD APM, volume
//! 3, appendix E). A hypervisor can report anything there, and often reports nothing.

/// A TLB, or its part for one page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedTlb {
    /// Level 1 or 2.
    pub level: u8,
    /// Whether instruction fetches use it.
    pub fetch: bool,
    /// Whether loads use it.
    pub load: bool,
    /// The page size in bytes.
    pub page_bytes: u64,
    pub entries: u32,
}

/// The registers EAX, EBX, ECX and EDX.
type Leaf = [u32; 4];

/// The TLBs that CPUID of this processor reports; empty where it reports none.
pub(crate) fn of_cpuid(id: &str) -> Vec<ReportedTlb> {
    match id.split('/').next() {
        Some("GenuineIntel") => (0..=LAST_SUBLEAF).flat_map(|sub| intel(leaf(0x18, sub))).collect(),
        Some("AuthenticAMD" | "HygonGenuine") => amd(leaf(0x8000_0005, 0), leaf(0x8000_0006, 0)),
        _ => Vec::new(),
    }
}

/// More sub-leaves than any processor has; a sub-leaf that does not exist is empty.
const LAST_SUBLEAF: u32 = 15;

/// A leaf that this processor has, or an empty one: CPUID answers a query above the highest leaf with the content of another
/// leaf.
#[cfg(target_arch = "x86_64")]
fn leaf(number: u32, sub: u32) -> Leaf {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let highest = __cpuid(number & 0x8000_0000).eax;
    if number > highest {
        return [0; 4];
    }
    let found = __cpuid_count(number, sub);
    [found.eax, found.ebx, found.ecx, found.edx]
}

#[cfg(not(target_arch = "x86_64"))]
fn leaf(_: u32, _: u32) -> Leaf {
    [0; 4]
}

/// A sub-leaf of leaf 18H: EDX has type and level, EBX the page sizes and ways, ECX the sets.
fn intel([_, ebx, ecx, edx]: Leaf) -> Vec<ReportedTlb> {
    let (fetch, load) = match edx & 0x1f {
        1 | 4 => (false, true),
        2 => (true, false),
        3 => (true, true),
        // No TLB, or one for stores only.
        _ => return Vec::new(),
    };
    let sizes = [(0, 4 << 10), (1, 2 << 20), (3, 1 << 30)].into_iter().filter(|(bit, _)| ebx >> bit & 1 == 1);
    let of = |(_, page_bytes)| ReportedTlb {
        level: (edx >> 5 & 7) as u8,
        fetch,
        load,
        page_bytes,
        entries: (ebx >> 16).saturating_mul(ecx),
    };
    sizes.map(of).filter(|tlb| tlb.entries > 0).collect()
}

/// Level 1 is in leaf 80000005H: EAX for 2M and EBX for 4K, with fetches in the lower half. Level 2 is in 80000006H in the same
/// layout, with four bits for the ways, 0 where there is no TLB.
fn amd(first: Leaf, second: Leaf) -> Vec<ReportedTlb> {
    let tlb = |level, fetch, page_bytes, entries| ReportedTlb { level, fetch, load: !fetch, page_bytes, entries };
    let sizes = [(0, 2 << 20), (1, 4 << 10)];
    let mut tlbs = Vec::new();
    for (register, page_bytes) in sizes {
        tlbs.push(tlb(1, true, page_bytes, first[register] & 0xff));
        tlbs.push(tlb(1, false, page_bytes, first[register] >> 16 & 0xff));
        let second_level = |half: u32| if half >> 12 == 0 { 0 } else { half & 0xfff };
        tlbs.push(tlb(2, true, page_bytes, second_level(second[register] & 0xffff)));
        tlbs.push(tlb(2, false, page_bytes, second_level(second[register] >> 16)));
    }
    tlbs.retain(|tlb| tlb.entries > 0);
    tlbs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(tlbs: &[ReportedTlb], level: u8, load: bool, page_bytes: u64) -> u32 {
        let of = |tlb: &&ReportedTlb| {
            (tlb.level, tlb.page_bytes) == (level, page_bytes) && if load { tlb.load } else { tlb.fetch }
        };
        tlbs.iter().filter(of).map(|tlb| tlb.entries).sum()
    }

    #[test]
    fn leaf_18h_is_read_by_its_fields() {
        // A second level for 4K and 2M, shared by fetches and loads, with 8 ways and 128 sets.
        let shared = intel([0, 8 << 16 | 0b0011, 128, 2 << 5 | 3]);
        assert_eq!(shared.len(), 2);
        assert_eq!([entries(&shared, 2, true, 4 << 10), entries(&shared, 2, false, 2 << 20)], [1024; 2]);
        // Loads only, 1G, 8 fully associative entries.
        let loads = intel([0, 8 << 16 | 0b1000, 1, 1 << 8 | 1 << 5 | 4]);
        assert_eq!([entries(&loads, 1, true, 1 << 30), entries(&loads, 1, false, 1 << 30)], [8, 0]);
        assert!(intel([0; 4]).is_empty() && intel([0, 8 << 16 | 1, 16, 1 << 5 | 5]).is_empty());
    }

    /// The values of Zen 2 and 3: 64 entries of each kind in level 1, 2048 for data and 512 for fetches in level 2.
    #[test]
    fn amds_leaves_are_read_by_their_halves() {
        let tlbs = amd([0xff40_ff40, 0xff40_ff40, 0, 0], [0x4800_2200, 0x6800_4200, 0, 0]);
        for page_bytes in [4 << 10, 2 << 20] {
            assert_eq!([entries(&tlbs, 1, true, page_bytes), entries(&tlbs, 1, false, page_bytes)], [64, 64]);
            assert_eq!([entries(&tlbs, 2, true, page_bytes), entries(&tlbs, 2, false, page_bytes)], [2048, 512]);
        }
        assert!(amd([0; 4], [0, 0x0040_0000, 0, 0]).is_empty());
    }
}
