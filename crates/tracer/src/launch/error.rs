//! [`LaunchError`]: why a program could not be started.

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
    #[error("{0:?} is not executable: {1}")]
    NotExecutable(PathBuf, Refusal),
    #[error("an argument of the command contains a zero byte")]
    ZeroByte,
    #[error("tracing the command is forbidden ({0}); {1}")]
    PtraceForbidden(#[source] io::Error, String),
    /// A preparation step failed in the new process.
    #[error("{step} failed for the command: {error}; {remedy}")]
    Prepare {
        step: &'static str,
        #[source]
        error: io::Error,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// A signal ended the new process before it executed the program.
    #[error("the command was interrupted before it began")]
    Interrupted,
    /// The tracer could not continue with the tree and killed it.
    #[error(
        "the kernel refused a request of the tracer, or the tracer could not read what it needs ({0}), so it killed the running \
         command; try without the policy, or report this"
    )]
    GivenUp(#[source] io::Error),
    /// Processes of the tree do not die.
    #[error(
        "the command was killed, but its processes {0:?} do not end: they wait in the kernel for a device or a file server \
         (state D), or their cgroup is frozen. Look at /proc/PID/stack, or thaw the cgroup"
    )]
    Unkillable(Vec<Tid>),
    #[error("the command could not be started: {0}")]
    Resources(#[from] io::Error),
}

impl LaunchError {
    /// The exit status that a shell gives a command that it cannot run: 127 if the file does not exist, 126 if it
    /// exists but cannot be executed. `None` for any other error.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            LaunchError::NotFound(_) => Some(127),
            LaunchError::NotExecutable(..) => Some(126),
            LaunchError::Prepare { step, .. } if *step == STEPS[EXECUTE].0 => Some(126),
            _ => None,
        }
    }
}

/// Preparation steps and their remedies. The index is the number that the new process reports over its pipe.
pub(super) const STEPS: [(&str, &str); 9] = [
    ("redirecting its input and output", "this is a bug in pagelab"),
    ("prctl(PR_SET_THP_DISABLE)", "it needs Linux 3.15 with CONFIG_TRANSPARENT_HUGEPAGE"),
    ("prctl(PR_SET_NO_NEW_PRIVS)", "it needs Linux 3.5"),
    ("installing the seccomp filter", "it needs CONFIG_SECCOMP_FILTER and no sandbox that forbids seccomp"),
    ("becoming the user", "only root can run a command as another user"),
    ("giving it a session of its own", "this is a bug in pagelab"),
    ("giving the autogroup of its session the top weight", "run pagelab as root, or leave --own-session out"),
    ("moving it into its control group", "run pagelab as root, or in a group that is delegated to its user"),
    ("executing it", "execve(2) explains this error"),
];
/// Index of the last step.
pub(super) const EXECUTE: usize = STEPS.len() - 1;

/// The error for a preparation step that failed.
pub fn step_failed(step: usize, error: io::Error) -> LaunchError {
    let (step, remedy) = STEPS[step];
    LaunchError::Prepare { step, error, remedy }
}

/// The error for a failed last step: the exec of this file.
pub fn exec_failed(path: &Path, error: io::Error) -> LaunchError {
    match Refusal::of(path, &error) {
        Some(refusal) => LaunchError::NotExecutable(path.to_path_buf(), refusal),
        None => step_failed(EXECUTE, error),
    }
}

/// Advice for the user if tracing is forbidden.
pub(super) fn ptrace_remedy() -> String {
    if let Some(tracer) = host::outer_tracer() {
        return format!(
            "{tracer} already traces pagelab and what it starts, and a process has one tracer at most: run pagelab without it"
        );
    }
    // If the file cannot be read, the kernel's own error must suffice, which is shown as well.
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").as_deref().map(str::trim) {
        Ok("3") => "kernel.yama.ptrace_scope is 3, which lasts until reboot".into(),
        Ok("2") => "kernel.yama.ptrace_scope is 2: run as root, or sysctl kernel.yama.ptrace_scope=1".into(),
        _ => "in a container allow it: docker run --cap-add SYS_PTRACE".into(),
    }
}
