//! Tests that the policy takes effect.

use super::*;

#[test]
fn the_policy_overrides_the_programs_own_thp_settings() {
    let _alone = alone();
    let Some(program) = c("thp_settings") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    let huge = |policy: &str, how: &str| {
        let outcome = under(policy, &[text(&program), how]);
        (outcome.seen.bytes("AnonHugePages") >= 12 << 20, outcome)
    };
    for how in ["disable", "advise", "vector", "populate", "huge", "zeroed", "grown", "piecewise"] {
        let (is_huge, outcome) = huge("thp", how);
        assert!(is_huge, "{how}: {:?}", outcome.seen.bytes);
        let expected = if how == "disable" { "again: 0 1, resident 1" } else { &format!("{how}: 0 0, resident 1") };
        assert_eq!(outcome.output, expected, "the program gets the answer that it expects");
        assert_eq!(outcome.answered("prctl"), how == "disable");
        assert_eq!(outcome.answered("madvise(MADV_NOHUGEPAGE)"), how == "advise");
        for policy in ["default+no-huge", "base"] {
            assert!(!huge(policy, how).0, "{policy} {how}");
        }
        assert_eq!(huge("default", how).0, how == "huge", "default {how}");
    }
    for how in ["except", "enable"] {
        let (is_huge, outcome) = huge("base", how);
        assert!(!is_huge && outcome.output == bare(&[text(&program), how]), "{how}: {}", outcome.output);
        let excepts = outcome.output.starts_with("except: 0");
        assert_eq!(outcome.answered("prctl(PR_SET_THP_DISABLE"), how == "enable" || excepts, "{how}");
    }
}

#[test]
fn mappings_that_the_kernel_merges_get_thp() {
    let _alone = alone();
    let Some(program) = c("pieces") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    let huge_mib = |policy: &str, mappings: &[&str]| {
        let command = [&[text(&program)], mappings].concat();
        let outcome = under(policy, &command);
        assert_eq!(outcome.output, bare(&command), "{policy} {mappings:?}");
        outcome.seen.bytes("AnonHugePages") >> 20
    };
    // Faults that found no free block do not count against the policy.
    let at_least = |policy: &str, mappings: &[&str], mib: u64| {
        let before = fallbacks();
        let huge = huge_mib(policy, mappings);
        let fell_back = 2 * (fallbacks() - before);
        assert!(huge + fell_back >= mib, "{policy} {mappings:?}: {huge}M are huge, and {fell_back}M fell back");
    };
    // COUNT and KIB of the mappings. Under the policy as much is huge as if the program had advised all of them, except at the
    // ends.
    at_least("default", &["advise", "200", "1028"], 196);
    assert_eq!(huge_mib("default", &["touch", "200", "1028"]), 0);
    at_least("thp", &["touch", "200", "1028"], 196);
    at_least("thp", &["touch", "300", "128"], 32);
    // Pieces below the minimum are advised together with the next piece that is large enough.
    at_least("thp", &["touch", "1", "16", "200", "64", "1", "128"], 8);
    // They are not advised if no such piece follows: a stop for each would cost more than it gains.
    assert_eq!(huge_mib("thp", &["touch", "200", "64"]), 0);
    // A mapping that grows from too small to large enough.
    at_least("thp", &["grow", "1", "64", "1", "16384"], 14);
}

/// Faults of the whole system that found no free block of 2M.
fn fallbacks() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap();
    let times = counters.lines().find_map(|line| line.strip_prefix("thp_fault_fallback "));
    times.unwrap().parse().unwrap()
}

#[test]
fn prefaulted_memory_is_resident_at_once() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    let faults = |policy| under(policy, &[text(&program), "50", "8388608", "0"]).ended.usage;
    let (lazy, eager) = (faults("thp"), faults("thp+prefault"));
    // At least three whole large pages of each mapping: populating counts as faults (`mm_account_fault`, mm/memory.c).
    assert!(eager.minor_faults >= lazy.minor_faults + 3 * 50, "{eager:?} against {lazy:?}");
}

#[test]
fn prefaulted_pool_pages_are_resident_at_once_and_small_mappings_too() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&pool_file(), "40") {
        return skip("40 hugetlb pages of 2M");
    }
    let faults = |policy, bytes| under(policy, &[text(&program), "50", bytes, "0"]).ended.usage.minor_faults;
    // Two pool pages each, and twenty base pages; the program touches none of them.
    for (bytes, pages) in [("4194304", 2), ("81920", 20)] {
        let (lazy, eager) = (faults("hugetlb-2m", bytes), faults("hugetlb-2m+prefault", bytes));
        assert!(eager >= lazy + pages * 50, "{bytes}: {eager} against {lazy}");
    }
}

#[test]
fn guards_fault_except_under_no_guards() {
    let _alone = alone();
    let Some(program) = c("guards") else { return };
    for policy in ["default", "base", "thp", "thp+prefault"] {
        assert_eq!(under(policy, &[text(&program)]).output, "guards that fault: 4 4 4 1", "{policy}");
    }
    let outcome = under("thp+no-guards", &[text(&program)]);
    assert_eq!(outcome.output, "guards that fault: 0 0 0 0");
    assert!(outcome.answered("mprotect(PROT_NONE)") && outcome.answered("mprotect that left"));
    assert!(outcome.answered("mmap(PROT_NONE, MAP_FIXED)"));
}

#[test]
fn guards_inside_pool_pages_fault_only_if_they_were_accessible_before() {
    let _alone = alone();
    let Some(program) = c("guards") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&pool_file(), "40") {
        return skip("40 hugetlb pages of 2M");
    }
    let outcome = under("hugetlb-2m", &[text(&program)]);
    assert_eq!(
        outcome.output, "guards that fault: 4 0 4 1",
        "a guard that was never accessible is part of a pool page"
    );
    assert!(outcome.has(&Cause::Demoted) && outcome.has(&Cause::ProtectionWidened));
    let outcome = under("hugetlb-2m+no-guards", &[text(&program)]);
    assert_eq!(outcome.output, "guards that fault: 0 0 0 1");
    assert!(outcome.answered("mmap(PROT_NONE, MAP_FIXED)") && !outcome.has(&Cause::Demoted));
}
