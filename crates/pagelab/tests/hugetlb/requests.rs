//! Tests of a program's own requests for pages of a hugetlb pool, which the kernel refuses.

use serde_json::Value;

use super::group::Group;
use super::limits::bench;
use super::pools::pool_in;
use crate::common::*;

/// A program that requests more pages than any host has, twice by mmap and once by shmget, and a file with a page size that
/// no kernel has. Then it uses ordinary memory. It prints the errors.
const PROGRAM: &str = "\
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_long
number = ctypes.c_ulong
got = []
def call(function, *arguments):
    got.append(ctypes.get_errno() if function(*(number(a) for a in arguments)) == -1 else 0)
anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
call(libc.mmap, 0, 1 << 41, 3, anonymous | 0x40000 | 21 << 26, -1 & (1 << 64) - 1, 0)
call(libc.mmap, 0, 1 << 40, 3, anonymous | 0x40000 | 21 << 26, -1 & (1 << 64) - 1, 0)
call(libc.shmget, 0, 1 << 40, 0o4000 | 0o1600 | 21 << 26)
try: os.memfd_create('own', 4 | 24 << 26)
except OSError as error: got.append(error.errno)
m = mmap.mmap(-1, 16 << 20, anonymous)
for at in range(0, len(m), 4096): m[at] = 1
print(*got)
";

fn python() -> [&'static str; 4] {
    ["--", "python3", "-c", PROGRAM]
}

/// Checks that the program gets the same errors as without pagelab.
fn as_alone(bench: &Bench, ran: &Ran) -> String {
    let alone = std::process::Command::new("python3").args(&python()[2..]).current_dir(bench.path("")).ran();
    let first = ran.stdout.lines().next().unwrap_or_default();
    assert_eq!(format!("{first}\n"), alone.stdout, "{ran}");
    first.to_string()
}

#[test]
fn inspect_reports_what_a_command_asked_for_in_vain() {
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    let ran = bench.pagelab(&[&["inspect", "--json"][..], &python()].concat()).ran();
    let errors = as_alone(&bench, &ran);
    let document: Value = serde_json::from_str(ran.stdout.split_once('\n').unwrap().1).unwrap();
    let requests = document["refused_requests"].as_array().unwrap();
    let found: Vec<_> =
        requests.iter().map(|one| (&one["call"], &one["size_bytes"], &one["times"], &one["pages"])).collect();
    let number = |number: u64| Value::from(number);
    let (mmap, shmget, file) = ("mmap".into(), "shmget".into(), "memfd_create".into());
    let (size, odd, once, twice) = (number(2 << 20), number(16 << 20), number(1), number(2));
    let (most, half, none) = (number(1 << 20), number(1 << 19), number(0));
    let expected = [(&mmap, &size, &twice, &most), (&shmget, &size, &once, &half), (&file, &odd, &once, &none)];
    assert_eq!(found, expected, "{requests:#?}");
    let errnos: Vec<String> = requests.iter().map(|one| one["errno"].to_string()).collect();
    assert_eq!(format!("{} {}", errnos[0], errnos.join(" ")), errors, "mmap came twice");
    assert_eq!(requests[0]["pool"]["size_bytes"], size);
    assert_eq!((&requests[2]["pool"], &requests[2]["remedy"]), (&Value::Null, &Value::Null));
    let pool = pool_in(&document["supply"]["pools"]);
    assert!(pool["free"].is_u64() && requests[0]["text"].as_str().unwrap().contains("1048576 pages of 2M"), "{pool:#}");
    let text = bench.pagelab(&[&["inspect"][..], &python()].concat()).ran();
    text.assert_stdout(&[
        "requests for hugetlb pages that were refused",
        "the program itself asked for 1048576 pages of 2M from the pool (mmap(MAP_HUGETLB), 2 times, the most at once) and did",
        "seen: the pool at that time: ",
        "remedy: before the program starts, as root: raise /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "a file of 16M pages from the pool (memfd_create(MFD_HUGETLB)) and did not get them: this kernel has no pool",
    ]);
    let quiet = bench.pagelab(&["inspect", "--json", "--", "true"]).ran().json();
    assert_eq!(quiet["refused_requests"], serde_json::json!([]));
}

