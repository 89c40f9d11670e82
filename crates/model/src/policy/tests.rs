//! Tests of policies and of their plans on machines.

use super::*;
use crate::machine::built_in;

fn plan(machine: &str, policy: &str) -> Result<Plan, String> {
    Plan::new(&policy.parse().unwrap(), &built_in(machine).unwrap()).map_err(|refused| refused.reason)
}

#[test]
fn names_survive_a_round_trip() {
    for name in ["base", "mthp-64k", "thp+prefault", "hugetlb-1g", "contig-64k", "base-16k", "base-64k"] {
        assert_eq!(name.parse::<ModelPolicy>().unwrap().to_string(), name);
    }
    for name in ["contig-64k+thp", "base-16k+thp", "base-64k+thp"] {
        assert_eq!(name.parse::<ModelPolicy>().unwrap().to_string(), name);
    }
    for name in ["base-8k", "base-8k+thp", "contig-64k+thp+thp", "mthp-64k+thp", "base-64k+no-guards"] {
        assert!(name.parse::<ModelPolicy>().is_err(), "{name}");
    }
}

#[test]
fn page_sizes_are_those_of_the_table_format() {
    assert_eq!(plan("cascade-lake", "thp").unwrap().mapping_unit, MappingUnit::Thp(2 << 20));
    assert_eq!(plan("cortex-a57", "contig-64k").unwrap().mapping_unit, MappingUnit::Contig64k);
    assert_eq!(plan("neoverse-n1", "base-16k").unwrap().format.name, "arm64-16k-48");
    // Linux on RISC-V uses the format with the most levels, whatever their order in the file.
    assert_eq!(plan("rva23", "thp").unwrap().format.name, "sv48+svnapot");
    assert_eq!(plan("rva23", "base-64k").unwrap().format.name, "sv48-64k+svnapot");
    assert_eq!(plan("sifive-u74", "base").unwrap().format.name, "sv39");
    assert_eq!(plan("sapphire-rapids", "base").unwrap().format.name, "x86-64");
    assert_eq!(plan("neoverse-n1", "hugetlb-32m").unwrap().mapping_unit, MappingUnit::Hugetlb(32 << 20));
    assert_eq!(plan("apple-m1", "thp").unwrap().mapping_unit, MappingUnit::Thp(32 << 20));
    assert_eq!(plan("apple-m1", "base").unwrap().base_bytes, 16 << 10);
}

#[test]
fn with_thp_tries_the_pmd_size_of_the_format_first() {
    // A PMD maps 512 pages of 4K or 8192 of 64K. With software pages of 64K, it consists of 16 hardware PMDs.
    for (machine, policy, base_bytes, thp_bytes) in [
        ("cortex-a57", "contig-64k+thp", 4 << 10, 2 << 20),
        ("rva23", "contig-64k+thp", 4 << 10, 2 << 20),
        ("cortex-a57", "base-64k+thp", 64 << 10, 512 << 20),
        ("neoverse-n2", "base-64k+thp", 64 << 10, 512 << 20),
        ("neoverse-n1", "base-16k+thp", 16 << 10, 32 << 20),
        ("rva23", "base-64k+thp", 64 << 10, 32 << 20),
        ("sifive-u74", "base-64k+thp", 64 << 10, 32 << 20),
    ] {
        let plan = plan(machine, policy).unwrap();
        assert_eq!((plan.base_bytes, plan.thp_bytes), (base_bytes, Some(thp_bytes)), "{machine} {policy}");
    }
    assert_eq!(plan("cortex-a57", "contig-64k").unwrap().thp_bytes, None);
    assert_eq!(plan("cortex-a57", "thp").unwrap().thp_bytes, Some(2 << 20));
    assert!(plan("cascade-lake", "contig-64k+thp").unwrap_err().contains("no contiguous pages"));
    assert!(plan("cascade-lake", "base-64k+thp").unwrap_err().contains("no base pages of 64K"));
}

#[test]
fn refuses_unsupported_policies_with_the_reason() {
    for (machine, policy, reason) in [
        ("cascade-lake", "base-64k", "no base pages of 64K, only of 4K"),
        ("cascade-lake", "contig-64k", "page tables of x86-64 have no contiguous pages"),
        ("cascade-lake", "hugetlb-64k", "hugetlb pages are of 2M, 1G"),
        ("cascade-lake", "mthp-2m", "of 16K to 1M"),
        ("rva23", "base-16k", "no base pages of 16K, only of 4K, 64K"),
        ("apple-m1", "contig-64k", "contiguous groups of pages are of 2M with arm64-16k-47"),
        ("sifive-u74", "contig-64k", "no contiguous pages"),
        ("zen-2", "default", "name default+always"),
    ] {
        let found = plan(machine, policy).unwrap_err();
        assert!(found.contains(reason), "{machine} {policy}: {found}");
    }
}

#[test]
fn refuses_fallback_folios_that_are_larger_or_too_small() {
    const K: u64 = 1 << 10;
    for (machine, policy, fallbacks, reason) in [
        ("cascade-lake", "mthp-64k", vec![16 * K, 32 * K, 64 * K], None),
        ("cascade-lake", "mthp-64k", vec![16 * K, 128 * K], Some("tries folios of 128K before those of 64K")),
        ("apple-m1", "mthp-128k", vec![16 * K], Some("no folios of 16K: with arm64-16k-47 the smallest are of 64K")),
        ("cascade-lake", "thp", vec![16 * K, 2048 * K], None),
        ("cascade-lake", "thp", vec![4096 * K], Some("folios mapped by PTEs are of 16K to 1M")),
        ("apple-m1", "default+always", vec![16 * K], Some("no folios of 16K")),
        // Without large folios, fallback folios have no effect.
        ("apple-m1", "base", vec![16 * K], None),
        ("apple-m1", "default+never", vec![16 * K], None),
    ] {
        let found = plan(machine, policy).unwrap().admits_folios(&fallbacks).err();
        let has_reason =
            reason.is_none_or(|reason| found.as_ref().is_some_and(|found| found.to_string().contains(reason)));
        assert!(found.is_some() == reason.is_some() && has_reason, "{machine} {policy}: {found:?}");
    }
}

#[test]
fn max_ptes_none_is_below_the_pages_of_a_pmd() {
    let arm64_64k = include_str!("../../../../machines/neoverse-n1.toml").replace("\"arm64-4k-48\", ", "");
    let arm64_64k = crate::machine::read("test.toml", &arm64_64k.replace("\"arm64-16k-48\", ", "")).unwrap();
    for (machine, max) in
        [(built_in("cascade-lake").unwrap(), 511), (built_in("apple-m1").unwrap(), 2047), (arm64_64k, 8191)]
    {
        let admits = |policy: &str, missing: u64| {
            let mut kernel = Kernel::default();
            kernel.khugepaged.max_ptes_none = Some(missing);
            Plan::new(&policy.parse().unwrap(), &machine).unwrap().admits_kernel(&kernel)
        };
        assert_eq!(admits("thp", max), Ok(()), "{}", machine.name);
        let refused = admits("thp", max + 1).unwrap_err();
        assert!(refused.to_string().contains(&format!("0 to {max} with")), "{}: {refused}", machine.name);
        assert_eq!(admits("base", max + 1), Ok(()), "khugepaged does nothing under `base`");
    }
}
