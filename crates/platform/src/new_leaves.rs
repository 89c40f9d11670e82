//! [`NewLeaves`]: finds PMD leaves that appeared since the last look, within a small share of time.

use std::collections::HashMap;
use std::time::Instant;

use census::Observer;

use crate::memory::Status;

/// The pause after a look is this many times as long as the look. With at least two processors, looks run on a processor
/// other than the program's.
const PAUSE_FACTOR: u32 = 20;

/// What the looks at the processes of a trial found.
#[derive(Default)]
pub struct NewLeaves {
    processes: HashMap<libc::pid_t, Seen>,
    not_before: Option<Instant>,
    /// Bytes mapped by PMD leaves, summed over looks.
    late_bytes: u64,
    /// Anonymous bytes, summed over looks.
    looked_bytes: u64,
}

#[derive(Default)]
struct Seen {
    faults: Option<u64>,
    anonymous_bytes: u64,
}

impl NewLeaves {
    /// The leaves of a process. Without a fault since the last look there is no new one.
    pub fn of(&mut self, observer: &Observer, process: libc::pid_t) -> Vec<(u64, u64)> {
        let now = Instant::now();
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Vec::new();
        }
        let seen = self.processes.entry(process).or_default();
        let faults = census::inspect::faults(process as u32);
        if faults.is_some() && faults == seen.faults {
            self.looked_bytes += seen.anonymous_bytes;
            return Vec::new();
        }
        // A process that ended meanwhile has no leaves; the census of its end says what could not be read.
        let leaves = observer.pmd_leaves(process as u32).unwrap_or_default();
        seen.anonymous_bytes = Status::concerned_bytes(process).unwrap_or(0);
        seen.faults = faults.filter(|_| leaves.is_empty());
        self.looked_bytes += seen.anonymous_bytes;
        self.late_bytes += leaves.iter().map(|(start, end)| end - start).sum::<u64>();
        self.not_before = Some(now + now.elapsed() * PAUSE_FACTOR);
        leaves
    }

    /// The share of anonymous memory that PMD leaves mapped at the looks; `None` without looks.
    pub fn late_ratio(&self) -> Option<f64> {
        (self.looked_bytes > 0).then(|| (self.late_bytes as f64 / self.looked_bytes as f64).min(1.0))
    }
}
