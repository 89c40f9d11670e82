//! Tests that provoke every cause that user space can determine, and check that it is reported with its evidence.

use std::fs;

use host::Host;
use host::admit::Terms;
use platform::KhugepagedHold;
use serde_json::Value;

use super::provoked::{Provoked, causes};
use crate::common::{LIMIT, LeaseGuard, Runs, is_root, needs, program, root, within};

pub const SIZE: u64 = 16 << 20;
pub const HUGE: u64 = 2 << 20;
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Enables THP for memory that asks for it, and waits until no other test or pagelab fragments memory, measures, or
/// changes settings. `None` if this machine cannot do it.
pub fn for_advised() -> Option<Advised> {
    if !needs(&[root(), program("gcc")]) {
        return None;
    }
    let mut lease_guard = LeaseGuard::wait();
    let text = fs::read_to_string(format!("{THP}/enabled")).unwrap_or_default();
    needs(&[("THP for programs that ask for it (enabled: madvise)", text.contains("[madvise]"))]).then(|| {
        let host = Host::open("/").unwrap();
        let khugepaged = KhugepagedHold::of(&host, &Terms::of_this_process(&host, || Ok(()))).unwrap();
        khugepaged.begin(&mut lease_guard.lease).unwrap();
        Advised { _lease_guard: lease_guard, _khugepaged: khugepaged }
    })
}

/// Holds the lease, with khugepaged asleep. Otherwise khugepaged would collapse pages that a test made small on purpose. On a
/// tmpfs it also fills the large-page slot in which a file ends, and removes the leaves that mapped the slot before.
pub struct Advised {
    _lease_guard: LeaseGuard,
    _khugepaged: KhugepagedHold,
}

/// A setting with a changed value, which is restored when this is dropped.
pub struct Set {
    path: String,
    before: String,
}

impl Set {
    pub fn to(path: &str, value: &str) -> Set {
        let text = fs::read_to_string(path).unwrap();
        let before =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text.trim(), |(word, _)| word);
        let set = Set { path: path.to_string(), before: before.to_string() };
        fs::write(path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
        set
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, &self.before);
    }
}

/// Provokes a cause and checks that it is the only cause of the region: its code, its bytes, and words of its evidence.
pub fn assert_cause(name: &str, code: &str, bytes: u64, evidence: &[&str]) -> Option<Value> {
    Some(assert_cause_of(name, &Provoked::start(name)?, code, bytes, evidence))
}

/// Like [`assert_cause`], but for memory that has been provoked already.
pub fn assert_cause_of(name: &str, provoked: &Provoked, code: &str, bytes: u64, evidence: &[&str]) -> Value {
    let region = provoked.region();
    let found = causes(&region);
    let cause =
        found.iter().find(|(found, ..)| found == code).unwrap_or_else(|| panic!("{name}: no {code} in {found:?}"));
    assert_eq!(cause.1, bytes, "{name}: {found:?}");
    let address = format!("{:#x}", provoked.address);
    for words in evidence {
        let words = words.replace("ADDRESS", &address);
        assert!(cause.3.contains(&words), "{name}: no {words:?} in {:?}", cause.3);
    }
    region
}

#[test]
fn settings_advice_and_prctl() {
    let Some(_lease_guard) = for_advised() else { return };
    assert_cause("not_advised", "not_advised", SIZE, &["enabled: madvise", "no hg in VmFlags at ADDRESS"]);
    assert_cause("advised_against", "advised_against", SIZE, &["VmFlags nh at ADDRESS"]);
    assert_cause("disabled", "disabled_for_process", SIZE, &["THP_enabled: 0"]);
    let huge = Provoked::start("huge").unwrap();
    let region = huge.region();
    assert_eq!((causes(&region).len(), region["could_be_larger_bytes"].as_u64()), (0, Some(0)), "{region:#}");
    // mlock alone does not prevent larger pages, and is not reported as the cause.
    assert_cause("locked", "not_advised", SIZE, &["no hg"]);
}

#[test]
fn a_size_that_is_switched_off_and_a_process_that_excepts_advised_memory() {
    let Some(_lease_guard) = for_advised() else { return };
    {
        let _never = Set::to(&format!("{THP}/enabled"), "never");
        assert_cause("not_advised", "size_disabled", SIZE, &["enabled: never"]);
    }
    let _always = Set::to(&format!("{THP}/enabled"), "always");
    assert_cause("excepted", "disabled_except_advised", SIZE, &["THPeligible: 0 at ADDRESS"]);
}

