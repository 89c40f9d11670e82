//! Measures how fast a trace is read on one core: original accesses and runs per second.
//!
//! `cargo bench -p trace -- FILE...` reads the given traces; without one it generates a trace. The tests run it on a
//! tiny trace, and it checks what was read.

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Instant;

use trace::{Block, Header, Kind, Reader};

/// Accesses of the trace that is generated if none is given.
const ACCESSES: u64 = 50_000_000;

fn main() {
    // `cargo bench` adds `--bench`.
    let files: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for name in &files {
        report(name, BufReader::with_capacity(1 << 20, File::open(name).expect("a trace")));
    }
    if files.is_empty() {
        decode(ACCESSES);
    }
}

/// Generates a trace of `accesses` accesses and reads it.
pub fn decode(accesses: u64) {
    let bytes = generate(accesses);
    assert_eq!(report("a walk with a hot page", &bytes[..]), accesses);
}

/// Reads a trace to its end and returns how many accesses it has.
fn report(name: &str, from: impl Read) -> u64 {
    let started = Instant::now();
    let mut reader = Reader::new(from).expect("a trace");
    let (mut accesses, mut runs) = (0u64, 0u64);
    while let Some(block) = reader.next_block().expect("a file") {
        if let Block::Runs { chunk, .. } = block {
            runs += chunk.len() as u64;
            accesses += chunk.accesses.iter().map(|count| u64::from(*count)).sum::<u64>();
        }
    }
    assert!(reader.is_whole());
    let seconds = started.elapsed().as_secs_f64();
    let rate = |count: u64| count as f64 / seconds / 1e6;
    println!(
        "{name}: {accesses} accesses in {runs} runs: {:.0} M accesses/s, {:.0} M runs/s",
        rate(accesses),
        rate(runs)
    );
    accesses
}

/// A trace that walks through memory, returns to one page again and again, and fetches from two.
fn generate(accesses: u64) -> Vec<u8> {
    let header = Header::of("a benchmark");
    let mut recording = trace::Recording::new(Vec::new(), header).expect("memory");
    for index in 0..accesses {
        let (address, kind) = match index % 4 {
            0 => (0x40_0000 + ((index / 64 % 2) << 12), Kind::FETCH),
            1 => (0x7fff_0000, Kind::STORE),
            _ => (0x1000_0000 + index * 8 % (1 << 28), Kind::LOAD),
        };
        recording.access(0, address, 8, kind).expect("memory");
    }
    recording.finish().expect("memory")
}
