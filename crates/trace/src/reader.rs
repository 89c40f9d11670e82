//! [`Reader`] reads a trace, as a stream or by seeking to its blocks.
//!
//! A block is used only if its checksums are right. Damaged or truncated parts are reported and skipped; reading
//! continues at the next block.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use crate::block::{BlockError, MAGIC, MAX_PAYLOAD_BYTES, PREFIX_BYTES, PayloadKind, Prefix};
use crate::chunk::Chunk;
use crate::column::Decoder;
use crate::event::Event;
use crate::header::{Header, SCHEMA};
use crate::index::{self, IndexEntry};
use crate::notes::{Notes, NotesError};
use crate::read_error::{Damage, DamageKind, EventsError, HeaderError, ReadError};
use crate::timestamp::{self, MAX_TIMESTAMP_BYTES, MAX_TIMESTAMPS, Timestamp, TimestampError};

/// A part of a trace, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Runs of a thread.
    Runs {
        /// The thread.
        thread: u32,
        /// The number of the first run in its thread.
        first: u64,
        /// Instructions that the thread had executed at the end of the block.
        instructions: u64,
        /// The runs.
        chunk: Chunk,
    },
    /// Address-space events of a thread.
    Events {
        /// The thread.
        thread: u32,
        /// Instructions that the thread had executed at the end of the block.
        instructions: u64,
        /// The events.
        events: Vec<Event>,
    },
    /// When threads reached positions in their runs, ordered by time.
    Timestamps(Vec<Timestamp>),
    /// A part that could not be used.
    Damaged(Damage),
}

/// Reads a trace block by block.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    notes: Option<Notes>,
    offset: u64,
    /// Bytes that were read ahead, while looking for the next block, and not used yet.
    ahead: Vec<u8>,
    /// The number that the next block should have.
    next: u64,
    /// Bytes were skipped, so the number of skipped blocks is unknown.
    is_damaged: bool,
    ended: FileEnd,
    decoder: Decoder,
}

