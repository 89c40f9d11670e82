//! What a reader cannot read: the whole file, or a part of it.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::block::BlockError;
use crate::chunk::ChunkError;
use crate::column::ColumnError;
use crate::header::SCHEMA;
use crate::timestamp::TimestampError;

/// A file that is no trace, or that this version cannot read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty; expected a trace as `pagelab record` writes it")]
    Empty,
    /// It begins with something else.
    #[error(
        "the file is no trace: {0}; expected a file that `pagelab record` wrote (`pagelab trace import` reads other tools')"
    )]
    NoTrace(#[source] BlockError),
    /// Its header cannot be read.
    #[error(
        "the trace's header: {0}; nothing else in the file can be read without it: take a copy of the file, or record again"
    )]
    Header(#[source] HeaderError),
    /// It has the right version, and keys or values that are not of it.
    #[error("the trace's header: {0}; a newer pagelab than this one may have written it: read it with that")]
    Newer(#[source] serde_json::Error),
    /// Another version.
    #[error(
        "the trace is of the format {found:?}; this pagelab reads {SCHEMA:?}: use the pagelab that wrote it, or record again"
    )]
    Version {
        /// What the header says.
        found: String,
    },
}

/// Why a header cannot be read.
#[derive(Debug, Error)]
pub enum HeaderError {
    /// Its block cannot.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The first block is another one.
    #[error("expected as the first block")]
    NotFirst,
    /// It is not the JSON that was expected.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A part of the file that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes were passed over.
    pub bytes: u64,
    /// What is wrong with it.
    pub why: DamageKind,
}

/// What can be wrong with a part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DamageKind {
    /// The block itself.
    #[error(transparent)]
    Block(BlockError),
    /// The runs in it.
    #[error(transparent)]
    Chunk(ChunkError),
    /// The events in it.
    #[error("the events in it: {0}")]
    Events(#[source] EventsError),
    /// The timestamps in it.
    #[error("the timestamps in it: {0}")]
    Timestamps(#[source] TimestampError),
    /// Something follows the end of the trace.
    #[error(
        "the trace ended before it, with its index; expected the eight bytes of the index's place and nothing else"
    )]
    Behind,
    /// Blocks are missing before this one.
    #[error("{0} blocks are missing before it")]
    Missing(u64),
}

/// Why the events of a block cannot be read.
#[derive(Clone, Debug, Error)]
pub enum EventsError {
    /// Their column.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// They are not the JSON that was expected.
    #[error(transparent)]
    Json(Arc<serde_json::Error>),
}

impl PartialEq for EventsError {
    fn eq(&self, other: &EventsError) -> bool {
        match (self, other) {
            (EventsError::Column(one), EventsError::Column(other)) => one == other,
            (EventsError::Json(one), EventsError::Json(other)) => one.to_string() == other.to_string(),
            _ => false,
        }
    }
}

impl Eq for EventsError {}
