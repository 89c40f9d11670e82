use super::*;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn memory<'a>(kind: &'a Kind, runtimes: &'a [Runtime]) -> Memory<'a> {
    Memory {
        kind,
        size: PageSize::M2,
        is_pmd: true,
        length_bytes: 64 << 20,
        runtimes,
        deciding: DecidingFiles::default(),
        free_pool_pages: 0,
    }
}

/// The remedies in words.
fn words(kind: &Kind, runtimes: &[Runtime], causes: &[&Cause]) -> Vec<String> {
    remedies(&memory(kind, runtimes), causes).iter().map(Remedy::describe).collect()
}

fn disabled() -> Cause {
    Cause::SizeDisabled { path: ENABLED.into() }
}

#[test]
fn a_remedy_removes_every_cause() {
    let found = words(&Kind::Heap, &[Runtime::Glibc], &[&disabled(), &Cause::NotAdvised]);
    let tunable = "start it with GLIBC_TUNABLES=glibc.malloc";
    assert_eq!(found[0], format!("as root: echo madvise > {ENABLED}; then {tunable}.hugetlb=1"));
    assert_eq!(found[1], format!("as root: echo always > {ENABLED}; then {tunable}.top_pad=67108864"));
    assert!(
        found[2].contains("hugepages-2048kB/nr_hugepages; then start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=2")
    );
    assert_eq!(
        found[3],
        format!(
            "as root: echo madvise > {ENABLED}; then in the source: advise the memory (MADV_HUGEPAGE) before the first touch"
        )
    );
    assert!(!found.contains(&format!("as root: echo always > {ENABLED}")), "a heap that grows in steps: {found:?}");
}

#[test]
fn an_approach_promises_no_cause_that_it_cannot_remove() {
    let guard = Cause::MappingCut { by: crate::cut::CutBy::Guard };
    assert_eq!(words(&Kind::ThreadStack, &[Runtime::Glibc], &[&Cause::AdvisedAgainst, &guard]), [""; 0]);
    let found = words(&Kind::Anonymous, &[Runtime::Go], &[&Cause::AdvisedAgainst, &Cause::NotAdvised]);
    assert_eq!(
        found,
        [
            "in the source: remove the program's MADV_NOHUGEPAGE, and advise the memory (MADV_HUGEPAGE) before the first touch"
        ]
    );
}

#[test]
fn a_switch_reaches_the_memory_of_its_own_runtime_only() {
    let shared = Kind::SharedMemory { name: "/dev/zero (deleted)".into() };
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled".to_owned();
    let causes = [&Cause::SharedDisabled { path: path.clone() }, &Cause::SharedNotAdvised { path: path.clone() }];
    let found = words(&shared, &[Runtime::Glibc], &causes);
    assert_eq!(
        found,
        [
            format!("as root: echo always > {path}"),
            format!(
                "as root: echo advise > {path}; then in the source: advise the memory (MADV_HUGEPAGE) before the first touch"
            )
        ]
    );
    let pool = &words(&shared, &[Runtime::Glibc, Runtime::PostgreSql], &causes)[1];
    assert!(pool.contains("+ 32)) > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "{pool}");
    assert_eq!(
        words(&Kind::JvmHeap, &[Runtime::Glibc, Runtime::Jvm], &[&Cause::NotAdvised])[0].split('=').next(),
        Some("start it with JAVA_TOOL_OPTIONS")
    );
    let unnamed = words(&Kind::Anonymous, &[Runtime::Glibc], &[&Cause::NotAdvised]);
    assert_eq!(unnamed[0], format!("as root: echo always > {ENABLED} (if it is mapped in pieces of 2M or more)"));
    assert!(unnamed.iter().any(|one| one.ends_with("hugetlb=1 (if malloc made it)")), "{unnamed:?}");
}

#[test]
fn redis_ends_its_own_prctl_by_its_own_switch() {
    let arena = Kind::Arena(Allocator::Jemalloc);
    let found = words(&arena, &[Runtime::Jemalloc, Runtime::Redis], &[&Cause::DisabledForProcess]);
    assert_eq!(found[0], "start redis-server with --disable-thp no");
    // Redis does not call prctl under `madvise`, but would under `always`.
    let not_advised = words(&arena, &[Runtime::Jemalloc, Runtime::Redis], &[&Cause::NotAdvised]);
    assert_eq!(not_advised[0], "start it with MALLOC_CONF=thp:always");
    assert_eq!(
        not_advised[1],
        format!("as root: echo always > {ENABLED}; then start redis-server with --disable-thp no")
    );
    assert!(!not_advised.contains(&format!("as root: echo always > {ENABLED}")), "{not_advised:?}");
    let other = words(&arena, &[Runtime::Jemalloc], &[&Cause::DisabledForProcess]);
    assert!(other.iter().all(|one| !one.contains("disable-thp")), "{other:?}");
}

#[test]
fn objects_of_python_are_reached_by_its_own_switch_only() {
    let found = words(&Kind::Anonymous, &[Runtime::Glibc, Runtime::CPython], &[&Cause::NotAdvised]);
    let switches: Vec<&String> = found.iter().filter(|one| one.contains("start it with")).collect();
    assert_eq!(
        switches,
        ["start it with PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (if malloc made it)"]
    );
    assert!(found.iter().all(|one| !one.contains("always")), "{found:?}");
}
