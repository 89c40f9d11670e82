//! Reads the system and the list of processes for every frame of `top` ([`Watcher`]), and inspects as many processes as
//! its budget of CPU time allows.

use std::collections::HashMap;
use std::time::Instant;

use census::Observer;
use census::inspect::{Detail, InspectError, Inspector};
use host::{Activity, Host, HostError, ProcessStat};
use policy::inspect::{Inspection, Summary, Supply};

use super::pace::Pace;
use super::turns::{self, Candidate};
use super::view::{Inspected, InspectionState, RefreshCost, Row, System, View};
use crate::failure::Failure;
use crate::sizes::Sizes;

/// Counters of splits and collapses that the kernel makes on its own. If no counter has increased, the mappings of a
/// process without faults are unchanged.
const SPLIT_AND_COLLAPSE_COUNTERS: [&str; 6] =
    ["thp_split_page", "thp_split_pmd", "thp_collapse_alloc", "thp_swpout", "thp_migration_success", host::COLLAPSED];
/// The expected cost in seconds of a first inspection: a constant, and a cost per resident byte (smaps walks all of it).
const INSPECTION_S: f64 = 0.4e-3;
const INSPECTION_S_PER_BYTE: f64 = 20e-3 / (1u64 << 30) as f64;
/// Seconds for which cached settings and counters are used to explain causes: reading them costs more than inspecting a small
/// process.
const SUPPLY_S: f64 = 10.0;

/// Limits the inspections of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectionLimit {
    /// As many as the budget of CPU time allows.
    Paced,
    /// All that are due, whatever they cost, because the user waits for a single frame.
    All,
}

/// Watches the system and its processes.
pub struct Watcher {
    host: Host,
    inspector: Inspector,
    pace: Pace,
    processes: HashMap<u32, Watched>,
    /// The previous reading of the system's counters, and its time.
    before: Option<(Activity, Instant)>,
    supply: Option<(Supply, Instant)>,
}

/// A watched process.
struct Watched {
    stat: ProcessStat,
    /// When the process was first listed.
    since: Instant,
    faults_per_s: Option<f64>,
    looked: Option<LastInspection>,
}

/// The last inspection of a process.
struct LastInspection {
    at: Instant,
    /// The counters of the process at the time of the inspection.
    stat: ProcessStat,
    /// The sum of the kernel's counters in [`SPLIT_AND_COLLAPSE_COUNTERS`] at the time of the inspection.
    splits_and_collapses: u64,
    cost_s: f64,
    outcome: Result<Inspected, String>,
}

impl Watcher {
    /// Watches this host with the requested interval.
    ///
    /// # Errors
    /// /proc or /sys cannot be read.
    pub fn new(every_s: f64) -> Result<Watcher, InspectError> {
        let host = Host::open("/")?;
        let inspector = Inspector::new(host.clone(), Observer::open()?.with_file_folios(), Detail::default());
        let (processes, before, supply) = Default::default();
        Ok(Watcher { host, inspector, pace: Pace::new(every_s), processes, before, supply })
    }

    /// Seconds to the next frame.
    pub fn every_s(&self) -> f64 {
        self.pace.every_s()
    }

    /// Reads the system and draws the frame. The CPU time of both is charged to the budget.
    ///
    /// # Errors
    /// /proc cannot be read, or the frame cannot be drawn.
    pub fn frame(
        &mut self,
        limit: InspectionLimit,
        draw: impl FnOnce(&View) -> Result<(), Failure>,
    ) -> Result<View, Failure> {
        let start_s = cpu_time_s();
        let now = Instant::now();
        let activity = self.host.activity().map_err(Failure::input)?;
        let since = self.before.as_ref().map(|(before, at)| (before, (now - *at).as_secs_f64()));
        self.pace.accrue(since.map_or(0.0, |(_, seconds)| seconds));
        let system = System::of(&activity, since, self.host.page_sizes());
        self.list(now, since.map(|(_, seconds)| seconds)).map_err(Failure::input)?;
        let looks_s = self.inspect_due(now, splits_and_collapses(&activity), limit).map_err(Failure::input)?;
        let view = self.view(system, now, splits_and_collapses(&activity));
        self.before = Some((activity, now));
        draw(&view)?;
        self.pace.charge_frame(cpu_time_s() - start_s - looks_s);
        Ok(view)
    }

    /// Inspects a process now, whatever the budget.
    ///
    /// # Errors
    /// As [`InspectError`].
    pub fn inspect(&self, pid: u32) -> Result<Inspection, InspectError> {
        self.inspector.process(pid, &self.inspector.supply()?)
    }

    /// Updates the list of processes.
    fn list(&mut self, now: Instant, since_s: Option<f64>) -> Result<(), HostError> {
        let listed = self.host.processes()?;
        let mut known = std::mem::take(&mut self.processes);
        for stat in listed {
            let before = known.remove(&stat.pid).filter(|before| before.stat.started_ticks == stat.started_ticks);
            let watched = match before {
                None => Watched { stat, since: now, faults_per_s: None, looked: None },
                Some(before) => {
                    let faults = faults(&stat).saturating_sub(faults(&before.stat));
                    let faults_per_s = since_s.filter(|since_s| *since_s > 0.0).map(|since_s| faults as f64 / since_s);
                    Watched { stat, since: before.since, faults_per_s, looked: before.looked }
                }
            };
            self.processes.insert(watched.stat.pid, watched);
        }
        Ok(())
    }

