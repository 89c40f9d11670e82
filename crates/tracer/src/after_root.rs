//! [`AfterRoot`] tracks processes that outlive the root: whether they work or wait, and their CPU time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::ptrace::Tid;

/// Interval between two samples of the tasks' states.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Minimum number of samples for a decision: on a busy machine the tracer may take samples only rarely.
const MIN_SAMPLES: u32 = 5;
/// A tree is at work if a task was found at work in at least this share of the samples.
const MIN_BUSY_SHARE: f64 = 0.5;
/// Maximum time that a working tree gets after its root has ended.
const MAX_TIME: Duration = Duration::from_secs(60);

/// What is done with processes that outlive the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They continue, and the tracer follows them to their end.
    Follow,
    /// They are killed once they have been idle for this long, and after a minute at the latest.
    KillAfter(Duration),
}

/// Samples of the processes that outlive the root.
pub struct AfterRoot {
    began: Instant,
    last_sample: Option<Instant>,
    samples: Samples,
    /// Tasks that were at work in the last sample.
    at_work: BTreeSet<Tid>,
    /// CPU time of each process at its last sample.
    used: BTreeMap<Tid, Duration>,
}

/// The samples of one grace period.
struct Samples {
    began: Instant,
    count: u32,
    busy: u32,
}

impl Samples {
    fn new() -> Samples {
        Samples { began: Instant::now(), count: 0, busy: 0 }
    }

    fn was_busy(&self) -> bool {
        f64::from(self.busy) >= MIN_BUSY_SHARE * f64::from(self.count)
    }
}

impl AfterRoot {
    /// Starts sampling; call it at the root's end.
    pub fn new() -> AfterRoot {
        AfterRoot {
            began: Instant::now(),
            last_sample: None,
            samples: Samples::new(),
            at_work: BTreeSet::new(),
            used: BTreeMap::new(),
        }
    }

    /// Whether the tree gets more time: until it has been quiet for `grace`, and [`MAX_TIME`] at most. The tree counts as
    /// busy only if two samples in a row find the same task at work, so a sequence of short-lived processes, which may never
    /// end, does not count.
    pub fn has_time_left(&mut self, grace: Duration) -> bool {
        if self.began.elapsed() >= MAX_TIME {
            return false;
        }
        if self.samples.began.elapsed() < grace || self.samples.count < MIN_SAMPLES {
            return true;
        }
        std::mem::replace(&mut self.samples, Samples::new()).was_busy()
    }

    /// Whether the tree was still at work when its time ([`MAX_TIME`]) was up.
    pub fn was_cut(&self) -> bool {
        self.began.elapsed() >= MAX_TIME
    }

    /// Samples the remaining tasks and their processes, at most once per [`SAMPLE_INTERVAL`].
    pub fn sample(&mut self, tasks: impl FnOnce() -> Vec<Tid>, processes: impl FnOnce() -> Vec<Tid>) {
        if self.last_sample.is_some_and(|at| at.elapsed() < SAMPLE_INTERVAL) {
            return;
        }
        let at_work: BTreeSet<Tid> = tasks().into_iter().filter(|task| is_at_work(*task)).collect();
        self.samples.count += 1;
        self.samples.busy += u32::from(!at_work.is_disjoint(&self.at_work));
        self.at_work = at_work;
        for process in processes() {
            if let Some(used) = cpu_time(process) {
                self.used.insert(process, used);
            }
        }
        self.last_sample = Some(Instant::now());
    }

    /// Seconds since the root's end.
    pub fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// CPU time, in seconds, of the sampled processes since they started.
    pub fn cpu_s(&self) -> f64 {
        self.used.values().sum::<Duration>().as_secs_f64()
    }
}

/// Whether a task runs, can run, or waits for a device (proc(5), the third field of /proc/PID/stat). If its
/// state cannot be read, the task counts as at work.
fn is_at_work(task: Tid) -> bool {
    host::task_state(task).map_or(true, |state| matches!(state, Some(b'R' | b'D')))
}

/// CPU time of a process (clock_getcpuclockid(3)); `None` if it has ended.
fn cpu_time(process: Tid) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are those of local variables.
    let read = unsafe {
        libc::clock_getcpuclockid(process, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    read.then(|| Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_a_working_process_from_a_waiting_one() {
        let mut waits = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut works = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let [waiting, working] = [waits.id() as Tid, works.id() as Tid];
        let has_time_left = |process: Tid| {
            let mut after = AfterRoot::new();
            let grace = Duration::from_millis(500);
            while after.samples.began.elapsed() < grace || after.samples.count < MIN_SAMPLES {
                after.sample(|| vec![process], || vec![process]);
                std::thread::sleep(Duration::from_millis(1));
            }
            (after.has_time_left(grace), after.cpu_s())
        };
        while cpu_time(working).unwrap_or_default() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let (of_waiting, of_working) = (has_time_left(waiting), has_time_left(working));
        for child in [&mut waits, &mut works] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!of_waiting.0 && of_working.0, "{of_waiting:?} {of_working:?}");
        assert!(of_working.1 >= 0.02, "{of_working:?}");
        assert_eq!(cpu_time(working), None, "the process has ended");
    }
}
