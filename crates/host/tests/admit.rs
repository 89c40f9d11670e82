//! What hosts support, on captured hosts and on this one.

use std::path::{Path, PathBuf};

use host::Host;
use host::admit::{self, Lowering, Privilege, Suitability, Terms};
use policy::Unsupported;
use policy::size::PageSize;
use policy::{Granularity, Policy};

const FIXTURES: [&str; 5] = ["x86_64-6.18", "aarch64-64k-6.12", "x86_64-5.10", "x86_64-6.1-rt", "riscv64-6.12"];
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const HUGETLB: &str = "/sys/kernel/mm/hugepages";

fn fixture(name: &str) -> Host {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host").join(name);
    Host::open(folder).unwrap()
}

fn ask(host: &str, policy: &str, privilege: Privilege, pool_bytes: Option<u64>) -> Result<Lowering, Unsupported> {
    let host = fixture(host);
    let terms = Terms::assumed(&host, privilege).with_pool(pool_bytes);
    admit::lower(&policy.parse().unwrap(), &host, &terms)
}

fn user(host: &str, policy: &str) -> Result<Lowering, Unsupported> {
    ask(host, policy, Privilege::User, None)
}

fn root(host: &str, policy: &str) -> Result<Lowering, Unsupported> {
    ask(host, policy, Privilege::Root, None)
}

fn commands(lowering: &Lowering) -> Vec<String> {
    lowering.settings.iter().map(|setting| setting.command()).collect()
}

#[test]
fn base_and_default_need_nothing_anywhere() {
    for host in FIXTURES {
        assert_eq!(root(host, "default").unwrap().settings, [], "{host}");
        assert_eq!(root(host, "base").unwrap().settings, [], "{host}");
    }
    assert!(user("x86_64-6.1-rt", "default").is_ok(), "nothing is traced");
    let forbidden = user("x86_64-6.1-rt", "base").unwrap_err();
    assert!(forbidden.reason.contains("Yama") && forbidden.remedy.contains("sysctl"), "{forbidden}");
}

#[test]
fn thp_needs_no_root_where_it_is_the_only_size() {
    for host in ["x86_64-6.18", "aarch64-64k-6.12", "x86_64-5.10"] {
        assert_eq!(user(host, "thp").unwrap().settings, [], "{host}");
    }
    let off = user("riscv64-6.12", "thp").unwrap_err();
    let path = format!("{THP}/hugepages-2048kB/enabled");
    assert!(off.reason.contains("needs root") && off.remedy.contains(&format!("echo madvise > {path}")), "{off}");
    assert_eq!(commands(&root("riscv64-6.12", "thp").unwrap()), [format!("echo madvise > {path}")]);
    assert!(root("x86_64-6.1-rt", "thp").unwrap_err().remedy.contains("PREEMPT_RT"));
}

#[test]
fn enables_a_folio_size_after_disabling_the_others() {
    let lowering = root("x86_64-6.18", "mthp-64k").unwrap();
    let (pmd, size) = (format!("{THP}/hugepages-2048kB/enabled"), format!("{THP}/hugepages-64kB/enabled"));
    assert_eq!(commands(&lowering), [format!("echo never > {pmd}"), format!("echo madvise > {size}")]);
    let refused = user("x86_64-6.18", "mthp-64k").unwrap_err();
    assert!(refused.remedy.contains(&format!("echo never > {pmd} && echo madvise > {size}")), "{refused}");
    let lowering = root("aarch64-64k-6.12", "mthp-2m").unwrap();
    assert!(commands(&lowering)[0].contains("hugepages-524288kB") && commands(&lowering).len() == 2);
    assert_eq!(commands(&root("riscv64-6.12", "mthp-64k").unwrap()), [format!("echo madvise > {size}")]);
}

#[test]
fn an_unavailable_size_names_the_available_ones() {
    let refused = |host: &str, policy: &str| root(host, policy).unwrap_err();
    assert!(refused("x86_64-6.18", "mthp-8k").remedy.contains("16K, 32K, 64K"));
    assert!(refused("x86_64-6.18", "mthp-2m").remedy.contains("`thp`"));
    assert!(refused("x86_64-6.18", "hugetlb-64k").remedy.contains("2M, 1G"));
    let old = refused("x86_64-5.10", "mthp-64k").to_string();
    assert!(old.contains("Linux 6.8") && old.contains("this is 5.10"), "{old}");
    let old = refused("x86_64-5.10", "thp+prefault").to_string();
    assert!(old.contains("5.14") && old.contains("without +prefault"), "{old}");
    assert!(root("x86_64-6.18", "thp+prefault+no-guards").is_ok());
}

#[test]
fn an_empty_pool_is_filled_on_demand_or_beforehand() {
    let pool = |size: &str, file: &str| format!("{HUGETLB}/hugepages-{size}kB/{file}");
    let empty = user("x86_64-6.18", "hugetlb-2m").unwrap_err();
    let fill = format!("echo N > {}", pool("2048", "nr_hugepages"));
    assert!(empty.remedy.contains(&fill) && empty.remedy.contains("hugepagesz=2M hugepages=N"), "{empty}");
    let on_demand = root("x86_64-6.18", "hugetlb-2m").unwrap();
    assert_eq!(on_demand.settings[0].path, pool("2048", "nr_overcommit_hugepages"));
    let beforehand = ask("x86_64-6.18", "hugetlb-2m", Privilege::Root, Some(100 << 20)).unwrap();
    assert_eq!(commands(&beforehand), [format!("echo 50 > {}", pool("2048", "nr_hugepages"))]);
}

