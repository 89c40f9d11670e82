//! DynamoRIO's `view` tool: `<record> <instruction>: <tid> ifetch 3 byte(s) @ 0x..., read 8 byte(s) @ 0x... by PC 0x...`.
//!
//! Source: DynamoRIO's documentation, "Memory trace viewer". A long encoding continues on a second line with the same
//! numbers and without a type; markers are in `<` and `>`. The output does not show that an instruction loads from and
//! stores to the same address as one operation.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{LineReader, MAX_ACCESS_BYTES, hex};
use crate::recording::Recording;
use crate::run::Kind;

/// Maps the tool's thread IDs to thread numbers, which follow the order of appearance.
#[derive(Default)]
pub(super) struct View {
    threads: HashMap<String, u32>,
}

impl LineReader for View {
    fn line<W: Write>(&mut self, line: &str, to: &mut Recording<W>) -> io::Result<Option<u64>> {
        let Some((_, rest)) = record(line) else { return Ok(is_around_records(line).then_some(0)) };
        let mut words = rest.split_ascii_whitespace();
        let (Some(thread), Some(what)) = (words.next(), words.next()) else { return Ok(None) };
        let kind = match what {
            "ifetch" => Kind::FETCH,
            "read" => Kind::LOAD,
            "write" => Kind::STORE,
            // Markers, prefetches, flushes and the second line of an encoding are not accesses.
            _ => return Ok(Some(0)),
        };
        let place = (
            words.next().and_then(|bytes| bytes.parse().ok()).filter(|bytes| *bytes <= MAX_ACCESS_BYTES),
            words.next(),
            words.next(),
            words.next().and_then(hex),
        );
        let (Some(bytes), Some("byte(s)"), Some("@"), Some(address)) = place else { return Ok(None) };
        let thread = self.number(thread);
        if kind == Kind::FETCH {
            to.instructions(thread, 1);
        }
        to.access(thread, address, bytes, kind)?;
        Ok(Some(1))
    }
}

impl View {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.threads.get(name) {
            return *known;
        }
        let next = self.threads.len() as u32;
        self.threads.insert(name.to_owned(), next);
        next
    }
}

/// Splits a record's line into the two numbers at its start and the rest.
fn record(line: &str) -> Option<(&str, &str)> {
    let (numbers, rest) = line.split_once(':')?;
    let mut words = numbers.split_ascii_whitespace();
    let is_number = |word: Option<&str>| word.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    (is_number(words.next()) && is_number(words.next()) && words.next().is_none()).then_some((numbers, rest))
}

/// Whether the line is not a record: the legend, the result, or output of the traced program.
fn is_around_records(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("Output format:")
        || line.starts_with("<--")
        || line.starts_with("---")
        || line.starts_with("===")
        || line.starts_with("View tool results:")
        || line.ends_with(": total instructions")
        || line.starts_with("Trace invariant checks")
}
