//! Attacks with traces in which headers, events and runs are changed, while all checksums are correct.

use serde_json::{Value, json};
use testing::{Random, mutation};
use trace::{Builder, Columns, Header, Kind, PREFIX_BYTES, PayloadKind, Prefix, Run, Writer};

use super::{Attack, can_attack};

/// Verbs that show or simulate a trace.
const VERBS: [&[&str]; 7] = [
    &["trace", "info", "trace"],
    &["trace", "info", "trace", "--json"],
    &["trace", "check", "trace"],
    &["trace", "dump", "trace"],
    &["trace", "dump", "trace", "--json"],
    &["sim", "trace", "-p", "base,thp"],
    &["sim", "sweep", "trace"],
];

/// A block before its checksums are added.
struct Block {
    payload_kind: PayloadKind,
    thread: u32,
    first: u64,
    count: u32,
    payload: Vec<u8>,
}

impl Block {
    /// The bytes of the block, as the block with this number in a file.
    fn to_bytes(&self, number: u64) -> Vec<u8> {
        let Block { payload_kind, thread, first, count, ref payload } = *self;
        let (payload_bytes, payload_crc) = (payload.len() as u32, crc32fast::hash(payload));
        let prefix = Prefix {
            payload_kind,
            thread,
            number,
            first,
            count,
            payload_bytes,
            instructions: 1000 * number,
            payload_crc,
        };
        [&prefix.to_bytes()[..], payload].concat()
    }
}

/// A column in its stored form: a zstd frame (RFC 8878) with its size and raw blocks.
fn column(bytes: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 100_000;
    let mut frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &(bytes.len() as u32).to_le_bytes()].concat();
    let blocks = bytes.len().div_ceil(BLOCK_BYTES).max(1);
    for at in 0..blocks {
        let block = &bytes[at * BLOCK_BYTES..bytes.len().min((at + 1) * BLOCK_BYTES)];
        let is_last = u32::from(at + 1 == blocks);
        frame.extend(&(((block.len() as u32) << 3) | is_last).to_le_bytes()[..3]);
        frame.extend(block);
    }
    [&(bytes.len() as u32).to_le_bytes()[..], &(frame.len() as u32).to_le_bytes(), &frame].concat()
}

fn header() -> Header {
    let columns = Columns { kinds: true, accesses: true, addresses: false };
    Header { command: vec!["sort".to_owned()], architecture: "x86_64".to_owned(), columns, ..Header::of("a test") }
}

fn events() -> Value {
    json!([
        { "run": 0, "order": 0, "call": "region", "address": 0x40_0000, "bytes": 0x2_0000, "protection": 3, "name": "/bin/sort",
          "result": 0 },
        { "run": 0, "order": 1, "call": "mmap", "address": 0, "bytes": 0x40_0000, "protection": 3, "flags": 0x22, "file": -1,
          "offset": 0, "result": 0x10_0000_0000u64 },
        { "run": 20, "order": 2, "call": "madvise", "address": 0x10_0000_0000u64, "bytes": 0x40_0000, "advice": 14, "result": 0 },
        { "run": 40, "order": 3, "call": "mremap", "address": 0x10_0000_0000u64, "old_bytes": 0x40_0000, "new_bytes": 0x80_0000,
          "flags": 1, "new_address": 0, "result": 0x20_0000_0000u64 },
        { "run": 60, "order": 4, "call": "clone", "flags": 17, "result": 7 },
        { "run": 80, "order": 5, "call": "munmap", "address": 0x20_0000_0000u64, "bytes": 0x10_0000, "result": 0 },
        { "run": 90, "order": 6, "call": "exec", "program": "/bin/true", "result": 0 },
    ])
}