#[test]
fn uses_an_existing_pool_and_grows_it_only_as_needed() {
    let ready = user("x86_64-5.10", "hugetlb-2m").unwrap();
    assert!(ready.settings.is_empty() && ready.notes[0].contains("50 free"), "60 free, 10 of them reserved: {ready:?}");
    assert!(ask("x86_64-5.10", "hugetlb-2m", Privilege::User, Some(100 << 20)).is_ok(), "exactly the 50");
    let more = Some(300 << 20);
    let refused = ask("x86_64-5.10", "hugetlb-2m", Privilege::User, more).unwrap_err();
    assert!(refused.reason.contains("can give 50, 150 are needed"), "{refused}");
    assert!(refused.remedy.contains("echo 164 >") && refused.remedy.contains("hugepages=164"), "{refused}");
    let grown = ask("x86_64-5.10", "hugetlb-2m", Privilege::Root, more).unwrap();
    assert_eq!(grown.settings[0].value, "164", "the existing 64, and 100 more");
}

#[test]
fn pages_beyond_the_buddy_allocator_are_put_into_the_pool() {
    for (host, policy, file, value) in [
        ("x86_64-6.18", "hugetlb-1g", "1048576kB/nr_hugepages", None),
        ("aarch64-64k-6.12", "hugetlb-512m", "524288kB/nr_overcommit_hugepages", Some("85")),
        ("riscv64-6.12", "hugetlb-64k", "64kB/nr_overcommit_hugepages", None),
    ] {
        let lowering = root(host, policy).unwrap();
        let [setting] = &lowering.settings[..] else { panic!("{lowering:?}") };
        assert!(setting.path.ends_with(file), "{setting:?}");
        assert!(value.is_none_or(|value| setting.value == value), "{setting:?}");
    }
    let refused = root("aarch64-64k-6.12", "hugetlb-16g").unwrap_err();
    assert!(refused.reason.contains("57.2G") && refused.remedy.contains("hugepagesz=16G hugepages=1"), "{refused}");
    assert!(ask("aarch64-64k-6.12", "hugetlb-16g", Privilege::Root, Some(1)).is_ok(), "an explicit size is tried");
    let few = admit::not_granted(PageSize::G1, 4, 1).to_string();
    assert!(few.contains("1 of 4 pages of 1G") && few.contains("hugepagesz=1G hugepages=4"), "{few}");
}

#[test]
fn the_mechanism_names_every_change_and_nothing_else() {
    let mechanism = |policy: &str| root("x86_64-6.18", policy).unwrap().mechanism;
    assert_eq!(mechanism("default"), "nothing is touched");
    assert!(mechanism("default+no-guards").starts_with("guard pages"));
    assert!(mechanism("thp").contains("MADV_HUGEPAGE") && !mechanism("thp+no-huge").contains("MADV_HUGEPAGE"));
}

#[test]
fn settings_are_refused_on_a_read_only_sysfs() {
    let refused = root("x86_64-6.1-rt", "hugetlb-2m").unwrap_err();
    assert!(refused.reason.contains("read-only") && refused.remedy.contains("outside the container"), "{refused}");
}

#[test]
fn the_doctor_has_a_line_for_every_policy_and_a_remedy_for_everything_missing() {
    for name in FIXTURES {
        let host = fixture(name);
        for privilege in [Privilege::User, Privilege::Root] {
            let terms = Terms::assumed(&host, privilege);
            let lines = admit::doctor_lines(&host, &terms);
            let named: Vec<Granularity> = lines.iter().map(|line| line.policy.granularity).collect();
            let all = Policy::granularities(host.page_sizes());
            assert!(all.iter().all(|granularity| named.contains(granularity)), "{name}");
            assert!(lines.iter().all(|line| !line.how.is_empty()), "{name}: {lines:?}");
            let limits = admit::facts(&host, &terms);
            let silent = |fact: &&admit::Fact| fact.suitability == Suitability::Limited && fact.meaning.is_empty();
            assert_eq!(limits.iter().find(silent), None, "{name}");
        }
    }
}

#[test]
fn reports_the_facts_of_a_container() {
    let host = fixture("x86_64-6.1-rt");
    let facts = admit::facts(&host, &Terms::assumed(&host, Privilege::User));
    let limited: Vec<&str> =
        facts.iter().filter(|fact| fact.suitability == Suitability::Limited).map(|fact| fact.name).collect();
    for name in ["transparent huge pages", "PAGEMAP_SCAN", "folio sizes", "tracing", "seccomp filter", "/proc"] {
        assert!(limited.contains(&name), "{name}: {limited:?}");
    }
}

#[test]
fn notes_the_cost_of_debug_pagealloc() {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path().join("tree");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host/x86_64-6.18");
    assert!(std::process::Command::new("cp").arg("-r").arg(from).arg(&root).status().unwrap().success());
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).unwrap();
    let others: String =
        meminfo.lines().filter(|line| !line.starts_with("DirectMap")).map(|line| format!("{line}\n")).collect();
    std::fs::write(root.join("proc/meminfo"), format!("{others}DirectMap4k:  27262976 kB\n")).unwrap();
    let notes = |line: &str| {
        std::fs::write(root.join("proc/cmdline"), line).unwrap();
        let host = Host::open(&root).unwrap();
        let terms = Terms::assumed(&host, Privilege::User);
        admit::lower(&"direct-map-4k".parse().unwrap(), &host, &terms).unwrap().notes
    };
    let noted = notes("quiet debug_pagealloc=on");
    assert!(noted.iter().any(|note| note.starts_with("debug_pagealloc: every page has its own entry")), "{noted:?}");
    for without in ["quiet", "quiet debug_pagealloc=off"] {
        assert!(!notes(without).iter().any(|note| note.contains("debug_pagealloc")), "{without}");
    }
}
