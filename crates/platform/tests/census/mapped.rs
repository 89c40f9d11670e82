//! How the memory of the test process itself is mapped.

use std::path::Path;

use super::*;

#[test]
fn base_pages() {
    let map = Map::private(8 * MIB);
    map.advise(libc::MADV_NOHUGEPAGE);
    map.write(0, 5 * MIB);
    let census = agrees(&map);
    assert_eq!(census.total_bytes() as usize, 5 * MIB);
    assert_eq!(leaf_bytes(&census, Backing::Anonymous, page()), 5 * MIB);

    // More ranges of memory than one call of the kernel returns.
    let map = Map::private(32 * MIB);
    map.advise(libc::MADV_NOHUGEPAGE);
    for at in (0..32 * MIB).step_by(2 * page()) {
        map.write(at, at + page());
    }
    assert_eq!(agrees(&map).total_bytes() as usize, 16 * MIB);
}

#[test]
fn transparent_huge_pages_whole_and_in_part() {
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let bytes = 4 * pmd();
    let map = Map::private(bytes);
    map.advise(libc::MADV_HUGEPAGE);
    map.write(0, bytes);
    let census = agrees(&map);
    if leaf_bytes(&census, Backing::Anonymous, pmd()) != bytes {
        return skip("free memory in blocks of PMD size");
    }
    assert_eq!(map.verdict("thp").holding, Holding::Held);
    assert_eq!(map.verdict("base").causes[0].cause, Cause::LargerThanAsked);

    // A hole in the second, and temporarily another protection in the third.
    map.protect(2 * pmd(), 2 * pmd() + page(), libc::PROT_READ);
    map.protect(2 * pmd(), 2 * pmd() + page(), libc::PROT_READ | libc::PROT_WRITE);
    map.unmap_part(pmd(), pmd() + page());
    let first = Map { raw: map.raw, raw_bytes: 0, start: map.start, bytes: pmd() };
    let rest = Map { raw: map.raw, raw_bytes: 0, start: map.start + pmd() + page(), bytes: 3 * pmd() - page() };
    agrees(&first);
    let census = agrees(&rest);
    std::mem::forget((first, rest));
    if Observer::open().unwrap().sees_folios() {
        assert_eq!(by_folio(&census)[&(true, pmd(), false)], pmd() - page(), "{census:?}");
        assert_eq!(leaf_bytes(&census, Backing::Anonymous, pmd()), pmd());
        let causes: Vec<Cause> = map.verdict("thp").causes.into_iter().map(|share| share.cause).collect();
        assert_eq!(causes, [Cause::LeafSplit, Cause::FolioPartlyMapped]);
    }
}

/// khugepaged may collapse memory after its leaves were scanned and before its folios were read, also in a stopped process.
#[test]
fn memory_that_khugepaged_collapses_meanwhile_has_no_split_leaf() {
    const WINDOWS: usize = 64;
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let observer = Observer::open().unwrap();
    if !observer.sees_folios() {
        return skip("root, for folios");
    }
    let _eager = EagerKhugepaged::make();
    for _ in 0..4 {
        let map = Map::private(WINDOWS * pmd());
        map.advise(libc::MADV_NOHUGEPAGE);
        map.write(0, map.bytes);
        map.advise(libc::MADV_HUGEPAGE);
        let start = std::time::Instant::now();
        let mut large_bytes = 0;
        while large_bytes < map.bytes {
            let census = map.census(&observer);
            let is_strange = |mapping: &Mapping| mapping.folio != Folio::Whole(mapping.leaf);
            assert_eq!(census.bytes_where(is_strange), 0, "{census:?}");
            large_bytes = leaf_bytes(&census, Backing::Anonymous, pmd());
            assert!(start.elapsed() < TURN, "khugepaged collapsed {large_bytes} of {} bytes", map.bytes);
        }
    }
}

/// khugepaged scans all the time, and with the priority of any process: at its own, which is the lowest, it gets almost no time while
/// other tests run. It is held again when this is dropped.
struct EagerKhugepaged(Vec<(String, String)>);

impl EagerKhugepaged {
    fn make() -> EagerKhugepaged {
        let settings = [("scan_sleep_millisecs", "0"), ("pages_to_scan", "1000000"), ("max_ptes_none", "511")];
        let changed = settings.map(|(name, value)| {
            let path = format!("{THP}/khugepaged/{name}");
            let before = fs::read_to_string(&path).unwrap();
            fs::write(&path, value).unwrap();
            (path, before)
        });
        renice_khugepaged("0");
        EagerKhugepaged(changed.into())
    }
}

/// Sets the niceness of the kernel's thread.
fn renice_khugepaged(niceness: &str) {
    let is_it = |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "khugepaged\n");
    let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let thread = processes.find(|path| is_it(path)).expect("khugepaged runs while THP is enabled");
    let pid = thread.file_name().unwrap();
    let status = Command::new("renice").args(["-n", niceness, "-p"]).arg(pid).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "renice");
}

