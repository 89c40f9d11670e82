//! Tests that execute every remedy that `inspect` prints. A program provokes the cause, the test reads the remedies from the
//! document and makes exactly the changes of each, and then the same memory must be mapped by large pages.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::causes::{HUGE, SIZE, Set, THP, for_advised};
use super::provoked::{Provoked, causes, region_at};
use super::shared::Mounted;
use super::switches::Pool;
use crate::common::{Bench, LIMIT, Runs, needs, program, within};

/// Provokes a cause, follows each of its remedies, and returns their number.
fn follow(name: &str, file: Option<&Path>, code: &str) -> Option<usize> {
    let provoked = Provoked::with(name, file)?;
    let region = provoked.region();
    let all = region["causes"].as_array().unwrap();
    let candidate = |one: &Value| one["or"].as_array().unwrap().iter().find(|or| or["code"] == code).cloned();
    let cause = all.iter().find(|one| one["cause"]["code"] == code || candidate(one).is_some());
    let cause = cause.unwrap_or_else(|| panic!("{name}: no {code} in {:?}", causes(&region)));
    let remedies: Vec<Value> = cause["remedies"].as_array().unwrap().clone();
    let provoked_text = candidate(cause).map(|candidate| candidate["text"].as_str().unwrap().to_owned());
    drop(provoked);
    // A remedy with another condition is for another candidate cause, or for memory that a switch may not reach, and is
    // left out.
    let holds = |only: &Value| {
        only.as_str().is_none_or(|only| match only.split_once(' ') {
            Some(("if", text)) => text.starts_with("it is mapped in pieces") || Some(text) == provoked_text.as_deref(),
            Some(("unless", texts)) => provoked_text.as_ref().is_none_or(|text| !texts.contains(text)),
            _ => false,
        })
    };
    let certain: Vec<&Value> = remedies.iter().filter(|remedy| holds(&remedy["only"])).collect();
    for remedy in &certain {
        let before = fallbacks();
        let region = after(name, file, remedy);
        // If a fault found no free block, the remedy is not to blame.
        let (large, fell_back) = (large_bytes(&region), HUGE * (fallbacks() - before));
        let resident = region["resident_bytes"].as_u64().unwrap();
        assert!(
            (large + fell_back) * 10 >= resident * 9,
            "{name}: {large} bytes are large, {fell_back} fell back, after {remedy:#}: {region:#}"
        );
    }
    Some(certain.len())
}

/// The changes that a remedy demands. Settings are changed until this is dropped; the other changes are for the next
/// start of the program.
#[derive(Default)]
pub struct Followed {
    settings: Vec<Set>,
    pub environment: Vec<(String, String)>,
    pub arguments: Vec<String>,
    mends: Vec<String>,
    collapses: bool,
}

impl Followed {
    /// Makes the changes; `None` if this machine cannot make one of them.
    pub fn remedy(remedy: &Value) -> Option<Followed> {
        let mut followed = Followed::default();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        for change in remedy["changes"].as_array().unwrap() {
            match change["kind"].as_str().unwrap() {
                "setting" => followed.settings.push(Set::to(&word(&change["path"]), &word(&change["value"]))),
                "pool" => followed.settings.push(Pool::with(change["pages"].as_u64().unwrap())?),
                "mount" => remount(&word(&change["file"]), &word(&change["huge"])),
                "environment" => followed.environment.push((word(&change["variable"]), word(&change["value"]))),
                "arguments" => followed.arguments.extend(change["arguments"].as_array().unwrap().iter().map(word)),
                "source" => followed.mends.push(word(&change["change"]["code"])),
                "collapse" => followed.collapses = true,
                "trigger" => fs::write(word(&change["path"]), "1").unwrap(),
                "restart" => {}
                kind => panic!("nothing here makes a change of kind {kind}: {remedy:#}"),
            }
        }
        Some(followed)
    }
}

/// The region of the program when it runs again with the changes of a remedy.
fn after(name: &str, file: Option<&Path>, remedy: &Value) -> Value {
    // A file keeps the pages that it has, so it must be emptied.
    if let Some(file) = file.filter(|_| name.starts_with("tmpfs")) {
        let bytes = fs::metadata(file).unwrap().len();
        fs::File::create(file).unwrap().set_len(bytes).unwrap();
    }
    let mut followed = Followed::remedy(remedy).expect("no cause of these tests needs a pool");
    followed.environment.push(("MEND".into(), followed.mends.join(" ")));
    let provoked = Provoked::mended(name, file, &followed.environment).expect("it ran before");
    if followed.collapses {
        provoked.bench.pagelab(&["inspect", &provoked.pid(), "--collapse"]).ran();
    }
    region_at(&provoked.inspected(), provoked.address)
}

