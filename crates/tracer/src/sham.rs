//! Sham trials: the stops of a policy, and nothing of what it does.
//!
//! The same calls stop, by the same filter, and at as many of them as the policy was seen to need calls of its own the task
//! makes as many, in the same way. They change nothing: advice on a range of no bytes.

use host::maps;

use super::call_context::CallContext;
use super::paused::{Lost, Paused};
use super::ptrace;
use policy::call::madv;

/// Serves a watched call at the pace of the policy, lets the task make it as it is, and sends it on.
pub fn serve(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let pace = context.rewriting.sham.unwrap_or_default();
    let mut debt = context.findings.debt;
    if context.rewriting.no_guards && matches!(paused.number(), libc::SYS_mprotect | libc::SYS_mmap) {
        // The policy looks at the mapping there; here only the time that it takes counts.
        let _ = maps::at(paused.tid(), paused.arguments()[0]);
    }
    debt.served += pace.served_ratio;
    if debt.served < 1.0 {
        context.findings.debt = debt;
        return paused.pass();
    }
    debt.served -= 1.0;
    let before = ptrace::stops();
    let result = paused.own_call()?;
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
