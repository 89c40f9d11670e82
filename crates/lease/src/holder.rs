//! [`Holder`]: the process that has the lease.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use host::if_exists;
use policy::inspect::ChangedSetting;
use serde::{Deserialize, Serialize};

/// Maximum number of characters kept of a command line.
const MAX_COMMAND_CHARS: usize = 200;

/// The process that has the lease, as recorded in the lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its PID; 0 where the lock file does not contain it (it is being written, or the lease is being given up).
    pub pid: i32,
    /// Its start time in clock ticks since boot (field 22 of /proc/PID/stat), so that a reused PID is not mistaken for it.
    pub start_ticks: u64,
    pub command: String,
    /// The time at which it took the lease, in seconds since 1970.
    pub since_unix_s: u64,
    /// Number of other processes that share the lock.
    #[serde(skip)]
    pub sharing: usize,
    /// Number of processes that were already waiting for the lock before the caller, and still are.
    #[serde(skip)]
    pub in_front: usize,
    /// The settings that now differ from the host's own, where the caller wants them to be named.
    #[serde(skip)]
    pub changed: Vec<ChangedSetting>,
}

impl Holder {
    /// This process, with the current time.
    pub fn this_process() -> io::Result<Holder> {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let command: String = words.join(" ").chars().take(MAX_COMMAND_CHARS).collect();
        let pid = std::process::id() as i32;
        let start_ticks = start_ticks(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Holder {
            pid,
            start_ticks,
            command,
            since_unix_s: now_unix_s(),
            sharing: 0,
            in_front: 0,
            changed: Vec::new(),
        })
    }

    /// A process that shares the lock and has recorded nothing: its start time is used as the time at which it took the lock.
    /// `None` where it is gone.
    pub(super) fn of_process(pid: i32) -> io::Result<Option<Holder>> {
        let Some(start_ticks) = start_ticks(pid)? else { return Ok(None) };
        let Some(words) = if_exists(std::fs::read(format!("/proc/{pid}/cmdline")))? else { return Ok(None) };
        let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        let uptime = host::content("/proc/uptime")?;
        let uptime_s = uptime.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        let uptime_s = uptime_s.ok_or_else(|| io::Error::other(format!("/proc/uptime: found {uptime:?}")))?;
        // SAFETY: a query without pointers.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let age_s = (uptime_s - start_ticks as f64 / ticks_a_second as f64).max(0.0) as u64;
        let command = words.chars().take(MAX_COMMAND_CHARS).collect();
        let since_unix_s = now_unix_s().saturating_sub(age_s);
        Ok(Some(Holder { pid, start_ticks, command, since_unix_s, sharing: 0, in_front: 0, changed: Vec::new() }))
    }

    /// A holder that has not recorded its identity.
    pub(super) fn unknown() -> Holder {
        Holder {
            pid: 0,
            start_ticks: 0,
            command: String::new(),
            since_unix_s: now_unix_s(),
            sharing: 0,
            in_front: 0,
            changed: Vec::new(),
        }
    }

    /// Whether the process still runs. It may be gone while its watchdog, which also holds the lock, restores the settings. If
    /// this cannot be read, the process counts as running.
    pub fn is_running(&self) -> bool {
        start_ticks(self.pid).map_or(true, |ticks| ticks == Some(self.start_ticks))
    }

    /// How long it has had the lease.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now_unix_s().saturating_sub(self.since_unix_s))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, command, .. } = self;
        let age = match self.age().as_secs() {
            seconds @ 0..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        };
        match pid {
            0 => write!(f, "by another process (its name is not recorded yet)")?,
            _ if self.is_running() => {
                write!(f, "by process {pid} (`{command}`), which has held it for {age}")?;
                match self.sharing {
                    0 => {}
                    1 => write!(f, ", and one more")?,
                    others => write!(f, ", and {others} more")?,
                }
            }
            _ => write!(f, "by process {pid} (`{command}`), which is gone; its watchdog is putting them back")?,
        }
        if let Some(changed) = ChangedSetting::describe(&self.changed) {
            write!(f, "; {changed}")?;
        }
        match self.in_front {
            0 => Ok(()),
            1 => write!(f, "; 1 other process waits before this one"),
            others => write!(f, "; {others} other processes wait before this one"),
        }
    }
}

/// Whether the process is stopped by a signal or a tracer.
pub(super) fn is_stopped(pid: i32) -> io::Result<bool> {
    Ok(stat_field(pid, 3)?.is_some_and(|state| matches!(state.as_str(), "T" | "t")))
}

/// The start time of a process; `None` where it is gone.
fn start_ticks(pid: i32) -> io::Result<Option<u64>> {
    let Some(ticks) = stat_field(pid, 22)? else { return Ok(None) };
    ticks.parse().map(Some).map_err(|_| io::Error::other(format!("/proc/{pid}/stat: found the start time {ticks:?}")))
}

/// A field of /proc/PID/stat from the third on, by its number in proc_pid_stat(5); `None` where the process is gone.
fn stat_field(pid: i32, number: usize) -> io::Result<Option<String>> {
    let Some(stat) = if_exists(host::content(format!("/proc/{pid}/stat")))? else { return Ok(None) };
    // The second field is the program's name in parentheses, which may contain any character.
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(number - 3));
    let field = field.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: found {stat:?}")))?;
    Ok(Some(field.to_owned()))
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_whose_pid_was_reused_is_gone() {
        let mut holder = Holder::this_process().unwrap();
        assert!(holder.is_running());
        let text = holder.to_string();
        assert!(
            text.contains(&holder.pid.to_string())
                && (text.contains("has held it for 0 s") || text.contains("has held it for 1 s")),
            "{text}"
        );
        let own = || ChangedSetting { path: "/a".into(), now: "always".into(), own: "never".into() };
        let long = Holder { since_unix_s: holder.since_unix_s - 700, changed: vec![own()], ..holder.clone() };
        assert!(long.to_string().ends_with("which has held it for 11 min; /a is always (own value: never)"), "{long}");
        holder.start_ticks += 1;
        assert!(!holder.is_running() && holder.to_string().contains("which is gone"));
    }
}