#[test]
fn cuts_are_causes_with_their_addresses() {
    let Some(_lease_guard) = for_advised() else { return };
    for (name, evidence) in [("guard", "guard page at"), ("light_guard", "guard page (MADV_GUARD_INSTALL) at")] {
        let Some(provoked) = Provoked::start(name) else { continue };
        let region = provoked.region();
        let guard = provoked.address + 3 * HUGE - 4096;
        let (_, bytes, or, evidence_found) = causes(&region).into_iter().find(|one| one.0 == "mapping_cut").unwrap();
        assert_eq!((bytes, or.len()), (HUGE - 4096, 0), "{name}: {region:#}");
        assert!(evidence_found.contains(&format!("{evidence} {guard:#x}")), "{name}: {evidence_found}");
        assert_eq!(region["cuts"][0]["start"].as_u64(), Some(guard));
        assert_eq!((region["cut_count"].as_u64(), region["start"].as_u64()), (Some(1), Some(provoked.address)));
    }
    for (name, bytes, evidence) in [
        ("protection", HUGE, "other protection from"),
        ("flags", HUGE, "VmFlags differ at"),
        ("name", HUGE, "other name from"),
    ] {
        assert_cause(name, "mapping_cut", bytes, &[evidence]);
    }
}

#[test]
fn reports_history_as_far_as_it_is_visible() {
    let Some(_lease_guard) = for_advised() else { return };
    let region = may_be("advised_late", "touched_before_eligible", SIZE, &["free blocks of 2M or more"]);
    assert_eq!((region["slots"].as_u64(), region["bloat_bytes"].as_u64()), (Some(8), Some(0)));
    let arena = may_be("arena", "grew_in_steps", SIZE, &[]);
    assert_eq!(arena["kind"], "glibc_arena", "{arena:#}");
    assert!(arena["recognised_by"].as_str().unwrap().contains("HEAP_MAX_SIZE"));
    // The first and the last part of the moved memory are in no slot.
    assert_cause("moved", "moved_out_of_place", SIZE - HUGE, &["out of place"]);
    assert_cause("dropped", "folio_partly_mapped", SIZE - SIZE / HUGE * 4096, &["thp_split_pmd"]);
    assert_cause("refilled", "refilled_after_drop", SIZE / HUGE * 4096, &[]);
    assert_cause("fork", "split_after_fork", SIZE / 2, &["shared with another process"]);
    assert_cause("read_first", "zero_page_in_slot", SIZE / HUGE / 2 * 4096, &[]);
    let holes = assert_cause("holes", "slot_partly_present", SIZE / 2, &["max_ptes_none"]).unwrap();
    assert_eq!(
        (holes["could_be_larger_bytes"].as_u64(), holes["bloat_bytes"].as_u64()),
        (Some(SIZE / 2), Some(SIZE / 2))
    );
}

/// Checks a region whose history is not visible: the cause that is named first is a fact about its pages, and `code` is
/// among the candidates.
fn may_be(name: &str, code: &str, bytes: u64, evidence: &[&str]) -> Value {
    let region = Provoked::start(name).unwrap().region();
    let found = causes(&region);
    let is_it = |one: &&(String, u64, Vec<String>, String)| one.1 == bytes && one.2.iter().any(|other| other == code);
    let candidate = found.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {code} is no candidate in {found:?}"));
    assert!(["filled_with_base_pages", "folio_partly_mapped"].contains(&candidate.0.as_str()), "{name}: {found:?}");
    evidence.iter().for_each(|words| assert!(candidate.3.contains(words), "{name}: no {words:?} in {:?}", candidate.3));
    region
}

#[test]
fn a_split_that_dropped_nothing_is_no_drop_and_its_zeroes_were_not_read() {
    let Some(_lease_guard) = for_advised() else { return };
    let kernel_maps_zeroes = fs::read_to_string("/proc/vmstat").unwrap().contains("thp_underused_split_page");
    assert_cause("cold", "split_meanwhile", SIZE, &["are in the frames that they had as parts of large pages"]);
    if needs(&[("zero pages for pieces of a split page (Linux 6.12)", kernel_maps_zeroes)]) {
        let region = assert_cause("split_by_cold", "zero_page_in_slot", SIZE / 2, &["frames"]).unwrap();
        assert_eq!(causes(&region)[0].2[0], "zero_pieces_of_split", "{region:#}");
        may_be("zero_leaf_split", "read_first", SIZE, &["thp_split_pmd"]);
    }
}

#[test]
fn stacks_are_advised_against_whatever_guards_are_in_them() {
    let Some(_lease_guard) = for_advised() else { return };
    let provoked = Provoked::start("stacks").unwrap();
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", provoked.pid())).unwrap();
    if needs(&[("MAP_STACK that advises against large pages (Linux 6.7)", smaps.contains(" nh"))]) {
        let region = assert_cause_of("stacks", &provoked, "advised_against", SIZE / 2, &["VmFlags nh"]);
        assert_eq!(causes(&region).len(), 1, "{region:#}");
        assert_eq!(region["bloat_bytes"].as_u64(), Some(SIZE / 2), "{region:#}");
    }
}

