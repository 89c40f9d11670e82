//! Tests that a program that runs without a policy also runs under a hugetlb policy, whatever the limits of its control
//! group.

use super::group::Group;
use crate::common::*;

/// A program that touches 40 MiB, shares them with a process that it forks, and drops and maps memory again. Both processes write
/// everywhere. It prints a sum that depends on every byte.
const PROGRAM: &str = "\
import mmap, os, sys
def make(mib):
    m = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(m), 4096): m[at] = at >> 12 & 255
    return m
m = make(int(sys.argv[1]))
m.madvise(mmap.MADV_DONTNEED, 4 << 20, 8 << 20)
child = os.fork()
for at in range(0, len(m), 4096): m[at] = (m[at] + (3 if child else 5)) & 255
seen = sum(m[at] for at in range(0, len(m), 4096))
if not child: os._exit(seen % 251)
print(seen, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

/// A bench if hugetlb limits can be tested here, with the lock that this needs.
pub fn bench() -> Option<Bench> {
    let mut needed = own_lease().to_vec();
    needed.push(program("python3"));
    needs(&needed).then(Bench::with_own_lease)
}

fn run(group: Option<&Group>, bench: &Bench, words: &[&str]) -> Ran {
    let words = [words, &["--", "python3", "-c", PROGRAM, "40"]].concat();
    let command = bench.pagelab(&words);
    group.map_or_else(|| bench.pagelab(&words), |group| group.holding(&command)).ran()
}

#[test]
fn a_group_without_room_for_a_page_does_not_have_the_policy() {
    let Some(bench) = bench() else { return };
    let Some(group) = Group::new("none") else { return };
    let before = settings();
    for (file, bytes) in [("max", 0), ("max", 1 << 20), ("rsvd.max", 0)] {
        group.limit("max", "max");
        group.limit(file, bytes);
        let path = group.file(file).display().to_string();
        let remedy = format!("echo max > {path}");
        let why = format!("{path} is 0, 0 of it used");
        run(Some(&group), &bench, &["exec", "-p", "hugetlb-2m"])
            .assert_exit(3, &["no room for a page of 2M", &why, &remedy]);
        group.limit(file, "max");
    }
    group.limit("max", 0);
    let options = [&["-p", "default,base,hugetlb-2m,hugetlb-2m+prefault", "--full"][..], &QUICK].concat();
    let compare = bench.compare(&options, &bench.touch());
    group.holding(&compare).ran().assert_exit(0, &[]).assert_stdout(&["hugetlb-2m is unsupported: the control group"]);
    let document = bench.stored(1);
    assert!(
        document["trials"].as_array().unwrap().iter().all(|trial| trial["answer"]["exit_code"] == 0),
        "{document:#}"
    );
    let doctor = group.holding(&bench.pagelab(&["doctor", "--json"])).ran().json();
    let policies = doctor["policies"].as_array().unwrap();
    let hugetlb = policies.iter().find(|line| line["policy"] == "hugetlb-2m").unwrap();
    assert!(hugetlb["needs"].as_str().unwrap().contains("hugetlb.2MB.max is 0"), "{hugetlb:#}");
    let fact = doctor["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "hugetlb limit").unwrap();
    assert_eq!((&fact["value"], &fact["state"]), (&"2M: 0 of 0 left".into(), &"limited".into()));
    assert!(fact["meaning"].as_str().unwrap().contains("SIGBUS"), "{fact:#}");
    drop(group);
    assert_eq!(settings(), before);
}

/// Under the limit, part of the program's memory gets hugetlb pages, and the rest is ordinary memory. Without the limit, all
/// would get hugetlb pages.
#[test]
fn a_limit_within_the_programs_need_is_a_cause_and_kills_nothing() {
    let Some(bench) = bench() else { return };
    let Some(group) = Group::new("some") else { return };
    let alone = run(None, &bench, &["exec", "-p", "default"]);
    alone.assert_exit(0, &[]);
    for (file, mib) in [("max", 8), ("max", 44), ("max", 70), ("rsvd.max", 44)] {
        group.limit("max", "max");
        group.limit("rsvd.max", "max");
        group.limit(file, mib << 20);
        let ran = run(Some(&group), &bench, &["exec", "-p", "hugetlb-2m", "--hugetlb-pool", "160M"]);
        ran.assert_exit(0, &["limits of control groups left no room", "pagelab doctor names its file"]);
        assert_eq!(ran.stdout, alone.stdout, "{file} {mib}M: {ran}");
    }
}

/// Memory that gets no hugetlb page because of the limit has the cause `pool_limited`, however many pages the pool has.
#[test]
fn a_comparison_under_a_limit_says_what_was_left_out() {
    let Some(bench) = bench() else { return };
    let Some(group) = Group::new("part") else { return };
    group.limit("max", 12 << 20);
    let options = [&["-p", "default,hugetlb-2m", "--hugetlb-pool", "160M"][..], &QUICK].concat();
    let touch = bench.touch();
    group.holding(&bench.compare(&options, &touch)).ran().assert_exit(0, &[]);
    let document = bench.stored(1);
    let arm = arm(&document, "hugetlb-2m");
    assert_eq!(arm["admission"]["supported"], true, "{arm:#}");
    assert_ne!(arm["verdict"]["holding"], "held", "{arm:#}");
    let causes = arm["verdict"]["causes"].as_array().unwrap();
    let limited = causes.iter().find(|cause| cause["code"] == "pool_limited").unwrap_or_else(|| panic!("{arm:#}"));
    assert!(limited["bytes"].as_u64() >= Some(12 << 20), "{arm:#}");
    assert!(!causes.iter().any(|cause| cause["code"] == "pool_exhausted"), "the pool had pages: {arm:#}");
}

/// Between two calls of the program, another process of the group uses up the limit. Only pages that are already
/// present are safe then.
#[test]
fn a_program_whose_room_is_taken_by_another_lives() {
    let Some(bench) = bench() else { return };
    let Some(group) = Group::new("taken") else { return };
    group.limit("max", 44 << 20);
    // The other process maps memory from the pool that pagelab makes, and touches it once the first process has mapped its own
    // memory.
    let script = "import mmap, os\n\
                  m = mmap.mmap(-1, 24 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  other = os.fork()\n\
                  if not other:\n\
                  \x20   try: t = mmap.mmap(-1, 24 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\n\
                  \x20   except OSError: os._exit(7)\n\
                  \x20   for at in range(0, len(t), 4096): t[at] = 1\n\
                  \x20   os._exit(0)\n\
                  code = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])\n\
                  for at in range(0, len(m), 4096): m[at] = 1\n\
                  print('lives', code)";
    let words = ["exec", "-p", "hugetlb-2m", "--hugetlb-pool", "160M", "--", "python3", "-c", script];
    let ran = group.holding(&bench.pagelab(&words)).ran();
    ran.assert_exit(0, &[]);
    assert_eq!(ran.stdout, "lives 7\n", "its own request fails as with an empty pool: {ran}");
}
