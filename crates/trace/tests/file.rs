//! Whole files: written, read, damaged, truncated.

use std::io::Cursor;
use std::sync::LazyLock;

use proptest::prelude::*;
use trace::{
    Block, BlockError, Builder, Call, Chunk, Damage, DamageKind, Event, Header, Kind, ReadError, Reader, Run,
    Timestamp, Writer,
};

fn header() -> Header {
    Header {
        command: vec!["sort".to_owned(), "a file".to_owned()],
        architecture: "x86_64".to_owned(),
        ..Header::of("a test")
    }
}

/// Blocks of two threads, each different from the others: the block of number N has (N + 1) times `runs` runs.
fn blocks(runs: u64) -> Vec<Block> {
    (0..8u32)
        .map(|number| {
            let thread = number % 2;
            if number == 3 {
                let call = Call::Munmap { address: 0x1000, bytes: 0x2000 };
                let events = vec![Event { run: 300, order: 0, call, result: 0 }];
                return Block::Events { thread, instructions: 3500, events };
            }
            if number == 4 {
                let timestamp = |time_ns: u64| Timestamp {
                    thread: time_ns as u32 % 2,
                    run: 300 + time_ns,
                    event: time_ns % 2,
                    time_ns,
                };
                return Block::Timestamps((100..120).map(timestamp).collect());
            }
            let mut builder = Builder::new(header().columns);
            for run in 0..runs * (u64::from(number) + 1) {
                let page = (run * run) % 77 + u64::from(number);
                builder.push(Run { page, kind: Kind::LOAD, accesses: 1 + (run % 5) as u32 }, &[]);
            }
            Block::Runs { thread, first: 0, instructions: u64::from(number) * 1000, chunk: builder.take() }
        })
        .collect()
}

/// The bytes of a file, and the blocks that were written to it.
fn file() -> (Vec<u8>, Vec<Block>) {
    static FILE: LazyLock<(Vec<u8>, Vec<Block>)> = LazyLock::new(|| write(100));
    FILE.clone()
}

fn write(runs: u64) -> (Vec<u8>, Vec<Block>) {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut first = [0, 0];
    let mut written = Vec::new();
    for block in blocks(runs) {
        match block {
            Block::Runs { thread, instructions, chunk, .. } => {
                writer.runs(thread, &chunk, instructions).unwrap();
                // If the dictionary is sorted, its pages have another order.
                let chunk = Chunk::decode(&chunk.encode().unwrap(), chunk.len(), header().columns).unwrap();
                let begin = first[thread as usize];
                first[thread as usize] += chunk.len() as u64;
                written.push(Block::Runs { thread, first: begin, instructions, chunk });
            }
            Block::Events { thread, instructions, ref events } => {
                writer.events(thread, events, instructions).unwrap();
                written.push(block);
            }
            Block::Timestamps(ref timestamps) => {
                writer.timestamps(timestamps).unwrap();
                written.push(block);
            }
            Block::Damaged(_) => unreachable!(),
        }
    }
    (writer.finish().unwrap(), written)
}

fn read(bytes: &[u8]) -> Result<(Vec<Block>, bool), ReadError> {
    let mut reader = Reader::new(bytes)?;
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block()? {
        blocks.push(block);
    }
    Ok((blocks, reader.is_whole()))
}

#[test]
fn reads_what_was_written() {
    let (bytes, written) = file();
    let (blocks, whole) = read(&bytes).unwrap();
    assert_eq!((blocks, whole), (written, true));
    assert_eq!(*Reader::new(&bytes[..]).unwrap().header(), header());
}

#[test]
fn blocks_are_found_by_the_index() {
    let (bytes, written) = file();
    let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
    let places = reader.places().unwrap().expect("an index");
    assert_eq!(places.len(), written.len() + 1);
    for (place, block) in places.iter().skip(1).zip(&written).rev() {
        reader.seek(place).unwrap();
        assert_eq!(reader.next_block().unwrap().as_ref(), Some(block));
    }
    let mut cut = Reader::new(Cursor::new(&bytes[..bytes.len() - 1])).unwrap();
    assert_eq!(cut.places().unwrap(), None);
}

