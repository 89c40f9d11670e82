//! The proof of a trial: what the tree's processes had in memory when they ended, and before it was
//! unmapped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use study::cause::Cause;
use study::machine::State;
use study::metric::{Observation, names};
use study::policy::{Geometry, Policy};

use crate::census::{CensusError, Observer};
use crate::counters::Counters;
use crate::explain::{self, Examination};
use crate::host;
use crate::tracer::Witness;

/// Looking at what is unmapped may take this share of a trial's time so far; then only ends are seen. It
/// may take its time while nothing is timed, and where all is to be seen.
const SHARE_OF_TIME: f64 = 0.005;
/// Looking costs at least about this much: without it short trials would see nothing.
const FREE_OF_CHARGE: Duration = Duration::from_millis(2);

/// Sees a trial.
pub struct Proof<'a> {
    observer: &'a Observer,
    policy: &'a Policy,
    geometry: &'a Geometry,
    state: &'a State,
    root: libc::pid_t,
    began: Instant,
    looking_at_unmaps: Duration,
    looking_at_children: Duration,
    /// Whether the client of a server is being timed at this moment; absent where the traced program is.
    timed: Option<&'a AtomicBool>,
    /// Whether every look is taken, whatever time it takes.
    all: bool,
    /// What looks took while nothing was timed.
    untimed: Duration,
    /// Everything that was seen, merged.
    pub examination: Examination,
    /// Bytes that were unmapped unseen, to stay within the share of time.
    pub unseen_unmapped_bytes: u64,
    /// What was seen of each process, as large as it was seen.
    memories: BTreeMap<libc::pid_t, Memory>,
    counters: Option<Counters>,
}

impl<'a> Proof<'a> {
    /// A proof for one trial under a policy.
    pub fn new(observer: &'a Observer, policy: &'a Policy, geometry: &'a Geometry, state: &'a State) -> Proof<'a> {
        Proof {
            observer,
            policy,
            geometry,
            state,
            root: 0,
            began: Instant::now(),
            looking_at_unmaps: Duration::ZERO,
            looking_at_children: Duration::ZERO,
            timed: None,
            all: false,
            untimed: Duration::ZERO,
            examination: Examination::begun(policy, geometry),
            unseen_unmapped_bytes: 0,
            memories: BTreeMap::new(),
            counters: None,
        }
    }

    /// The same for a server, whose client is timed only while the flag is set. A server frees much of its
    /// memory when it ends.
    pub fn timed_while(self, timed: &'a AtomicBool) -> Proof<'a> {
        Proof { timed: Some(timed), ..self }
    }

    /// The same, without a limit to the time of looks.
    pub fn of_all(self, all: bool) -> Proof<'a> {
        Proof { all, ..self }
    }

    /// What looks took while the client of a server was timed, in seconds.
    pub fn timed_s(&self) -> f64 {
        (self.looking_at_unmaps + self.looking_at_children).as_secs_f64()
    }

    /// What looks took while nothing was timed, in seconds.
    pub fn untimed_s(&self) -> f64 {
        self.untimed.as_secs_f64()
    }

    /// What was observed besides the census.
    pub fn observations(&mut self) -> Vec<Observation> {
        let mut observations = Vec::new();
        if let Some(peak_bytes) = self.memories.values().map(|memory| memory.peak_bytes).max() {
            let page_table_bytes: u64 = self.memories.values().map(|memory| memory.page_table_bytes).sum();
            observations.push(Observation::measured(names::PEAK_RESIDENT_BYTES, peak_bytes as f64));
            observations.push(Observation::measured(names::PAGE_TABLE_BYTES, page_table_bytes as f64));
        }
        observations.extend(self.counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default());
        observations
    }

    /// What all processes had resident at their peak, or had mapped to write to, whichever is more. A pool
    /// that is to serve them is reserved when memory is mapped, not when it is touched.
    pub fn needed_bytes(&self) -> u64 {
        self.memories.values().map(|memory| memory.peak_bytes.max(memory.mapped_bytes)).sum()
    }

    /// Hugetlb pages and page tables have no peak in the kernel: they are read whenever memory goes.
    fn measure(&mut self, task: libc::pid_t) {
        let (process, memory) = Memory::of(task);
        let known = self.memories.entry(process.unwrap_or(task)).or_default();
        known.peak_bytes = known.peak_bytes.max(memory.peak_bytes);
        known.mapped_bytes = known.mapped_bytes.max(memory.mapped_bytes);
        known.page_table_bytes = known.page_table_bytes.max(memory.page_table_bytes);
    }

    /// Charges a look to its kind, unless it cost nothing that is measured.
    fn looked(&mut self, since: Instant, kind: impl FnOnce(&mut Self) -> &mut Duration) {
        match self.is_timed() {
            true => *kind(self) += since.elapsed(),
            false => self.untimed += since.elapsed(),
        }
    }

    fn is_timed(&self) -> bool {
        self.timed.is_none_or(|timed| timed.load(Ordering::SeqCst))
    }

    /// Whether more looks of a kind that took so long already are within its share of time.
    fn may_look(&self, looked: Duration) -> bool {
        self.all
            || !self.is_timed()
            || looked < FREE_OF_CHARGE
            || looked.as_secs_f64() < SHARE_OF_TIME * self.began.elapsed().as_secs_f64()
    }
}

