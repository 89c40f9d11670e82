//! Sham trials: the stops of a policy without its changes.
//!
//! The same filter stops the same calls. At as many of them as the policy needed calls of its own, the task makes as
//! many further calls in the same way. These calls have no effect: they advise a range of zero bytes.

use host::maps;

use super::call_context::CallContext;
use super::paused::{Lost, Paused};
use super::ptrace;
use policy::call::madv;

/// Serves a watched call at the pace of the policy: lets the task make it unchanged, and resumes the task.
pub fn serve(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let pace = context.rewriting.sham.unwrap_or_default();
    let mut debt = context.findings.debt;
    if context.rewriting.no_guards && matches!(paused.number(), libc::SYS_mprotect | libc::SYS_mmap) {
        // The policy reads the mapping here; a sham trial reads it only for the time that it takes.
        let _ = maps::at(paused.tid(), paused.arguments()[0]);
    }
    debt.served += pace.served_ratio;
    if debt.served < 1.0 {
        context.findings.debt = debt;
        return paused.pass();
    }
    debt.served -= 1.0;
    let before = ptrace::stops();
    let result = paused.original_call()?;
    debt.stops += pace.further_stops - (ptrace::stops() - before) as f64;
    let nothing = [0, 0, madv::HUGEPAGE, 0, 0, 0];
    while debt.stops >= 1.0 && context.allows(&paused, libc::SYS_madvise, nothing) {
        let before = ptrace::stops();
        paused.call(libc::SYS_madvise, nothing)?;
        debt.stops -= (ptrace::stops() - before) as f64;
    }
    context.findings.debt = debt;
    paused.finish(result)
}
