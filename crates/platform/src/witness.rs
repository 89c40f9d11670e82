//! The witness of a trial: examines what the tree's processes have in memory when they end, and before it is unmapped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Instant;

use census::explain::Question;
use census::{CensusError, Observer, ProcessCensus};
use nix::unistd::Pid;
use policy::cause::Cause;
use policy::judge::{Aim, Evidence, Examination, Rules};
use policy::remains::Remains;
use policy::removal::Unwatched;
use policy::{PageSizes, Policy};
use study::machine::State;
use study::metric::Observation;
use tracer::{Extent, Witness};

use crate::counters::Counters;

use super::look_budget::{Kind, LookBudget};
use super::memory::{Memory, PeakMemory, Status};

/// Examines the memory of a trial.
pub struct TrialWitness<'a> {
    observer: &'a Observer,
    policy: &'a Policy,
    page_sizes: &'a PageSizes,
    state: &'a State,
    root: libc::pid_t,
    /// The time budget for examinations.
    pub budget: LookBudget<'a>,
    /// The memory of processes, in bytes.
    pub memory: PeakMemory,
    /// The merged results of all examinations.
    examination: Examination,
    /// Bytes that were unmapped without examination, to stay within the time budget.
    unseen_unmapped_bytes: u64,
    /// Page faults of the processes that ended; `None` where those of one could not be read.
    faults: Option<u64>,
    /// Processes that forked, or were forked, since they executed their program.
    forked: BTreeSet<libc::pid_t>,
    /// The memory of processes that are about to execute another program, if they do.
    exiting: BTreeMap<libc::pid_t, (Examination, Memory)>,
    counters: Option<Counters>,
}

