//! The proof of a trial: what the tree's processes had in memory when they ended, and before it was
//! unmapped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use census::explain::{Examination, Question};
use census::{CensusError, Observer, ProcessCensus};
use nix::unistd::Pid;
use study::cause::Cause;
use study::machine::State;
use study::metric::{Observation, names};
use study::policy::{Geometry, Policy};
use study::verdict::Peak;
use tracer::{Extent, Witness};

use crate::counters::Counters;

use super::memory::{Memory, Status};

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
    /// What was seen of each process that lives.
    memories: BTreeMap<libc::pid_t, Memory>,
    /// What was seen of processes that ended, and of images that were replaced.
    ended: Vec<Memory>,
    /// Processes that forked, or were forked, since they loaded their program.
    forked: BTreeSet<libc::pid_t>,
    /// What processes had that are about to load another program, if they do.
    leaving: BTreeMap<libc::pid_t, (Examination, Memory)>,
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
            ended: Vec::new(),
            forked: BTreeSet::new(),
            leaving: BTreeMap::new(),
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
        if let Some(peak_bytes) = self.all().map(|memory| memory.most_resident_bytes).max() {
            let page_table_bytes: u64 = self.all().map(|memory| memory.page_table_bytes).sum();
            observations.push(Observation::measured(names::PEAK_RESIDENT_BYTES, peak_bytes as f64));
            observations.push(Observation::measured(names::PAGE_TABLE_SEEN_BYTES, page_table_bytes as f64));
            let shared_bytes = self.all().map(|memory| memory.shared_bytes).max().unwrap_or(0);
            observations.push(Observation::measured(names::SHARED_BYTES, shared_bytes as f64));
        }
        observations.extend(self.counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default());
        observations
    }

    /// What all processes had resident at their peak, or had mapped to write to, whichever is more. A pool
    /// that is to serve them is reserved when memory is mapped, not when it is touched.
    pub fn needed_bytes(&self) -> u64 {
        self.all().map(|memory| memory.most_resident_bytes.max(memory.mapped_bytes)).sum()
    }

    /// How much of the memory concerned was looked at, of what was there when each process, or image of one, had most of it.
    /// Processes whose end nobody saw are not counted: their memory is another's (vfork), they were killed, or could not be looked
    /// at.
    pub fn peak(&self) -> Peak {
        let mut peak = Peak::default();
        self.ended.iter().filter(|memory| !memory.is_hidden).for_each(|memory| peak += memory.peak());
        peak
    }

    fn all(&self) -> impl Iterator<Item = &Memory> {
        self.ended.iter().chain(self.memories.values())
    }

    /// Hugetlb pages and page tables have no peak in the kernel: they are read whenever memory goes. Returns the process.
    fn measure(&mut self, task: libc::pid_t) -> libc::pid_t {
        let (process, now) = Status::of(task);
        let process = process.unwrap_or(task);
        self.memories.entry(process).or_default().measure(now);
        process
    }

    /// A memory has gone.
    fn close(&mut self, process: libc::pid_t) {
        self.ended.extend(self.memories.remove(&process).map(Memory::ended));
        self.leaving.remove(&process);
        self.forked.remove(&process);
    }

    /// What a look at a task found, of the whole process or of a range, as the policy has it.
    fn examine(&self, process: libc::pid_t, flags: bool, found: &ProcessCensus) -> Examination {
        let (policy, geometry, state) = (self.policy, self.geometry, self.state);
        let after_fork = self.forked.contains(&process);
        Question { policy, geometry, state, smaps: flags.then_some(self.observer), after_fork }.answer(found)
    }

    /// Counts what was found in a range that goes.
    fn found(&mut self, process: libc::pid_t, found: &ProcessCensus) {
        self.examination.merge(self.examine(process, false, found));
        self.memories.entry(process).or_default().look(found);
    }

    /// Where a range that goes cuts large pages, notes what is left of them: it is mapped by base pages from then on.
    fn note_what_is_cut(&mut self, task: libc::pid_t, process: libc::pid_t, start: u64, end: u64) {
        let large = self.policy.target(self.geometry).unwrap_or(self.geometry.base);
        let (low, high) = (large.align_down(start), large.align_up(end).unwrap_or(end));
        for (from, to) in [(low, start), (end, high)].into_iter().filter(|(from, to)| from < to) {
            if let Ok(left) = self.observer.range_with_places(task as u32, from, to) {
                self.memories.entry(process).or_default().note_cut(&left, large);
            }
        }
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

    fn extent(&self) -> Extent {
        if self.all { Extent::All } else { Extent::Large }
    }

    fn ends(&mut self, task: libc::pid_t) {
        let process = self.measure(task);
        // What the root's end takes is no part of the measured time, what a child's takes is: once the
        // children have had their share of it, their causes are found without reading smaps.
        let since = Instant::now();
        let is_root = process == self.root;
        let flags = is_root || self.may_look(self.looking_at_children);
        match self.observer.process(task as u32) {
            Ok(found) => {
                self.examination.merge(self.examine(process, flags, &found));
                self.memories.entry(process).or_default().look(&found);
            }
            Err(error) => {
                self.examination.miss_process(reason(task, &error), Status::concerned_bytes(task));
                self.memories.entry(process).or_default().is_hidden = true;
            }
        }
        self.close(process);
        // The root of a server ends when its client is no longer timed.
        if !is_root || !self.is_timed() {
            self.looked(since, |proof| &mut proof.looking_at_children);
        }
    }

    fn unmaps(&mut self, task: libc::pid_t, start: u64, end: u64) {
        if !self.may_look(self.looking_at_unmaps) {
            self.unseen_unmapped_bytes += end - start;
            return;
        }
        let since = Instant::now();
        let process = self.measure(task);
        self.note_what_is_cut(task, process, start, end);
        let memory = self.memories.entry(process).or_default();
        let (as_it_was, rest) = (memory.before_the_cut(start, end), memory.not_cut(start, end));
        self.found(process, &as_it_was);
        for (from, to) in rest {
            match self.observer.range_with_places(task as u32, from, to) {
                Ok(found) => self.found(process, &found),
                Err(error) => {
                    self.examination.note(Cause::ProcessUnseen { reason: reason(task, &error) }, 0);
                    self.unseen_unmapped_bytes += to - from;
                }
            }
        }
        self.memories.entry(process).or_default().goes(start, end);
        self.looked(since, |proof| &mut proof.looking_at_unmaps);
    }

    fn shrinks(&mut self, task: libc::pid_t, process: libc::pid_t, pool_bytes: u64) {
        let known_bytes = self.memories.get(&process).map_or(0, |memory| memory.most_hugetlb_bytes);
        if known_bytes < pool_bytes {
            self.measure(task);
        }
    }

    fn forked(&mut self, parent: libc::pid_t, child: libc::pid_t) {
        self.forked.extend([parent, child]);
    }

    fn replaces(&mut self, task: libc::pid_t) {
        let since = Instant::now();
        let process = self.measure(task);
        if let Ok(found) = self.observer.process(task as u32) {
            let mut memory = self.memories.get(&process).cloned().unwrap_or_default();
            memory.look(&found);
            self.leaving.insert(process, (self.examine(process, false, &found), memory));
        }
        self.looked(since, |proof| &mut proof.looking_at_unmaps);
    }

    fn replaced(&mut self, process: libc::pid_t) {
        if let Some((examination, memory)) = self.leaving.remove(&process) {
            self.examination.merge(examination);
            self.memories.insert(process, memory);
        }
        self.close(process);
    }
}

/// Why a process could not be looked at, by its name: its number differs from run to run.
fn reason(task: libc::pid_t, error: &CensusError) -> String {
    let name = std::fs::read_to_string(format!("/proc/{task}/comm")).unwrap_or_default();
    format!("{}: {}", name.trim_end(), error.of_any_process())
}
