//! The census and its explanations against the running kernel, and against an independent reading of
//! pagemap, kpageflags and smaps that looks at every page by itself.
//!
//! What a test needs and does not find (root, a setting, a pool) it names as `skipped: needs X`.
//! Settings are changed under `/run/pagelab-test.lock` and put back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use census::explain::{Question, examine};
use census::{CensusError, Observer, Source};
use host::{Host, THP};
use platform::Session;
use policy::Policy;
use policy::cause::Cause;
use policy::census::{Backing, Census, Folio};
use policy::judge::Evidence;
use policy::size::PageSize;
use policy::verdict::{Holding, Verdict};
use testing::skip;

const MIB: usize = 1 << 20;

// ---- what the tests stand on ----

/// A private mapping of this process, aligned to the PMD leaf.
struct Map {
    raw: *mut libc::c_void,
    raw_bytes: usize,
    start: usize,
    bytes: usize,
}

impl Map {
    fn new(bytes: usize, flags: i32) -> Option<Map> {
        let align = if flags & libc::MAP_HUGETLB == 0 { pmd() } else { 0 };
        let raw_bytes = bytes + 2 * align;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                raw_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        let start = (raw as usize).next_multiple_of(align.max(1));
        (raw != libc::MAP_FAILED).then_some(Map { raw, raw_bytes, start, bytes })
    }

    fn private(bytes: usize) -> Map {
        Map::new(bytes, libc::MAP_PRIVATE).expect("memory for a mapping")
    }

