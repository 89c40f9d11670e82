//! What is done with bytes from anywhere, by the tests beside this file and by the fuzz targets.

use std::io::Cursor;

use trace::import::{Tool, import};
use trace::{Block, Footprint, Reader};

/// Reads a trace to its end, by its index too. Whatever is read as a run has a place among those of its thread.
pub fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(bytes)) else { return };
    let mut footprint = Footprint::default();
    let mut blocks = 0;
    while let Ok(Some(block)) = reader.next_block() {
        blocks += 1;
        assert!(blocks <= bytes.len(), "every block takes a byte at least");
        match block {
            Block::Runs { chunk, .. } => {
                footprint.add(&chunk);
                assert!(chunk.kinds.is_empty() || chunk.kinds.len() == chunk.len());
            }
            Block::Events { .. } | Block::Damaged(_) => {}
        }
    }
    let Ok(Some(places)) = reader.places() else { return };
    for place in places.iter().take(64) {
        if reader.seek(place).is_ok() {
            let _ = reader.next_block();
        }
    }
}

/// Imports text as the output of the tool that its first byte chooses. What comes out is a whole trace.
pub fn imported(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else { return };
    let tool = Tool::ALL[usize::from(*choice) % Tool::ALL.len()];
    let Ok(trace) = import(tool, text, Vec::new()) else { return };
    let mut reader = Reader::new(&trace[..]).expect("a trace");
    let mut accesses = 0;
    while let Some(block) = reader.next_block().expect("readable") {
        match block {
            Block::Runs { chunk, .. } => accesses += chunk.runs().map(|run| u64::from(run.accesses)).sum::<u64>(),
            Block::Events { .. } => {}
            Block::Damaged(damage) => panic!("{damage:?}"),
        }
    }
    assert!(reader.is_whole() && accesses > 0);
}
