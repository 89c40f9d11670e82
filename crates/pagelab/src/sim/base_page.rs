//! Whether the recorded program would start with the base page of a policy.

use model::simulation::Outcome;
use policy::cause::{Cause, CauseShare};
use policy::size::PageSize;
use policy::verdict::Holding;
use trace::Header;

/// The base page of hosts where traces are recorded, in bytes.
const RECORDED_BYTES: u64 = 4096;

/// A policy with larger base pages than the program can be mapped with did not hold: the figures are those of a program that is
/// linked for them.
pub fn judge(header: &Header, outcome: &mut Outcome) {
    let Some(aligned_to) = header.max_base_bytes.filter(|bytes| *bytes < outcome.base_bytes) else { return };
    let [Ok(base), Ok(aligned_to)] = [outcome.base_bytes, aligned_to].map(PageSize::new) else { return };
    outcome.verdict.holding = Holding::NotHeld;
    let cause = Cause::BasePageRefused { base, aligned_to };
    outcome.verdict.causes.insert(0, CauseShare { cause, bytes: None });
}

/// A note where the trace does not say whether its program starts with the base pages of these outcomes.
pub fn unknown(header: &Header, ran: &[&Outcome]) -> Option<String> {
    let larger = ran.iter().any(|outcome| outcome.base_bytes > RECORDED_BYTES);
    (larger && header.max_base_bytes.is_none() && !header.system).then(|| {
        "the trace does not say how the LOAD segments of its program are aligned: whether it starts with base pages above 4K is \
         not known"
            .to_owned()
    })
}
