//! Errors of a reader: for the whole file, or for a part of it.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::block::BlockError;
use crate::chunk::ChunkError;
use crate::column::ColumnError;
use crate::header::SCHEMA;
use crate::notes::NotesError;
use crate::timestamp::TimestampError;

/// A file that is not a trace, or that this version cannot read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty; expected a trace as `pagelab record` writes it")]
    Empty,
    /// The file does not begin with a block.
    #[error(
        "the file is no trace: {0}; expected a file that `pagelab record` wrote (`pagelab trace import` reads other tools')"
    )]
    NoTrace(#[source] BlockError),
    /// The header cannot be read.
    #[error(
        "the trace's header: {0}; nothing else in the file can be read without it: use another copy of the file, or record again"
    )]
    Header(#[source] HeaderError),
    /// The header has the right version, but keys or values that are not part of it.
    #[error("the trace's header: {0}; a newer pagelab may have written it: read the trace with that version")]
    Newer(#[source] serde_json::Error),
    /// The trace has a version that this program does not read.
    #[error(
        "the trace is of the format {found:?}; this pagelab reads {SCHEMA:?}: use the pagelab that wrote it, or record again"
    )]
    Version {
        /// The version in the header.
        found: String,
    },
}

/// Why a header cannot be read.
#[derive(Debug, Error)]
pub enum HeaderError {
    /// The block of the header cannot be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The first block is not a header.
    #[error("expected as the first block")]
    NotFirst,
    /// The content is not valid JSON for a header.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A part of the file that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the part in the file, in bytes.
    pub offset: u64,
    /// How many bytes were skipped.
    pub bytes: u64,
    /// The cause.
    pub why: DamageKind,
}

/// What is wrong with a part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DamageKind {
    /// The block is invalid.
    #[error(transparent)]
    Block(BlockError),
    /// The runs in the block are invalid.
    #[error(transparent)]
    Chunk(ChunkError),
    /// The events in the block are invalid.
    #[error("the events in it: {0}")]
    Events(#[source] EventsError),
    /// The timestamps in the block are invalid.
    #[error("the timestamps in it: {0}")]
    Timestamps(#[source] TimestampError),
    /// The notes in the block are invalid.
    #[error("the notes in it: {0}")]
    Notes(#[source] NotesError),
    /// Bytes follow the end of the trace.
    #[error("the trace ends with its index; expected only the eight bytes of the index's offset after the index")]
    TrailingBytes,
    /// Blocks are missing before this one; the field counts them.
    #[error("{0} blocks are missing before it")]
    Missing(u64),
}

/// Why the events of a block cannot be read.
#[derive(Clone, Debug, Error)]
pub enum EventsError {
    /// The column of the events cannot be read.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The events are not valid JSON.
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
