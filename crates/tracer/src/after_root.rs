//! Tracks processes that outlive the root: whether they work or wait, and their CPU time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::ptrace::Tid;

/// Interval between two samples of their states.
const LOOK: Duration = Duration::from_millis(10);
/// A tree is at work if a task was found at work in at least this share of the samples.
const BUSY: f64 = 0.5;
/// The longest time that a working tree gets after its root has ended.
const MOST: Duration = Duration::from_secs(60);

/// What is done with processes that outlive the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They continue, traced, and the tracer stays with them.
    Follow,
    /// They are killed once they have been idle for this long, and after a minute at the latest.
    KillAfter(Duration),
}

/// The time after the root's end, sampled.
pub struct AfterRoot {
    began: Instant,
    looked: Option<Instant>,
    window: Window,
    /// Tasks that were at work in the last sample.
    at_work: BTreeSet<Tid>,
    /// CPU time of each process at its last sample.
    used: BTreeMap<Tid, Duration>,
}

/// The samples of one span of time.
struct Window {
    began: Instant,
    looks: u32,
    busy: u32,
}

impl Window {
    fn new() -> Window {
        Window { began: Instant::now(), looks: 0, busy: 0 }
    }

    fn was_busy(&self) -> bool {
        f64::from(self.busy) >= BUSY * f64::from(self.looks.max(1))
    }
}

impl AfterRoot {
    /// Starts the clock at the root's end.
    pub fn new() -> AfterRoot {
        AfterRoot {
            began: Instant::now(),
            looked: None,
            window: Window::new(),
            at_work: BTreeSet::new(),
            used: BTreeMap::new(),
        }
    }

    /// Whether the tree gets more time: until it has been quiet for `grace`, and [`MOST`] at most. A task
    /// counts as at work if two samples in a row find it so. A sequence of short-lived processes does not
    /// count, because it may never end.
    pub fn goes_on(&mut self, grace: Duration) -> bool {
        if self.window.began.elapsed() < grace {
            return true;
        }
        let over = std::mem::replace(&mut self.window, Window::new());
        over.was_busy() && self.began.elapsed() < MOST
    }

    /// Whether the tree was still at work when its time ([`MOST`]) was up.
    pub fn was_cut(&self) -> bool {
        self.began.elapsed() >= MOST
    }

    /// Samples the remaining tasks and their processes, at most once per [`LOOK`].
    pub fn look(&mut self, tasks: impl FnOnce() -> Vec<Tid>, processes: impl FnOnce() -> Vec<Tid>) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        let at_work: BTreeSet<Tid> = tasks().into_iter().filter(|task| is_at_work(*task)).collect();
        self.window.looks += 1;
        self.window.busy += u32::from(!at_work.is_disjoint(&self.at_work));
        self.at_work = at_work;
        for process in processes() {
            if let Some(used) = cpu_time(process) {
                self.used.insert(process, used);
            }
        }
        self.looked = Some(Instant::now());
    }

    /// Seconds since the root's end.
    pub fn lasted_s(&self) -> f64 {
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

/// CPU time of a process (clock_getcpuclockid(3)); `None` if it is gone.
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
    fn a_process_at_work_is_told_from_one_that_waits() {
        let mut waits = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut works = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let [waiting, working] = [waits.id() as Tid, works.id() as Tid];
        let goes_on = |process: Tid| {
            let mut after = AfterRoot::new();
            let grace = Duration::from_millis(100);
            while after.window.began.elapsed() < grace {
                after.look(|| vec![process], || vec![process]);
                std::thread::sleep(Duration::from_millis(1));
            }
            (after.goes_on(grace), after.cpu_s())
        };
        while cpu_time(working).unwrap_or_default() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let (of_waiting, of_working) = (goes_on(waiting), goes_on(working));
        for child in [&mut waits, &mut works] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!of_waiting.0 && of_working.0, "{of_waiting:?} {of_working:?}");
        assert!(of_working.1 >= 0.02, "{of_working:?}");
        assert_eq!(cpu_time(working), None, "it is gone");
    }
}