/// How the file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileEnd {
    NotYet,
    /// The file ended with its index.
    Whole,
    /// The file ended without an index.
    CutOff,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is not a trace or has another version.
    pub fn new(from: R) -> Result<Reader<R>, ReadError> {
        // A placeholder until the file's own header is read.
        let header = Header::of("");
        let mut reader = Reader {
            from,
            header,
            notes: None,
            offset: 0,
            ahead: Vec::new(),
            next: 0,
            is_damaged: false,
            ended: FileEnd::NotYet,
            decoder: Decoder::default(),
        };
        let found = reader.read_block()?;
        reader.header = match found {
            NextBlock::Block(Prefix { payload_kind: PayloadKind::Header, .. }, payload) => parsed(&payload)?,
            NextBlock::Block(..) => return Err(ReadError::Header(HeaderError::NotFirst)),
            NextBlock::Nothing => return Err(ReadError::Empty),
            NextBlock::Error(error) if reader.begins_as_trace() => return Err(ReadError::Header(error.into())),
            NextBlock::Error(error) => return Err(ReadError::NoTrace(error)),
        };
        reader.next = 1;
        Ok(reader)
    }

    /// Whether the bytes read ahead start with the magic of a block.
    fn begins_as_trace(&self) -> bool {
        self.ahead.starts_with(&MAGIC)
    }

    /// The header of the trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The notes of the trace, once the end was read. Traces of forked processes, imports and parts have none.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// Whether the file ended with its index, so that nothing is missing at its end.
    pub fn is_whole(&self) -> bool {
        self.ended == FileEnd::Whole
    }

    /// The next block; `None` at the end.
    ///
    /// ```
    /// use trace::{Block, Call, Header, Kind, Reader, Recording};
    ///
    /// let mut recording = Recording::new(Vec::new(), Header::of("an example"))?;
    /// recording.access(0, 0x10_0000, 8, Kind::STORE)?;
    /// recording.event(0, Call::Munmap { address: 0x10_0000, bytes: 4096 }, 0);
    /// let bytes = recording.finish()?;
    ///
    /// let mut reader = Reader::new(bytes.as_slice())?;
    /// let mut calls = Vec::new();
    /// while let Some(block) = reader.next_block()? {
    ///     if let Block::Events { events, .. } = block {
    ///         calls.extend(events.into_iter().map(|event| (event.run, event.call)));
    ///     }
    /// }
    /// // After the first run of its thread.
    /// assert_eq!(calls, [(1, Call::Munmap { address: 0x10_0000, bytes: 4096 })]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file could not be read.
    pub fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        if self.ended != FileEnd::NotYet {
            return Ok(None);
        }
        let offset = self.offset;
        match self.read_block()? {
            NextBlock::Nothing => {
                self.ended = FileEnd::CutOff;
                Ok(None)
            }
            NextBlock::Error(error) => {
                // Skips the magic of the damaged block, if the block has one.
                self.find_magic()?;
                self.is_damaged = true;
                let damage = Damage { offset, bytes: self.offset - offset, why: DamageKind::Block(error) };
                // Missing blocks are reported only once.
                self.next = u64::MAX;
                Ok(Some(Block::Damaged(damage)))
            }
            NextBlock::Block(prefix, payload) => self.block(offset, &prefix, payload),
        }
    }

    fn block(&mut self, offset: u64, prefix: &Prefix, payload: Vec<u8>) -> Result<Option<Block>, ReadError> {
        let missing = prefix.number.saturating_sub(self.next);
        if self.next != u64::MAX && missing != 0 {
            self.next = prefix.number;
            self.put_back(offset, prefix, payload);
            return Ok(Some(Block::Damaged(Damage { offset, bytes: 0, why: DamageKind::Missing(missing) })));
        }
        self.next = prefix.number.saturating_add(1);
        let damaged = |why| Block::Damaged(Damage { offset, bytes: payload.len() as u64 + PREFIX_BYTES as u64, why });
        let thread = prefix.thread;
        Ok(Some(match prefix.payload_kind {
            PayloadKind::Runs => {
                match Chunk::decode_with(&mut self.decoder, &payload, prefix.count as usize, self.header.columns) {
                    Ok(chunk) => Block::Runs { thread, first: prefix.first, instructions: prefix.instructions, chunk },
                    Err(error) => damaged(DamageKind::Chunk(error)),
                }
            }
            PayloadKind::Events => match events(&payload) {
                Ok(events) => Block::Events { thread, instructions: prefix.instructions, events },
                Err(error) => damaged(DamageKind::Events(error)),
            },
            PayloadKind::Timestamps => match self.timestamps(&payload, prefix.count as usize) {
                Ok(timestamps) => Block::Timestamps(timestamps),
                Err(error) => damaged(DamageKind::Timestamps(error)),
            },
            PayloadKind::Notes => match self.take_notes(&payload) {
                Ok(()) => return self.next_block(),
                Err(error) => damaged(DamageKind::Notes(error)),
            },
            PayloadKind::Index => return Ok(self.end(offset)?.map(Block::Damaged)),
            PayloadKind::Header => damaged(DamageKind::Block(BlockError::Kind(PayloadKind::Header as u8))),
        }))
    }

    fn timestamps(&mut self, payload: &[u8], count: usize) -> Result<Vec<Timestamp>, TimestampError> {
        let max_bytes = count.min(MAX_TIMESTAMPS) * MAX_TIMESTAMP_BYTES;
        timestamp::parsed(self.decoder.column(&mut &payload[..], "timestamp", max_bytes)?, count)
    }

    /// Keeps the notes. A second block of notes is an error, which bounds the recursion of [`Reader::next_block`].
    fn take_notes(&mut self, payload: &[u8]) -> Result<(), NotesError> {
        if self.notes.is_some() {
            return Err(NotesError::Duplicate);
        }
        self.notes = Some(Notes::parsed(payload)?);
        Ok(())
    }

    /// Reads the rest of the file after the first block of the index, which begins at offset `index`. Only further blocks of
    /// the index and its offset may follow.
    fn end(&mut self, index: u64) -> Result<Option<Damage>, ReadError> {
        loop {
            let offset = self.offset;
            match self.read_block()? {
                NextBlock::Block(Prefix { payload_kind: PayloadKind::Index, .. }, _) => {}
                NextBlock::Block(prefix, payload) => {
                    self.put_back(offset, &prefix, payload);
                    break;
                }
                NextBlock::Error(_) | NextBlock::Nothing => break,
            }
        }
        let offset = self.offset;
        let place = self.take(8)?;
        self.ended = if place.len() == 8 { FileEnd::Whole } else { FileEnd::CutOff };
        while !self.take(1 << 16)?.is_empty() {}
        let bytes = self.offset - offset;
        let is_clean = bytes <= 8 && (place == index.to_le_bytes() || place.len() < 8 || self.is_damaged);
        Ok((!is_clean).then_some(Damage { offset, bytes, why: DamageKind::TrailingBytes }))
    }

    /// Puts a block back, so that the next read returns it again.
    fn put_back(&mut self, offset: u64, prefix: &Prefix, payload: Vec<u8>) {
        let mut bytes = prefix.to_bytes().to_vec();
        bytes.extend(payload);
        bytes.append(&mut self.ahead);
        self.ahead = bytes;
        self.offset = offset;
    }

    fn read_block(&mut self) -> Result<NextBlock, ReadError> {
        let bytes = self.take(PREFIX_BYTES)?;
        let Ok(first) = <[u8; PREFIX_BYTES]>::try_from(&bytes[..]) else {
            let cut_off = !bytes.is_empty();
            self.ahead = bytes;
            self.offset -= self.ahead.len() as u64;
            return Ok(if cut_off { NextBlock::Error(self.cut_off()) } else { NextBlock::Nothing });
        };
        let prefix = match Prefix::from_bytes(&first) {
            Ok(prefix) => prefix,
            Err(error) => {
                self.return_bytes(bytes);
                return Ok(NextBlock::Error(error));
            }
        };
        let payload = self.take(prefix.payload_bytes as usize)?;
        let error = if payload.len() < prefix.payload_bytes as usize {
            BlockError::CutOff
        } else if crc32fast::hash(&payload) != prefix.payload_crc {
            BlockError::PayloadChecksum
        } else {
            return Ok(NextBlock::Block(prefix, payload));
        };
        self.return_bytes([bytes, payload].concat());
        Ok(NextBlock::Error(error))
    }

    /// The error if fewer bytes are left than a prefix has: they are the beginning of a block or something else.
    fn cut_off(&self) -> BlockError {
        let magic = self.ahead.iter().zip(MAGIC).all(|(found, expected)| *found == expected);
        if magic { BlockError::CutOff } else { BlockError::Magic }
    }

    fn return_bytes(&mut self, mut bytes: Vec<u8>) {
        self.offset -= bytes.len() as u64;
        bytes.append(&mut self.ahead);
        self.ahead = bytes;
    }

    /// Takes up to `count` bytes; fewer only at the end of the file.
    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let used = count.min(self.ahead.len());
        let mut bytes: Vec<u8> = self.ahead.drain(..used).collect();
        let more = (count - used) as u64;
        (&mut self.from).take(more).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    /// Skips at least one byte, up to the next magic or the end of the file.
    fn find_magic(&mut self) -> io::Result<()> {
        self.take(1)?;
        loop {
            let mut bytes = self.take(1 << 16)?;
            if let Some(at) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) {
                self.return_bytes(bytes.split_off(at));
                return Ok(());
            }
            if bytes.len() < 1 << 16 {
                return Ok(());
            }
            // A magic may begin in these bytes and end in the next ones.
            self.return_bytes(bytes.split_off(bytes.len() - (MAGIC.len() - 1)));
        }
    }
}

