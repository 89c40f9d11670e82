//! Contention for the processors before the first block, and the metric that varies less under it.

use serde::{Deserialize, Serialize};

use crate::metric::names;

/// A busy loop that gets less than this share of a processor shows enough contention to change wall times.
const MIN_SHARE_RATIO: f64 = 0.9;
/// If at least this share of time is stolen, wall times change.
const MAX_STEAL_RATIO: f64 = 0.05;

/// Contention for the processors, sampled before the first block while a busy loop of pagelab ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Online processors.
    pub cpus: u32,
    /// Duration of the sample in seconds.
    pub window_s: f64,
    /// The share of a processor that pagelab's busy loop got.
    pub share_ratio: f64,
    /// Average number of processors that other tasks kept busy.
    pub busy_cpus: f64,
    /// Average number of other runnable tasks.
    pub runnable_tasks: f64,
    /// Stolen time, as a share of the time during which processors had work.
    pub steal_ratio: f64,
    /// Whether the sample chooses the primary metric (`--primary auto`); otherwise it only suggests one.
    pub decides: bool,
}

impl Contention {
    /// Whether wall times vary: the busy loop got less than 90 % of a processor, or at least 5 % of the time was stolen.
    pub fn is_high(&self) -> bool {
        self.share_ratio < MIN_SHARE_RATIO || self.steal_ratio >= MAX_STEAL_RATIO
    }

    /// Name of the metric that varies less.
    pub fn steadier_metric(&self) -> &'static str {
        if self.is_high() { names::CPU_S } else { names::WALL_S }
    }

    /// The sample, as a clause.
    pub fn describe(&self) -> String {
        let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
        format!(
            "other programs kept {:.1} of {} processors busy before the first block ({:.1} runnable tasks, steal {}; a busy loop \
             got {} of a processor)",
            self.busy_cpus,
            self.cpus,
            self.runnable_tasks,
            percent(self.steal_ratio),
            percent(self.share_ratio)
        )
    }

    /// The chosen or suggested metric, with the reason; `None` if there is nothing to suggest. The CPU time of a server cannot
    /// replace the wall time of its client, so for `has_client` only the load is named.
    pub fn advice(&self, has_client: bool) -> Option<String> {
        let seen = self.describe();
        match (self.decides, self.is_high()) {
            (false, true) if has_client => {
                Some(format!("{seen}, so the client's wall time varies and the intervals are wide"))
            }
            (true, true) => Some(format!("{seen}, so CPU time decides (--primary auto)")),
            (true, false) => Some(format!("{seen}, so wall time decides (--primary auto)")),
            (false, true) => {
                Some(format!("{seen}, so wall time varies: --primary cpu compares CPU time, which varies less"))
            }
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Contention = Contention {
        cpus: 2,
        window_s: 0.2,
        share_ratio: 0.99,
        busy_cpus: 0.1,
        runnable_tasks: 0.0,
        steal_ratio: 0.01,
        decides: false,
    };

    #[test]
    fn cpu_time_is_steadier_where_a_processor_is_shared_or_stolen() {
        let shared = Contention { share_ratio: 0.48, busy_cpus: 2.0, runnable_tasks: 5.0, ..QUIET };
        let stolen = Contention { steal_ratio: 0.12, ..QUIET };
        let next_to_one = Contention { busy_cpus: 1.0, runnable_tasks: 1.0, ..QUIET };
        assert_eq!([shared, stolen].map(|seen| seen.steadier_metric()), [names::CPU_S; 2]);
        assert_eq!([QUIET, next_to_one].map(|seen| seen.steadier_metric()), [names::WALL_S; 2]);
    }

    #[test]
    fn a_quiet_host_suggests_nothing_and_decides_with_a_reason() {
        assert_eq!(QUIET.advice(false), None);
        let decided = Contention { decides: true, ..QUIET }.advice(false).unwrap();
        assert!(decided.ends_with("wall time decides (--primary auto)"), "{decided}");
        let loud = Contention { share_ratio: 0.5, busy_cpus: 1.96, runnable_tasks: 4.04, steal_ratio: 0.12, ..QUIET };
        assert_eq!(
            loud.advice(false).unwrap(),
            "other programs kept 2.0 of 2 processors busy before the first block (4.0 runnable tasks, steal 12 %; a busy loop \
             got 50 % of a processor), so wall time varies: --primary cpu compares CPU time, which varies less"
        );
        let of_client = loud.advice(true).unwrap();
        assert!(of_client.contains("client's wall time varies") && !of_client.contains("--primary"), "{of_client}");
        assert_eq!(QUIET.advice(true), None);
    }
}
