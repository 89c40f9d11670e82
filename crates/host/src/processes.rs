//! [`ProcessStat`]: the processes of the host from `/proc/PID/stat`, which is cheap enough to read repeatedly.

use std::io;

use policy::size::PageSize;

use super::Host;
use super::absence::{if_exists, is_absence};
use super::absent;
use super::read::{self, HostError};

/// Flag of a task without memory of its own (`PF_KTHREAD`, include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A snapshot of a process (proc(5), `/proc/PID/stat`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: u32,
    /// Its name (`comm`), at most 15 bytes, unescaped.
    pub name: String,
    /// Its state: `R`, `S`, `Z` and so on.
    pub state: char,
    /// Its start time in clock ticks since boot. Together with the PID it identifies the process uniquely.
    pub started_ticks: u64,
    /// Faults without I/O, of all its threads so far.
    pub minor_faults: u64,
    /// Faults that waited for I/O, of all its threads so far.
    pub major_faults: u64,
    /// Resident memory in bytes, without hugetlb pages. The kernel keeps one count for each processor, so the sum can be off by
    /// some hundred kilobytes.
    pub resident_bytes: u64,
}

/// The state of a task of this kernel: `b'R'`, `b'S'`, `b'Z'` and so on (the third field of `/proc/TID/stat`, proc(5)); `None`
/// where the task is gone.
pub fn task_state(tid: libc::pid_t) -> io::Result<Option<u8>> {
    state_in(read::content(format!("/proc/{tid}/stat")))
}

/// The time in nanoseconds that a task has spent on processors (the first field of `/proc/TID/schedstat`); 0 where the task is gone or the
/// kernel does not count it.
pub fn task_processor_ns(tid: u32) -> u64 {
    // An empty text is that of a task that is gone, or of a kernel without CONFIG_SCHED_INFO: no time is known.
    let text = read::content(format!("/proc/{tid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

fn state_in(stat: io::Result<String>) -> io::Result<Option<u8>> {
    let Some(stat) = if_exists(stat)? else { return Ok(None) };
    // The name before the state may contain any character, including a parenthesis.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.bytes().next());
    state.map(Some).ok_or_else(|| io::Error::other(format!("expected the state of a task, found {stat:?}")))
}

/// Resident memory of a process in bytes, with hugetlb pages; `None` where it is gone or has no memory. It can be off as
/// [`ProcessStat::resident_bytes`] can.
pub fn resident_bytes(pid: u32, base: PageSize) -> io::Result<Option<u64>> {
    let Some(text) = if_exists(read::content(format!("/proc/{pid}/statm")))? else { return Ok(None) };
    let pages: Option<u64> = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::other(format!("expected pages in statm, found {text:?}")))?;
    let hugetlb_bytes = if_exists(read::content(format!("/proc/{pid}/status")))?.map_or(0, |text| hugetlb_bytes(&text));
    let bytes = pages.saturating_mul(base.bytes()).saturating_add(hugetlb_bytes);
    Ok((bytes > 0).then_some(bytes))
}

/// `HugetlbPages` of `/proc/PID/status`, in bytes; 0 where the kernel has no hugetlb pages.
fn hugetlb_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("HugetlbPages:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
}

/// The processes of the host that have memory: no kernel threads, and none that has ended. A process that ends while it is read
/// is left out, and so is one of another user under `hidepid=1`, which makes its files unreadable (proc(5)).
pub fn list(host: &Host) -> Result<Vec<ProcessStat>, HostError> {
    let mut processes = Vec::new();
    for pid in absent::names(&host.root, "/proc")?.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let path = format!("/proc/{pid}/stat");
        match host.root.text(&path) {
            Ok(line) => processes.extend(parse(pid, &line, host.page_sizes.base)),
            Err(error) if is_absence(&error) || error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(absent::unreadable(&host.root, &path, error)),
        }
    }
    Ok(processes)
}

/// Parses the line of `/proc/PID/stat`; `None` for a task without memory, and where the line is truncated. The name may contain
/// any character, including parentheses and spaces, so the other fields begin after the last parenthesis.
fn parse(pid: u32, line: &str, base: PageSize) -> Option<ProcessStat> {
    let (before, after) = line.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_string();
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // The state is field 3 in the manual page.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // A number after the last field that is used shows that the line is complete.
    number(25)?;
    let (flags, addresses, pages) = (number(9)?, number(23)?, number(24)?);
    let process = ProcessStat {
        pid,
        name,
        state: fields.first()?.chars().next()?,
        started_ticks: number(22)?,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        resident_bytes: pages.saturating_mul(base.bytes()),
    };
    (flags & KERNEL_THREAD == 0 && addresses > 0).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "16229 16229 6121 0 -1 4194304 142 0 7 0 0 0 0 0 20 0 1 0 4089708 3133440 416 1 2 3";

    #[test]
    fn a_name_may_contain_any_character() {
        for name in ["cat", "a) R 1 (b", "x\u{1b}[2J\ny", ""] {
            let read = parse(7, &format!("7 ({name}) S {REST}"), PageSize::K64).unwrap();
            assert_eq!(read.name, name);
            assert_eq!((read.state, read.minor_faults, read.major_faults), ('S', 142, 7));
            assert_eq!((read.started_ticks, read.resident_bytes), (4_089_708, 416 << 16));
        }
    }

    #[test]
    fn tasks_without_memory_and_truncated_lines_are_left_out() {
        let line = format!("7 (a) S {REST}");
        assert_eq!(parse(7, &line.replace("4194304", "2129984"), PageSize::K4), None, "a kernel thread");
        assert_eq!(parse(7, &line.replace("3133440 416", "0 0"), PageSize::K4), None, "a zombie");
        assert!((0..line.len() - " 1 2 3".len()).all(|end| parse(7, &line[..end], PageSize::K4).is_none()));
    }

    #[test]
    fn this_process_is_among_those_of_the_host() {
        let host = Host::open("/").unwrap();
        let own = host.processes().unwrap().into_iter().find(|process| process.pid == std::process::id()).unwrap();
        assert!(own.resident_bytes > 0 && own.minor_faults > 0 && own.started_ticks > 0, "{own:?}");
        let resident = resident_bytes(own.pid, host.page_sizes().base).unwrap();
        assert!(resident.is_some_and(|bytes| bytes.abs_diff(own.resident_bytes) < 16 << 20), "{resident:?} {own:?}");
        assert_eq!(resident_bytes(u32::MAX, host.page_sizes().base).unwrap(), None);
        assert_eq!(hugetlb_bytes("VmSwap:\t 0 kB\nHugetlbPages:\t   65536 kB\nThreads:\t1\n"), 64 << 20);
        assert_eq!(hugetlb_bytes("VmSwap:\t 0 kB\nThreads:\t1\n"), 0);
    }
}