    fn advise(&self, advice: i32) {
        // SAFETY: the range lies inside the mapping; no advice of these tests loses what Rust relies on.
        let status = unsafe { libc::madvise(self.start as *mut libc::c_void, self.bytes, advice) };
        assert_eq!(status, 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    fn write(&self, from: usize, to: usize) {
        for at in (from..to).step_by(page()) {
            // SAFETY: inside the mapping, which nothing else refers to.
            unsafe { ((self.start + at) as *mut u8).write_volatile(1) };
        }
    }

    fn read(&self, from: usize, to: usize) {
        for at in (from..to).step_by(page()) {
            // SAFETY: inside the mapping.
            unsafe { ((self.start + at) as *const u8).read_volatile() };
        }
    }

    fn unmap_part(&self, from: usize, to: usize) {
        // SAFETY: inside the mapping, and nothing touches that part afterwards.
        let status = unsafe { libc::munmap((self.start + from) as *mut libc::c_void, to - from) };
        assert_eq!(status, 0);
    }

    fn protect(&self, from: usize, to: usize, protection: i32) {
        // SAFETY: inside the mapping; the tests touch it only as the protection allows.
        let status = unsafe { libc::mprotect((self.start + from) as *mut libc::c_void, to - from, protection) };
        assert_eq!(status, 0);
    }

    fn end(&self) -> usize {
        self.start + self.bytes
    }

    fn census(&self, observer: &Observer) -> Census {
        observer.range(std::process::id(), self.start as u64, self.end() as u64).unwrap()
    }

    fn verdict(&self, policy: &str) -> Verdict {
        let host = Host::open("/").unwrap();
        let policy: Policy = policy.parse().unwrap();
        let state = host.state().unwrap();
        let (start, end) = (self.start as u64, self.end() as u64);
        let observer = Observer::open();
        let seen = observer.range_with_places(std::process::id(), start, end).unwrap();
        let (geometry, after_fork) = (host.geometry(), false);
        let question = Question { policy: &policy, geometry, state: &state, smaps: None, after_fork };
        Evidence::of(question.answer(&seen)).verdict()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; parts of it may be gone already.
        unsafe { libc::munmap(self.raw, self.raw_bytes) };
    }
}

fn page() -> usize {
    Observer::open().base_page().bytes() as usize
}

fn pmd() -> usize {
    Observer::open().pmd_leaf().map_or(2 * MIB, |size| size.bytes() as usize)
}

/// How long a test may wait for the tests and comparisons before it.
const TURN: std::time::Duration = std::time::Duration::from_secs(900);

/// Settings that are changed for a test, one test at a time, and put back; khugepaged, which would change memory between two
/// looks at it, is held still. No comparison runs meanwhile: the lease is this test's.
struct Knobs {
    saved: Vec<(String, String)>,
    session: Session,
    _lock: Flock<File>,
}

impl Knobs {
    /// `None` where a setting cannot be changed.
    fn set(settings: &[(String, &str)]) -> Option<Knobs> {
        let lock = File::options().create(true).append(true).open("/run/pagelab-test.lock").ok()?;
        let lock = Flock::lock(lock, FlockArg::LockExclusive).ok()?;
        let session = Session::new(Host::open("/").ok()?).with_patience(TURN, |_| {});
        let mut knobs = Knobs { saved: Vec::new(), session: session.with_khugepaged_still().ok()?, _lock: lock };
        knobs.session.rest().expect("the lease, and khugepaged at rest");
        for (path, value) in settings {
            let text = fs::read_to_string(path).ok()?;
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_string();
            fs::write(path, value).ok()?;
            knobs.saved.push((path.clone(), chosen));
        }
        // It begins anew where a size was switched on.
        knobs.session.rest().expect("khugepaged at rest");
        Some(knobs)
    }

    /// THP for advised memory, and the sizes below PMD size as given.
    fn thp(others: &[(usize, &'static str)]) -> Option<Knobs> {
        let size = |bytes: usize| format!("{THP}/hugepages-{}kB/enabled", bytes >> 10);
        let mut settings = vec![(format!("{THP}/enabled"), "madvise"), (size(pmd()), "inherit")];
        settings.extend(others.iter().map(|(bytes, value)| (size(*bytes), *value)));
        Knobs::set(&settings)
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        for (path, value) in self.saved.iter().rev() {
            fs::write(path, value).unwrap_or_else(|error| panic!("{path} could not be set back to {value}: {error}"));
        }
        self.session.finish().expect("khugepaged as before");
    }
}

// ---- the independent reading ----

/// Bytes of a range as pagemap and kpageflags say, page by page: (anonymous, folio bytes, whole).
fn pages_by_folio(start: usize, end: usize) -> BTreeMap<(bool, usize, bool), usize> {
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
fn smaps_field(start: usize, name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mapping = text.split_once(&format!("\n{start:x}-")).expect("the mapping").1;
    let line = mapping.lines().find(|line| line.starts_with(name)).expect("the field");
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn by_folio(census: &Census) -> BTreeMap<(bool, usize, bool), usize> {
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

fn leaf_bytes(census: &Census, backing: Backing, leaf: usize) -> usize {
    census.bytes_where(|mapping| mapping.backing == backing && mapping.leaf.bytes() as usize == leaf) as usize
}

/// Checks a mapping with everything there is, as root and without.
fn agrees(map: &Map) -> Census {
    let plain = map.census(&Observer::open().without_folios());
    let (present, huge) = (smaps_field(map.start, "Rss:"), smaps_field(map.start, "AnonHugePages:"));
    assert_eq!(leaf_bytes(&plain, Backing::Anonymous, pmd()), huge);
    assert_eq!(leaf_bytes(&plain, Backing::Anonymous, page()), present - huge);
    let observer = Observer::open();
    if !observer.sees_folios() {
        skip("root, for folios");
        return plain;
    }
    let census = map.census(&observer);
    assert_eq!(by_folio(&census), pages_by_folio(map.start, map.end()));
    assert_eq!(census.bytes_by_leaf(), plain.bytes_by_leaf());
    census
}

// ---- what maps the memory ----

#[test]
fn base_pages() {
    let map = Map::private(8 * MIB);
    map.advise(libc::MADV_NOHUGEPAGE);
    map.write(0, 5 * MIB);
    let census = agrees(&map);
    assert_eq!(census.total_bytes() as usize, 5 * MIB);
    assert_eq!(leaf_bytes(&census, Backing::Anonymous, page()), 5 * MIB);

    // More stretches of memory than one call of the kernel returns.
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

    // A hole in the second, another protection for a while in the third.
    map.protect(2 * pmd(), 2 * pmd() + page(), libc::PROT_READ);
    map.protect(2 * pmd(), 2 * pmd() + page(), libc::PROT_READ | libc::PROT_WRITE);
    map.unmap_part(pmd(), pmd() + page());
    let first = Map { raw: map.raw, raw_bytes: 0, start: map.start, bytes: pmd() };
    let rest = Map { raw: map.raw, raw_bytes: 0, start: map.start + pmd() + page(), bytes: 3 * pmd() - page() };
    agrees(&first);
    let census = agrees(&rest);
    std::mem::forget((first, rest));
    if Observer::open().sees_folios() {
        assert_eq!(by_folio(&census)[&(true, pmd(), false)], pmd() - page(), "{census:?}");
        assert_eq!(leaf_bytes(&census, Backing::Anonymous, pmd()), pmd());
        let causes: Vec<Cause> = map.verdict("thp").causes.into_iter().map(|share| share.cause).collect();
        assert_eq!(causes, [Cause::LeafSplit, Cause::FolioPartlyMapped]);
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
    // Every second 128K block in one go, the others in steps that leave room for smaller folios only.
    for at in (0..4 * MIB).step_by(256 << 10) {
        map.write(at, at + (128 << 10));
        map.advise_part(at + (160 << 10), at + (192 << 10), libc::MADV_NOHUGEPAGE);
        map.write(at + (128 << 10), at + (256 << 10));
    }
    let mut all = BTreeMap::new();
    let mut at = map.start;
    let observer = Observer::open();
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

impl Map {
    fn advise_part(&self, from: usize, to: usize, advice: i32) {
        // SAFETY: as in `advise`.
        let status = unsafe { libc::madvise((self.start + from) as *mut libc::c_void, to - from, advice) };
        assert_eq!(status, 0);
    }
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
    let Some(size) = Host::open("/").unwrap().geometry().hugetlb.first().copied() else { return skip("hugetlb") };
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size.bytes() >> 10);
    let Ok(pages) = fs::read_to_string(&path).unwrap_or_default().trim().parse::<u64>() else { return skip("hugetlb") };
    let more = (pages + 3).to_string();
    let Some(_knobs) = Knobs::set(&[(path, &more)]) else { return skip("root, for a hugetlb pool") };
    let bytes = size.bytes() as usize;
    for flags in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
        let Some(map) = Map::new(2 * bytes, flags | libc::MAP_HUGETLB) else { return skip("free memory for a pool") };
        map.write(0, bytes);
        for observer in [Observer::open(), Observer::open().without_folios()] {
            let census = map.census(&observer);
            assert_eq!(census.total_bytes(), size.bytes(), "the second page is not touched");
            assert_eq!(leaf_bytes(&census, Backing::Hugetlb, bytes), bytes);
        }
        let sums = smaps_field(map.start, "Private_Hugetlb:") + smaps_field(map.start, "Shared_Hugetlb:");
        assert_eq!(sums, bytes);
        if Observer::open().sees_folios() {
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
    for observer in [Observer::open().without_folios(), Observer::open().with_file_folios()] {
        let census = map.census(&observer);
        assert_eq!(census.bytes_where(|mapping| mapping.backing == Backing::Shmem) as usize, MIB / 2);
        if observer.sees_folios() {
            assert_eq!(by_folio(&census), pages_by_folio(map.start, map.end()));
        }
    }
    let seen = Observer::open().process(std::process::id()).unwrap();
    let code = seen.areas.iter().find(|area| area.vma.name.contains("census-") && !area.regions.is_empty()).unwrap();
    assert!(code.regions.iter().all(|region| region.mapping.backing == Backing::File), "{code:?}");
    assert!(seen.areas.iter().all(|area| !area.vma.name.starts_with("[v") || area.regions.is_empty()));
}

// ---- why it is so ----

#[test]
fn the_causes_of_another_process_are_found() {
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let mut child = helper_process("causes", None).unwrap();
    let _output = lines_until_ready(&mut child);
    let host = Host::open("/").unwrap();
    let (state, thp) = (host.state().unwrap(), "thp".parse::<Policy>().unwrap());
    let examination = examine(&Observer::open(), child.id(), &thp, host.geometry(), &state);
    drop(child.stdin.take());
    child.wait().unwrap();
    let verdict = Evidence::of(examination.unwrap()).verdict();
    let bytes = |cause: Cause| {
        let share = verdict.causes.iter().find(|share| share.cause == cause);
        share.and_then(|share| share.bytes).unwrap_or(0) as usize
    };
    // The other process has memory of its own beside these mappings.
    let about = |cause: Cause, expected: usize| {
        let found = bytes(cause.clone());
        assert!(found >= expected && found < expected + pmd(), "{cause:?}: {found}, expected {expected}: {verdict:?}");
    };
    about(Cause::TouchedBeforeEligible, 2 * pmd());
    about(Cause::AdvisedAgainst, 3 * pmd());
    about(Cause::NotAdvised, 5 * pmd());
    let explained: u64 = verdict.causes.iter().filter_map(|share| share.bytes).sum();
    assert_eq!(verdict.covered_bytes + explained, verdict.concerned_bytes);
}

// ---- other processes ----

/// The other process: maps, touches and waits for the end of its standard input. Not a test unless it
/// was started by one.
#[test]
fn helper() {
    let Ok(task) = std::env::var("CENSUS_HELPER") else { return };
    let causes = task == "causes";
    let _mapped = causes.then(map_with_causes);
    let map = Map::private(16 * MIB);
    map.advise(libc::MADV_NOHUGEPAGE);
    map.write(0, if causes { 0 } else { 16 * MIB });
    if task == "look" {
        let observer = Observer::open();
        let census = map.census(&observer);
        println!("sees folios {}, present {}", observer.sees_folios(), census.total_bytes());
    }
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

/// Memory that is advised after it was touched, advised against, and not advised at all.
fn map_with_causes() -> [Map; 3] {
    let late = Map::private(2 * pmd());
    late.write(0, 2 * pmd());
    late.advise(libc::MADV_HUGEPAGE);
    let against = Map::private(3 * pmd());
    against.advise(libc::MADV_NOHUGEPAGE);
    against.write(0, 3 * pmd());
    let not_advised = Map::private(5 * pmd());
    not_advised.write(0, 5 * pmd());
    [late, against, not_advised]
}

fn helper_process(task: &str, user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "helper", "--nocapture", "--test-threads=1"]).env("CENSUS_HELPER", task);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    user.map(|user| command.uid(user).gid(user));
    command.spawn()
}

/// Waits until no thread of a process runs: what is ready still has to get to where it waits, and touches pages on the
/// way.
fn until_asleep(pid: u32) {
    let is_asleep = || {
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        })
    };
    let mut times = 0;
    while times < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        times = if is_asleep() { times + 1 } else { 0 };
    }
}

fn lines_until_ready(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.take_while(|line| !line.ends_with("ready")).collect()
}

#[test]
fn the_memory_is_there_at_the_exit_stop() {
    let mut child = helper_process("wait", None).unwrap();
    lines_until_ready(&mut child);
    let pid = Pid::from_raw(child.id() as i32);
    if let Err(error) = ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT) {
        drop(child.stdin.take());
        child.wait().unwrap();
        return skip(format!("ptrace ({error})"));
    }
    drop(child.stdin.take());
    let stopped = waitpid(pid, None).unwrap();
    assert_eq!(stopped, WaitStatus::PtraceEvent(pid, nix::sys::signal::Signal::SIGTRAP, libc::PTRACE_EVENT_EXIT));
    let observer = Observer::open();
    let host = Host::open("/").unwrap();
    let policy: Policy = "base".parse().unwrap();
    let state = host.state().unwrap();
    let seen = examine(&observer, child.id(), &policy, host.geometry(), &state).unwrap();
    ptrace::cont(pid, None).unwrap();
    child.wait().unwrap();
    assert!(seen.census.bytes_where(|mapping| mapping.backing == Backing::Anonymous) as usize >= 16 * MIB);
    if observer.sees_folios() {
        assert_eq!(Evidence::of(seen).verdict().holding, Holding::Held);
    }
    assert!(matches!(observer.process(child.id()), Err(CensusError::Gone { .. })));
}

#[test]
fn another_user_sees_leaves_but_no_folios() {
    if !nix::unistd::geteuid().is_root() {
        return skip("root, to become another user");
    }
    let Ok(mut child) = helper_process("look", Some(65534)) else {
        return skip("a build directory that another user may enter");
    };
    let lines = lines_until_ready(&mut child);
    drop(child.stdin.take());
    child.wait().unwrap();
    let wanted = format!("sees folios false, present {}", 16 * MIB);
    assert!(lines.iter().any(|line| line.ends_with(&wanted)), "{lines:?}");
}

#[test]
fn smaps_and_the_scan_agree_on_leaves() {
    let mut child = helper_process("wait", None).unwrap();
    lines_until_ready(&mut child);
    until_asleep(child.id());
    let scanned = Observer::open().process(child.id()).unwrap();
    let summed = Observer::open().with_smaps_only().process(child.id()).unwrap();
    let part = Observer::open().with_smaps_only().range(child.id(), 0x1000, scanned.areas[0].vma.start + page() as u64);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!((scanned.source, summed.source), (Source::PagemapScan, Source::Smaps));
    let bytes = |census: &Census| {
        let mut bytes = BTreeMap::new();
        for (mapping, count) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
            *bytes.entry((mapping.backing, mapping.leaf)).or_insert(0) += count;
        }
        bytes
    };
    assert_eq!(bytes(&scanned.census), bytes(&summed.census));
    assert!(matches!(part, Err(CensusError::NeedsPagemapScan)));
}

#[test]
fn a_child_that_writes_after_fork_maps_a_part_of_the_folio() {
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let map = Map::private(pmd());
    map.advise(libc::MADV_HUGEPAGE);
    map.write(0, pmd());
    if leaf_bytes(&map.census(&Observer::open()), Backing::Anonymous, pmd()) != pmd() || !Observer::open().sees_folios()
    {
        return skip("free memory in blocks of PMD size, and root");
    }
    let (start, first) = (map.start as u64, map.start as *mut u8);
    // SAFETY: the child only writes to the mapping, stops, and leaves without running any of Rust's code.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            first.write_volatile(2);
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        child
    };
    let pid = Pid::from_raw(child);
    waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WUNTRACED)).unwrap();
    let census = Observer::open().range(child as u32, start, start + pmd() as u64);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    waitpid(pid, None).unwrap();
    let expected = [((true, page(), true), page()), ((true, pmd(), false), pmd() - page())];
    assert_eq!(by_folio(&census.unwrap()), expected.into());
    assert_eq!(by_folio(&map.census(&Observer::open())), [((true, pmd(), true), pmd())].into());
}

#[test]
fn processes_without_memory_are_named() {
    let observer = Observer::open();
    // 2 is kthreadd, except inside a process namespace.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") && observer.sees_folios() {
        assert!(matches!(observer.process(2), Err(CensusError::NoAddressSpace { pid: 2 })));
    } else {
        skip("root and a kernel thread");
    }
    assert!(matches!(observer.process(u32::MAX), Err(CensusError::Gone { .. })));
    assert!(matches!(observer.range(u32::MAX, 0, 1 << 30), Err(CensusError::Gone { .. })));
}

#[test]
fn an_examination_of_nothing_says_so() {
    assert_eq!(Evidence::default().verdict().holding, Holding::NotAsked);
    assert_eq!(PageSize::new(page() as u64).unwrap(), Observer::open().base_page());
}
