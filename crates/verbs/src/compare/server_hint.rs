//! A hint for a command that looks like a server ([`ServerHint`]): a server does not end by itself, so no trial would
//! end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use study::comparison::Design;
use study::runner::Event;
use tracer::signals;

use crate::failure::report;

/// How long the first trial may run before its command is examined.
const DELAY: Duration = Duration::from_secs(30);
/// The state of a listening socket in /proc/PID/net/tcp.
const LISTEN: &str = "0A";
/// The flag of a listening socket in /proc/PID/net/unix (`__SO_ACCEPTCON`).
const ACCEPTS_CONNECTIONS: u32 = 1 << 16;

/// A hint for PostgreSQL, whose largest memory no policy changes: it takes the pages of a pool itself (`huge_pages`, which is `try` by
/// default). `None` if its own setting is compared.
pub fn of_command(command: &[String], design: &Design) -> Option<&'static str> {
    if Path::new(command.first()?).file_name()? != "postgres" {
        return None;
    }
    (!design.has_variant_with("huge_pages")).then_some(
        "pagelab: no policy chooses the pages of PostgreSQL's shared buffers; its own setting does, with a pool (as root: sysctl \
         vm.nr_hugepages=N, which postgres -C shared_memory_size_in_huge_pages prints): -p default --variant 'off={} -c huge_pages=off' \
         --variant 'on={} -c huge_pages=on'",
    )
}

/// Examines the command of the first trial once, if that trial takes long.
#[derive(Default)]
pub struct ServerHint {
    /// The first trial, while it runs.
    first_trial: Option<FirstTrial>,
    is_over: bool,
}

impl ServerHint {
    pub fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started(_) if !self.is_over && self.first_trial.is_none() => self.first_trial = FirstTrial::begin(),
            Event::Finished(_) | Event::Ended(_) => (self.first_trial, self.is_over) = (None, true),
            _ => {}
        }
    }
}

/// A trial that is observed until it is dropped.
struct FirstTrial {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FirstTrial {
    /// Starts observing a trial. `None` if no thread can be started; then there is no hint.
    fn begin() -> Option<FirstTrial> {
        let (ended, wait) = mpsc::channel::<()>();
        let observe = move || {
            if wait.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout)
                && let Some(hint) = signals::target().and_then(hint)
            {
                report(hint);
            }
        };
        let thread = Builder::new().name("server hint".into()).spawn(observe).ok()?;
        Some(FirstTrial { ended: Some(ended), thread: Some(thread) })
    }
}

impl Drop for FirstTrial {
    fn drop(&mut self) {
        // The thread ends when this end of the channel is closed.
        self.ended = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The hint for a process that listens; `None` for any other process, or one that may not be examined.
fn hint(pid: i32) -> Option<String> {
    let process = Path::new("/proc").join(pid.to_string());
    // If a file cannot be read, or the process ended meanwhile, there is no hint.
    let read = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
    let own = sockets(&process);
    let ports = ports(&(read("net/tcp") + &read("net/tcp6")), &own);
    let place = match ports.first() {
        Some(port) => format!("TCP port {port}"),
        None if listens_on_path(&read("net/unix"), &own) => "a Unix socket".to_owned(),
        None => return None,
    };
    let name = results::printable(read("comm").trim_end());
    Some(format!(
        "pagelab: {name} (process {pid}) listens on {place} and has run for {} s. If it is a server, it does not end by itself: press \
         Ctrl-C, and give it with --server and --ready, and its client after --",
        DELAY.as_secs()
    ))
}

/// The inodes of a process's sockets.
fn sockets(process: &Path) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let socket = |target: &Path| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).filter_map(|target| socket(&target)).collect()
}

/// The ports on which these sockets listen, smallest first: from the lines of /proc/PID/net/tcp.
fn ports(lines: &str, own: &BTreeSet<u64>) -> BTreeSet<u16> {
    let port = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let is_listening = *state == LISTEN && own.contains(&inode.parse().ok()?);
        is_listening.then(|| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()).flatten()
    };
    lines.lines().filter_map(port).collect()
}

/// Whether one of these sockets accepts connections: from the lines of /proc/PID/net/unix.
fn listens_on_path(lines: &str, own: &BTreeSet<u64>) -> bool {
    lines.lines().any(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = words.get(3).and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        let inode = words.get(6).and_then(|inode| inode.parse().ok());
        flags & ACCEPTS_CONNECTIONS != 0 && inode.is_some_and(|inode| own.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use study::trial::Arm;
    use study::variant::Variant;

    use super::*;

    #[test]
    fn shared_buffers_have_a_hint_before_the_first_trial() {
        let hint = |line: &str, variant: Option<&str>| {
            let arm = |policy: &str| Arm::of_policy(policy, policy.parse().unwrap());
            let mut design = Design::new(["default", "hugetlb-2m"].map(arm).into(), 0, 1);
            design.arms[1].variant = variant.map(|name| Variant {
                name: name.to_owned(),
                command: vec![format!("huge_pages={name}")],
                ..Variant::default()
            });
            of_command(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), &design)
        };
        let line = "/usr/lib/postgresql/15/bin/postgres -D data";
        assert!(hint(line, None).unwrap().contains("--variant 'on={} -c huge_pages=on'"));
        assert_eq!(hint(line, Some("on")), None, "its own setting is compared");
        assert_eq!(hint("redis-server --port 1", None), None);
    }

    #[test]
    fn a_process_that_listens_gets_a_hint() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let process = Path::new("/proc/self");
        let lines = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert!(ports(&lines, &sockets(process)).contains(&port));
        assert!(hint(std::process::id() as i32).unwrap().contains("listens on TCP port "));
        drop(tcp);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let unix = UnixListener::bind(&path).unwrap();
        let lines = std::fs::read_to_string("/proc/self/net/unix").unwrap();
        assert!(listens_on_path(&lines, &sockets(process)));
        drop(unix);
    }

    #[test]
    fn sockets_of_others_and_connections_are_no_server() {
        let lines = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: \
                     0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n   1: \
                     0100007F:0050 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0\n";
        assert_eq!(ports(lines, &[11, 12].into()), [6379].into());
        assert!(ports(lines, &[12].into()).is_empty());
    }
}
