//! Counts the pages that a trace touches and the accesses of each thread: `cargo run -p trace --example pages -- FILE`.
//!
//! Without a file it generates a trace of a loop over an array and reads that.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};

use trace::{Block, Header, Kind, Reader, Recording};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(path) => report(BufReader::new(File::open(path)?)),
        None => report(generate()?.as_slice()),
    }
}

/// A trace of one thread that stores to every eighth byte of 64K.
fn generate() -> std::io::Result<Vec<u8>> {
    let mut recording = Recording::new(Vec::new(), Header::of("the example `pages`"))?;
    for address in (0x1000_0000..0x1001_0000).step_by(8) {
        recording.access(0, 0x40_0000, 4, Kind::FETCH)?;
        recording.access(0, address, 8, Kind::STORE)?;
        recording.instructions(0, 1);
    }
    recording.finish()
}

fn report(from: impl Read) -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::new(from)?;
    println!("recorded by {}", reader.header().recorded_by());
    let mut pages = BTreeSet::new();
    let mut accesses: BTreeMap<u32, u64> = BTreeMap::new();
    while let Some(block) = reader.next_block()? {
        match block {
            Block::Runs { thread, chunk, .. } => {
                pages.extend(chunk.runs().map(|run| run.page));
                *accesses.entry(thread).or_default() += chunk.runs().map(|run| u64::from(run.accesses)).sum::<u64>();
            }
            Block::Damaged(damage) => println!("damaged: {damage:?}"),
            Block::Events { .. } | Block::Timestamps(_) => {}
        }
    }
    println!("{} pages of 4K", pages.len());
    accesses.iter().for_each(|(thread, accesses)| println!("thread {thread}: {accesses} accesses"));
    if !reader.is_whole() {
        println!("the file ends before its index: the end of the recording is missing");
    }
    Ok(())
}
