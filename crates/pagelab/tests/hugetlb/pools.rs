//! Tests of what is reported about a hugetlb pool: how many pages it has, and which processes have them.

use std::fs;

use serde_json::Value;

use crate::common::*;

pub const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Adds 2M pages to the host's pool until this is dropped. Other tests wait meanwhile.
pub struct Pages {
    _lease_guard: LeaseGuard,
}

impl Pages {
    pub fn more(pages: u64) -> Option<Pages> {
        if !needs(&[root(), ("a hugetlb pool of 2M pages", fs::exists(POOL).unwrap())]) {
            return None;
        }
        let mut lease_guard = LeaseGuard::wait();
        let target = (of_pool("nr_hugepages") + pages).to_string();
        lease_guard.lease.apply([(format!("{POOL}/nr_hugepages").as_str(), target.as_str())]).unwrap();
        let there = of_pool("free_hugepages") - of_pool("resv_hugepages") >= pages;
        needs(&[("free memory for a pool", there)]).then_some(Pages { _lease_guard: lease_guard })
    }
}

pub fn of_pool(file: &str) -> u64 {
    fs::read_to_string(format!("{POOL}/{file}")).unwrap().trim().parse().unwrap()
}

/// The pool of 2M pages in a list of pools.
pub fn pool_in(pools: &Value) -> &Value {
    pools.as_array().unwrap().iter().find(|pool| pool["size_bytes"] == 2 << 20).unwrap()
}

/// A program that maps 4 pages, touches 3 of them, and waits.
const PROGRAM: &str = "import mmap, time\n\
                       m = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\n\
                       for at in range(0, 6 << 20, 4096): m[at] = 1\n\
                       print('ready', flush=True)\n\
                       time.sleep(900)";

#[test]
fn used_reserved_and_free_pages_are_those_of_the_kernel() {
    if !needs(&[program("python3")]) {
        return;
    }
    let Some(_pages) = Pages::more(8) else { return };
    let bench = Bench::new();
    let mut python = std::process::Command::new("python3");
    let mut child = python.args(["-c", PROGRAM]).stdout(std::process::Stdio::piped()).current_dir("/").begin();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout()), &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let (all, unused, reserved) = (of_pool("nr_hugepages"), of_pool("free_hugepages"), of_pool("resv_hugepages"));
    assert_eq!(reserved, 1, "one page is not touched");
    let inspected = bench.pagelab(&["inspect", "--json", &child.id().to_string()]).ran().json();
    let doctor = bench.pagelab(&["doctor", "--json"]).ran().json();
    for pool in [pool_in(&inspected["supply"]["pools"]), pool_in(&doctor["pools"])] {
        let number = |key: &str| pool[key].as_u64().unwrap();
        assert_eq!((number("pages"), number("reserved")), (all, reserved), "{pool:#}");
        assert_eq!((number("free"), number("used")), (unused - reserved, all - unused), "{pool:#}");
        let on_nodes =
            |key: &str| pool["nodes"].as_array().unwrap().iter().map(|node| node[key].as_u64().unwrap()).sum();
        let sums: [u64; 2] = ["pages", "free"].map(on_nodes);
        assert_eq!(sums, [all, unused], "the nodes together have all pages, reserved or not: {pool:#}");
    }
    let line = format!("hugetlb pool: {all} pages of 2M: {} used, 1 reserved, {} free", all - unused, unused - 1);
    bench.pagelab(&["inspect", &child.id().to_string()]).ran().assert_stdout(&[&line]);
    let facts = doctor["facts"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["value"] == line["hugetlb pool: ".len()..]), "{facts:#?}");
    // A process without pages of a pool has no line about pools.
    let other = bench.pagelab(&["inspect", &std::process::id().to_string()]).ran();
    assert!(!other.stdout.contains("hugetlb pool"), "{other}");
    assert_eq!(inspected["refused_requests"], Value::Null, "what it asked for before is not known");
}
