//! `gups`: random updates of words, with as many in flight as the processor allows.
//!
//! As in RandomAccess of the HPC Challenge, an update reads a word, XORs it with a random number and writes it. XOR is its
//! own inverse, so repeating the same updates must restore the table.

use std::time::Instant;

use workloads::memory::Anonymous;
use workloads::random::{below, stream};

use super::report::Report;
use super::{WorkloadError, arguments, check};

/// Arguments of `gups`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Size of the table, in whole 8-byte words
    #[arg(long, default_value = "256M", value_parser = arguments::size)]
    bytes: u64,
    /// Updates that are timed
    #[arg(long, default_value_t = 20_000_000)]
    updates: u64,
    /// Seed of the addresses and the values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Updates `updates` random words; doing so twice restores the table.
#[inline(never)]
fn update(table: &mut [u64], seed: u64, updates: u64) {
    for bits in stream(seed).take(updates as usize) {
        table[below(bits, table.len())] ^= bits;
    }
}

/// The XOR over all words of a table. It equals the initial XOR combined with all updates, in any order.
fn fold(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |sum, word| sum ^ word)
}

/// Runs the updates.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::multiple("bytes", arguments.bytes, 8, "a word")?;
    let updates = arguments::at_least("updates", 1, arguments.updates)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let mut memory = Anonymous::map(bytes)?;
    let table = memory.slice_mut::<u64>();
    table.iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    let start = Instant::now();
    update(table, arguments.seed, updates);
    let elapsed = start.elapsed();
    let checksum = fold(table.iter().copied());
    let expected = fold(0..table.len() as u64) ^ fold(stream(arguments.seed).take(updates as usize));
    check("XOR of the table", expected, checksum)?;
    update(table, arguments.seed, updates);
    for (word, index) in table.iter().zip(0..) {
        check(format!("word {index} after all updates were undone"), index, *word)?;
    }
    Ok(Report::new("gups", checksum)
        .argument("bytes", arguments.bytes)
        .argument("updates", updates)
        .argument("seed", arguments.seed)
        .figure("updates_per_s", updates as f64 / elapsed.as_secs_f64())
        .figure("ns_per_update", elapsed.as_secs_f64() * 1e9 / updates as f64)
        .figure("update_s", elapsed.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_updates_restore_the_table() {
        let mut table: Vec<u64> = (0..1000).collect();
        update(&mut table, 5, 5000);
        let changed = table.iter().zip(0..).filter(|(word, index)| **word != *index).count();
        assert!(changed > 950, "{changed}");
        assert_eq!(fold(table.iter().copied()), fold(0..1000) ^ fold(stream(5).take(5000)));
        update(&mut table, 5, 5000);
        assert!(table.into_iter().eq(0..1000));
    }
}
