//! [`Launch`]: how the measured program is started. This module finds the program, prepares its process, and traces it from
//! its first instruction.

mod error;
mod new_process;
mod privileges;
mod resolve;
mod started;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use libc::sock_filter;

use super::ptrace::{self, Tid};
use super::rewriting::Rewriting;
use super::{filter, thp_disable};
use crate::autogroup::SessionWeight;
use crate::environment;
use crate::signals::Session;
use crate::subreaper::Subreaper;
use crate::terminal::{self, Relay, Terminal};
use crate::user::User;
use error::ptrace_remedy;
use new_process::{OwnSession, Prepared, fork_below_subreaper, fork_child, prepare};
use privileges::may_filter_with_privileges;
use started::reported;

pub use error::{LaunchError, exec_failed, step_failed};
pub use privileges::{disable_thp_permanently, set_no_new_privileges};
pub use resolve::resolve;
pub use started::Started;

/// A program and how to start it.
#[derive(Debug)]
pub struct Launch {
    /// The program as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    /// The user that the program runs as; `None`: the user who runs pagelab. A program of another user gets a session
    /// of its own, and a relayed terminal replaces those of its standard streams that are terminals.
    pub user: Option<User>,
    /// Variables added to its environment ([`environment::of`]).
    pub variables: environment::Variables,
    /// Standard input; `None`: pagelab's own.
    pub stdin: Option<OwnedFd>,
    /// Standard output; `None`: pagelab's own.
    pub stdout: Option<OwnedFd>,
    /// Standard error; `None`: pagelab's own.
    pub stderr: Option<OwnedFd>,
    /// Whether transparent huge pages are disabled for the program and all its descendants (PR_SET_THP_DISABLE, which
    /// fork and exec preserve).
    pub disable_thp: bool,
    /// A session of its own, without a terminal, and the weight of its autogroup; `None`: pagelab's session, unless `user` is
    /// another user.
    pub own_session: Option<SessionWeight>,
    /// The open cgroup.procs of the control group that the program and its descendants belong to; `None`: pagelab's groups.
    pub control_group: Option<OwnedFd>,
    /// Time limit, after which the program is killed with its tree. `None`: no limit.
    pub limit: Option<Duration>,
}

#[cfg(test)]
impl Launch {
    /// Launch of `true` with defaults.
    pub fn of_true() -> Launch {
        Launch {
            command: vec!["true".into()],
            user: None,
            variables: Vec::new(),
            stdin: None,
            stdout: None,
            stderr: None,
            disable_thp: false,
            own_session: None,
            control_group: None,
            limit: None,
        }
    }
}

/// The state of PR_SET_THP_DISABLE set before the program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpSetting {
    /// THP is disabled.
    Disabled,
    /// THP is not disabled, whatever was inherited (from systemd's `MemoryTHP=`, a container, or an outer pagelab).
    Enabled,
}

impl ThpSetting {
    /// The setting that a policy needs; `None`: keep what was inherited.
    pub fn of(launch: &Launch, rewriting: &Rewriting) -> Option<ThpSetting> {
        match (launch.disable_thp, rewriting.wants_large()) {
            (true, _) => Some(ThpSetting::Disabled),
            (false, true) => Some(ThpSetting::Enabled),
            (false, false) => None,
        }
    }
}

/// Starts a program under the filter and attaches to it from the calling thread. The program waits just before its
/// exec. The subreaper reports when its tree has ended.
pub fn start(
    launch: &Launch,
    filter: Vec<sock_filter>,
    thp: Option<ThpSetting>,
) -> Result<(Subreaper, Started), LaunchError> {
    let attach = |tid| ptrace::seize(tid).map_err(|error| LaunchError::PtraceForbidden(error, ptrace_remedy()));
    start_below_subreaper(launch, |prepared| Prepared { filter, thp, ..prepared }, attach)
}

/// Starts an untraced program that ends no later than pagelab. It waits just before its exec. If it disables
/// transparent huge pages, a filter answers the program's own PR_SET_THP_DISABLE.
pub fn start_untraced(launch: &Launch) -> Result<Started, LaunchError> {
    let (thp, filter) = if launch.disable_thp {
        (Some(ThpSetting::Disabled), filter::program(&thp_disable::watches_without_tracer()))
    } else {
        (None, Vec::new())
    };
    let adjust = |prepared| Prepared { dies_with_parent: true, thp, filter, ..prepared };
    let mut started = start_process(launch, adjust, fork_child)?;
    started.is_own_child = true;
    Ok(started)
}

/// Starts an untraced program under a subreaper. It waits just before its exec. It stays in pagelab's process group and
/// may gain privileges by exec like any program.
pub fn start_supervised(launch: &Launch) -> Result<(Subreaper, Started), LaunchError> {
    // The program dies with the subreaper if that is killed or cannot list its children (no CONFIG_PROC_CHILDREN).
    let adjust = |prepared| Prepared { dies_with_parent: true, no_new_privileges: false, ..prepared };
    start_below_subreaper(launch, adjust, |_| Ok(()))
}

