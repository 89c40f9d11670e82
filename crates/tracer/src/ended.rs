//! How a tree ended, and what it used.

use std::collections::BTreeMap;

use policy::cause::Cause;
use study::trial::Exit;

use super::pace::Pace;

/// How a tree ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How the root ended.
    pub exit: Exit,
    /// From the root's first instruction to the end of its teardown, less [`Looks::apart_s`].
    pub wall_s: f64,
    /// User and system time and faults of the tree, as its ended processes accumulate them. What nobody waits for (a
    /// program that ignores SIGCHLD) the kernel does not count.
    pub usage: Usage,
    /// Time for which stopped tasks were in the tracer's hands, summed, looks included. What switches and wake-ups cost is
    /// not in it.
    pub tracer_s: f64,
    /// Stops of the tree's tasks, of every kind.
    pub stops: u64,
    /// How the calls that stopped were served.
    pub pace: Pace,
    /// What the witness took.
    pub looks: Looks,
    /// Calls of the program that were answered and not passed on, and how often.
    pub answered: BTreeMap<String, u64>,
    /// What the tracer knows about why a policy may not have held, with the bytes concerned.
    pub causes: BTreeMap<Cause, u64>,
    /// Processes that outlived the root and were killed.
    pub killed_leftovers: usize,
    /// Whether the root was killed because it had had its time ([`Launch::limit`](super::Launch::limit)).
    pub time_was_up: bool,
    /// How long processes went on after the root's end, until they ended or were killed.
    pub outlived_s: f64,
    /// CPU time of these processes, as far as it was seen.
    pub outlived_cpu_s: f64,
    /// Whether processes that outlived the root were still at work when they were killed.
    pub cut_short: bool,
}

/// What a witness took, by what it did to the wall time of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Looks {
    /// While the whole tree, or its ending root, stood still for it: the wall time does not contain it.
    pub apart_s: f64,
    /// While other tasks of the tree could run: the wall time contains all of it that they waited for, which cannot be told.
    pub within_s: f64,
    /// After the root had ended.
    pub after_s: f64,
}

/// Resources of ended processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Time in user mode.
    pub user_s: f64,
    /// Time in the kernel.
    pub system_s: f64,
    /// Faults without I/O.
    pub minor_faults: i64,
    /// Faults with I/O.
    pub major_faults: i64,
}

impl Ended {
    /// How a tree ended that nobody traced, as far as `exit` says it.
    pub fn of_nothing_traced(exit: Exit) -> Ended {
        Ended {
            exit,
            wall_s: 0.0,
            usage: Usage::default(),
            tracer_s: 0.0,
            stops: 0,
            pace: Pace::default(),
            looks: Looks::default(),
            answered: BTreeMap::new(),
            causes: BTreeMap::new(),
            killed_leftovers: 0,
            time_was_up: false,
            outlived_s: 0.0,
            outlived_cpu_s: 0.0,
            cut_short: false,
        }
    }
}

impl From<libc::rusage> for Usage {
    fn from(raw: libc::rusage) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Usage {
            user_s: seconds(raw.ru_utime),
            system_s: seconds(raw.ru_stime),
            minor_faults: raw.ru_minflt,
            major_faults: raw.ru_majflt,
        }
    }
}
