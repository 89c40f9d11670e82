//! [`CallContext`]: the context in which a call is served. It consists of the policy, the tree, and the [`Findings`] so far.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use policy::cause::Cause;

use super::group_limits::GroupLimits;
use super::own_filter::OwnFilter;
use super::pace::OwedStops;
use super::paused::{PauseError, Paused};
use super::refused_requests::{self, RefusedRequests};
use super::registers::{NATIVE, is_error};
use super::rewriting::Rewriting;
use super::tasks::{Space, Tasks};
use super::witness::WindowRange;

/// The context in which a call is served, apart from its address space.
pub struct CallContext<'a> {
    /// How the policy changes calls.
    pub rewriting: &'a Rewriting,
    /// The tasks of the traced tree.
    pub tasks: &'a mut Tasks,
    /// What is recorded while calls are served.
    pub findings: &'a mut Findings,
}

impl CallContext<'_> {
    /// Whether the seccomp filters that the program installed itself allow a call.
    pub fn allows(&self, paused: &Paused, number: i64, arguments: [u64; 6]) -> bool {
        let pointer = paused.instruction_pointer();
        let allows = |own: &Rc<OwnFilter>| own.allows(NATIVE.audit_arch, number, pointer, arguments);
        self.tasks.get(paused.tid()).is_none_or(|task| task.filters.iter().all(allows))
    }
}

/// Lets a task make its call unchanged: at full speed, unless the call requests hugetlb pages, whose refusal must be
/// recorded.
pub fn pass(findings: &mut Findings, mut paused: Paused) -> Result<(), PauseError> {
    if !refused_requests::is_request(paused.number(), paused.arguments()) {
        return paused.pass();
    }
    let result = paused.original_call()?;
    findings.record_request(&paused, result);
    paused.finish(result)
}

/// What the tracer records while it serves calls.
#[derive(Default)]
pub struct Findings {
    /// Number of answered calls, by the call's name.
    pub answered: BTreeMap<String, u64>,
    /// Bytes affected, by cause.
    pub causes: BTreeMap<Cause, u64>,
    /// Maximum of advised bytes over all address spaces.
    pub advised_bytes: u64,
    /// The ranges of all windows, if accesses to them are counted.
    pub window_ranges: Vec<WindowRange>,
    /// Calls and stops that a sham trial still has to make.
    pub owed: OwedStops,
    /// Requests for hugetlb pages that the kernel refused to the program.
    pub refused_requests: RefusedRequests,
    /// The control groups that limit hugetlb pages.
    pub group_limits: GroupLimits,
    /// The first error in reading something that exists and that a call depends on. The trial is then given up.
    pub read_error: Option<io::Error>,
}

impl Findings {
    /// Counts a call that was answered instead of passed to the kernel.
    pub fn count_answer(&mut self, call: &str) {
        *self.answered.entry(call.to_string()).or_insert(0) += 1;
    }

    /// Updates the maximum with the bytes that were advised in an address space.
    pub fn record_advised(&mut self, space: &Space) {
        self.advised_bytes = self.advised_bytes.max(space.policy.advised_bytes);
    }

    /// The value that was read. An error ends the trial; until then `fallback` is used as the value.
    pub fn value_or_give_up<T>(&mut self, read: io::Result<T>, fallback: T) -> T {
        read.unwrap_or_else(|error| {
            self.read_error.get_or_insert(error);
            fallback
        })
    }

    /// Records a request for hugetlb pages, if the call is one and the kernel refused it.
    pub fn record_request(&mut self, paused: &Paused, result: i64) {
        if is_error(result) {
            let noted = self.refused_requests.note(paused.tid(), paused.number(), paused.arguments(), result);
            self.value_or_give_up(noted, ());
        }
    }

    /// Adds bytes to a cause.
    pub fn add_cause(&mut self, cause: Cause, bytes: u64) {
        *self.causes.entry(cause).or_insert(0) += bytes;
    }
}