#[test]
fn exec_and_compare_report_requests_under_every_policy() {
    let Some(bench) = bench() else { return };
    for policy in ["thp", "default+no-huge", "hugetlb-2m"] {
        let words = [&["exec", "-p", policy, "--hugetlb-pool", "64M"][..], &python()].concat();
        let ran = bench.pagelab(&words).ran();
        let asked = format!("pagelab: {policy}: the program itself asked for 1048576 pages of 2M from the pool (mmap");
        ran.assert_exit(0, &[&asked, "asked for 524288 pages of 2M from the pool (shmget(SHM_HUGETLB))"]);
        as_alone(&bench, &ran);
    }
    let command = python()[1..].iter().map(ToString::to_string).collect::<Vec<_>>();
    let ran = bench.compare(&[&["-p", "default,thp", "--full"][..], &QUICK].concat(), &command).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["the program itself asked for 1048576 pages of 2M"]);
    let document = bench.stored(1);
    let causes = arm(&document, "thp")["verdict"]["causes"].as_array().unwrap();
    let refused: Vec<&Value> = causes.iter().filter(|cause| cause["code"] == "pool_request_refused").collect();
    assert_eq!(refused.len(), 3, "one for all trials: {causes:#?}");
    assert!(refused.iter().all(|cause| cause["bytes"].is_null()), "it explains no memory: {causes:#?}");
}

/// The pool has the pages, but the limit of reservations does not let the program have them.
#[test]
fn a_limit_that_refuses_a_request_is_named() {
    let Some(bench) = bench() else { return };
    let Some(group) = Group::new("request") else { return };
    group.limit("rsvd.max", 4 << 20);
    let ask = |mib: u64| {
        let script = format!(
            "import mmap\ntry: mmap.mmap(-1, {mib} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\n\
             except OSError as error: print(error.errno)"
        );
        let words = ["exec", "-p", "hugetlb-2m", "--hugetlb-pool", "64M", "--", "python3", "-c", &script];
        group.holding(&bench.pagelab(&words)).ran()
    };
    let refused = ask(64);
    refused
        .assert_exit(0, &["asked for 32 pages of 2M from the pool", "a control group limits them", "raise the limit"]);
    assert_eq!(refused.stdout, "12\n", "{refused}");
    let document = group.holding(&bench.pagelab(&[&["inspect", "--json"][..], &python()].concat())).ran();
    let document: Value = serde_json::from_str(document.stdout.split_once('\n').unwrap().1).unwrap();
    let file = group.file("rsvd.max").display().to_string();
    assert_eq!(document["refused_requests"][0]["limit"]["file"], file.as_str(), "{document:#}");
    let limit = &document["processes"][0]["hugetlb_limits"][0];
    assert_eq!((&limit["file"], &limit["limits"]), (&file.as_str().into(), &"reservation".into()), "{limit:#}");
    assert_eq!((&limit["limit_bytes"], &limit["size_bytes"]), (&(4 << 20).into(), &(2 << 20).into()), "{limit:#}");
}

/// A request that succeeds is not reported as refused.
#[test]
fn a_request_that_is_granted_is_not_reported() {
    let Some(bench) = bench() else { return };
    let script = "import mmap\nm = mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\nm[0] = 7\nprint(m[0])";
    let words = ["exec", "-p", "hugetlb-2m", "--hugetlb-pool", "64M", "--", "python3", "-c", script];
    let ran = bench.pagelab(&words).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "7\n"), "{ran}");
    assert!(!ran.stderr.contains("asked for"), "{ran}");
}
