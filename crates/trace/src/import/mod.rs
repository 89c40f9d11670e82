//! Imports traces of other tools. Each reader takes its tool's output as a stream and writes a [`Recording`].

use std::io::{self, BufRead, Write};

use thiserror::Error;

use crate::header::{Filter, Header};
use crate::recording::Recording;

mod champsim;
mod lackey;
mod perf;
mod view;

/// The tool that wrote the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// The text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// The text of `drrun -t drmemtrace -tool view`.
    View,
    /// ChampSim's records of 64 bytes, uncompressed.
    ChampSim,
    /// The text of `perf script -F tid,addr,ip`, which are samples.
    Perf,
}

impl Tool {
    /// All tools.
    pub const ALL: [Tool; 4] = [Tool::Lackey, Tool::View, Tool::ChampSim, Tool::Perf];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Lackey => "lackey",
            Tool::View => "drmemtrace-view",
            Tool::ChampSim => "champsim",
            Tool::Perf => "perf",
        }
    }

    /// The expected input, with the command that produces it.
    pub const fn expects(self) -> &'static str {
        match self {
            Tool::Lackey => "the text of `valgrind --tool=lackey --trace-mem=yes`",
            Tool::View => "the text of DynamoRIO's `-tool view`",
            Tool::ChampSim => "ChampSim's records of 64 bytes, decompressed",
            Tool::Perf => "the text of `perf script -F tid,addr,ip`",
        }
    }
}

/// Why an import failed.
#[derive(Debug, Error)]
pub enum ImportError {
    /// Reading the input or writing the trace failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line is not valid output of the tool.
    #[error("line {line}: found {found:?}; expected {expected}")]
    Line {
        /// The line number, from 1.
        line: u64,
        /// The text found, cut to 80 characters.
        found: String,
        /// The expected text.
        expected: &'static str,
    },
    /// The length of the file is not a multiple of the record size.
    #[error("{bytes} bytes are left after {records} records of 64 bytes; expected {}", Tool::ChampSim.expects())]
    CutOff {
        /// Number of whole records.
        records: u64,
        /// Number of bytes after them.
        bytes: usize,
    },
    /// A record that ChampSim does not write.
    #[error("record {record} of 64 bytes: expected a branch flag of 0 or 1, found {found}; expected {}", Tool::ChampSim.expects())]
    Record {
        /// The record number, from 1.
        record: u64,
        /// The value found for the flag.
        found: u8,
    },
    /// The text ends within a line.
    #[error(
        "line {line}, the last, ends too early: found {found:?}; the tool was stopped, or the disk was full: leave that line out \
         (`sed '$d'`) to import the lines before it"
    )]
    CutLine {
        /// The line number, from 1.
        line: u64,
        /// The text found, cut to 80 characters.
        found: String,
    },
    /// The input is compressed; the field names the tool that decompresses it.
    #[error(
        "the input is compressed; decompress it first, for example `{0}c FILE | pagelab trace import --from TOOL -o TRACE -`"
    )]
    Compressed(&'static str),
    /// The input has no access.
    #[error("there is no memory access in the input; expected {0}")]
    Nothing(&'static str),
}

/// Reads `from` as the output of `tool` and writes it as a trace.
///
/// ```
/// use trace::import::{Tool, import};
/// use trace::{Block, Reader};
///
/// let text = "I  04001090,3\n L 1ffeff0,8\n S 1ffeff0,8\n";
/// let bytes = import(Tool::Lackey, text.as_bytes(), Vec::new())?;
///
/// let mut reader = Reader::new(bytes.as_slice())?;
/// let mut accesses = 0;
/// while let Some(block) = reader.next_block()? {
///     if let Block::Runs { chunk, .. } = block {
///         accesses += chunk.runs().map(|run| run.accesses).sum::<u32>();
///     }
/// }
/// assert_eq!(accesses, 3);
///
/// let found = import(Tool::Lackey, "L 1ffeff0\n".as_bytes(), Vec::new()).unwrap_err();
/// assert!(found.to_string().starts_with("line 1: found"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The input is not that tool's output; the error gives the line.
pub fn import<W: Write>(tool: Tool, mut from: impl BufRead, to: W) -> Result<W, ImportError> {
    refuse_compressed(from.fill_buf()?)?;
    let filter = if tool == Tool::Perf { Filter::Sampled } else { Filter::None };
    let header = Header { filter, ..Header::of(format!("import from {}", tool.name())) };
    let mut recording = Recording::new(to, header)?;
    let accesses = match tool {
        Tool::Lackey => lines(from, &mut recording, &mut lackey::Lackey, tool)?,
        Tool::View => lines(from, &mut recording, &mut view::View::default(), tool)?,
        Tool::Perf => lines(from, &mut recording, &mut perf::Perf::default(), tool)?,
        Tool::ChampSim => champsim::read(from, &mut recording)?,
    };
    if accesses == 0 {
        return Err(ImportError::Nothing(tool.expects()));
    }
    Ok(recording.finish()?)
}

/// Reads a tool's text line by line.
trait LineReader {
    /// Adds the accesses of a line and returns their number, or `None` if the line is not the tool's.
    fn line<W: Write>(&mut self, line: &str, to: &mut Recording<W>) -> io::Result<Option<u64>>;
}

/// An upper bound for the bytes that an instruction accesses at once. A larger number is not an access.
const MAX_ACCESS_BYTES: u32 = 1 << 16;

/// An upper bound for the length of a line that any of the tools writes. A longer line is not text.
const MAX_LINE_BYTES: u64 = 1 << 16;

fn lines<W: Write>(
    mut from: impl BufRead,
    to: &mut Recording<W>,
    reader: &mut impl LineReader,
    tool: Tool,
) -> Result<u64, ImportError> {
    let (mut number, mut accesses) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let mut limited = io::Read::take(&mut from, MAX_LINE_BYTES);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(accesses);
        }
        number += 1;
        let line = String::from_utf8_lossy(&bytes);
        let added = if bytes.len() as u64 == MAX_LINE_BYTES { None } else { reader.line(line.trim_end(), to)? };
        let Some(added) = added else {
            let found = line.trim_end().chars().take(80).collect();
            if accesses > 0 && bytes.last() != Some(&b'\n') && (bytes.len() as u64) < MAX_LINE_BYTES {
                return Err(ImportError::CutLine { line: number, found });
            }
            return Err(ImportError::Line { line: number, found, expected: tool.expects() });
        };
        accesses += added;
    }
}

fn refuse_compressed(begin: &[u8]) -> Result<(), ImportError> {
    let known: [(&[u8], &str); 4] = [
        (&[0x1f, 0x8b], "gzip -d"),
        (b"\xfd7zXZ", "xz -d"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -d"),
        (b"BZh", "bzip2 -d"),
    ];
    match known.into_iter().find(|(magic, _)| begin.starts_with(magic)) {
        Some((_, tool)) => Err(ImportError::Compressed(tool)),
        None => Ok(()),
    }
}

/// Parses a hexadecimal number, with or without `0x`.
fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
