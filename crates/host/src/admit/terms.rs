//! [`Terms`] on which a policy is requested: the privilege, and what this process may do.

use std::io;

use policy::Unsupported;

use crate::{Host, PtraceLimit};

/// The privilege of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Root: may write system settings.
    Root,
    /// Not root: may not write system settings.
    User,
}

/// The terms on which policies are turned into settings ([`super::lower`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The privilege of the process.
    pub privilege: Privilege,
    /// How much memory the program needs from a hugetlb pool, in bytes, where the user specified it.
    pub pool_bytes: Option<u64>,
    /// Whether a program can be traced; otherwise the reason.
    pub tracing: Result<(), Unsupported>,
}

impl Privilege {
    pub fn of_this_process() -> Privilege {
        if nix::unistd::geteuid().is_root() { Privilege::Root } else { Privilege::User }
    }
}

impl Terms {
    /// The terms of this process. `try_tracing` tries whether tracing works, unless the files of the host already forbid it.
    pub fn of_this_process(host: &Host, try_tracing: impl FnOnce() -> io::Result<()>) -> Terms {
        let mut terms = Terms::assumed(host, Privilege::of_this_process());
        // A limit that cannot be read forbids nothing; the attempt shows more.
        let is_worth_trying = terms.tracing.is_ok() || host.ptrace_limit().is_err();
        if is_worth_trying && host.is_live() {
            terms.tracing = try_tracing().map_err(forbidden);
        }
        terms
    }

    /// The terms of a process with this privilege, as far as the files of the host show.
    pub fn assumed(host: &Host, privilege: Privilege) -> Terms {
        let limit = host.ptrace_limit().map_err(Unsupported::from);
        Terms { privilege, pool_bytes: None, tracing: limit.and_then(|limit| yama(limit, privilege)) }
    }

    /// The same terms with a hugetlb pool of at least this size.
    pub fn with_pool(self, bytes: Option<u64>) -> Terms {
        Terms { pool_bytes: bytes, ..self }
    }
}

/// Scope 1 does not prevent tracing, because a traced program is a descendant of pagelab. Scope 2 also requires CAP_SYS_PTRACE of
/// the tracer of a PTRACE_TRACEME (security/yama/yama_lsm.c).
fn yama(limit: PtraceLimit, privilege: Privilege) -> Result<(), Unsupported> {
    let forbidden = |reason: &str, remedy: &str| Err(Unsupported { reason: reason.into(), remedy: remedy.into() });
    match (limit, privilege) {
        (PtraceLimit::NoProcess, _) => forbidden(
            "Yama forbids all tracing (kernel.yama.ptrace_scope = 3), until the next boot",
            "remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and reboot",
        ),
        (PtraceLimit::Privileged, Privilege::User) => forbidden(
            "Yama lets only CAP_SYS_PTRACE trace (kernel.yama.ptrace_scope = 2)",
            "run pagelab as root, or, as root: sysctl kernel.yama.ptrace_scope=1",
        ),
        _ => Ok(()),
    }
}

/// Why a child could not be traced.
fn forbidden(error: io::Error) -> Unsupported {
    match crate::outer_tracer() {
        Some(tracer) => Unsupported {
            reason: format!(
                "{tracer} already traces pagelab and what it starts, and a process has one tracer at most (ptrace: {error})"
            ),
            remedy: "run pagelab without it".into(),
        },
        None => Unsupported {
            reason: format!("a program cannot be traced here (ptrace: {error}), as in a container with a filter"),
            remedy: "docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined, or outside it".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_may_be_traced_below_scope_2() {
        assert!(yama(PtraceLimit::Descendants, Privilege::User).is_ok());
        assert!(yama(PtraceLimit::Privileged, Privilege::Root).is_ok());
        assert!(yama(PtraceLimit::Privileged, Privilege::User).unwrap_err().remedy.contains("ptrace_scope=1"));
        assert!(yama(PtraceLimit::NoProcess, Privilege::Root).unwrap_err().remedy.contains("reboot"));
    }
}
