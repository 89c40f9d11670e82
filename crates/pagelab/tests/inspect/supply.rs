//! Tests of causes that depend on the kernel's supply of large pages: the limit of a control group, and fragmented
//! memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::causes::{HUGE, SIZE, Set, THP, assert_cause_of, for_advised};
use super::provoked::{Provoked, causes, compiled};
use super::remedies::{Followed, large_bytes};
use crate::common::{Bench, Runs, needs, within};

/// A memory control group, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    /// For version 1 and version 2: the directory of memory control groups, the limit file, the file that triggers reclaim, and
    /// the value to write to it.
    const PLACES: [[&str; 4]; 2] = [
        ["/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.force_empty", "0"],
        ["/sys/fs/cgroup", "memory.max", "memory.reclaim", "64M"],
    ];

    fn new(name: &str) -> Option<Group> {
        let name = format!("pagelab-test-{name}-{}", std::process::id());
        let made = Group::PLACES.iter().find_map(|[place, limit, ..]| {
            let group = Group(Path::new(place).join(&name));
            fs::create_dir(&group.0).ok()?;
            group.0.join(limit).is_file().then_some(group)
        });
        needs(&[("memory control groups", made.is_some())]).then_some(made).flatten()
    }

    fn limit(&self, bytes: u64) {
        let file = Group::PLACES.iter().map(|[_, limit, ..]| self.0.join(limit)).find(|file| file.is_file()).unwrap();
        fs::write(file, bytes.to_string()).unwrap();
    }

    /// Triggers reclaim of the group's memory, as under memory pressure. The kernel then splits pages that are mostly zero.
    fn reclaim(&self) {
        let files = Group::PLACES.iter().map(|[_, _, reclaim, bytes]| (self.0.join(reclaim), bytes));
        for (file, bytes) in files.filter(|(file, _)| file.is_file()) {
            // An error means that less could be reclaimed than requested.
            let _ = fs::write(file, bytes);
        }
    }

    fn tasks(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        within(Duration::from_secs(20), || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_limit_that_admits_no_large_page() {
    let Some(_alone) = for_advised() else { return };
    // The limit is the size of the program's memory, plus less than a large page.
    let Some(group) = Group::new("limit") else { return };
    group.limit(SIZE + HUGE);
    let Some(provoked) = Provoked::with("charged", Some(&group.tasks())) else { return };
    let evidence = ["limit 18M", "limit met", "anon_fault_fallback_charge"];
    let region = assert_cause_of("charged", &provoked, "charge_fell_back", SIZE, &evidence);
    let (_, _, or, _) = &causes(&region)[0];
    assert!(or.contains(&"touched_before_eligible".to_string()), "what cannot be told apart: {region:#}");
    let process = provoked.inspected();
    assert_eq!(process["memory_limit"]["limit_bytes"].as_u64(), Some(SIZE + HUGE), "{process:#}");
    drop(provoked);
    assert!(region.to_string().contains("raise memory.max of the control group"), "{region:#}");
    group.limit(4 * SIZE);
    let raised = Provoked::with("charged", Some(&group.tasks())).unwrap().region();
    assert_eq!(large_bytes(&raised), SIZE, "{raised:#}");
}

#[test]
fn a_page_that_is_mostly_zero_is_split() {
    let Some(_alone) = for_advised() else { return };
    let word = fs::read_to_string(format!("{THP}/shrink_underused")).unwrap_or_default();
    if !needs(&[("pages that are mostly zero are split (shrink_underused: 1, Linux 6.12)", word.trim() == "1")]) {
        return;
    }
    // A large page counts as underused if more than that number of its base pages are zero (`thp_underused`,
    // mm/huge_memory.c).
    let _few = Set::to(&format!("{THP}/khugepaged/max_ptes_none"), "64");
    let Some(group) = Group::new("underused") else { return };
    let before = fallbacks();
    let Some(provoked) = Provoked::with("underused", Some(&group.tasks())) else { return };
    let found = causes(&provoked.region());
    if !needs(&[("free memory for large pages", found.is_empty() || fallbacks() == before)]) {
        return;
    }
    assert!(found.is_empty(), "large pages, before memory is scarce: {found:?}");
    group.reclaim();
    let region = provoked.region();
    let (cause, bytes, or, evidence) = causes(&region).remove(0);
    assert_eq!((cause.as_str(), bytes), ("zero_page_in_slot", 8 * 4096), "{region:#}");
    assert!(or.contains(&"split_underused".to_string()), "{region:#}");
    assert!(evidence.contains("thp_underused_split_page: "), "{evidence}");
    drop(provoked);
    let remedies = region["causes"][0]["remedies"].as_array().unwrap();
    let is_setting = |change: &Value| change["path"].as_str().is_some_and(|path| path.ends_with("shrink_underused"));
    let remedy = remedies.iter().find(|remedy| remedy["changes"].as_array().unwrap().iter().any(is_setting));
    let _never = Followed::remedy(remedy.unwrap_or_else(|| panic!("{region:#}"))).unwrap();
    let provoked = Provoked::with("underused", Some(&group.tasks())).unwrap();
    group.reclaim();
    let region = provoked.region();
    assert_eq!(large_bytes(&region), SIZE, "{region:#}");
}

/// The counters of faults that fell back from large pages, since boot.
fn fallbacks() -> Vec<String> {
    let counters = ["anon_fault_fallback", "anon_fault_fallback_charge"];
    counters.map(|name| fs::read_to_string(format!("{THP}/hugepages-2048kB/stats/{name}")).unwrap_or_default()).into()
}

#[test]
fn a_command_whose_counters_rule_out_what_did_not_happen() {
    let Some(_alone) = for_advised() else { return };
    let bench = Bench::new();
    // While the command ran, no fault fell back, although some may have since boot.
    let before = fallbacks();
    let ran = bench.pagelab(&["inspect", "--json", "--", compiled().to_str().unwrap(), "advised_late"]).ran();
    // The output of the command comes first.
    let document = &ran.stdout[ran.stdout.find("{\n").unwrap()..];
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["supply"]["counted_since"], "command", "{ran}");
    let regions = document["processes"][0]["regions"].as_array().unwrap();
    let code = "touched_before_eligible".to_string();
    let found = regions.iter().flat_map(causes).find(|one| one.0 == code || one.2.contains(&code)).unwrap();
    assert_eq!(found.1, SIZE, "{found:?}");
    // This is the only cause if no leaf was split meanwhile. The counter also counts splits in other programs.
    assert_eq!(found.0 == code, found.3.contains("thp_split_pmd: 0 since"), "{found:?}");
    // The counters are for the whole host, so a large page of another program may have fallen back meanwhile.
    if fallbacks() == before {
        assert!(!found.2.iter().any(|code| code.ends_with("fell_back")), "{found:?}");
    }
    assert!(found.3.contains("since the command's start"), "{found:?}");
}

#[test]
fn memory_in_small_pieces_is_moved_together() {
    let Some(_alone) = for_advised() else { return };
    // With this setting a fault does not compact memory.
    let _defrag = Set::to(&format!("{THP}/defrag"), "never");
    let scattered = Provoked::start("scattered").unwrap();
    let bench = Bench::new();
    let mut pieces = bench.pagelab(&["workload", "fragments", "--percent", "100"]);
    let mut pieces = pieces.stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    let mut line = String::new();
    BufReader::new(pieces.stdout()).read_line(&mut line).unwrap();
    // The program first takes the free blocks until a fault finds none, and then touches the memory to be tested.
    let provoked = Provoked::start("in_pieces").unwrap();
    let region = provoked.region();
    let fell_back = "allocation_fell_back".to_string();
    let cause = causes(&region).into_iter().find(|one| one.0 == fell_back || one.2.contains(&fell_back));
    let Some((_, bytes, _, evidence)) = cause else { panic!("{line}{region:#}") };
    assert!(bytes >= HUGE, "{region:#}");
    assert!(
        evidence.contains("free blocks of 2M or more: ") && evidence.contains("anon_fault_fallback: "),
        "{evidence}"
    );
    // Both programs still hold their memory, but the pages of `scattered` between the free ones can be moved.
    let freeing = remedies_that_free_blocks(&region);
    assert_eq!(freeing.len(), 1, "{region:#}");
    Followed::remedy(&freeing[0]).unwrap();
    let region = Provoked::start("huge").unwrap().region();
    // Another program may take one of the freed blocks.
    assert!(large_bytes(&region) >= SIZE - 2 * HUGE, "after {:#}: {region:#}", freeing[0]);
    drop(scattered);
}

/// The remedies of a region's causes that free blocks, which act once on the whole system.
fn remedies_that_free_blocks(region: &Value) -> Vec<Value> {
    let causes = region["causes"].as_array().unwrap().iter();
    let mut remedies: Vec<Value> = causes.flat_map(|one| one["remedies"].as_array().unwrap().clone()).collect();
    let is_trigger = |change: &Value| change["kind"] == "trigger";
    remedies.retain(|remedy| remedy["changes"].as_array().unwrap().iter().all(is_trigger));
    remedies.dedup_by_key(|remedy| remedy["changes"].clone());
    remedies
}