impl<'a> TrialWitness<'a> {
    /// A witness of one trial under a policy.
    pub fn new(
        observer: &'a Observer,
        policy: &'a Policy,
        page_sizes: &'a PageSizes,
        state: &'a State,
        budget: LookBudget<'a>,
    ) -> TrialWitness<'a> {
        TrialWitness {
            observer,
            policy,
            page_sizes,
            state,
            root: 0,
            memory: PeakMemory::new(budget.is_unlimited),
            budget,
            examination: Examination::begun(Aim::of(policy, page_sizes)),
            unseen_unmapped_bytes: 0,
            faults: Some(0),
            forked: BTreeSet::new(),
            exiting: BTreeMap::new(),
            counters: None,
        }
    }

    /// The observations other than the census.
    pub fn observations(&mut self) -> Vec<Observation> {
        let mut observations = self.memory.observations();
        // Counters that are not available here have no figure.
        observations.extend(self.counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default());
        observations
    }

    /// The bytes that the faults of the processes can have made: each fault makes a folio of an enabled size below the target.
    pub fn faulted_bytes(&self) -> Option<u64> {
        let target = self.policy.target(self.page_sizes)?;
        let rules = Rules { settings: &self.state.settings, disabled_for_process: None };
        let enabled =
            self.page_sizes.mthp.iter().filter(|size| **size < target && rules.switched_off(**size).is_none());
        let largest = enabled.max().unwrap_or(&self.page_sizes.base);
        Some(self.faults?.saturating_mul(largest.bytes()))
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

    /// Reads the values of which the kernel records no peak. Returns the process.
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
        self.exiting.remove(&process);
        self.forked.remove(&process);
    }

    /// The examination of a census of a task or of a range, under the policy.
    fn examine(&self, process: libc::pid_t, flags: bool, found: &ProcessCensus) -> Examination {
        let (policy, page_sizes, state) = (self.policy, self.page_sizes, self.state);
        let after_fork = self.forked.contains(&process);
        Question { policy, page_sizes, state, smaps: flags.then_some(self.observer), after_fork }.answer(found)
    }

    /// Counts the memory found in a range that is given back.
    fn found(&mut self, process: libc::pid_t, found: &ProcessCensus) {
        self.examination.merge(self.examine(process, false, found));
        self.memory.of(process).look(found);
    }

    /// Where a range that is given back cuts large pages, records the remaining parts: base-page PTEs map them from then on.
    fn note_what_is_cut(&mut self, task: libc::pid_t, process: libc::pid_t, start: u64, end: u64) {
        let large = self.policy.target(self.page_sizes).unwrap_or(self.page_sizes.base);
        for (from, to) in Remains::neighbours(start, end, large) {
            match self.observer.range_with_places(task as u32, from, to) {
                Ok(left) => {
                    let regions = left.areas.iter().flat_map(|area| &area.regions);
                    self.memory.of(process).remains.note(regions, large);
                }
                // The removal of the range itself reports this.
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

    fn extent(&self) -> Extent {
        if self.budget.is_unlimited { Extent::All } else { Extent::Large }
    }

    fn ends(&mut self, task: libc::pid_t) {
        let process = self.measure(task);
        // The time at the root's end is not part of the measured time, but that of a child is: once the children have used their
        // share of it, their causes are determined without reading smaps.
        let since = Instant::now();
        let is_root = process == self.root;
        let flags = is_root || self.budget.allows(Kind::Child);
        self.faults = self.faults.zip(census::faults(task as u32)).map(|(all, own)| all + own);
        match self.observer.process(task as u32) {
            Ok(found) => {
                self.examination.merge(self.examine(process, flags, &found));
                self.memory.of(process).look(&found);
            }
            Err(error) => {
                self.examination.miss_process(reason(task, &error), Status::concerned_bytes(task));
                self.memory.of(process).is_hidden = true;
            }
        }
        self.close(process);
        // The root of a server ends when its client is no longer timed.
        if !is_root || !self.budget.is_timed() {
            self.budget.charge(since, Kind::Child);
        }
    }

    fn unmaps(&mut self, task: libc::pid_t, start: u64, end: u64) {
        if !self.budget.allows(Kind::Unmap) {
            self.unseen_unmapped_bytes += end - start;
            return;
        }
        let since = Instant::now();
        let process = self.measure(task);
        self.note_what_is_cut(task, process, start, end);
        let memory = self.memory.of(process);
        let (as_it_was, rest) = (memory.before_the_cut(start, end), memory.remains.others(start, end));
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
        self.memory.of(process).removed(start, end);
        self.budget.charge(since, Kind::Unmap);
    }

    fn lessens(&mut self, task: libc::pid_t) {
        if self.budget.allows(Kind::Unmap) {
            let since = Instant::now();
            self.measure(task);
            self.budget.charge(since, Kind::Unmap);
        }
    }

    fn takes_unwatched(&mut self, task: libc::pid_t, way: Unwatched) {
        self.memory.takes_unwatched(Status::process_of(task), way);
    }

    fn shrinks(&mut self, task: libc::pid_t, process: libc::pid_t, pool_bytes: u64) {
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
                let mut unseen = Examination::begun(Aim::of(self.policy, self.page_sizes));
                unseen.miss_process(reason(task, &error), Status::concerned_bytes(task));
                unseen
            }
        };
        self.exiting.insert(process, (examination, memory));
        self.budget.charge(since, Kind::Unmap);
    }

    fn replaced(&mut self, process: libc::pid_t) {
        if let Some((examination, memory)) = self.exiting.remove(&process) {
            self.examination.merge(examination);
            *self.memory.of(process) = memory;
        }
        self.close(process);
    }
}

/// Why a process could not be examined, with its name instead of its PID, which differs from run to run.
fn reason(task: libc::pid_t, error: &CensusError) -> String {
    named(task, error.of_any_process())
}

fn named(task: libc::pid_t, what: impl Display) -> String {
    match std::fs::read(format!("/proc/{task}/comm")) {
        Ok(name) => format!("{}: {what}", String::from_utf8_lossy(&name).trim_end()),
        Err(_) => format!("a process without a name: {what}"),
    }
}