#[test]
fn other_files_are_refused_with_what_was_expected() {
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(message(b"").contains("empty"));
    assert!(message(b"hello").contains("no trace"), "{}", message(b"hello"));
    assert!(message(&[0; 4096]).contains("no trace"));
    let newer = Header { schema: "pagelab.trace/9".to_owned(), ..header() };
    let newer = Writer::new(Vec::new(), &newer).unwrap().finish().unwrap();
    assert!(message(&newer).contains("pagelab.trace/9") && message(&newer).contains("use the pagelab that wrote it"));
}

/// The indexes of the written blocks that are missing in what was read.
fn lost(read: &[Block], written: &[Block]) -> Vec<usize> {
    (0..written.len()).filter(|index| !read.contains(&written[*index])).collect()
}

/// The offset of the index.
fn index_of(bytes: &[u8]) -> usize {
    u64::from_le_bytes(*bytes.last_chunk().unwrap()) as usize
}

/// The number of the block that contains the byte at an offset. The index counts as the block after all that it lists.
fn block_of(bytes: &[u8], at: usize) -> usize {
    let places = Reader::new(Cursor::new(bytes)).unwrap().places().unwrap().unwrap();
    let index = index_of(bytes);
    if at >= index { places.len() } else { places.iter().rposition(|place| place.offset as usize <= at).unwrap() }
}

proptest! {
    #![proptest_config(testing::properties(300))]

    #[test]
    fn a_damaged_byte_loses_only_its_block_and_is_reported(at in any::<prop::sample::Index>(), bits in 1u8..) {
        let (mut bytes, written) = file();
        let at = at.index(bytes.len());
        let block = block_of(&bytes, at);
        bytes[at] ^= bits;
        let last = written.len() + 1;
        match read(&bytes) {
            Err(error) => prop_assert!(block == 0, "{error}"),
            Ok((blocks, whole)) => {
                let damaged = blocks.iter().filter(|block| matches!(block, Block::Damaged(_))).count();
                let in_index = at >= bytes.len() - 8 || block == last;
                prop_assert_eq!(lost(&blocks, &written), if in_index || block > written.len() { vec![] } else { vec![block - 1] });
                prop_assert!(damaged == 1 || in_index && !whole, "{} {}", damaged, whole);
            }
        }
    }

    #[test]
    fn skips_bytes_between_blocks(at in 1usize..9, garbage in proptest::collection::vec(any::<u8>(), 1..300)) {
        let (bytes, written) = file();
        let place = Reader::new(Cursor::new(&bytes)).unwrap().places().unwrap().unwrap()[at];
        let (before, after) = bytes.split_at(place.offset as usize);
        let (blocks, whole) = read(&[before, &garbage, after].concat()).unwrap();
        prop_assert!(whole);
        prop_assert_eq!(lost(&blocks, &written), Vec::<usize>::new());
        prop_assert_eq!(blocks.len(), written.len() + 1);
    }

    #[test]
    fn reading_any_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(read(&bytes).is_err());
        let (mut file, _) = file();
        file.extend(&bytes);
        prop_assert!(read(&file).is_ok());
    }
}

