//! Who has the lease.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Characters of a command line that are kept.
const COMMAND: usize = 200;

/// The process that has the lease, as it wrote it into the lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its process id; 0 where the lock file does not say (it is being written, or the lease given up).
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat), so that a process id
    /// that was given again is not taken for it.
    pub start_ticks: u64,
    /// Its command line.
    pub command: String,
    /// When it took the lease, in seconds since 1970.
    pub since_unix_s: u64,
    /// How many others share it.
    #[serde(skip)]
    pub sharing: usize,
    /// How many processes waited for it before the one that asks, and still do.
    #[serde(skip)]
    pub in_front: usize,
}

impl Holder {
    /// This process, now.
    pub fn this_process() -> Holder {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let command: String = words.join(" ").chars().take(COMMAND).collect();
        let pid = std::process::id() as i32;
        let start_ticks = start_ticks(pid).unwrap_or_default();
        Holder { pid, start_ticks, command, since_unix_s: now_unix_s(), sharing: 0, in_front: 0 }
    }

    /// A process that shares the lock, and wrote nothing: since when is when it started. `None` where it is gone.
    pub(super) fn of_process(pid: i32) -> Option<Holder> {
        let start_ticks = start_ticks(pid)?;
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let uptime_s: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        // SAFETY: a question without pointers.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let age_s = (uptime_s - start_ticks as f64 / ticks_a_second as f64).max(0.0) as u64;
        let command = words.chars().take(COMMAND).collect();
        let since_unix_s = now_unix_s().saturating_sub(age_s);
        Some(Holder { pid, start_ticks, command, since_unix_s, sharing: 0, in_front: 0 })
    }

    /// A holder that did not say who it is.
    pub(super) fn unknown() -> Holder {
        Holder { pid: 0, start_ticks: 0, command: String::new(), since_unix_s: now_unix_s(), sharing: 0, in_front: 0 }
    }

    /// Whether the process still runs. It may be gone while its watchdog, which has the lock too, puts
    /// the settings back.
    pub fn is_running(&self) -> bool {
        start_ticks(self.pid).is_some_and(|ticks| ticks == self.start_ticks)
    }

    /// For how long it has had the lease.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now_unix_s().saturating_sub(self.since_unix_s))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, command, .. } = self;
        let seconds = self.age().as_secs();
        match pid {
            0 => write!(f, "by a process that has not yet said who it is")?,
            _ if self.is_running() => {
                write!(f, "by process {pid} (`{command}`) for {seconds} s")?;
                match self.sharing {
                    0 => {}
                    1 => write!(f, ", and one more")?,
                    others => write!(f, ", and {others} more")?,
                }
            }
            _ => write!(f, "by process {pid} (`{command}`), which is gone; its watchdog is putting them back")?,
        }
        match self.in_front {
            0 => Ok(()),
            1 => write!(f, "; 1 other waits in front"),
            others => write!(f, "; {others} others wait in front"),
        }
    }
}

/// Whether the process is stopped, by a signal or by a tracer.
pub(super) fn is_stopped(pid: i32) -> bool {
    stat_field(pid, 3).is_some_and(|state| matches!(state.as_str(), "T" | "t"))
}

fn start_ticks(pid: i32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// A field of /proc/PID/stat from the third on, by its number in proc_pid_stat(5).
fn stat_field(pid: i32, number: usize) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The second field is the program's name in parentheses, which can hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(number - 3).map(str::to_owned)
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_with_a_process_id_given_again_is_gone() {
        let mut holder = Holder::this_process();
        assert!(holder.is_running());
        assert!(holder.to_string().contains("for 0 s") && holder.to_string().contains(&holder.pid.to_string()));
        holder.start_ticks += 1;
        assert!(!holder.is_running() && holder.to_string().contains("which is gone"));
    }
}