/// Starts a program under a subreaper and calls `attach` on it. The program waits just before its exec.
fn start_below_subreaper(
    launch: &Launch,
    adjust: impl FnOnce(Prepared) -> Prepared,
    attach: impl FnOnce(Tid) -> Result<(), LaunchError>,
) -> Result<(Subreaper, Started), LaunchError> {
    let mut subreaper = None;
    let fork = |prepared: &Prepared| {
        let (its_subreaper, child) = fork_below_subreaper(prepared, launch.limit)?;
        subreaper = Some(its_subreaper);
        Ok(child)
    };
    // On failure `Started` is dropped: the process reads end of file on `go` and exits.
    let started = start_process(launch, adjust, fork).and_then(|started| attach(started.tid).map(|()| started));
    match (started, subreaper) {
        (Ok(started), Some(subreaper)) => Ok((subreaper, started)),
        (Ok(_), None) => Err(LaunchError::Interrupted),
        (Err(error), subreaper) => {
            subreaper.iter().for_each(Subreaper::wait);
            Err(error)
        }
    }
}

fn start_process(
    launch: &Launch,
    adjust: impl FnOnce(Prepared) -> Prepared,
    fork: impl FnOnce(&Prepared) -> io::Result<Tid>,
) -> Result<Started, LaunchError> {
    let (go_read, go_write) = pipe()?;
    let (report_read, report_write) = pipe()?;
    let parent_ends = [go_write.as_raw_fd(), report_read.as_raw_fd()];
    let runs_as_other_user = launch.user.as_ref().is_some_and(User::is_another);
    let has_own_session = runs_as_other_user || launch.own_session.is_some();
    let terminal = terminal(launch)?;
    let session = match &terminal {
        Some(terminal) => OwnSession::OnTerminal(terminal.monitor_setup()),
        None if has_own_session => OwnSession::Bare,
        None => OwnSession::None,
    };
    let mut prepared =
        adjust(Prepared { session, ..prepare(launch, go_read.as_raw_fd(), parent_ends, report_write.as_raw_fd())? });
    // Without CAP_SYS_ADMIN the kernel accepts a filter only from a process that cannot gain privileges.
    prepared.no_new_privileges |= !prepared.filter.is_empty() && !may_filter_with_privileges()?;
    if let Some(terminal) = &terminal {
        terminal.streams().iter().zip(&mut prepared.stdio).for_each(|(new, stream)| *stream = new.or(*stream));
    }
    if runs_as_other_user {
        terminal::set_cloexec_on_terminals()?;
    }
    let child = fork(&prepared)?;
    drop((go_read, report_write));
    let (go, mut report) = (File::from(go_write), File::from(report_read));
    let Some(terminal) = terminal else {
        let session = if has_own_session { Session::Own } else { Session::Shared };
        return Ok(Started { tid: child, session, child, is_own_child: false, relay: None, go, report });
    };
    let command_terminal = terminal.started().map_err(|error| {
        let failure = reported(&mut report);
        failure.map_or(LaunchError::Resources(error), |(step, error)| step_failed(step, error))
    })?;
    let tid = command_terminal.command;
    let relay = Relay::start(command_terminal)?;
    Ok(Started { tid, session: Session::OnTerminal, child, is_own_child: false, relay: Some(relay), go, report })
}

/// A terminal for a program of another user, if one of the program's streams is a terminal.
fn terminal(launch: &Launch) -> Result<Option<Terminal>, LaunchError> {
    let Some(user) = launch.user.as_ref().filter(|user| user.is_another()) else { return Ok(None) };
    let stream = |fd: &Option<OwnedFd>, own| fd.as_ref().map_or(own, AsRawFd::as_raw_fd);
    let streams = [
        stream(&launch.stdin, libc::STDIN_FILENO),
        stream(&launch.stdout, libc::STDOUT_FILENO),
        stream(&launch.stderr, libc::STDERR_FILENO),
    ];
    Ok(Terminal::in_place_of(streams, user)?)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_exits_if_pagelab_dies_before_tracing_it() {
        let launch = Launch::of_true();
        let ((go_read, go_write), (report_read, report_write)) = (pipe().unwrap(), pipe().unwrap());
        let parent_ends = [go_write.as_raw_fd(), report_read.as_raw_fd()];
        let prepared = prepare(&launch, go_read.as_raw_fd(), parent_ends, report_write.as_raw_fd()).unwrap();
        // If the new process kept its copy of `go_write`, it would wait for a byte forever, and the subreaper with it.
        let (subreaper, tid) = fork_below_subreaper(&prepared, Some(Duration::from_secs(20))).unwrap();
        drop((go_read, go_write));
        subreaper.wait();
        assert!(tid > 0 && !subreaper.time_is_up(), "it still waits for a byte that no process can send");
    }
}