impl Drop for EagerKhugepaged {
    fn drop(&mut self) {
        renice_khugepaged("19");
        for (path, before) in &self.0 {
            fs::write(path, before).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
}

#[test]
fn folios_of_64k() {
    const SIZE: usize = 64 << 10;
    let Some(_knobs) = Knobs::thp(&[(pmd(), "never"), (SIZE, "madvise")]) else {
        return skip("root, for the setting of 64K");
    };
    let map = Map::private(8 * MIB);
    map.advise(libc::MADV_HUGEPAGE);
    map.write(0, 4 * MIB);
    let census = agrees(&map);
    if by_folio(&census).get(&(true, SIZE, true)) != Some(&(4 * MIB)) {
        return skip("free memory in blocks of 64K, and root");
    }
    assert_eq!(map.verdict("mthp-64k").holding, Holding::Held);
    map.unmap_part(MIB, MIB + page());
    let rest = Map { raw: map.raw, raw_bytes: 0, start: map.start + MIB + page(), bytes: 7 * MIB - page() };
    let census = agrees(&rest);
    std::mem::forget(rest);
    assert_eq!(by_folio(&census)[&(true, SIZE, false)], SIZE - page());
}

#[test]
fn the_systems_folio_counters_do_not_hide_folios() {
    let Some(_knobs) = Knobs::thp(&[(32 << 10, "madvise"), (128 << 10, "madvise"), (pmd(), "never")]) else {
        return skip("root, for the settings of 32K and 128K");
    };
    let map = Map::private(4 * MIB);
    map.advise(libc::MADV_HUGEPAGE);
    // Every second 128K block is written at once, the others in steps that only leave room for smaller folios.
    for at in (0..4 * MIB).step_by(256 << 10) {
        map.write(at, at + (128 << 10));
        map.advise_part(at + (160 << 10), at + (192 << 10), libc::MADV_NOHUGEPAGE);
        map.write(at + (128 << 10), at + (256 << 10));
    }
    let mut all = BTreeMap::new();
    let mut at = map.start;
    let observer = Observer::open().unwrap();
    if !observer.sees_folios() {
        return skip("root, for folios");
    }
    let pid = std::process::id();
    for area in observer.range_with_places(pid, map.start as u64, map.end() as u64).unwrap().areas {
        let (start, end) = (area.vma.start.max(map.start as u64), area.vma.end.min(map.end() as u64));
        assert_eq!(start as usize, at);
        at = end as usize;
        let census = observer.range(pid, start, end).unwrap();
        assert_eq!(by_folio(&census), pages_by_folio(start as usize, end as usize));
        by_folio(&census).into_iter().for_each(|(key, bytes)| *all.entry(key).or_insert(0) += bytes);
    }
    assert!(all.len() >= 2, "several sizes of folios: {all:?}");
}

#[test]
fn zero_pages_are_no_memory() {
    let map = Map::private(2 * pmd());
    map.advise(libc::MADV_NOHUGEPAGE);
    map.read(0, MIB);
    map.write(0, MIB / 2);
    let census = agrees(&map);
    assert_eq!(leaf_bytes(&census, Backing::Zero, page()), MIB / 2);
    assert_eq!(leaf_bytes(&census, Backing::Anonymous, page()), MIB / 2);
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let map = Map::private(2 * pmd());
    map.advise(libc::MADV_HUGEPAGE);
    map.read(0, pmd());
    let census = agrees(&map);
    assert_eq!(leaf_bytes(&census, Backing::Zero, pmd()), pmd());
    assert_eq!(census.bytes_where(|mapping| mapping.backing != Backing::Zero), 0);
}

#[test]
fn hugetlb_pages_of_a_pool() {
    let Some(size) = Host::open("/").unwrap().page_sizes().hugetlb.first().copied() else { return skip("hugetlb") };
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size.bytes() >> 10);
    let Ok(pages) = fs::read_to_string(&path).unwrap_or_default().trim().parse::<u64>() else { return skip("hugetlb") };
    let more = (pages + 3).to_string();
    let Some(_knobs) = Knobs::set(&[(path, &more)]) else { return skip("root, for a hugetlb pool") };
    let bytes = size.bytes() as usize;
    for flags in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
        let Some(map) = Map::new(2 * bytes, flags | libc::MAP_HUGETLB) else { return skip("free memory for a pool") };
        map.write(0, bytes);
        for observer in [Observer::open().unwrap(), Observer::open().unwrap().without_folios()] {
            let census = map.census(&observer);
            assert_eq!(census.total_bytes(), size.bytes(), "the second page is not touched");
            assert_eq!(leaf_bytes(&census, Backing::Hugetlb, bytes), bytes);
        }
        let sums = smaps_field(map.start, "Private_Hugetlb:") + smaps_field(map.start, "Shared_Hugetlb:");
        assert_eq!(sums, bytes);
        if Observer::open().unwrap().sees_folios() {
            let anonymous = flags == libc::MAP_PRIVATE;
            assert_eq!(pages_by_folio(map.start, map.end()), [((anonymous, bytes, true), bytes)].into());
        }
        assert_eq!(map.verdict(&format!("hugetlb-{size}").to_lowercase()).holding, Holding::Held);
    }
}

#[test]
fn shared_memory_and_files() {
    let map = Map::new(MIB, libc::MAP_SHARED).unwrap();
    map.write(0, MIB / 2);
    for observer in [Observer::open().unwrap().without_folios(), Observer::open().unwrap().with_file_folios()] {
        let census = map.census(&observer);
        assert_eq!(census.bytes_where(|mapping| mapping.backing == Backing::Shmem) as usize, MIB / 2);
        if observer.sees_folios() {
            assert_eq!(by_folio(&census), pages_by_folio(map.start, map.end()));
        }
    }
    let seen = Observer::open().unwrap().process(std::process::id()).unwrap();
    let code = seen.areas.iter().find(|area| area.vma.name.contains("census-") && !area.regions.is_empty()).unwrap();
    assert!(code.regions.iter().all(|region| region.mapping.backing == Backing::File), "{code:?}");
    assert!(seen.areas.iter().all(|area| !area.vma.name.starts_with("[v") || area.regions.is_empty()));
}