/// The blocks of a trace with these events.
fn blocks(header: &Value, events: &Value) -> Vec<Block> {
    let mut builder = Builder::new(self::header().columns);
    for run in 0..100u64 {
        let page = if run < 10 { 0x400 + run } else { 0x100_0000 + run % 64 };
        builder.push(Run { page, kind: if run % 3 == 0 { Kind::STORE } else { Kind::LOAD }, accesses: 3 }, &[]);
    }
    let runs = builder.take().encode().unwrap();
    let block = |payload_kind, count, payload| Block { payload_kind, thread: 0, first: 0, count, payload };
    let listed = events.as_array().map_or(1, Vec::len) as u32;
    vec![
        block(PayloadKind::Header, 1, serde_json::to_vec(header).unwrap()),
        block(PayloadKind::Events, listed, column(&serde_json::to_vec(events).unwrap())),
        block(PayloadKind::Runs, 100, runs),
    ]
}

/// A file of blocks without an index, like a trace that was cut off.
fn file(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().zip(0..).flat_map(|(block, number)| block.to_bytes(number)).collect()
}

/// The header in the format of the file.
fn header_document() -> Value {
    let bytes = Writer::new(Vec::new(), &header()).unwrap().finish().unwrap();
    let prefix = Prefix::from_bytes(bytes[..PREFIX_BYTES].try_into().unwrap()).unwrap();
    serde_json::from_slice(&bytes[PREFIX_BYTES..PREFIX_BYTES + prefix.payload_bytes as usize]).unwrap()
}

#[test]
fn the_trace_that_is_changed_is_sound() {
    if !can_attack() {
        return;
    }
    let attack = Attack::on("trace");
    let content = file(&blocks(&header_document(), &events()));
    for words in VERBS.iter().filter(|words| words[1] != "check") {
        attack.with(&content, &"sound", words).assert_exit(0, &[]);
    }
    attack.with(&content, &"sound", &["trace", "check", "trace"]).assert_stdout(&["2 intact blocks, 0 damaged places"]);
}

#[test]
fn changed_traces_with_right_checksums_end_with_an_answer_or_an_error() {
    if !can_attack() {
        return;
    }
    let (attack, mut random) = (Attack::on("trace"), Random::new());
    for number in 0..mutation::count(8) {
        let (mut header, mut events) = (header_document(), events());
        match random.below(4) {
            0 => random.change_json(&mut header),
            _ => random.change_json(&mut events),
        }
        let mut blocks = blocks(&header, &events);
        let changed = random.below(12) as usize;
        if let Some(block) = blocks.get_mut(changed) {
            match random.below(4) {
                0 => block.count = random.number() as u32,
                1 => block.first = random.number(),
                2 => block.thread = random.number() as u32,
                _ => random.change_bytes(&mut block.payload),
            }
        }
        let content = file(&blocks);
        for words in VERBS {
            attack.with(&content, &format_args!("mutation {number}"), words);
        }
    }
}

/// serde's error message for a damaged trace quotes text from the trace.
#[test]
fn escape_sequences_of_a_trace_reach_no_terminal() {
    if !can_attack() {
        return;
    }
    let attack = Attack::on("trace");
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J";
    let mut strange_key = header_document();
    strange_key[hostile] = json!(1);
    let mut strange_command = header_document();
    strange_command["command"] = json!([hostile]);
    let mut strange_call = events();
    strange_call[1]["call"] = json!(hostile);
    let mut strange_name = events();
    strange_name[0]["name"] = json!(hostile);
    let sound = header_document();
    for (header, events) in [
        (&strange_key, &events()),
        (&strange_command, &events()),
        (&sound, &strange_call),
        (&sound, &strange_name),
        (&sound, &json!(hostile)),
    ] {
        let content = file(&blocks(header, events));
        for words in VERBS {
            attack.with(&content, &header, words);
        }
    }
    let ran = attack.with(&file(&blocks(&strange_key, &events())), &"a key", &["trace", "info", "trace"]);
    ran.assert_exit(2, &["unknown field `\\x1b]0;owned\\x07\\x1b[31m\\u009b2J`"]);
    let ran = attack.with(&file(&blocks(&sound, &strange_call)), &"a call", &["trace", "check", "trace"]);
    ran.assert_exit(1, &[]).assert_stdout(&["unknown variant `\\x1b]0;owned\\x07\\x1b[31m\\u009b2J`"]);
}
