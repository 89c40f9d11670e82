//! Bodies shared by the tests in this directory and the fuzz targets: they process arbitrary bytes.

use std::io::Cursor;

use trace::import::{Tool, import};
use trace::{Block, Columns, Footprint, Header, PayloadKind, Prefix, Reader, Writer};

/// Reads a trace to its end, also by its index. Checks that each run has a valid number in its thread and a valid
/// address. Returns the number of runs.
pub fn read(bytes: &[u8]) -> usize {
    let Ok(mut reader) = Reader::new(Cursor::new(bytes)) else { return 0 };
    let mut runs = 0;
    let mut footprint = Footprint::default();
    let mut blocks = 0;
    while let Ok(Some(block)) = reader.next_block() {
        blocks += 1;
        assert!(blocks <= bytes.len(), "every block takes a byte at least");
        match block {
            Block::Runs { chunk, first, .. } => {
                footprint.add(&chunk);
                runs += chunk.len();
                assert!(chunk.kinds.is_empty() || chunk.kinds.len() == chunk.len());
                assert!(first.checked_add(chunk.len() as u64 + 1).is_some());
                assert!(chunk.pages.iter().all(|page| page.checked_mul(4096).is_some()));
            }
            Block::Timestamps(timestamps) => {
                assert!(timestamps.is_sorted_by_key(|timestamp| timestamp.time_ns));
                assert!(timestamps.iter().all(|timestamp| timestamp.run.checked_add(1).is_some()));
            }
            Block::Events { .. } | Block::Damaged(_) => {}
        }
    }
    for shift in trace::SHIFTS {
        let _ = footprint.bytes(shift);
    }
    by_index(&mut reader);
    runs
}

/// Reads some blocks at the positions in the index.
fn by_index(reader: &mut Reader<Cursor<&[u8]>>) {
    let Ok(Some(places)) = reader.places() else { return };
    for place in places.iter().take(64) {
        if reader.seek(place).is_ok() {
            let _ = reader.next_block();
        }
    }
}

/// Takes bytes from the front; after the last one it yields zeros.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut number = [0; N];
        let taken = self.slice(N);
        number[..taken.len()].copy_from_slice(taken);
        number
    }

    fn slice(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// An encoded column: a zstd frame (RFC 8878) with its size and one uncompressed block.
    fn column(&mut self) -> Vec<u8> {
        let [length] = self.number();
        let content = self.slice(usize::from(length) * 4);
        let bytes = content.len() as u32;
        let frame =
            [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &bytes.to_le_bytes(), &(bytes << 3 | 1).to_le_bytes()[..3], content];
        let frame = if content.is_empty() { Vec::new() } else { frame.concat() };
        [&bytes.to_le_bytes()[..], &(frame.len() as u32).to_le_bytes(), &frame].concat()
    }
}

/// Reads a trace whose blocks have correct checksums and columns and hold these bytes. Returns the number of runs.
pub fn built(bytes: &[u8]) -> usize {
    let mut from = Bytes(bytes);
    let [columns] = from.number();
    let columns = Columns { kinds: columns & 1 == 0, accesses: columns & 2 == 0, addresses: columns & 4 != 0 };
    let mut writer = Writer::new(Vec::new(), &Header { columns, ..Header::of("bytes") }).expect("a vector");
    let file = writer.get_mut();
    while !from.0.is_empty() {
        let [what] = from.number();
        let payload_kind = [
            PayloadKind::Header,
            PayloadKind::Runs,
            PayloadKind::Events,
            PayloadKind::Index,
            PayloadKind::Runs,
            PayloadKind::Timestamps,
            PayloadKind::Notes,
        ];
        let payload_kind = payload_kind[usize::from(what) % payload_kind.len()];
        let wide = what & 0x80 != 0;
        let long = |from: &mut Bytes<'_>| {
            if wide { u64::from_le_bytes(from.number()) } else { u64::from(from.number::<1>()[0]) }
        };
        let (number, first, instructions) = (long(&mut from), long(&mut from), long(&mut from));
        let (thread, count) = (long(&mut from) as u32, long(&mut from) as u32);
        let payload: Vec<u8> = match payload_kind {
            PayloadKind::Runs => (0..5).flat_map(|_| from.column()).collect(),
            PayloadKind::Events | PayloadKind::Timestamps => from.column(),
            PayloadKind::Header | PayloadKind::Index | PayloadKind::Notes => from.slice(128).to_vec(),
        };
        let (payload_bytes, payload_crc) = (payload.len() as u32, crc32fast::hash(&payload));
        let prefix = Prefix { payload_kind, thread, number, first, count, payload_bytes, instructions, payload_crc };
        file.extend(prefix.to_bytes());
        file.extend(payload);
    }
    read(&writer.finish().expect("a vector"))
}

/// Imports text as the output of the tool that its first byte selects. The result must be a complete trace.
pub fn imported(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else { return };
    let tool = Tool::ALL[usize::from(*choice) % Tool::ALL.len()];
    let Ok(trace) = import(tool, text, Vec::new()) else { return };
    let mut reader = Reader::new(&trace[..]).expect("a trace");
    let mut accesses = 0;
    while let Some(block) = reader.next_block().expect("readable") {
        match block {
            Block::Runs { chunk, .. } => accesses += chunk.runs().map(|run| u64::from(run.accesses)).sum::<u64>(),
            Block::Events { .. } | Block::Timestamps(_) => {}
            Block::Damaged(damage) => panic!("{damage:?}"),
        }
    }
    assert!(reader.is_whole() && accesses > 0);
}