#[test]
fn memory_that_is_held_or_given_back_or_empty_is_shown() {
    let Some(_lease_guard) = for_advised() else { return };
    let shown = |name: &str, options: &[&str], words: &str| {
        let provoked = Provoked::start(name).unwrap();
        let pid = provoked.pid();
        let inspect = |more: &[&str]| provoked.bench.pagelab(&[&["inspect", &pid], options, more].concat()).ran();
        inspect(&[]).assert_stdout(&[words]);
        inspect(&["--json"]).json()["processes"][0].take()
    };
    let pages = SIZE / HUGE;
    let kept = shown("kept", &[], "held but not mapped: 16.0M more");
    assert_eq!(kept["held_unmapped_bytes"].as_u64(), Some(SIZE - pages * 4096), "{kept:#}");
    let freed = shown("freed", &[], "freed by MADV_FREE, not reclaimed yet: 16M");
    assert_eq!(freed["lazy_free_bytes"].as_u64(), Some(SIZE), "{freed:#}");
    assert!(freed["contents"].is_null() && freed["held_unmapped_bytes"].as_u64() == Some(0), "{freed:#}");
    let empty = shown("mostly_zero", &["--contents"], "contents: 16.0M of 16M in large pages hold only zeros");
    let contents = &empty["contents"];
    assert_eq!(contents["zero_bytes"].as_u64(), Some(SIZE - pages * 4096), "{contents:#}");
    assert_eq!((contents["read_bytes"].as_u64(), contents["unread_bytes"].as_u64()), (Some(SIZE), Some(0)));
}

#[test]
fn reports_memory_that_the_kernel_may_not_touch() {
    let Some(_lease_guard) = for_advised() else { return };
    assert_cause("served", "served_by_userfaultfd", SIZE, &["VmFlags um at ADDRESS"]);
    if let Some(pinned) = Provoked::start("pinned") {
        let found = causes(&pinned.region());
        let pinned = found.iter().find(|one| one.2.contains(&"pinned".to_string()));
        assert!(pinned.is_some_and(|one| one.3.contains("VmPin: 16384 kB")), "{found:?}");
    }
}

#[test]
fn reports_merged_pages() {
    let Some(_lease_guard) = for_advised() else { return };
    const KSM: &str = "/sys/kernel/mm/ksm";
    if !needs(&[("KSM", std::path::Path::new(KSM).exists())]) {
        return;
    }
    let _pages = Set::to(&format!("{KSM}/pages_to_scan"), "10000");
    let _sleep = Set::to(&format!("{KSM}/sleep_millisecs"), "10");
    let run = Set::to(&format!("{KSM}/run"), "1");
    let Some(merged) = Provoked::start("merged") else { return };
    let merged_cause = || causes(&merged.region()).into_iter().find(|one| one.0 == "merged_by_ksm");
    assert!(within(LIMIT, || merged_cause().is_some()), "{:#}", merged.region());
    assert!(merged_cause().unwrap().3.contains("KSM:"));
    drop(merged);
    if run.before == "0" {
        // Unmerges all pages; otherwise the counts of merged pages would stay until KSM runs again.
        fs::write(format!("{KSM}/run"), "2").unwrap();
    }
}

#[test]
fn shared_memory_and_pools_have_settings_of_their_own() {
    let Some(_lease_guard) = for_advised() else { return };
    let shared = fs::read_to_string(format!("{THP}/shmem_enabled")).unwrap_or_default();
    if needs(&[("shared memory without large pages (shmem_enabled: never)", shared.contains("[never]"))]) {
        let provoked = Provoked::start("shared").unwrap();
        let region = provoked.region();
        assert_eq!(region["kind"], "shared_memory");
        let found = causes(&region);
        let disabled = found.iter().find(|one| one.0 == "shared_disabled").unwrap_or_else(|| panic!("{found:?}"));
        assert!(disabled.3.contains("shmem_enabled: never") && disabled.1 >= SIZE - HUGE, "{disabled:?}");
    }
    let pool = |file: &str| fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}"));
    let is_empty = ["nr_hugepages", "nr_overcommit_hugepages"].iter().all(|file| pool(file).is_ok_and(|n| n == "0\n"));
    if needs(&[("an empty pool of 2M", is_empty)]) {
        let region = assert_cause("pool", "pool_exhausted", SIZE, &["SIGBUS"]).unwrap();
        assert_eq!((region["kind"].as_str(), region["resident_bytes"].as_u64()), (Some("hugetlb"), Some(0)));
    }
}

#[test]
fn reports_files_by_their_pages() {
    if !needs(&[program("gcc")]) || !is_root() {
        return;
    }
    let provoked = Provoked::start("not_advised").unwrap();
    let process = provoked.inspected();
    let text = process["regions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|region| region["kind"] == "text" && region["text"].as_str().unwrap().ends_with("/provoke"));
    let text = text.unwrap_or_else(|| panic!("{process:#}"));
    assert_eq!(causes(text)[0].0, "file_pages");
    assert_eq!(text["could_be_larger_bytes"].as_u64(), Some(0), "no more than the file system makes of it");
}
