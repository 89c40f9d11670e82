//! What can be wrong with a request or with tables, and where.

use alloc::string::String;

use thiserror::Error as ThisError;

use crate::address::{InputAddress, OutputAddress};
use crate::extension::Extension;
use crate::rule::Rule;

/// A request that was refused, or tables that could not be followed.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A range without a byte.
    #[error("the range at {va:#x} is empty; expected at least one page")]
    Empty {
        /// Its first input address.
        va: InputAddress,
    },
    /// An address or a length that is no multiple of the page size.
    #[error("{what} {value:#x}: expected a multiple of the page size {to:#x}")]
    Misaligned {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Bytes of a page.
        to: u64,
    },
    /// A range that goes over the end of the address space, or of its lower half.
    #[error("the range of {bytes:#x} bytes at {va:#x} goes past the end of its half of the address space")]
    PastTheEnd {
        /// Its first input address.
        va: InputAddress,
        /// Its length.
        bytes: u64,
    },
    /// An input address that the tables cannot hold.
    #[error("the input address {va:#x}: expected {} above its {input_bits} bits", above(.extension))]
    NotCanonical {
        /// The address.
        va: InputAddress,
        /// How many bits the tables resolve.
        input_bits: u8,
        /// What must stand above them.
        extension: Extension,
    },
    /// An output address with too many bits.
    #[error("the output range of {bytes:#x} bytes at {pa:#x} does not fit in {output_bits} bits")]
    OutputTooLarge {
        /// Its first address.
        pa: OutputAddress,
        /// Its length.
        bytes: u64,
        /// How many bits an output address has.
        output_bits: u8,
    },
    /// A leaf size that the format does not have.
    #[error("a leaf of {bytes:#x} bytes: this format has {offered}")]
    NoLeafSize {
        /// The size asked for.
        bytes: u64,
        /// The sizes that there are.
        offered: String,
    },
    /// Attributes that no entry of the format can express.
    #[error("{what}: {format} entries cannot express this")]
    Inexpressible {
        /// Which attributes.
        what: &'static str,
        /// The format's name.
        format: &'static str,
    },
    /// Something is mapped already where a mapping was asked for.
    #[error("{va:#x} is mapped already, by the entry {entry:#018x} at level {level}")]
    Overlap {
        /// The first such address.
        va: InputAddress,
        /// The level of its entry.
        level: u8,
        /// The entry.
        entry: u64,
    },
    /// Nothing is mapped where a mapping was expected.
    #[error("{va:#x} is not mapped: the entry at level {level} is {entry:#018x}")]
    NotMapped {
        /// The address.
        va: InputAddress,
        /// The level at which the walk ended.
        level: u8,
        /// The entry that it met.
        entry: u64,
    },
    /// An entry that is present and that the hardware refuses.
    #[error("{va:#x}: the entry {entry:#018x} at level {level} is illegal: {rule}")]
    Illegal {
        /// The address.
        va: InputAddress,
        /// The level of the entry.
        level: u8,
        /// The entry.
        entry: u64,
        /// The rule that it breaks.
        rule: Rule,
    },
    /// Entries that are no contiguous group, or cannot become one.
    #[error("{va:#x}, level {level}: {why}")]
    NoGroup {
        /// The first address of the entries.
        va: InputAddress,
        /// Their level.
        level: u8,
        /// What a group needs.
        why: &'static str,
    },
    /// A table that lies, or partly lies, outside the memory that the tables are in.
    #[error("the table at {pa:#x} for {va:#x}, level {level}, lies outside the arena of {bytes:#x} bytes at {base:#x}")]
    OutsideArena {
        /// Where the table should be.
        pa: OutputAddress,
        /// The first input address that was looked up in it.
        va: InputAddress,
        /// Its level.
        level: u8,
        /// Where the arena begins.
        base: OutputAddress,
        /// Its length.
        bytes: u64,
    },
    /// More entries were met than the arena has: a table is its own descendant, or has two parents.
    #[error("the table at {pa:#x}, level {level}, is met again for {va:#x}: the tables are no tree")]
    NoTree {
        /// The table at which the walk gave up.
        pa: OutputAddress,
        /// The first input address that was looked up in it.
        va: InputAddress,
        /// Its level.
        level: u8,
    },
    /// The arena cannot grow any more.
    #[error("no room for a table of {bytes:#x} bytes: the arena may have {limit_bytes:#x} bytes; allow more")]
    ArenaFull {
        /// Bytes of the table.
        bytes: u64,
        /// Bytes that the arena may have.
        limit_bytes: u64,
    },
    /// An image that is no whole number of entries, begins at an address that is not aligned, or ends past 64 bits.
    #[error("an image of {bytes} bytes at {base:#x}: expected whole 8-byte entries at an aligned address, below 2^64")]
    NotAnImage {
        /// Where it begins.
        base: OutputAddress,
        /// Its length.
        bytes: u64,
    },
}

fn above(extension: &Extension) -> &'static str {
    match extension {
        Extension::Zero => "zeroes",
        Extension::Ones => "ones",
        Extension::Sign => "copies of the highest bit",
    }
}
