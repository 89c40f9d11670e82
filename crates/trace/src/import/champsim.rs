//! ChampSim's traces: one record of 64 bytes per instruction.
//!
//! Source: ChampSim's documentation of its trace format: the address of the instruction (8 bytes), two branch flags,
//! two and four registers, the addresses of two stores and four loads (8 bytes each, 0 for none). Sizes are not known;
//! an access counts as one byte, so that it touches one page. An instruction that loads from and stores to the same
//! address is imported as a modification of it.

use std::io::{BufRead, Read, Write};

use super::ImportError;
use crate::recording::Recording;
use crate::run::Kind;

const RECORD_BYTES: usize = 64;
/// Position of the branch flags, each of which is 0 or 1.
const FLAGS: std::ops::Range<usize> = 8..10;
/// Positions of the addresses of stores and of loads.
const STORES: usize = 16;
const LOADS: usize = 32;

/// Reads records to the end and returns the number of accesses.
pub(super) fn read<W: Write>(mut from: impl BufRead, to: &mut Recording<W>) -> Result<u64, ImportError> {
    let (mut records, mut accesses) = (0, 0);
    loop {
        let mut record = Vec::with_capacity(RECORD_BYTES);
        (&mut from).take(RECORD_BYTES as u64).read_to_end(&mut record)?;
        match record.len() {
            0 => return Ok(accesses),
            RECORD_BYTES => {}
            bytes => return Err(ImportError::CutOff { records, bytes }),
        }
        records += 1;
        // Other input (text, compressed data, another format) has other values in some record.
        if let Some(found) = record[FLAGS].iter().find(|flag| **flag > 1) {
            return Err(ImportError::Record { record: records, found: *found });
        }
        to.instructions(0, 1);
        let address = |at: usize| record[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut touch = |at: usize, kind: Kind| {
            let address = address(at);
            accesses += u64::from(address != 0);
            if address == 0 { Ok(()) } else { to.access(0, address, 1, kind) }
        };
        touch(0, Kind::FETCH)?;
        for at in (LOADS..RECORD_BYTES).step_by(8) {
            let modifies = (STORES..LOADS).step_by(8).any(|store| address(store) == address(at));
            touch(at, if modifies { Kind::MODIFY } else { Kind::LOAD })?;
        }
        for at in (STORES..LOADS).step_by(8) {
            touch(at, Kind::STORE)?;
        }
    }
}
