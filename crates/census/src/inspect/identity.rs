//! [`Identity`]: the process that currently has a PID, from `/proc/PID/stat` (proc_pid_stat(5)).

use std::io;

use host::if_exists;

use super::error::InspectError;
use crate::CensusError;

/// The facts about a process in `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    pub threads: u64,
    /// Its start time in clock ticks since boot.
    pub started_ticks: u64,
    /// Whether it was forked and has not executed a program since.
    pub is_fork: bool,
    /// Its page faults since its creation.
    pub faults: Option<u64>,
    /// Page faults of children that it has waited for.
    pub child_faults: Option<u64>,
    /// The start addresses of its code and its stack, which execve changes. 0 or 1 for a user who may not trace it.
    image: (u64, u64),
}

/// The parent of a process; `None` where the process is gone, or belongs to another user under `hidepid=1`.
pub fn parent_of(pid: u32) -> Result<Option<u32>, InspectError> {
    let path = format!("/proc/{pid}/stat");
    let text = match if_exists(host::content(&path)) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(CensusError::io(pid, &path, error).into()),
    };
    let parent = text.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
    parent.map(Some).ok_or(InspectError::Unexpected { path, what: "no parent" })
}

/// The page faults of a process, or of the process that a thread belongs to, since its creation. `None` where they cannot be
/// read.
pub fn faults(pid: u32) -> Option<u64> {
    Identity::of(pid).ok()?.faults
}

/// Flags of a task (include/linux/sched.h).
const PF_FORKNOEXEC: u64 = 0x40;
const PF_KTHREAD: u64 = 0x20_0000;

impl Identity {
    /// The identity of a process with memory.
    pub fn of(pid: u32) -> Result<Identity, InspectError> {
        let path = format!("/proc/{pid}/stat");
        let text = host::content(&path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => InspectError::NoSuchProcess { pid },
            _ => InspectError::Census(CensusError::io(pid, &path, error)),
        })?;
        Identity::parse(pid, &text)
    }

    /// Parses the text. The name is in parentheses and may contain any character.
    pub fn parse(pid: u32, text: &str) -> Result<Identity, InspectError> {
        let wrong = |what| InspectError::Unexpected { path: format!("/proc/{pid}/stat"), what };
        let (name, rest) = text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).ok_or(wrong("no name"))?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Fields are counted from 1; the first one here is the state, field 3.
        let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
        let needed = |field: usize| number(field).ok_or(wrong("too few fields"));
        let (name, flags) = (name.to_string(), needed(9)?);
        if flags & PF_KTHREAD != 0 {
            return Err(InspectError::KernelThread { pid, name });
        }
        if matches!(fields.first(), Some(&"Z" | &"X" | &"x")) {
            return Err(InspectError::Zombie { pid, name, parent: needed(4)? as u32 });
        }
        Ok(Identity {
            pid,
            name,
            threads: needed(20)?,
            started_ticks: needed(22)?,
            is_fork: flags & PF_FORKNOEXEC != 0,
            faults: number(10).zip(number(12)).map(|(minor, major)| minor.saturating_add(major)),
            child_faults: number(11).zip(number(13)).map(|(minor, major)| minor.saturating_add(major)),
            image: (number(26).unwrap_or(0), number(28).unwrap_or(0)),
        })
    }

    /// Whether both identities of the same process show the same program.
    pub fn is_same_program(&self, other: &Identity) -> bool {
        self.image == other.image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str, flags: u64) -> String {
        format!(
            "7 ({name}) {state} 3 7 7 0 -1 {flags} 99 0 0 0 0 0 0 0 20 0 5 0 4098635 3133440 413 1 4096 5000 7000 0"
        )
    }

    #[test]
    fn a_name_may_hold_anything() {
        for name in ["cat", "a) R 1 (b", "", "x\ny", ")("] {
            let identity = Identity::parse(7, &stat(name, "S", 0x40)).unwrap();
            assert_eq!((identity.name.as_str(), identity.threads, identity.started_ticks), (name, 5, 4098635));
            assert_eq!((identity.image, identity.is_fork), ((4096, 7000), true));
        }
    }

    #[test]
    fn names_processes_without_memory() {
        let error = |state: &str, flags: u64| Identity::parse(7, &stat("a", state, flags)).unwrap_err().to_string();
        assert!(error("Z", 0).contains("zombie") && error("Z", 0).contains("parent 3"));
        assert!(error("S", PF_KTHREAD).contains("kernel thread"));
        for text in ["", "7 (a", "7 (a) S", "7 (a) S 1 2 3"] {
            assert!(matches!(Identity::parse(7, text), Err(InspectError::Unexpected { .. })), "{text:?}");
        }
    }
}
