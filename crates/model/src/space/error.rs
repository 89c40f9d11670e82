//! Errors that end a simulation.

use paging::Error;
use thiserror::Error as ThisError;

/// Why a simulation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum SpaceError {
    /// No base page is free, and reclaim cannot free one.
    #[error(
        "out of memory at {va:#x}: the memory limit leaves no page of {base_bytes} bytes; allow more with --memory"
    )]
    OutOfMemory {
        /// The address that the program touched.
        va: u64,
        /// Base page size in bytes.
        base_bytes: u64,
    },
    #[error("{}", with_remedy(.0))]
    Tables(#[from] Error),
}

fn with_remedy(error: &Error) -> String {
    match error {
        Error::NotCanonical { .. } => format!("{error}; take a machine whose programs have more bits of address"),
        _ => error.to_string(),
    }
}
