//! [`TrialWitness`]: examines the memory of a trial's processes when they end, and before they unmap it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Instant;

use census::explain::Question;
use census::{CensusError, FrameScatter, Observer, ProcessCensus};
use nix::unistd::Pid;
use policy::cause::Cause;
use policy::census::{Backing, Mapping};
use policy::judge::{Aim, Evidence, Examination, Rules};
use policy::machine::State;
use policy::remains::Remains;
use policy::removal::Unwatched;
use policy::{PageSizes, Policy};
use study::metric::{Observation, names};
use tracer::{InspectedRemovals, Witness};

use crate::counters::Counters;

use super::examination_budget::{ExaminationBudget, ExaminationPurpose};
use super::memory::{Memory, PeakMemory, Status};
use super::new_leaves::NewLeaves;

/// Upper bound of the page faults by which a program starts. Most of them are for pages of files.
const START_FAULTS: u64 = 1000;

/// Examines the memory of a trial.
pub struct TrialWitness<'a> {
    observer: &'a Observer,
    policy: &'a Policy,
    page_sizes: &'a PageSizes,
    state: &'a State,
    root: libc::pid_t,
    /// The time budget for examinations.
    pub budget: ExaminationBudget<'a>,
    /// The memory of processes, in bytes.
    pub memory: PeakMemory,
    /// The merged results of all examinations.
    examination: Examination,
    /// Bytes that were unmapped without examination, because of the time budget or an error.
    unseen_unmapped_bytes: u64,
    /// Page faults of the processes that ended; `None` if those of some process could not be read.
    faults: Option<u64>,
    /// Page faults beyond those of a program's start ([`START_FAULTS`]), summed over processes.
    later_faults: u64,
    /// Processes that forked, or were forked, since they executed their program.
    forked: BTreeSet<libc::pid_t>,
    /// The memory of processes that are about to execute another program; it counts if the exec succeeds.
    before_exec: BTreeMap<libc::pid_t, (Examination, Memory)>,
    counters: Option<Counters>,
    /// Whether the scatter of physical frames is read when memory is examined.
    pub reads_frames: bool,
    /// The scatter from the examination that found the most anonymous memory.
    scatter: Option<FrameScatter>,
    new_leaves: NewLeaves,
}