impl<R: Read + Seek> Reader<R> {
    /// The positions of all blocks, from the index at the end of the file; `None` if there is no valid index. The
    /// position of the reader does not change.
    ///
    /// # Errors
    /// The file could not be read or positioned.
    pub fn places(&mut self) -> Result<Option<Vec<IndexEntry>>, ReadError> {
        let before = self.from.stream_position()?;
        let places = self.places_at_end();
        self.from.seek(SeekFrom::Start(before))?;
        places
    }

    fn places_at_end(&mut self) -> Result<Option<Vec<IndexEntry>>, ReadError> {
        let end = self.from.seek(SeekFrom::End(0))?;
        let Some(last) = end.checked_sub(8) else { return Ok(None) };
        let mut offset = [0; 8];
        self.from.seek(SeekFrom::Start(last))?;
        self.from.read_exact(&mut offset)?;
        let offset = u64::from_le_bytes(offset);
        if offset >= last {
            return Ok(None);
        }
        self.from.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        (&mut self.from).take(last - offset).read_to_end(&mut bytes)?;
        Ok(index::places(&bytes))
    }

    /// Seeks to a block, which is read next.
    ///
    /// # Errors
    /// The file cannot be positioned.
    pub fn seek(&mut self, place: &IndexEntry) -> Result<(), ReadError> {
        self.from.seek(SeekFrom::Start(place.offset))?;
        self.ahead.clear();
        (self.offset, self.next, self.ended) = (place.offset, place.prefix.number, FileEnd::NotYet);
        Ok(())
    }
}

/// What was found at the current position of the file.
enum NextBlock {
    Block(Prefix, Vec<u8>),
    Error(BlockError),
    Nothing,
}

fn parsed(payload: &[u8]) -> Result<Header, ReadError> {
    let value: serde_json::Value =
        serde_json::from_slice(payload).map_err(|error| ReadError::Header(HeaderError::Json(error)))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value).map_err(ReadError::Newer),
        found => Err(ReadError::Version { found: found.unwrap_or_default().to_owned() }),
    }
}

fn events(payload: &[u8]) -> Result<Vec<Event>, EventsError> {
    let mut decoder = Decoder::default();
    let json = decoder.column(&mut &payload[..], "event", MAX_PAYLOAD_BYTES)?;
    serde_json::from_slice(json).map_err(|error| EventsError::Json(Arc::new(error)))
}
