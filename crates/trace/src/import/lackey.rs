//! valgrind's lackey with `--trace-mem=yes`: `I  04001090,3`, ` L 1ffeff,8`, ` S 1ffeff,8`, ` M 0421c7,4`.
//!
//! Source: valgrind's manual, "Lackey: an example tool". `M` is a load and a store of the same bytes by
//! one instruction.

use std::io::{self, Write};

use super::{LineReader, MAX_ACCESS_BYTES, hex};
use crate::recording::Recording;
use crate::run::Kind;

pub(super) struct Lackey;

impl LineReader for Lackey {
    fn line<W: Write>(&mut self, line: &str, to: &mut Recording<W>) -> io::Result<Option<u64>> {
        // Skips empty lines and messages of valgrind itself (`==PID==`, `--PID--`).
        if line.is_empty() || line.starts_with("==") || line.starts_with("--") {
            return Ok(Some(0));
        }
        let Some((kinds, address, bytes)) = parsed(line) else { return Ok(None) };
        for kind in kinds {
            if *kind == Kind::FETCH {
                to.instructions(0, 1);
            }
            to.access(0, address, bytes, *kind)?;
        }
        Ok(Some(kinds.len() as u64))
    }
}

fn parsed(line: &str) -> Option<(&'static [Kind], u64, u32)> {
    let (kind, place) = line.trim_start().split_once(' ')?;
    let kinds: &[Kind] = match kind {
        "I" => &[Kind::FETCH],
        "L" => &[Kind::LOAD],
        "S" => &[Kind::STORE],
        "M" => &[Kind::MODIFY, Kind::STORE],
        _ => return None,
    };
    let (address, bytes) = place.trim_start().split_once(',')?;
    Some((kinds, hex(address)?, bytes.parse().ok().filter(|bytes| *bytes <= MAX_ACCESS_BYTES)?))
}
