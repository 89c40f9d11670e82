//! `perf script -F tid,addr,ip` of memory samples (`perf mem record`, `perf record -d`): `1234  7f12...  55d0...`.
//!
//! Source: perf-script(1). These fields do not say whether the event was a load or a store, so a sample counts as a
//! load. Samples are not all accesses, and the header records that.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{LineReader, hex};
use crate::recording::Recording;
use crate::run::Kind;

/// Maps kernel thread IDs to thread numbers, which follow the order of appearance.
#[derive(Default)]
pub(super) struct Perf {
    threads: HashMap<u32, u32>,
}

impl LineReader for Perf {
    fn line<W: Write>(&mut self, line: &str, to: &mut Recording<W>) -> io::Result<Option<u64>> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(Some(0));
        }
        let mut words = line.split_ascii_whitespace();
        let Some(tid) = words.next().and_then(|word| word.parse::<u32>().ok()) else { return Ok(None) };
        let (Some(address), Some(_ip)) = (words.next().and_then(hex), words.next().and_then(hex)) else {
            return Ok(None);
        };
        // Skips events without an address, and kernel addresses, which are not the program's memory.
        if address == 0 || address >> 63 == 1 {
            return Ok(Some(0));
        }
        let next = self.threads.len() as u32;
        let thread = *self.threads.entry(tid).or_insert(next);
        to.access(thread, address, 1, Kind::LOAD)?;
        Ok(Some(1))
    }
}