    /// Inspects the processes whose turn it is, and returns the CPU time in seconds.
    fn inspect_due(
        &mut self,
        now: Instant,
        splits_and_collapses: u64,
        limit: InspectionLimit,
    ) -> Result<f64, HostError> {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        let candidates: Vec<Candidate> =
            pids.iter().map(|pid| self.processes[pid].candidate(now, splits_and_collapses)).collect();
        let mut all_s = 0.0;
        for place in turns::order(&candidates) {
            let watched = &self.processes[&pids[place]];
            if limit == InspectionLimit::Paced && !self.pace.affords(watched.expected_s()) {
                // The process whose turn it is must not be skipped in favour of a cheaper one; otherwise small
                // processes could delay a large one forever.
                break;
            }
            let start_s = cpu_time_s();
            let outcome = self.inspect_cached(pids[place], now)?;
            let cost_s = cpu_time_s() - start_s;
            all_s += cost_s;
            self.pace.charge_inspection(cost_s);
            if let Some(watched) = self.processes.get_mut(&pids[place]) {
                let stat = watched.stat.clone();
                watched.looked = Some(LastInspection { at: now, stat, splits_and_collapses, cost_s, outcome });
            }
        }
        Ok(all_s)
    }

    fn inspect_cached(&mut self, pid: u32, now: Instant) -> Result<Result<Inspected, String>, HostError> {
        let is_old = |(_, at): &(Supply, Instant)| (now - *at).as_secs_f64() >= SUPPLY_S;
        if self.supply.as_ref().is_none_or(is_old) {
            match self.inspector.supply() {
                Ok(supply) => self.supply = Some((supply, now)),
                Err(InspectError::Host(error)) => return Err(error),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        let Some((supply, _)) = &self.supply else { return Ok(Err("settings could not be read".to_string())) };
        let inspected = self.inspector.process(pid, supply);
        Ok(inspected.map(|inspection| seen(&inspection)).map_err(|error| error.to_string()))
    }

    fn view(&self, system: System, now: Instant, splits_and_collapses: u64) -> View {
        let rows = self.processes.values().map(|watched| watched.row(now, splits_and_collapses)).collect();
        let pace = RefreshCost {
            every_s: self.pace.every_s(),
            requested_s: self.pace.requested_s(),
            frame_s: self.pace.frame_s(),
        };
        View { system, rows, pace }
    }
}

impl Watched {
    fn candidate(&self, now: Instant, splits_and_collapses: u64) -> Candidate {
        let looked = self.looked.as_ref();
        Candidate {
            waited_s: (now - looked.map_or(self.since, |looked| looked.at)).as_secs_f64(),
            is_new: looked.is_none(),
            has_changed: looked.is_some_and(|looked| has_changed(&looked.stat, &self.stat)),
            split_or_collapsed: looked.is_some_and(|looked| looked.splits_and_collapses != splits_and_collapses),
            resident_bytes: self.stat.resident_bytes,
        }
    }

    /// The expected CPU seconds of an inspection.
    fn expected_s(&self) -> f64 {
        let by_size_s = INSPECTION_S + self.stat.resident_bytes as f64 * INSPECTION_S_PER_BYTE;
        self.looked.as_ref().map_or(by_size_s, |looked| looked.cost_s)
    }

    fn row(&self, now: Instant, splits_and_collapses: u64) -> Row {
        let inspection = match &self.looked {
            None => InspectionState::Pending,
            Some(LastInspection { outcome: Err(why), .. }) => InspectionState::Failed(why.clone()),
            Some(LastInspection { outcome: Ok(seen), at, .. }) => {
                let candidate = self.candidate(now, splits_and_collapses);
                let (age_s, is_old) =
                    ((now - *at).as_secs_f64(), candidate.has_changed || candidate.split_or_collapsed);
                InspectionState::Done(Inspected { age_s, is_old, ..seen.clone() })
            }
        };
        Row {
            pid: self.stat.pid,
            name: self.stat.name.clone(),
            resident_bytes: self.stat.resident_bytes,
            faults_per_s: self.faults_per_s,
            inspection,
        }
    }
}

/// The fields of a row of the table, taken from an inspection.
fn seen(inspection: &Inspection) -> Inspected {
    let summary = Summary::of(inspection);
    Inspected {
        sizes: Sizes::of(&summary.census),
        larger_bytes: summary.could_be_larger_bytes,
        cause: summary.first_cause.map(|(cause, _)| cause.describe()),
        age_s: 0.0,
        is_old: false,
    }
}

fn faults(stat: &ProcessStat) -> u64 {
    stat.minor_faults + stat.major_faults
}

/// Whether the memory of a process has probably changed: it had faults, or its resident size is different.
fn has_changed(then: &ProcessStat, now: &ProcessStat) -> bool {
    faults(then) != faults(now) || then.resident_bytes != now.resident_bytes
}

fn splits_and_collapses(activity: &Activity) -> u64 {
    SPLIT_AND_COLLAPSE_COUNTERS.iter().filter_map(|name| activity.counters.get(name)).fold(0, u64::wrapping_add)
}

/// CPU seconds of this process and its threads, including kernel time.
fn cpu_time_s() -> f64 {
    tracer::child::cpu_s(std::process::id()).expect("a process may read its own clock")
}