impl Witness for Proof<'_> {
    fn begins(&mut self, process: libc::pid_t) {
        self.root = process;
        self.counters = Counters::open(Pid::from_raw(process)).ok();
        self.began = Instant::now();
    }

    fn ends(&mut self, process: libc::pid_t) {
        self.measure(process);
        // What the root's end takes is no part of the measured time, what a child's takes is: once the
        // children have had their share of it, their causes are found without reading smaps.
        let since = Instant::now();
        let is_root = process == self.root;
        let (observer, policy, pid) = (self.observer, self.policy, process as u32);
        let flags = is_root || self.may_look(self.looking_at_children);
        let seen = explain::examine_traced(observer, pid, flags, policy, self.geometry, self.state);
        match seen {
            Ok(examination) => self.examination.merge(examination),
            Err(error) => self.examination.miss_process(reason(process, &error), Memory::concerned_bytes(process)),
        }
        // The root of a server ends when its client is no longer timed.
        if !is_root || !self.is_timed() {
            self.looked(since, |proof| &mut proof.looking_at_children);
        }
    }

    fn unmaps(&mut self, process: libc::pid_t, start: u64, end: u64) {
        if !self.may_look(self.looking_at_unmaps) {
            self.unseen_unmapped_bytes += end - start;
            return;
        }
        let since = Instant::now();
        self.measure(process);
        let (observer, policy) = (self.observer, self.policy);
        let seen = explain::examine_range(observer, process as u32, start, end, policy, self.geometry, self.state);
        match seen {
            Ok(examination) => self.examination.merge(examination),
            Err(error) => {
                self.examination.note(Cause::ProcessUnseen { reason: reason(process, &error) }, 0);
                self.unseen_unmapped_bytes += end - start;
            }
        }
        self.looked(since, |proof| &mut proof.looking_at_unmaps);
    }
}

/// What /proc/PID/status says of a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// Largest resident set, and the hugetlb pages, which are not in it (Documentation/filesystems/proc.rst).
    peak_bytes: u64,
    /// VmData: private writable memory that is mapped.
    mapped_bytes: u64,
    /// VmPTE: page tables of all levels.
    page_table_bytes: u64,
}

impl Memory {
    /// Of the process of a task, and which process that is.
    fn of(task: libc::pid_t) -> (Option<libc::pid_t>, Memory) {
        let status = host::content(format!("/proc/{task}/status")).unwrap_or_default();
        (field(&status, "Tgid:").and_then(|id| libc::pid_t::try_from(id).ok()), Memory::parse(&status))
    }

    /// Anonymous and hugetlb memory of a task; `None` where /proc does not say.
    fn concerned_bytes(task: libc::pid_t) -> Option<u64> {
        let status = host::content(format!("/proc/{task}/status")).ok()?;
        Some((field(&status, "RssAnon:")? + field(&status, "HugetlbPages:").unwrap_or(0)) << 10)
    }

    fn parse(status: &str) -> Memory {
        let bytes = |name: &str| field(status, name).unwrap_or(0) << 10;
        Memory {
            peak_bytes: bytes("VmHWM:") + bytes("HugetlbPages:"),
            mapped_bytes: bytes("VmData:"),
            page_table_bytes: bytes("VmPTE:"),
        }
    }
}

/// Why a process could not be looked at, by its name: its number differs from run to run.
fn reason(task: libc::pid_t, error: &CensusError) -> String {
    let name = std::fs::read_to_string(format!("/proc/{task}/comm")).unwrap_or_default();
    format!("{}: {}", name.trim_end(), error.of_any_process())
}

fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugetlb_pages_count_as_resident() {
        let status = "VmHWM:\t    1000 kB\nVmRSS:\t 900 kB\nVmData:\t 5000 kB\nVmPTE:\t      44 kB\nHugetlbPages:\t    2048 kB\n";
        let memory = Memory { peak_bytes: 3048 << 10, mapped_bytes: 5000 << 10, page_table_bytes: 44 << 10 };
        assert_eq!(Memory::parse(status), memory);
        assert_eq!(Memory::parse(""), Memory::default());
    }
}