impl<'a> TrialWitness<'a> {
    /// A witness of one trial under a policy.
    pub fn new(
        observer: &'a Observer,
        policy: &'a Policy,
        page_sizes: &'a PageSizes,
        state: &'a State,
        budget: ExaminationBudget<'a>,
    ) -> TrialWitness<'a> {
        TrialWitness {
            observer,
            policy,
            page_sizes,
            state,
            root: 0,
            memory: PeakMemory::new(budget.is_unlimited),
            budget,
            examination: Examination::empty(Aim::of(policy, page_sizes)),
            unseen_unmapped_bytes: 0,
            faults: Some(0),
            later_faults: 0,
            forked: BTreeSet::new(),
            before_exec: BTreeMap::new(),
            counters: None,
            reads_frames: false,
            scatter: None,
            new_leaves: NewLeaves::default(),
        }
    }

    /// The observations other than the census.
    pub fn observations(&mut self) -> Vec<Observation> {
        let mut observations = self.memory.observations();
        observations.extend(self.scatter.iter().flat_map(of_scatter));
        let late = self.new_leaves.late_ratio();
        observations.extend(late.map(|ratio| Observation::measured(names::LATE_LEAVES_RATIO, ratio)));
        // Counters that are not available here have no figure.
        observations.extend(self.counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default());
        observations
    }

    /// Upper bound of the bytes that the processes' faults brought in: each brought in at most a folio of the largest enabled
    /// size below the target.
    pub fn faulted_bytes(&self) -> Option<u64> {
        let target = self.policy.target(self.page_sizes)?;
        let rules = Rules { settings: &self.state.settings, disabled_for_process: None };
        let enabled =
            self.page_sizes.mthp.iter().filter(|size| **size < target && rules.switched_off(**size).is_none());
        let largest = enabled.max().unwrap_or(&self.page_sizes.base);
        Some(self.faults?.saturating_mul(largest.bytes()))
    }

    /// Bytes of anonymous base pages that had a second fault, judged by faults that are neither those of a program's start
    /// nor the first ones of base pages that were seen or given back. 0 at PMD size, where the kernel counts what causes
    /// second faults.
    pub fn refaulted_bytes(&self) -> u64 {
        let base = self.page_sizes.base;
        if self.policy.target(self.page_sizes).is_none_or(|target| Some(target) == self.page_sizes.pmd) {
            return 0;
        }
        let is_base = |mapping: &Mapping| mapping.backing == Backing::Anonymous && mapping.effective() == base;
        let first_bytes = self.examination.census.bytes_where(is_base) + self.unseen_unmapped_bytes;
        self.later_faults.saturating_mul(base.bytes()).saturating_sub(first_bytes)
    }

    /// The results as evidence about the policy.
    pub fn evidence(self) -> Evidence {
        Evidence {
            peak: Some(self.memory.peak()),
            is_all_seen: self.budget.is_unlimited,
            unwatched: self.memory.unwatched(),
            unseen_unmapped_bytes: self.unseen_unmapped_bytes,
            ..Evidence::of(self.examination)
        }
    }

    /// Reads the values whose peak the kernel does not record. Returns the process of the task.
    fn measure(&mut self, task: libc::pid_t) -> libc::pid_t {
        self.memory.measure(task).unwrap_or_else(|error| {
            let reason = named(task, format_args!("/proc/PID/status: {error}"));
            self.examination.note(Cause::ProcessUnseen { reason }, 0);
            task
        })
    }

    /// Records that a process's memory is gone.
    fn close(&mut self, process: libc::pid_t) {
        self.memory.close(process);
        self.before_exec.remove(&process);
        self.forked.remove(&process);
    }

    /// The examination of a census of a task or of a range, under the policy.
    fn examine(&self, process: libc::pid_t, flags: bool, found: &ProcessCensus) -> Examination {
        let (policy, page_sizes, state) = (self.policy, self.page_sizes, self.state);
        let after_fork = self.forked.contains(&process);
        Question { policy, page_sizes, state, smaps: flags.then_some(self.observer), after_fork }.answer(found)
    }

    /// Keeps the scatter of the examination that found the most anonymous memory.
    fn note_scatter(&mut self, task: libc::pid_t, found: &ProcessCensus) {
        if !self.reads_frames {
            return;
        }
        match self.observer.frame_scatter(found) {
            Ok(scatter) => {
                self.scatter = self.scatter.into_iter().chain(scatter).max_by_key(|scatter| scatter.bytes);
            }
            Err(error) => self.examination.note(Cause::ProcessUnseen { reason: reason(task, &error) }, 0),
        }
    }

    /// Counts the memory found in a range that is given back.
    fn count_freed(&mut self, process: libc::pid_t, found: &ProcessCensus) {
        self.examination.merge(self.examine(process, false, found));
        self.memory.of(process).look(found);
    }

    /// Where a range that is given back cuts large pages, records the remaining parts: base-page PTEs map them from then on.
    fn note_cut_pages(&mut self, task: libc::pid_t, process: libc::pid_t, start: u64, end: u64) {
        let large = self.policy.target(self.page_sizes).unwrap_or(self.page_sizes.base);
        for (from, to) in Remains::neighbours(start, end, large) {
            match self.observer.range_with_places(task as u32, from, to) {
                Ok(left) => {
                    let regions = left.areas.iter().flat_map(|area| &area.regions);
                    self.memory.of(process).remains.note(regions, large);
                }
                // The examination of the range itself reports this.
                Err(CensusError::Gone { .. } | CensusError::NeedsPagemapScan) => {}
                Err(error) => self.examination.note(Cause::ProcessUnseen { reason: reason(task, &error) }, 0),
            }
        }
    }
}

