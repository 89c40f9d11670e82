//! Errors of requests and of tables.

use alloc::string::String;

use thiserror::Error as ThisError;

use crate::address::{InputAddress, OutputAddress};
use crate::extension::Extension;
use crate::rule::Rule;

/// A request that was refused, or tables that could not be followed.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The range is empty.
    #[error("the range at {va:#x} is empty; expected at least one page")]
    Empty {
        /// The first input address of the range.
        va: InputAddress,
    },
    /// An address or a length is not a multiple of the page size.
    #[error("{what} {value:#x}: expected a multiple of the page size {to:#x}")]
    Misaligned {
        /// Which address or length it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The page size in bytes.
        to: u64,
    },
    /// The range extends past the end of the address space, or of its lower half.
    #[error("the range of {bytes:#x} bytes at {va:#x} extends past the end of its half of the address space")]
    PastTheEnd {
        /// The first input address of the range.
        va: InputAddress,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The tables cannot translate this input address.
    #[error("the input address {va:#x}: expected {} above its {input_bits} bits", above(.extension))]
    NotCanonical {
        /// The input address.
        va: InputAddress,
        /// How many bits the tables resolve.
        input_bits: u8,
        /// What the bits above those must be.
        extension: Extension,
    },
    /// The output address has too many bits.
    #[error("the output range of {bytes:#x} bytes at {pa:#x} does not fit in {output_bits} bits")]
    OutputTooLarge {
        /// The first output address.
        pa: OutputAddress,
        /// Length of the range in bytes.
        bytes: u64,
        /// How many bits an output address has.
        output_bits: u8,
    },
    /// The format does not have this leaf size.
    #[error("a leaf of {bytes:#x} bytes: this format has {offered}")]
    NoLeafSize {
        /// The requested size in bytes.
        bytes: u64,
        /// The sizes that the format has.
        offered: String,
    },
    /// No entry of the format can express these attributes.
    #[error("{what}: {format} entries cannot express this")]
    Inexpressible {
        /// The attributes that cannot be expressed.
        what: &'static str,
        /// The format's name.
        format: &'static str,
    },
    /// Part of the range is already mapped.
    #[error("{va:#x} is mapped already, by the entry {entry:#018x} at level {level}")]
    Overlap {
        /// The first mapped address.
        va: InputAddress,
        /// The level of its entry.
        level: u8,
        /// The value of the entry.
        entry: u64,
    },
    /// Nothing is mapped where a mapping was expected.
    #[error("{va:#x} is not mapped: the entry at level {level} is {entry:#018x}")]
    NotMapped {
        /// The input address.
        va: InputAddress,
        /// The level at which the walk ended.
        level: u8,
        /// The entry at which it ended.
        entry: u64,
    },
    /// An entry is valid, but hardware refuses it.
    #[error("{va:#x}: the entry {entry:#018x} at level {level} is illegal: {rule}")]
    Illegal {
        /// The input address.
        va: InputAddress,
        /// The level of the entry.
        level: u8,
        /// The value of the entry.
        entry: u64,
        /// The rule that it breaks.
        rule: Rule,
    },
    /// Entries are not a contiguous group, or cannot become one.
    #[error("{va:#x}, level {level}: {why}")]
    NoGroup {
        /// The first address of the entries.
        va: InputAddress,
        /// Their level.
        level: u8,
        /// The condition for a group that is not met.
        why: &'static str,
    },
    /// A table is at least partly outside the arena.
    #[error("the table at {pa:#x} for {va:#x}, level {level}, is outside the arena of {bytes:#x} bytes at {base:#x}")]
    OutsideArena {
        /// The address of the table.
        pa: OutputAddress,
        /// The first input address that was looked up in it.
        va: InputAddress,
        /// The table's level.
        level: u8,
        /// The address of the arena.
        base: OutputAddress,
        /// Length of the arena in bytes.
        bytes: u64,
    },
    /// A walk read more entries than the arena has: a table is its own descendant, or has two parents.
    #[error("the table at {pa:#x}, level {level}, is reached again for {va:#x}: the tables are not a tree")]
    NoTree {
        /// The table at which the walk gave up.
        pa: OutputAddress,
        /// The first input address that was looked up in it.
        va: InputAddress,
        /// The table's level.
        level: u8,
    },
    /// The arena has reached its limit.
    #[error("no room for a table of {bytes:#x} bytes: the arena is limited to {limit_bytes:#x} bytes; raise the limit")]
    ArenaFull {
        /// Size of the requested table in bytes.
        bytes: u64,
        /// The limit of the arena in bytes.
        limit_bytes: u64,
    },
    /// An image is not a whole number of entries, begins at an unaligned address, or ends past 64 bits.
    #[error("an image of {bytes} bytes at {base:#x}: expected whole 8-byte entries at an aligned address, below 2^64")]
    NotAnImage {
        /// The address of the image.
        base: OutputAddress,
        /// Length of the image in bytes.
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
