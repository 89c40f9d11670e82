//! Serving these calls under a tracer.

use super::{EXCEPT_ADVISED, EXCEPTS_ADVISED, GET};
use crate::call_context::CallContext;
use crate::paused::{Lost, Paused};
use crate::tasks::Space;

/// Serves one of these calls. The program is told what it would be told without the policy.
pub fn serve(context: &mut CallContext, space: &mut Space, paused: Paused) -> Result<(), Lost> {
    let [option, value, flags, fourth, fifth, _] = paused.arguments();
    let question = option as u32 == GET;
    let refused = match question {
        true => value | flags != 0,
        false => flags != 0 && !(value != 0 && flags == EXCEPT_ADVISED && *EXCEPTS_ADVISED),
    };
    if refused || fourth | fifth != 0 {
        return paused.pass();
    }
    if question {
        return paused.finish(space.thp_disable as i64);
    }
    space.thp_disable = if value == 0 { 0 } else { 1 | flags };
    // What the policy wants too is no news.
    match (context.rewriting.wants_large(), value != 0, flags) {
        (true, true, _) => context.findings.answer("prctl(PR_SET_THP_DISABLE, 1)"),
        (false, false, _) => context.findings.answer("prctl(PR_SET_THP_DISABLE, 0)"),
        (false, true, EXCEPT_ADVISED) => {
            context.findings.answer("prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED)");
        }
        _ => {}
    }
    paused.finish(0)
}
