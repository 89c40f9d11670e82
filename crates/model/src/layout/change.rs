//! Changes to a program's memory, in Linux's layout.

use ::policy::cause::Cause;
use ::policy::pool::Content;
use trace::Event;

/// A change to a program's memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A call, by the program or on its behalf.
    Call(Event),
    /// The program is about to free memory, which the verdict inspects first.
    Freed {
        begin: u64,
        bytes: u64,
        /// Whether `pagelab compare` would inspect it without `--prove-all`.
        is_inspected: bool,
    },
    /// The present pages of a range are written on behalf of the program.
    Write { begin: u64, bytes: u64 },
    /// A range is copied to another one on behalf of the program.
    Copy {
        /// The first address of the source.
        from: u64,
        /// The first address of the copy.
        to: u64,
        bytes: u64,
        /// Which pages are copied.
        content: Content,
    },
    /// A call that succeeded in the recording would fail under the policy.
    Refused,
    /// A call was answered without being made.
    Answered(&'static str),
    /// Why memory is not mapped as the policy requests, and how many bytes.
    Noted(Cause, u64),
}
