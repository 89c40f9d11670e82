//! The independent reading, and what it is compared with.

use super::*;
use census::Area;

/// Bytes of a range from pagemap and kpageflags, page by page: (anonymous, folio bytes, complete).
pub(super) fn pages_by_folio(start: usize, end: usize) -> BTreeMap<(bool, usize, bool), usize> {
    let page = page();
    let entry = |file: &File, index: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, index * 8).map(|()| u64::from_le_bytes(bytes)).unwrap_or(0)
    };
    let (pagemap, flags) = (File::open("/proc/self/pagemap").unwrap(), File::open("/proc/kpageflags").unwrap());
    let entries: Vec<u64> = (start..end).step_by(page).map(|at| entry(&pagemap, (at / page) as u64)).collect();
    let frame_at = |address: usize| {
        let entry = entries[(address - start) / page];
        (entry >> 63 == 1).then_some(entry & ((1 << 55) - 1))
    };
    let seen = std::cell::RefCell::new(BTreeMap::new());
    let flag =
        |frame: u64, bit: u32| *seen.borrow_mut().entry(frame).or_insert_with(|| entry(&flags, frame)) >> bit & 1 == 1;
    let mut found = BTreeMap::new();
    for address in (start..end).step_by(page) {
        let Some(frame) = frame_at(address).filter(|frame| !flag(*frame, 24)) else { continue };
        let (mut head, mut next) = (frame, frame + 1);
        while flag(head, 16) {
            head -= 1;
        }
        while flag(next, 16) {
            next += 1;
        }
        let bytes = (next - head) as usize * page;
        let first = address - (frame - head) as usize * page;
        let mapped =
            |at: usize| first >= start && first + at < end && frame_at(first + at) == Some(head + (at / page) as u64);
        let whole = first.is_multiple_of(bytes) && (0..bytes).step_by(page).all(mapped);
        *found.entry((flag(frame, 12), bytes, whole)).or_insert(0) += page;
    }
    found
}

/// A field of the mapping that begins at `start`, in bytes.
pub(super) fn smaps_field(start: usize, name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mapping = text.split_once(&format!("\n{start:x}-")).expect("the mapping").1;
    let line = mapping.lines().find(|line| line.starts_with(name)).expect("the field");
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

pub(super) fn by_folio(census: &Census) -> BTreeMap<(bool, usize, bool), usize> {
    let mut found = BTreeMap::new();
    for (mapping, bytes) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
        let (size, whole) = match mapping.folio {
            Folio::Whole(size) => (size, true),
            Folio::Part(size) => (size, false),
            Folio::Unknown => continue,
        };
        let anonymous = matches!(mapping.backing, Backing::Anonymous | Backing::Hugetlb);
        *found.entry((anonymous, size.bytes() as usize, whole)).or_insert(0) += bytes as usize;
    }
    found
}

pub(super) fn leaf_bytes(census: &Census, backing: Backing, leaf: usize) -> usize {
    census.bytes_where(|mapping| mapping.backing == backing && mapping.leaf.bytes() as usize == leaf) as usize
}

/// Checks a mapping with every source, as root and without root.
/// The first of a few readings that is not in motion, or the last.
pub(super) fn settled<T>(mut read: impl FnMut() -> T, is_moving: impl Fn(&T) -> bool) -> T {
    for _ in 0..10 {
        let found = read();
        if !is_moving(&found) {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    read()
}

pub(super) fn agrees(map: &Map) -> Census {
    let read = || {
        let plain = map.census(&Observer::open().unwrap().without_folios());
        let (present, huge) = (smaps_field(map.start, "Rss:"), smaps_field(map.start, "AnonHugePages:"));
        let leaves = [pmd(), page()].map(|bytes| leaf_bytes(&plain, Backing::Anonymous, bytes));
        (plain, leaves, [huge, present - huge])
    };
    // While the kernel moves a page, only smaps has it.
    let is_moving = |(_, leaves, smaps): &(Census, [usize; 2], [usize; 2])| leaves != smaps;
    let (plain, leaves, smaps) = settled(read, is_moving);
    assert_eq!(leaves, smaps);
    let observer = Observer::open().unwrap();
    if !observer.sees_folios() {
        skip("root, for folios");
        return plain;
    }
    let census = map.census(&observer);
    assert_eq!(by_folio(&census), pages_by_folio(map.start, map.end()));
    assert_eq!(census.bytes_by_leaf(), plain.bytes_by_leaf());
    agrees_by_frames(map);
    census
}

/// What kernels before 6.7 allow has the same result, or says that the leaves of a mapping are not known.
fn agrees_by_frames(map: &Map) {
    let seen = |observer: Observer| {
        let seen =
            observer.with_file_folios().range_with_places(std::process::id(), map.start as u64, map.end() as u64);
        seen.map(|seen| seen.areas)
    };
    let read =
        || (seen(Observer::open().unwrap()).unwrap(), seen(Observer::open().unwrap().with_smaps_only().with_frames()));
    let is_moving = |(scanned, by_frames): &(Vec<Area>, Result<Vec<Area>, CensusError>)| {
        by_frames.as_ref().is_ok_and(|by_frames| by_frames != scanned)
    };
    let (scanned, by_frames) = settled(read, is_moving);
    match by_frames {
        Ok(by_frames) => assert_eq!(by_frames, scanned),
        Err(error) => {
            assert!(matches!(error, CensusError::UnknownLeaves { .. }), "{error}");
            let has = |leaf: usize| {
                let mut regions = scanned.iter().flat_map(|area| &area.regions);
                let is_it = |mapping: &Mapping| mapping.leaf.bytes() as usize == leaf;
                regions.any(|region| is_it(&region.mapping) && region.mapping.folio == Folio::Whole(region_pmd()))
            };
            assert!(has(pmd()) && has(page()), "{error}: {scanned:?}");
        }
    }
}

fn region_pmd() -> PageSize {
    PageSize::new(pmd() as u64).unwrap()
}
