//! Sham trials: the stops of a policy without its changes.
//!
//! The same filter stops the same calls. Under the policy, the task made further calls at a share of these stops. In a sham
//! trial the task makes as many further calls on average, at the same share of stops. They have no effect: they advise a
//! range of zero bytes.

use host::maps;

use super::call_context::CallContext;
use super::paused::{PauseError, Paused};
use super::ptrace;
use policy::call::madv;

/// Serves a watched call at the pace of the policy: lets the task make it unchanged, and resumes the task.
pub fn serve(context: &mut CallContext, mut paused: Paused) -> Result<(), PauseError> {
    let pace = context.rewriting.imitated_pace.unwrap_or_default();
    let mut owed = context.findings.owed;
    if context.rewriting.no_guards && matches!(paused.number(), libc::SYS_mprotect | libc::SYS_mmap) {
        // The policy reads the mapping here. A sham trial reads it too, only because that takes time.
        let _ = maps::at(paused.tid(), paused.arguments()[0]);
    }
    owed.served += pace.served_ratio;
    if owed.served < 1.0 {
        context.findings.owed = owed;
        return paused.pass();
    }
    owed.served -= 1.0;
    let before = ptrace::stops();
    let result = paused.original_call()?;
    owed.stops += pace.further_stops - (ptrace::stops() - before) as f64;
    let nothing = [0, 0, madv::HUGEPAGE, 0, 0, 0];
    while owed.stops >= 1.0 && context.allows(&paused, libc::SYS_madvise, nothing) {
        let before = ptrace::stops();
        paused.call(libc::SYS_madvise, nothing)?;
        owed.stops -= (ptrace::stops() - before) as f64;
    }
    context.findings.owed = owed;
    paused.finish(result)
}
