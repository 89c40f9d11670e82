//! Whether the recorded program would start under the base page size of a policy.

use model::simulation::Outcome;
use policy::cause::{Cause, CauseShare};
use policy::inspect::Jemalloc;
use policy::size::PageSize;
use policy::verdict::Holding;
use trace::Header;

/// The base page of hosts where traces are recorded, in bytes.
const RECORDED_BYTES: u64 = 4096;

/// Marks a policy as not held if the program cannot be mapped with base pages as large as the policy's. The figures then
/// describe the program as if it were linked for such pages.
pub fn judge(header: &Header, outcome: &mut Outcome) {
    let Ok(base) = PageSize::new(outcome.base_bytes) else { return };
    let below = |bytes: u64| PageSize::new(bytes).ok().filter(|size| *size < base);
    let aligned_to = header.max_base_bytes.and_then(below);
    let built_for = header.jemalloc.as_ref().and_then(|jemalloc| jemalloc.built_for_bytes).and_then(below);
    let refused = [
        aligned_to.map(|aligned_to| Cause::BasePageRefused { base, aligned_to }),
        built_for.map(|built_for| Cause::JemallocRefusesBasePage { base, built_for }),
    ];
    let causes = refused.into_iter().flatten().map(|cause| CauseShare { cause, bytes: None });
    let causes: Vec<CauseShare> = causes.collect();
    if !causes.is_empty() {
        outcome.verdict.holding = Holding::NotHeld;
        outcome.verdict.causes.splice(0..0, causes);
    }
}

/// Notes for traces that do not record whether the program starts with the base pages of these outcomes.
pub fn unknown(header: &Header, ran: &[&Outcome]) -> Vec<String> {
    if !ran.iter().any(|outcome| outcome.base_bytes > RECORDED_BYTES) {
        return Vec::new();
    }
    let alignment = (header.max_base_bytes.is_none() && !header.system).then(|| {
        "whether the program starts with base pages above 4K is not known: the trace does not record the alignment of its LOAD \
         segments"
            .to_owned()
    });
    let hidden = header.jemalloc.as_ref().filter(|jemalloc| jemalloc.built_for_bytes.is_none());
    let hidden = hidden.map(|jemalloc| Jemalloc { file: jemalloc.file.clone(), built_for: None }.describe());
    alignment.into_iter().chain(hidden).collect()
}
