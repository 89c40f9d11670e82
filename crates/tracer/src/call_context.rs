//! What a call is served with: the policy, the tree, and what is noted on the way.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use policy::cause::Cause;

use super::own_filter::OwnFilter;
use super::pace::Debt;
use super::paused::Paused;
use super::registers::NATIVE;
use super::rewriting::Rewriting;
use super::tasks::Tasks;

/// What a call is served with, besides its address space.
pub struct CallContext<'a> {
    /// What the policy asks for.
    pub rewriting: &'a Rewriting,
    /// The tree.
    pub tasks: &'a mut Tasks,
    /// What is noted on the way.
    pub findings: &'a mut Findings,
}

impl CallContext<'_> {
    /// Whether the filters that the program has installed for itself let a call through.
    pub fn allows(&self, paused: &Paused, number: i64, arguments: [u64; 6]) -> bool {
        let pointer = paused.instruction_pointer();
        let allows = |own: &Rc<OwnFilter>| own.allows(NATIVE.audit_arch, number, pointer, arguments);
        self.tasks.get(paused.tid()).is_none_or(|task| task.filters.iter().all(allows))
    }
}

/// What the tracer collects on the way.
#[derive(Default)]
pub struct Findings {
    /// Calls that were answered.
    pub answered: BTreeMap<String, u64>,
    /// Causes with bytes.
    pub causes: BTreeMap<Cause, u64>,
    /// What a sham trial still owes.
    pub debt: Debt,
    /// Why something that a call depends on could not be read, though it is there. The trial is then given up.
    pub unread: Option<io::Error>,
}

impl Findings {
    /// Notes that a call was answered in the kernel's place.
    pub fn answer(&mut self, call: &str) {
        *self.answered.entry(call.to_string()).or_insert(0) += 1;
    }

    /// What was read. An error is kept, and the first one ends the trial; the value is used until then.
    pub fn known<T>(&mut self, read: io::Result<T>, until_then: T) -> T {
        read.unwrap_or_else(|error| {
            self.unread.get_or_insert(error);
            until_then
        })
    }

    /// Notes a cause and the bytes that it concerns.
    pub fn cause(&mut self, cause: Cause, bytes: u64) {
        *self.causes.entry(cause).or_insert(0) += bytes;
    }
}
