//! The CPU time that a server has used before its client starts ([`of_tree`]).

use std::fs;

use census::inspect::which;
use host::task_processor_ns;

/// Ticks per second of the times in /proc/PID/stat (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// CPU time of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

/// The CPU time so far of a process, of its descendants, and of those of their children that have ended. Zero for what cannot be read:
/// the process has ended.
pub fn of_tree(root: u32) -> CpuTime {
    let all = which::tree(root).unwrap_or_default().into_iter().filter_map(of_process);
    all.fold(CpuTime::default(), |sum, one| CpuTime {
        user_s: sum.user_s + one.user_s,
        system_s: sum.system_s + one.system_s,
    })
}

/// A process counts its own time in nanoseconds. Only ticks tell which part of it is system time.
fn of_process(pid: u32) -> Option<CpuTime> {
    let ticks = ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let [user_s, system_s, ended_user_s, ended_system_s] = ticks.map(|ticks| ticks as f64 / TICKS_PER_S);
    let precise_s = own_ns(pid) as f64 / 1e9;
    let scale = if user_s + system_s > 0.0 && precise_s > 0.0 { precise_s / (user_s + system_s) } else { 1.0 };
    Some(CpuTime { user_s: scale * user_s + ended_user_s, system_s: scale * system_s + ended_system_s })
}

/// User and system time of a process, and of its children that have ended, in ticks.
fn ticks(stat: &str) -> Option<[u64; 4]> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> = fields.split_whitespace().skip(11).take(4).map_while(|one| one.parse().ok()).collect();
    times.try_into().ok()
}

/// Nanoseconds on a processor of all threads of a process; zero if the kernel does not count them.
fn own_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).map(task_processor_ns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 13 14 20 0 1 0 5";
        assert_eq!(ticks(stat), Some([11, 12, 13, 14]));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn time_that_was_used_is_counted() {
        let used = || {
            let time = of_tree(std::process::id());
            time.user_s + time.system_s
        };
        let before_s = used();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(10) || used() <= before_s {
            assert!(begin.elapsed() < Duration::from_secs(60), "the kernel counts no time");
        }
        assert_eq!(of_tree(u32::MAX), CpuTime::default());
    }
}
