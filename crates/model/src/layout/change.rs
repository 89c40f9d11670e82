//! What happens to the memory of a program, at the addresses that Linux chooses.

use ::policy::cause::Cause;
use ::policy::pool::Content;
use trace::Event;

/// A change, in the order in which the kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A call, of the program or in its name.
    Call(Event),
    /// The program gives memory back: it is looked at before it goes.
    GivenBack {
        /// The first address.
        begin: u64,
        /// Bytes.
        bytes: u64,
        /// Whether `pagelab compare` looks at it without `--prove-all`.
        is_looked_at: bool,
    },
    /// What is there of a range is written in the program's name.
    Write {
        /// The first address.
        begin: u64,
        /// Bytes.
        bytes: u64,
    },
    /// What a range holds is written to another one in the program's name.
    Copy {
        /// The first address.
        from: u64,
        /// That of the copy.
        to: u64,
        /// Bytes.
        bytes: u64,
        /// What is copied.
        content: Content,
    },
    /// A call that succeeded when it was recorded would fail now.
    Refused,
    /// A call was answered in the kernel's place.
    Answered(&'static str),
    /// Why memory is not as asked, and how much.
    Noted(Cause, u64),
}
