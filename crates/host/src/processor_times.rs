//! [`ProcessorTimes`]: the load of the processors, as times since boot, and runnable tasks.

use crate::absent;
use crate::read::HostError;
use crate::root::Root;

const TIMES: &str = "/proc/stat";
const LOAD: &str = "/proc/loadavg";

/// Times of all processors since boot in clock ticks (proc_stat(5)), and the tasks that are runnable at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// Time in user mode, in the kernel and in interrupts, including that of guests.
    pub busy_ticks: u64,
    /// Time in which a processor had nothing to run.
    pub idle_ticks: u64,
    /// Time in which the hypervisor ran something else while a processor had something to run.
    pub stolen_ticks: u64,
    /// Tasks that run or wait for a processor, including the caller.
    pub runnable_tasks: u64,
}

pub fn read(root: &Root) -> Result<ProcessorTimes, HostError> {
    let (times, load) = (root.required(TIMES)?, root.required(LOAD)?);
    let first = times.lines().next().unwrap_or_default();
    let [busy_ticks, idle_ticks, stolen_ticks] = ticks(first)
        .ok_or_else(|| absent::unexpected(root, TIMES, "a first line cpu with eight numbers or more", first))?;
    let runnable_tasks = runnable(&load)
        .ok_or_else(|| absent::unexpected(root, LOAD, "three averages, and runnable/all tasks", load.trim()))?;
    Ok(ProcessorTimes { busy_ticks, idle_ticks, stolen_ticks, runnable_tasks })
}

/// Busy, idle and stolen ticks of a line `cpu user nice system idle iowait irq softirq steal guest guest_nice`. The times of
/// guests are part of `user` and `nice`.
fn ticks(line: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let [user, nice, system, idle, waiting, interrupt, softirq, stolen] = numbers.get(..8)?.try_into().ok()?;
    let sum = |numbers: &[u64]| numbers.iter().try_fold(0u64, |sum, number| sum.checked_add(*number));
    Some([sum(&[user, nice, system, interrupt, softirq])?, sum(&[idle, waiting])?, stolen])
}

/// The runnable tasks in a line `0.17 1.13 2.11 1/85 15435`.
fn runnable(load: &str) -> Option<u64> {
    load.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_guests_count_once_and_waiting_for_a_device_is_idle() {
        let line = "cpu  7211727 1733639 1813590 3515671 87885 2 12853 118028 2798 148";
        assert_eq!(ticks(line), Some([7_211_727 + 1_733_639 + 1_813_590 + 2 + 12_853, 3_515_671 + 87_885, 118_028]));
        for broken in ["cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  1 2 3 x 5 6 7 8", ""] {
            assert_eq!(ticks(broken), None, "{broken}");
        }
        assert_eq!(ticks("cpu  18446744073709551615 1 0 0 0 0 0 0"), None);
    }

    #[test]
    fn runnable_tasks_come_before_all_tasks() {
        assert_eq!(runnable("0.17 1.13 2.11 5/85 15435\n"), Some(5));
        assert_eq!(runnable("0.17 1.13"), None);
    }
}
