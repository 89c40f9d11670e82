//! The context in which a call is served: the policy, the tree, and the findings so far.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use policy::cause::Cause;

use super::hugetlb::GroupLimits;
use super::own_filter::OwnFilter;
use super::pace::OwedStops;
use super::paused::{Lost, Paused};
use super::refused_requests::{self, RefusedRequests};
use super::registers::{NATIVE, is_error};
use super::rewriting::Rewriting;
use super::tasks::Tasks;

/// The context in which a call is served, apart from its address space.
pub struct CallContext<'a> {
    /// How the policy changes calls.
    pub rewriting: &'a Rewriting,
    /// The tasks of the traced tree.
    pub tasks: &'a mut Tasks,
    /// What is recorded on the way.
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

/// Lets a task make its call unchanged: at full speed, unless the call asks for hugetlb pages, whose refusal is recorded.
pub fn pass(findings: &mut Findings, mut paused: Paused) -> Result<(), Lost> {
    if !refused_requests::is_request(paused.number(), paused.arguments()) {
        return paused.pass();
    }
    let result = paused.original_call()?;
    findings.request(&paused, result);
    paused.finish(result)
}

/// What the tracer records while it serves calls.
#[derive(Default)]
pub struct Findings {
    /// Number of answered calls, by the call's name.
    pub answered: BTreeMap<String, u64>,
    /// Bytes concerned, by cause.
    pub causes: BTreeMap<Cause, u64>,
    /// Calls and stops that a sham trial still has to make.
    pub debt: OwedStops,
    /// Requests for hugetlb pages that the kernel refused to the program.
    pub refused_requests: RefusedRequests,
    /// The control groups that limit hugetlb pages.
    pub group_limits: GroupLimits,
    /// Why something that a call depends on could not be read although it exists. The trial is then given up.
    pub unread: Option<io::Error>,
}

impl Findings {
    /// Counts a call that was answered instead of passed to the kernel.
    pub fn answer(&mut self, call: &str) {
        *self.answered.entry(call.to_string()).or_insert(0) += 1;
    }

    /// Unwraps a reading. The first error is kept and ends the trial; until then `until_then` is used as the value.
    pub fn known<T>(&mut self, read: io::Result<T>, until_then: T) -> T {
        read.unwrap_or_else(|error| {
            self.unread.get_or_insert(error);
            until_then
        })
    }

    /// Records a request for hugetlb pages, if the call is one and the kernel refused it.
    pub fn request(&mut self, paused: &Paused, result: i64) {
        if is_error(result) {
            let noted = self.refused_requests.note(paused.tid(), paused.number(), paused.arguments(), result);
            self.known(noted, ());
        }
    }

    /// Adds bytes to a cause.
    pub fn cause(&mut self, cause: Cause, bytes: u64) {
        *self.causes.entry(cause).or_insert(0) += bytes;
    }
}