fn remount(file: &str, huge: &str) {
    let script = "mount -o remount,huge=\"$2\" \"$(findmnt -no TARGET -T \"$1\")\"";
    let status = Command::new("sh").args(["-c", script, "sh", file, huge]).status().unwrap();
    assert!(status.success());
}

/// How often the kernel found no free block of PMD size, for anonymous memory and for file memory.
pub fn fallbacks() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap();
    let is_counted = |line: &&str| line.starts_with("thp_fault_fallback ") || line.starts_with("thp_file_fallback ");
    counters.lines().filter(is_counted).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Bytes that leaves of PMD size map.
pub fn large_bytes(region: &Value) -> u64 {
    let rows = region["census"].as_array().unwrap().iter();
    rows.filter(|row| row["leaf_bytes"].as_u64() == Some(HUGE)).map(|row| row["bytes"].as_u64().unwrap()).sum()
}

/// Follows the remedies of each cause, and checks their number, so that no remedy is lost unnoticed.
fn follow_all(provocations: &[(&str, &str, usize)]) {
    for (name, code, remedies) in provocations {
        if let Some(followed) = follow(name, None, code) {
            assert_eq!(followed, *remedies, "{name}");
        }
    }
}

#[test]
fn remedies_of_advice_and_settings_work() {
    let Some(_lease_guard) = for_advised() else { return };
    follow_all(&[
        ("not_advised", "not_advised", 3),
        ("advised_against", "advised_against", 1),
        ("disabled", "disabled_for_process", 1),
        ("advised_late", "touched_before_eligible", 2),
    ]);
    let _never = Set::to(&format!("{THP}/enabled"), "never");
    follow_all(&[("not_advised", "size_disabled", 3), ("advised_against", "advised_against", 1)]);
}

#[test]
fn remedies_of_a_process_that_excepts_advised_memory_work() {
    let Some(_lease_guard) = for_advised() else { return };
    let _always = Set::to(&format!("{THP}/enabled"), "always");
    follow_all(&[("excepted", "disabled_except_advised", 1)]);
}

#[test]
fn remedies_of_cuts_work() {
    let Some(_lease_guard) = for_advised() else { return };
    follow_all(&["guard", "light_guard", "protection", "flags", "name"].map(|name| (name, "mapping_cut", 1)));
}

#[test]
fn remedies_of_histories_work() {
    let Some(_lease_guard) = for_advised() else { return };
    follow_all(&[
        ("moved", "moved_out_of_place", 1),
        ("fork", "split_after_fork", 2),
        ("dropped", "folio_partly_mapped", 2),
        ("refilled", "refilled_after_drop", 2),
        ("read_first", "zero_page_in_slot", 2),
        ("holes", "slot_partly_present", 2),
        ("served", "served_by_userfaultfd", 1),
        ("pinned", "pinned", 1),
        ("cold", "split_meanwhile", 2),
        ("split_code", "leaf_split", 2),
    ]);
    if needs(&[("zero pages for pieces of a split page (Linux 6.12)", maps_zeroes())]) {
        follow_all(&[("split_by_cold", "zero_pieces_of_split", 2), ("zero_leaf_split", "read_first", 2)]);
    }
}

/// Whether this kernel maps the zero page in place of the pages of a split folio that hold only zeros.
fn maps_zeroes() -> bool {
    fs::read_to_string("/proc/vmstat").unwrap().contains("thp_underused_split_page")
}

#[test]
fn remedies_of_places_work() {
    let Some(_lease_guard) = for_advised() else { return };
    follow_all(&[("unaligned", "no_aligned_slot", 1)]);
}

