//! Changes to a program's memory, at the addresses that Linux chooses.

use ::policy::cause::Cause;
use ::policy::pool::Content;
use trace::Event;

/// A change, in the order in which the kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A call of the program, or one made on its behalf.
    Call(Event),
    /// The program frees memory. The verdict inspects it before it is freed.
    GivenBack {
        /// The first address.
        begin: u64,
        /// Length in bytes.
        bytes: u64,
        /// Whether `pagelab compare` inspects it without `--prove-all`.
        is_looked_at: bool,
    },
    /// The present memory of a range is written on behalf of the program.
    Write {
        /// The first address.
        begin: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A range is copied to another one on behalf of the program.
    Copy {
        /// The first address of the source.
        from: u64,
        /// The first address of the copy.
        to: u64,
        /// Length in bytes.
        bytes: u64,
        /// The part of the content that is copied.
        content: Content,
    },
    /// A call that succeeded when it was recorded would fail now.
    Refused,
    /// A call was answered without the kernel.
    Answered(&'static str),
    /// Why memory is not mapped as requested, and how many bytes.
    Noted(Cause, u64),
}
