//! What a program and its C library advise by themselves, simulated (`sim -p default`).

use super::*;

/// Whether glibc advises memory here: it does where THP is set to `madvise`.
fn is_at_madvise() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|text| text.contains("[madvise]"))
}

/// With `glibc.malloc.hugetlb=1` glibc advises its heap, and ends it at a multiple of 2M, wherever it begins.
#[test]
fn a_heap_that_its_allocator_aligns_and_advises_has_large_pages() {
    if !can_record() || !needs(&[("THP at madvise", is_at_madvise())]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "gcc", "small_blocks.c", &HOSTED);
    let faults = |tunables: &str| {
        record(&bench, &["--no-native-run"], &[&program]).env("GLIBC_TUNABLES", tunables).ran().assert_exit(0, &[]);
        let ran = bench.pagelab(&["sim", "trace", "-m", "cascade-lake", "-p", "default", "--json"]).ran();
        let document = ran.assert_exit(0, &[]).json();
        ["default+always", "default+madvise", "default+never"].map(|policy| {
            let all = document["traces"][0]["simulations"].as_array().unwrap();
            let found = all.iter().find(|one| one["policy"] == policy).unwrap_or_else(|| panic!("{document:#}"));
            found["faults"].as_u64().unwrap()
        })
    };
    let [_, madvise, never] = faults("");
    assert_eq!(madvise, never, "nothing is advised");
    // Of the heap's 12M, the part before the first whole 2M and the end have base pages: at most 2 x 512 of 3,000.
    let [always, madvise, never] = faults("glibc.malloc.hugetlb=1");
    assert!(madvise + 1500 < never && always <= madvise, "{always} {madvise} {never}");
}