#[test]
fn a_pool_that_has_pages_serves_what_an_empty_one_did_not() {
    let Some(_lease_guard) = for_advised() else { return };
    if !needs(&[("an empty pool of 2M", Pool::empty().is_some())]) {
        return;
    }
    let region = Provoked::start("pool").unwrap().region();
    let remedy = &region["causes"][0]["remedies"][0]["changes"][0];
    assert!(remedy["text"].as_str().unwrap().starts_with("as root: add pages of 2M to "), "{region:#}");
    let Some(_pages) = Pool::with(SIZE / HUGE) else { return };
    let region = Provoked::start("pool_touched").unwrap().region();
    assert_eq!(large_bytes(&region), SIZE, "{region:#}");
}

#[test]
fn switches_of_malloc_work() {
    let Some(_lease_guard) = for_advised() else { return };
    follow_all(&[("malloc", "not_advised", 5), ("malloc_in_a_thread", "not_advised", 5)]);
    let _never = Set::to(&format!("{THP}/enabled"), "never");
    follow_all(&[("malloc", "size_disabled", 5), ("malloc_in_a_thread", "size_disabled", 5)]);
}

#[test]
fn remedies_of_shared_memory_work() {
    let Some(_lease_guard) = for_advised() else { return };
    let common = fs::read_to_string(format!("{THP}/shmem_enabled")).unwrap_or_default();
    if !needs(&[("shared memory without large pages (shmem_enabled: never)", common.contains("[never]"))]) {
        return;
    }
    follow_all(&[("shared", "shared_disabled", 2)]);
    let _advise = Set::to(&format!("{THP}/shmem_enabled"), "advise");
    follow_all(&[("shared", "shared_not_advised", 2)]);
}

#[test]
fn remedies_of_mounts_work() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    for (options, name, code, remedies) in [
        ("huge=never", "tmpfs", "mount_refuses", 2),
        ("huge=advise", "tmpfs_to_its_end", "shared_not_advised", 2),
        ("huge=always", "tmpfs_out_of_place", "shared_misaligned", 1),
        ("huge=within_size", "tmpfs_to_its_end", "file_ends_in_slot", 2),
    ] {
        let mounted = Mounted::with(&bench, options);
        if options == "huge=within_size" {
            fs::File::create(mounted.file()).unwrap().set_len(2 * HUGE + HUGE / 2).unwrap();
        }
        assert_eq!(follow(name, Some(&mounted.file()), code), Some(remedies), "{name}");
    }
}

#[test]
fn a_page_that_ksm_merged_is_large_where_ksm_does_not_run() {
    let Some(_lease_guard) = for_advised() else { return };
    const KSM: &str = "/sys/kernel/mm/ksm";
    if !needs(&[("KSM", Path::new(KSM).exists())]) {
        return;
    }
    let _pages = Set::to(&format!("{KSM}/pages_to_scan"), "10000");
    let _sleep = Set::to(&format!("{KSM}/sleep_millisecs"), "10");
    let _run = Set::to(&format!("{KSM}/run"), "1");
    let merged = Provoked::start("merged").unwrap();
    let remedies = || {
        let region = merged.region();
        let causes = region["causes"].as_array().unwrap().clone();
        let cause = causes.into_iter().find(|one| one["cause"]["code"] == "merged_by_ksm" && one["bytes"] == SIZE);
        cause.map(|cause| cause["remedies"].as_array().unwrap().clone())
    };
    assert!(within(LIMIT, || remedies().is_some()), "{:#}", merged.region());
    // The program's memory does not come from malloc, so remedies with a condition are left out.
    let remedies = remedies().unwrap().into_iter().filter(|remedy| remedy["only"].is_null()).collect::<Vec<_>>();
    drop(merged);
    for remedy in &remedies {
        let region = after("merged", None, remedy);
        assert_eq!(large_bytes(&region), SIZE, "{remedy:#}: {region:#}");
    }
    assert_eq!(remedies.len(), 2);
}

#[test]
fn remedies_of_files_work_on_this_file_system() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, vec![7u8; SIZE as usize]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let takes_large_folios = Provoked::mended("file", Some(&file), &[("MEND".into(), "advise_uncached".into())])
        .is_some_and(|provoked| large_bytes(&provoked.region()) > 0);
    if needs(&[("a file system with large folios", takes_large_folios), program("gcc")]) {
        for (name, code) in
            [("file", "code_pages"), ("file_data", "file_pages"), ("file_out_of_place", "file_misaligned")]
        {
            assert_eq!(follow(name, Some(&file), code), Some(1), "{name}");
        }
    }
}