impl Witness for TrialWitness<'_> {
    fn begins(&mut self, process: libc::pid_t) {
        self.root = process;
        // Where counters are not available, their metrics are absent; `doctor` gives the reason.
        self.counters = Counters::open(Pid::from_raw(process)).ok();
        self.budget.begins();
    }

    fn inspected_removals(&self) -> InspectedRemovals {
        if self.budget.is_unlimited { InspectedRemovals::All } else { InspectedRemovals::Large }
    }

    fn ends(&mut self, task: libc::pid_t) {
        let process = self.measure(task);
        // The time at the root's end is not part of the measured time, but that of a child is: once the children have used their
        // share of it, their causes are determined without reading smaps.
        let since = Instant::now();
        let is_root = process == self.root;
        let flags = is_root || self.budget.allows(ExaminationPurpose::Child);
        let faults = census::inspect::faults(task as u32);
        self.faults = self.faults.zip(faults).map(|(all, own)| all + own);
        self.later_faults += faults.map_or(0, |own| own.saturating_sub(START_FAULTS));
        match self.observer.process(task as u32) {
            Ok(found) => {
                self.examination.merge(self.examine(process, flags, &found));
                self.memory.of(process).look(&found);
                self.note_scatter(task, &found);
            }
            Err(error) => {
                self.examination.miss_process(reason(task, &error), Status::concerned_bytes(task));
                self.memory.of(process).is_hidden = true;
            }
        }
        self.close(process);
        // The root of a server ends when its client is no longer timed.
        if !is_root || !self.budget.is_timed() {
            self.budget.charge(since, ExaminationPurpose::Child);
        }
    }

    fn unmaps(&mut self, task: libc::pid_t, start: u64, end: u64) {
        if !self.budget.allows(ExaminationPurpose::Unmap) {
            self.unseen_unmapped_bytes += end - start;
            return;
        }
        let since = Instant::now();
        let process = self.measure(task);
        self.note_cut_pages(task, process, start, end);
        let memory = self.memory.of(process);
        let (as_it_was, rest) = (memory.before_the_cut(start, end), memory.remains.uncut_parts(start, end));
        self.count_freed(process, &as_it_was);
        for (from, to) in rest {
            match self.observer.range_with_places(task as u32, from, to) {
                Ok(found) => {
                    self.count_freed(process, &found);
                    self.note_scatter(task, &found);
                }
                Err(error) => {
                    self.examination.note(Cause::ProcessUnseen { reason: reason(task, &error) }, 0);
                    self.unseen_unmapped_bytes += to - from;
                }
            }
        }
        self.memory.of(process).removed(start, end);
        self.budget.charge(since, ExaminationPurpose::Unmap);
    }

    fn reduces_rss(&mut self, task: libc::pid_t) {
        if self.budget.allows(ExaminationPurpose::Unmap) {
            let since = Instant::now();
            self.measure(task);
            self.budget.charge(since, ExaminationPurpose::Unmap);
        }
    }

    fn frees_unwatched(&mut self, task: libc::pid_t, way: Unwatched) {
        self.memory.frees_unwatched(Status::process_of(task), way);
    }

    fn new_leaves(&mut self, process: libc::pid_t) -> Vec<(u64, u64)> {
        self.new_leaves.of(self.observer, process)
    }

    fn shrinks_pool(&mut self, task: libc::pid_t, process: libc::pid_t, pool_bytes: u64) {
        let known_bytes = self.memory.most_hugetlb_bytes(process);
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
        let mut memory = self.memory.of(process).clone();
        let examination = match self.observer.process(task as u32) {
            Ok(found) => {
                memory.look(&found);
                self.examine(process, false, &found)
            }
            Err(error) => {
                memory.is_hidden = true;
                let mut unseen = Examination::empty(Aim::of(self.policy, self.page_sizes));
                unseen.miss_process(reason(task, &error), Status::concerned_bytes(task));
                unseen
            }
        };
        self.before_exec.insert(process, (examination, memory));
        self.budget.charge(since, ExaminationPurpose::Unmap);
    }

    fn replaced(&mut self, process: libc::pid_t) {
        if let Some((examination, memory)) = self.before_exec.remove(&process) {
            self.examination.merge(examination);
            *self.memory.of(process) = memory;
        }
        self.close(process);
    }
}

/// The scatter as observations.
fn of_scatter(scatter: &FrameScatter) -> [Observation; 2] {
    [
        Observation::measured(names::FRAME_BLOCKS, scatter.blocks as f64),
        Observation::derived(names::MIN_FRAME_BLOCKS, scatter.min_blocks() as f64),
    ]
}

/// Why a process could not be examined, with its name instead of its PID, which differs from run to run.
fn reason(task: libc::pid_t, error: &CensusError) -> String {
    named(task, error.without_pid())
}

fn named(task: libc::pid_t, what: impl Display) -> String {
    match std::fs::read(format!("/proc/{task}/comm")) {
        Ok(name) => format!("{}: {what}", String::from_utf8_lossy(&name).trim_end()),
        Err(_) => format!("a process without a name: {what}"),
    }
}
