//! Identifies the process that created a temporary file ([`Writer`]) in the file's name, so that files of a killed
//! process can be removed, and files of a running process are kept.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::process;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

/// Bytes of a [`Writer::scope`].
const SCOPE_BYTES: usize = 8;

/// A process, distinguished from all others that could have the same PID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    process: u32,
    /// When the process started, in clock ticks since boot (proc(5), `starttime`).
    start_ticks: u64,
    /// Hash of the boot ID (which implies the host) and of the PID and time namespaces: PID and start time are valid
    /// only within these.
    scope: String,
}

impl Writer {
    /// The calling process.
    pub fn this_process() -> io::Result<Writer> {
        let process = process::id();
        let start_ticks = start_ticks(process)?;
        let namespace = |name: &str| match fs::metadata(format!("/proc/self/ns/{name}")) {
            Ok(of) => Ok(of.ino().to_string()),
            // Time namespaces exist since Linux 5.6.
            Err(error) if name == "time" && error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let hash = Sha256::digest([boot.trim(), &namespace("pid")?, &namespace("time")?].join(" "));
        let scope = hash[..SCOPE_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Writer { process, start_ticks, scope })
    }

    /// Prefix of the names of files that this process creates; letters and digits must follow.
    pub fn prefix(&self, kind: &str) -> String {
        let Writer { process, start_ticks, scope } = self;
        format!("{kind}{process}-{start_ticks}-{scope}-")
    }

    /// The process that created a file with this name; `None` if the name has another form.
    pub fn of(name: &str, kind: &str) -> Option<Writer> {
        let [process, start_ticks, scope, rest] = name.strip_prefix(kind)?.split('-').collect::<Vec<_>>()[..] else {
            return None;
        };
        let digits = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit());
        let is_scope = scope.len() == 2 * SCOPE_BYTES && scope.bytes().all(|letter| letter.is_ascii_hexdigit());
        let is_random = !rest.is_empty() && rest.bytes().all(|letter| letter.is_ascii_alphanumeric());
        if !digits(process) || !digits(start_ticks) || !is_scope || !is_random {
            return None;
        }
        let (process, start_ticks) = (process.parse().ok()?, start_ticks.parse().ok()?);
        Some(Writer { process, start_ticks, scope: scope.to_owned() })
    }

    /// Whether the process has certainly ended. `this` is the calling process. A process on another host, in an earlier
    /// boot or in another container may still be running, so false.
    pub fn is_gone(&self, this: &Writer) -> bool {
        let Ok(process) = i32::try_from(self.process) else { return false };
        if self.scope != this.scope || process == 0 {
            return false;
        }
        // /proc may hide processes (hidepid); kill(2) does not.
        match kill(Pid::from_raw(process), None) {
            Err(Errno::ESRCH) => true,
            _ => start_ticks(self.process).is_ok_and(|ticks| ticks != self.start_ticks),
        }
    }

    /// A process with the same PID and start time on another host, for tests.
    #[cfg(test)]
    pub(crate) fn elsewhere(&self) -> Writer {
        Writer { scope: "0".repeat(2 * SCOPE_BYTES), ..self.clone() }
    }
}

/// When a process started, in clock ticks since boot.
fn start_ticks(process: u32) -> io::Result<u64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read(&path)?;
    // The second field is the program's name in parentheses, which can contain any character.
    let fields = String::from_utf8_lossy(&stat);
    let ticks = fields.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    ticks.ok_or_else(|| io::Error::other(format!("{path}: no start time")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = ".pagelab-";

    #[test]
    fn a_name_identifies_its_writer() {
        let this = Writer::this_process().unwrap();
        assert_eq!(Writer::of(&format!("{}a1B2c3", this.prefix(KIND)), KIND), Some(this.clone()));
        let prefix = this.prefix(KIND);
        let others = [
            "",
            KIND,
            ".pagelab-0123456789abcdef",
            prefix.as_str(),
            &format!("{prefix}a-b"),
            &format!("{prefix}a.b"),
            &prefix.replace(KIND, "pagelab-"),
            &format!("{KIND}1-2-3-x"),
            &format!("{KIND}+1-2-0123456789abcdef-x"),
        ];
        for other in others {
            assert_eq!(Writer::of(other, KIND), None, "{other}");
        }
    }

    #[test]
    fn only_a_process_that_certainly_ended_is_gone() {
        let this = Writer::this_process().unwrap();
        assert!(!this.is_gone(&this));
        let reused = Writer { start_ticks: this.start_ticks + 1, ..this.clone() };
        assert!(reused.is_gone(&this), "another process has its PID");
        let mut child = process::Command::new("true").spawn().unwrap();
        let ended = Writer { process: child.id(), ..this.clone() };
        child.wait().unwrap();
        assert!(ended.is_gone(&this));
        for process in [0, u32::MAX] {
            assert!(!Writer { process, ..this.clone() }.is_gone(&this), "{process} is no process");
        }
        assert!(!ended.elsewhere().is_gone(&this), "it may run on another host");
    }
}
