//! Why a program could not be started.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::ptrace::Tid;
use crate::refusal::Refusal;

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such file, or no such name in PATH.
    #[error("the command {0:?} was not found; give its path, or check PATH")]
    NotFound(OsString),
    /// It is there but cannot be executed.
    #[error("{0:?} is not executable: {1}")]
    NotExecutable(PathBuf, Refusal),
    /// A part of the command line has a zero byte.
    #[error("an argument of the command holds a zero byte")]
    ZeroByte,
    /// ptrace is forbidden.
    #[error("tracing the command is forbidden ({0}); {1}")]
    PtraceForbidden(#[source] io::Error, String),
    /// A step of the preparation failed in the new process.
    #[error("{step} failed for the command: {error}; {remedy}")]
    Prepare {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        #[source]
        error: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The new process ended before it executed the program: a signal came first.
    #[error("the command was interrupted before it began")]
    Interrupted,
    /// The tracer could not go on with the tree, and killed it.
    #[error(
        "the kernel refused the tracer a request on the running command, or what it needs of it could not be read ({0}); the \
         command was killed; try without the policy, or report this"
    )]
    GivenUp(#[source] io::Error),
    /// Processes of the tree that do not die.
    #[error(
        "the command was killed, but its processes {0:?} do not end: they wait in the kernel for a device or a file server \
         (state D), or their cgroup is frozen. Look at /proc/PID/stack, or thaw the cgroup"
    )]
    Immortal(Vec<Tid>),
    /// The kernel has no resources.
    #[error("the command could not be started: {0}")]
    Resources(#[from] io::Error),
}

impl LaunchError {
    /// The exit status that a shell has for a command that it cannot run: 127 where it is not there, 126 where it is
    /// and cannot be executed. `None` where that is not the reason.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            LaunchError::NotFound(_) => Some(127),
            LaunchError::NotExecutable(..) => Some(126),
            LaunchError::Prepare { step, .. } if *step == STEPS[EXECUTE].0 => Some(126),
            _ => None,
        }
    }
}

/// Steps of the preparation, numbered for the pipe through which the new process reports.
pub(super) const STEPS: [(&str, &str); 7] = [
    ("redirecting its input and output", "this is a fault of pagelab's"),
    ("prctl(PR_SET_THP_DISABLE)", "it needs Linux 3.15 with CONFIG_TRANSPARENT_HUGEPAGE"),
    ("prctl(PR_SET_NO_NEW_PRIVS)", "it needs Linux 3.5"),
    ("installing the seccomp filter", "it needs CONFIG_SECCOMP_FILTER and no sandbox that forbids seccomp"),
    ("becoming the user", "only root can run a command as another user"),
    ("giving it a session of its own", "this is a fault of pagelab's"),
    ("executing it", "execve(2) says what this error means"),
];
/// The number of the last one.
pub(super) const EXECUTE: usize = STEPS.len() - 1;

/// A step of the preparation failed.
pub fn unprepared(step: usize, error: io::Error) -> LaunchError {
    let (step, remedy) = STEPS[step];
    LaunchError::Prepare { step, error, remedy }
}

/// The last step failed: executing this file.
pub fn not_executed(path: &Path, error: io::Error) -> LaunchError {
    match Refusal::of(path, &error) {
        Some(refusal) => LaunchError::NotExecutable(path.to_path_buf(), refusal),
        None => unprepared(EXECUTE, error),
    }
}

/// What to do where tracing is forbidden.
pub(super) fn ptrace_remedy() -> String {
    if let Some(tracer) = host::outer_tracer() {
        return format!(
            "{tracer} already traces pagelab and what it starts, and a process has one tracer at most: run pagelab without it"
        );
    }
    // Where it cannot be read, the kernel's own answer, which is shown too, has to do.
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").as_deref().map(str::trim) {
        Ok("3") => "kernel.yama.ptrace_scope is 3, which lasts until reboot".into(),
        Ok("2") => "kernel.yama.ptrace_scope is 2: run as root, or sysctl kernel.yama.ptrace_scope=1".into(),
        _ => "in a container allow it: docker run --cap-add SYS_PTRACE".into(),
    }
}
