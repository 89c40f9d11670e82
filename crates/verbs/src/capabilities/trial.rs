//! One trial of `capabilities`: starts the probe, a process with the memory, and reads from the kernel what maps that
//! memory.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use census::{CensusError, Observer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use policy::capability::{Kind, Outcome, Refusal, Wanted, Way, judge};
use policy::cause::Cause;
use policy::size::PageSize;
use tracer::child::die_with_parent;

use super::probe::{Message, READ_AGAIN};
use super::subjects::Subject;

/// A probe that has not reported after this time hangs.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a probe has not reported.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("the program did not report within {} s", REPORT_TIMEOUT.as_secs())]
    None,
    #[error("the program ended without a report: {0}")]
    Ended(ExitStatus),
    #[error("the program's report cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("the program's report is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// What is tried: one size, for one kind of memory, in one way.
#[derive(Clone, Copy, Debug)]
pub struct Combination<'a> {
    pub subject: &'a Subject,
    pub way: Way,
    pub size: PageSize,
}

impl Combination<'_> {
    pub fn kind(&self) -> Kind {
        self.subject.memory.kind
    }

    /// Length of the memory: one hugetlb page, or two PMD leaves. If PMD leaves are very large, only one, or less than one for a
    /// smaller size in a way that never collapses.
    pub fn length_bytes(&self, pmd: PageSize) -> u64 {
        const FEW_BYTES: u64 = 32 << 20;
        match self.way {
            _ if self.kind() == Kind::Hugetlb => self.size.bytes(),
            _ if pmd.bytes() <= FEW_BYTES => 2 * pmd.bytes(),
            Way::Collapse | Way::Khugepaged => pmd.bytes(),
            _ => self.size.bytes().max(FEW_BYTES),
        }
    }
}

/// A probe that has reported: that its memory is ready, or why it could not make it.
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    reported: Result<Message, ReportError>,
}

/// Starts a probe and waits for its report. If there is a file, it becomes the probe's standard input.
pub fn start(tried: &Combination, pmd: PageSize, file: Option<File>) -> std::io::Result<Running> {
    let bytes = tried.length_bytes(pmd).to_string();
    let (size, pmd) = (tried.size.to_string(), pmd.to_string());
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["capability-probe", "--kind", tried.kind().word(), "--way", tried.way.word()]);
    command.args(["--size", &size, "--pmd", &pmd, "--bytes", &bytes]);
    match file {
        Some(file) => command.arg("--file").stdin(file),
        None => command.stdin(Stdio::null()),
    };
    command.stdout(Stdio::piped()).stderr(Stdio::null()).env_clear();
    let mut child = die_with_parent(&mut command).spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| std::io::Error::other("the program's standard output is closed"))?;
    let mut running = Running { child, stdout: BufReader::new(stdout), reported: Err(ReportError::None) };
    running.reported = running.report();
    Ok(running)
}

fn is_readable(stdout: &ChildStdout, patience: Duration) -> std::io::Result<bool> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], timeout) {
            Err(nix::errno::Errno::EINTR) if tracer::signals::arrived().is_none() => {}
            Err(errno) => return Err(errno.into()),
            Ok(ready) => return Ok(ready > 0),
        }
    }
}

impl Running {
    /// Lets the probe read its memory again, and waits for its next report.
    pub fn read_again(&mut self) -> std::io::Result<()> {
        if matches!(self.reported, Ok(Message::Ready { .. })) {
            let pid = i32::try_from(self.child.id()).map_err(std::io::Error::other)?;
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), READ_AGAIN)?;
            self.reported = self.report();
        }
        Ok(())
    }

    /// The next report of the probe, or why there is none.
    fn report(&mut self) -> Result<Message, ReportError> {
        if !is_readable(self.stdout.get_ref(), REPORT_TIMEOUT)? {
            return Err(ReportError::None);
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if !line.is_empty() {
            return Ok(serde_json::from_str(&line)?);
        }
        let status = self.child.wait()?;
        if status.signal() == Some(Signal::SIGBUS as i32) {
            return Ok(Message::Refused(Refusal { call: "a fault, which ended by SIGBUS".to_owned(), errno: None }));
        }
        Err(ReportError::Ended(status))
    }

    /// What maps the memory of the probe. `cause` is the reason to give if that is not the size.
    pub fn examine(&self, tried: &Combination, pmd: PageSize, observer: &Observer, cause: Cause) -> Outcome {
        match &self.reported {
            Err(error) => Outcome::Unknown { reason: error.to_string() },
            Ok(Message::Refused(refusal)) => refused(tried, refusal, cause),
            Ok(Message::Ready { pid, start, end }) => {
                let is_leaf = tried.size == pmd || tried.kind() == Kind::Hugetlb;
                let wanted = Wanted { start: *start, end: *end, size: tried.size, is_leaf };
                seen(&wanted, *pid, observer, cause).unwrap_or_else(|error| Outcome::Unknown {
                    reason: format!("its memory cannot be examined: {error}"),
                })
            }
        }
    }
}

fn seen(wanted: &Wanted, pid: u32, observer: &Observer, cause: Cause) -> Result<Outcome, CensusError> {
    let census = observer.range_with_places(pid, wanted.start, wanted.end)?;
    let regions: Vec<_> = census.areas.into_iter().flat_map(|area| area.regions).collect();
    Ok(judge(wanted, &regions, cause))
}

/// The outcome of a refused call. For hugetlb memory, ENOMEM or a fault without an error number means that the pool has
/// no page.
fn refused(tried: &Combination, refusal: &Refusal, cause: Cause) -> Outcome {
    let is_pool = tried.kind() == Kind::Hugetlb && matches!(refusal.errno, None | Some(policy::hugetlb::ENOMEM));
    let cause = match refusal.errno {
        _ if is_pool => Cause::PoolExhausted { size: tried.size },
        Some(errno) => Cause::AdviceRefused { errno },
        None => cause,
    };
    Outcome::Refused { cause, refusal: Some(refusal.clone()), setting: None, large_ratio: 0.0 }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If the probe has ended already, it needs no signal. The probe's own child dies with the probe.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
