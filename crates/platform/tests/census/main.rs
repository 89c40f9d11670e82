//! Tests the census and its explanations against the running kernel, and against an independent reading of pagemap, kpageflags
//! and smaps that checks every page separately.
//!
//! If a test lacks something that it needs (root, a setting, a pool), it prints `skipped: needs X`. Settings are changed under
//! `/run/pagelab-test.lock` and restored.

mod mapped;
mod processes;
mod reading;

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
use policy::census::{Backing, Census, Folio, Mapping};
use policy::judge::Evidence;
use policy::size::PageSize;
use policy::verdict::{Holding, Verdict};
use reading::{agrees, by_folio, leaf_bytes, pages_by_folio, settled, smaps_field};
use testing::skip;

const MIB: usize = 1 << 20;

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
        // SAFETY: a fresh mapping at an address that the kernel chooses.
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
        // SAFETY: the range is inside the mapping; no advice in these tests drops memory that Rust relies on.
        let status = unsafe { libc::madvise(self.start as *mut libc::c_void, self.bytes, advice) };
        assert_eq!(status, 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    fn advise_part(&self, from: usize, to: usize, advice: i32) {
        // SAFETY: as in `advise`.
        let status = unsafe { libc::madvise((self.start + from) as *mut libc::c_void, to - from, advice) };
        assert_eq!(status, 0);
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
        let observer = Observer::open().unwrap();
        let seen = observer.range_with_places(std::process::id(), start, end).unwrap();
        let (page_sizes, after_fork) = (host.page_sizes(), false);
        let question = Question { policy: &policy, page_sizes, state: &state, smaps: None, after_fork };
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
    Observer::open().unwrap().base_page().bytes() as usize
}

fn pmd() -> usize {
    Observer::open().unwrap().pmd_leaf().map_or(2 * MIB, |size| size.bytes() as usize)
}

/// How long a test may wait for earlier tests and comparisons.
const TURN: std::time::Duration = std::time::Duration::from_secs(900);

/// Settings that are changed for a test, one test at a time, and restored. khugepaged, which would change memory between two
/// readings, is held still. No comparison runs in the meantime, because this test holds the lease.
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
        let session = Session::new(Host::open("/").ok()?).with_patience(TURN, |_, _| {});
        let mut knobs = Knobs { saved: Vec::new(), session: session.with_khugepaged_held().ok()?, _lock: lock };
        knobs.session.restore_under_lease().expect("the lease, and khugepaged at rest");
        for (path, value) in settings {
            let text = fs::read_to_string(path).ok()?;
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_string();
            fs::write(path, value).ok()?;
            knobs.saved.push((path.clone(), chosen));
        }
        // khugepaged starts again where a size was enabled.
        knobs.session.restore_under_lease().expect("khugepaged at rest");
        Some(knobs)
    }

    /// THP for advised memory, with the given sizes below PMD size.
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
