//! [`Ended`]: how a tree ended, and what resources it used.

use std::collections::BTreeMap;

use policy::Exit;
use policy::cause::Cause;
use policy::hugetlb::RefusedRequest;

use super::pace::Pace;

/// How a tree ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How the root ended.
    pub exit: Exit,
    /// Seconds from the root's first instruction to the end of its teardown, less [`InspectionTimes::excluded_s`].
    pub wall_s: f64,
    /// User time, system time and faults of the tree, as accumulated from its ended processes. The kernel does
    /// not count processes that are never waited for (when their parent ignores SIGCHLD).
    pub usage: Usage,
    /// Seconds that the tracer spent handling stops, including the witness's inspections. The cost of context switches and
    /// wake-ups is not included.
    pub tracer_s: f64,
    /// Stops of the tree's tasks, of every kind.
    pub stops: u64,
    /// The share of stopped calls at which the policy made further calls, and their average number.
    pub pace: Pace,
    /// The time that the witness took.
    pub inspection_times: InspectionTimes,
    /// Number of the program's calls that were answered instead of passed to the kernel, by name.
    pub answered: BTreeMap<String, u64>,
    /// Maximum of advised bytes over all address spaces.
    pub advised_bytes: u64,
    /// Known reasons why memory may not have the policy's page sizes, with the bytes affected.
    pub causes: BTreeMap<Cause, u64>,
    /// Requests for hugetlb pages that the kernel refused to the program itself.
    pub refused_requests: Vec<RefusedRequest>,
    /// Processes that outlived the root and were killed.
    pub killed_leftovers: usize,
    /// Whether the root was killed because its time limit had expired ([`Launch::limit`](super::Launch::limit)).
    pub time_was_up: bool,
    /// Seconds for which processes continued after the root's end, until they ended or were killed.
    pub outlived_s: f64,
    /// CPU seconds of these processes since their start, as of the last sample.
    pub outlived_cpu_s: f64,
    /// Whether processes that outlived the root were still at work when they were killed.
    pub cut_short: bool,
}

/// Seconds that the witness took, by whether the root's wall time contains them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InspectionTimes {
    /// While no other task of the tree could run, or the root was exiting: subtracted from the wall time.
    pub excluded_s: f64,
    /// While other tasks could run: not subtracted. The wall time contains the part in which they waited for the
    /// inspection, which is unknown.
    pub included_s: f64,
    /// After the root's end.
    pub after_root_s: f64,
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
    /// The largest resident set of one of the processes in bytes, without hugetlb pages. It is at least what pagelab itself had when it
    /// created them, because the kernel keeps the maximum over exec.
    pub max_resident_bytes: u64,
}

impl Ended {
    /// All causes that are known without an examination of memory: [`Ended::causes`], and the refused requests. These have 0 bytes,
    /// because they explain no particular memory.
    pub fn all_causes(&self) -> BTreeMap<Cause, u64> {
        let requests = self.refused_requests.iter().map(|request| (Cause::from(request), 0));
        self.causes.clone().into_iter().chain(requests).collect()
    }

    /// The end of a tree that was not traced: `exit`, and zero for everything else.
    pub fn untraced(exit: Exit) -> Ended {
        Ended {
            exit,
            wall_s: 0.0,
            usage: Usage::default(),
            tracer_s: 0.0,
            stops: 0,
            pace: Pace::default(),
            inspection_times: InspectionTimes::default(),
            answered: BTreeMap::new(),
            advised_bytes: 0,
            causes: BTreeMap::new(),
            refused_requests: Vec::new(),
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
            max_resident_bytes: raw.ru_maxrss.unsigned_abs() * 1024,
        }
    }
}
