//! How a tree ended, and what resources it used.

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
    /// User time, system time and faults of the tree, as accumulated from its ended processes. The kernel does
    /// not count processes that are never waited for (when their parent ignores SIGCHLD).
    pub usage: Usage,
    /// Seconds for which tasks were stopped and being handled by the tracer, summed, including looks. The cost
    /// of context switches and wake-ups is not included.
    pub tracer_s: f64,
    /// Stops of the tree's tasks, of every kind.
    pub stops: u64,
    /// How often the policy had work to do at stopped calls.
    pub pace: Pace,
    /// The time that the witness took.
    pub looks: Looks,
    /// Number of the program's calls that were answered instead of passed to the kernel, by name.
    pub answered: BTreeMap<String, u64>,
    /// Known reasons why a policy may not have held, with the bytes concerned.
    pub causes: BTreeMap<Cause, u64>,
    /// Processes that outlived the root and were killed.
    pub killed_leftovers: usize,
    /// Whether the root was killed because its time limit had expired ([`Launch::limit`](super::Launch::limit)).
    pub time_was_up: bool,
    /// Seconds for which processes continued after the root's end, until they ended or were killed.
    pub outlived_s: f64,
    /// CPU time of these processes in seconds, as far as it was sampled.
    pub outlived_cpu_s: f64,
    /// Whether processes that outlived the root were still at work when they were killed.
    pub cut_short: bool,
}

/// Time that a witness took, in seconds, by its effect on the root's wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Looks {
    /// While the whole tree, or its ending root, was stopped for it: not part of the wall time.
    pub apart_s: f64,
    /// While other tasks of the tree could run: the wall time includes the part of it that they waited for, which is unknown.
    pub within_s: f64,
    /// After the root's end.
    pub after_s: f64,
}

/// Resources used by ended processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Time in user mode, in seconds.
    pub user_s: f64,
    /// Time in the kernel, in seconds.
    pub system_s: f64,
    /// Page faults without I/O.
    pub minor_faults: i64,
    /// Page faults with I/O.
    pub major_faults: i64,
}

impl Ended {
    /// The end of a tree that was not traced, as far as `exit` describes it.
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