#[test]
fn a_truncated_file_keeps_its_complete_blocks_and_reports_the_incomplete_one() {
    let (bytes, written) = write(3);
    let places = Reader::new(Cursor::new(&bytes)).unwrap().places().unwrap().unwrap();
    let ends: Vec<usize> = places[1..].iter().map(|place| place.offset as usize).chain([index_of(&bytes)]).collect();
    for length in 0..bytes.len() {
        let Some(kept) = ends.iter().rposition(|end| *end <= length) else {
            // A part of the header is not enough.
            assert!(read(&bytes[..length]).is_err(), "{length}");
            continue;
        };
        let (blocks, whole) = read(&bytes[..length]).unwrap();
        assert!(!whole && blocks[..kept] == written[..kept], "{length}");
        let (offset, lost) = (ends[kept] as u64, (length - ends[kept]) as u64);
        let damaged = Block::Damaged(Damage { offset, bytes: lost, why: DamageKind::Block(BlockError::CutOff) });
        // All data precedes the index.
        let in_index = kept == written.len() && length >= bytes.len() - 8;
        let expected = if lost == 0 || in_index { vec![] } else { vec![damaged] };
        assert_eq!(blocks[kept..], expected, "{length}");
    }
}

#[test]
fn reports_bytes_after_a_trace() {
    let (bytes, written) = file();
    for behind in [&b"x"[..], &bytes, &[0; 100_000]] {
        let (blocks, whole) = read(&[&bytes, behind].concat()).unwrap();
        let Some((Block::Damaged(damage), rest)) = blocks.split_last() else { panic!("{blocks:?}") };
        assert!(whole && rest == written && damage.why == DamageKind::TrailingBytes, "{damage:?}");
        assert_eq!(damage.offset + damage.bytes, (bytes.len() + behind.len()) as u64);
    }
    let (blocks, whole) = read(&bytes[..bytes.len() - 1]).unwrap();
    assert!(!whole && blocks == written);
}

#[test]
fn a_thread_of_any_number_takes_no_more_memory_than_another() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let event = Event { run: 0, order: 0, call: Call::Seen, result: 0 };
    writer.events(u32::MAX, std::slice::from_ref(&event), 1).unwrap();
    assert_eq!((writer.written(u32::MAX), writer.written(0)), ((0, 1), (0, 0)));
    assert!(read(&writer.finish().unwrap()).unwrap().1);
}

#[test]
fn an_index_of_more_blocks_than_a_block_holds_has_parts() {
    const BLOCKS: usize = 600_000;
    let mut builder = Builder::new(header().columns);
    builder.push(Run { page: 1, kind: Kind::LOAD, accesses: 1 }, &[]);
    let payload = builder.take().encode().unwrap();
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    (0..BLOCKS).for_each(|_| writer.encoded_runs(0, 1, &payload, 1).unwrap());
    let mut reader = Reader::new(Cursor::new(writer.finish().unwrap())).unwrap();
    let places = reader.places().unwrap().expect("an index");
    assert_eq!((places.len(), places[BLOCKS].prefix.first), (BLOCKS + 1, BLOCKS as u64 - 1));
    reader.seek(&places[BLOCKS]).unwrap();
    assert!(matches!(reader.next_block().unwrap(), Some(Block::Runs { .. })));
    assert!(reader.next_block().unwrap().is_none() && reader.is_whole());
}

#[test]
fn long_events_are_read_back() {
    let call = Call::exec("\u{1}".repeat(4096));
    let events: Vec<Event> = (0..4000).map(|order| Event { run: 0, order, call: call.clone(), result: -2 }).collect();
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    writer.events(0, &events, 0).unwrap();
    let (blocks, whole) = read(&writer.finish().unwrap()).unwrap();
    let found: Vec<&Event> = blocks
        .iter()
        .flat_map(|block| match block {
            Block::Events { events, .. } => events,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(whole && found.into_iter().eq(&events));
}

#[test]
fn a_page_whose_bytes_have_no_addresses_is_refused() {
    let chunk = |page| {
        let mut builder = Builder::new(header().columns);
        builder.push(Run { page, kind: Kind::LOAD, accesses: 1 }, &[]);
        Chunk::decode(&builder.take().encode().unwrap(), 1, header().columns)
    };
    assert!(chunk((1 << 52) - 1).is_ok());
    assert!(chunk(1 << 52).is_err() && chunk(u64::MAX).is_err());
}
