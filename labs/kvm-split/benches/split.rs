//! Measures the cost of splitting stage 2 and the savings of its variants.
//!
//! ```text
//! cargo bench -p kvm-split --bench split -- [--bytes SIZE] [--rounds N]
//! ```
//! First part: a slot of `SIZE` (a number, optionally with G; the published figures are for 64G) in 1G blocks is split
//! to 4K pages, and compared with streaming the same number of entries into a newly allocated vector; both pay the page
//! faults of fresh memory. Second part: for each granule and backing, the split when logging is enabled: vanilla
//! against the variants. Variants alternate in one run; ratios and savings are medians over adjacent measurements, with
//! quartiles. The columns: entries read by vanilla and by the variant, and the share of vanilla's visits (reads and
//! builds) that is saved; milliseconds of both; the time saved, for the split alone and together with the preceding
//! write-protecting walk, which no variant changes; the published saving; nanoseconds for each saved read, including
//! its callback; and the milliseconds of a walk that reads all entries of the split slot without a callback, which
//! shows how much of the saving is reading.
//!
//! Without arguments it runs on 1 GiB, twice, so that tests can run it.

#[path = "../../../crates/paging/benches/common/mod.rs"]
mod common;

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use common::{Spread, median};
use kvm_split::split::walker::{Flags, Next, Visit, Visited, Visitor, Walk, walk};
use kvm_split::split::{
    Backing, Build, Counters, Error as SplitError, Mode, Options, Slot, Variant, build_slot, chunk_sizes, split_slot,
    write_protect_slot,
};
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{InputAddress, Log, Tables};

const GIB: u64 = 1 << 30;
/// Published for AmpereOne, 64 GiB, split when logging is enabled (June 2026): percent of time saved.
const PUBLISHED_PERCENT: [(Backing, f64); 3] =
    [(Backing::Pages, 33.0), (Backing::Blocks, 12.0), (Backing::Gigabyte, 13.0)];

#[derive(Clone, Copy)]
struct Arguments {
    bytes: u64,
    rounds: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    run(&words)
}

/// Runs all benchmarks. `words` are the command-line arguments after the program's name.
pub fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let arguments = read_arguments(words)?;
    against_streaming(arguments)?;
    println!(
        "{:<4} {:<9} {:<5} {:<26} {:>9} {:>7} {:>6} {:>8} {:>8}  {:<24} {:<24} {:>4} {:>6} {:>8}",
        "",
        "backing",
        "build",
        "variant",
        "reads",
        "reads",
        "saved%",
        "ms",
        "ms",
        "time saved %",
        "with protect %",
        "publ",
        "ns",
        "reads ms",
    );
    for granule in [Granule::K4, Granule::K16, Granule::K64] {
        for (backing, percent) in PUBLISHED_PERCENT {
            saved(arguments, granule, backing, percent)?;
        }
    }
    Ok(())
}

fn read_arguments(words: &[String]) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments { bytes: GIB, rounds: 2 };
    for pair in words.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
        match word.as_str() {
            "--bytes" => {
                arguments.bytes = match value.strip_suffix('G') {
                    Some(gibibytes) => gibibytes.parse::<u64>()? << 30,
                    None => value.parse()?,
                }
            }
            "--rounds" => arguments.rounds = value.parse::<usize>()?.max(1),
            _ => return Err(format!("unknown argument {word}; known: --bytes, --rounds").into()),
        }
    }
    Ok(arguments)
}

fn ms_of<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64() * 1e3, result)
}

fn slot(bytes: u64) -> Slot {
    Slot { ipa: InputAddress(GIB), bytes }
}

fn format(granule: Granule) -> Arm64Stage2 {
    Arm64Stage2::new(granule, 40)
}

/// Compares splitting 1G blocks to 4K pages with writing the same number of entries.
fn against_streaming(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { bytes, rounds } = arguments;
    for build in [Build::Fill, Build::Walk] {
        let options = Options { build, ..Options::enable(GIB, Variant::SkipPagesAndChildren) };
        let (mut split_ms, mut stream_ms) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut tables = build_slot(format(Granule::K4), slot(bytes), Backing::Gigabyte)?;
            let (ms, counters) = ms_of(|| split_slot(&mut tables, slot(bytes), options));
            split_ms.push(ms);
            drop(tables);
            let (ms, entries) = ms_of(|| stream(counters.as_ref().map_or(0, |counters| counters.entries_built)));
            stream_ms.push(ms);
            assert_eq!(entries.len() as u64, counters?.entries_built);
        }
        let ratio = Spread::of_ratios(&split_ms, &stream_ms);
        println!(
            "split {} MiB of 1G blocks to 4K, build by {build:?}: {:.1} ms; the same number of entries streamed: {:.1} ms; ratio {ratio}",
            bytes >> 20,
            median(&split_ms),
            median(&stream_ms),
        );
    }
    Ok(())
}

fn stream(entries: u64) -> Vec<u64> {
    black_box((0..black_box(entries)).map(|index| index << 12 | 0x7ff).collect())
}

/// Prints one row per variant and build method for a granule and a backing.
fn saved(arguments: Arguments, granule: Granule, backing: Backing, published: f64) -> Result<(), Box<dyn Error>> {
    let chunk_bytes = chunk_sizes(granule).pop().unwrap_or_default();
    for build in if backing == Backing::Pages { &[Build::Walk][..] } else { &[Build::Walk, Build::Fill] } {
        for variant in [Variant::SkipPages, Variant::SkipPagesAndChildren] {
            let options = |variant| Options { build: *build, ..Options::enable(chunk_bytes, variant) };
            let mut pairs = [Series::default(), Series::default()];
            for _ in 0..arguments.rounds {
                for (series, variant) in pairs.iter_mut().zip([Variant::Vanilla, variant]) {
                    series.measure(granule, backing, arguments.bytes, options(variant))?;
                }
            }
            row(granule, backing, *build, variant, &pairs, published);
        }
    }
    Ok(())
}

/// The measurements of one variant, by round.
#[derive(Default)]
struct Series {
    counters: Counters,
    split_ms: Vec<f64>,
    /// The split together with the preceding walk that removes write permission.
    both_ms: Vec<f64>,
    /// A walk over the split slot that reads every entry and calls no visitor.
    reads_ms: Vec<f64>,
}

impl Series {
    fn measure(&mut self, granule: Granule, backing: Backing, bytes: u64, options: Options) -> Result<(), SplitError> {
        let mut tables = build_slot(format(granule), slot(bytes), backing)?;
        let (protect_ms, protected) = ms_of(|| write_protect_slot(&mut tables, slot(bytes), Mode::Enable));
        protected?;
        let (split_ms, counters) = ms_of(|| split_slot(&mut tables, slot(bytes), options));
        self.counters = counters?;
        self.split_ms.push(split_ms);
        self.both_ms.push(split_ms + protect_ms);
        self.reads_ms.push(reads_ms(&mut tables, slot(bytes))?);
        Ok(())
    }
}

fn row(granule: Granule, backing: Backing, build: Build, variant: Variant, pairs: &[Series; 2], published: f64) {
    let [vanilla, skipping] = pairs;
    let (before, after) = (vanilla.counters.entries_read, skipping.counters.entries_read);
    let (before_ms, after_ms) = (median(&vanilla.split_ms), median(&skipping.split_ms));
    let visits = 100.0 * (before - after) as f64 / vanilla.counters.visits() as f64;
    println!(
        "{:<4} {:<9} {:<5} {:<26} {before:>9} {after:>7} {visits:>6.1} {before_ms:>8.2} {after_ms:>8.2}  {:<24} {:<24} {published:>4} {:>6.2} {:>8.2}",
        format!("{granule:?}"),
        format!("{backing:?}"),
        format!("{build:?}"),
        variant.name(),
        Spread::of_savings(&vanilla.split_ms, &skipping.split_ms).to_string(),
        Spread::of_savings(&vanilla.both_ms, &skipping.both_ms).to_string(),
        (before_ms - after_ms) * 1e6 / (before - after) as f64,
        median(&vanilla.reads_ms),
    );
}

/// The time of a walk that reads every entry of the split slot and calls no visitor.
fn reads_ms(tables: &mut Tables<Arm64Stage2>, slot: Slot) -> Result<f64, SplitError> {
    let mut counters = Counters::default();
    let (ms, walked) = ms_of(|| walk(tables, slot.ipa, slot.bytes, Flags::empty(), &mut IgnoreEntries, &mut counters));
    walked.map(|()| ms)
}

struct IgnoreEntries;

impl<L: Log> Visitor<L> for IgnoreEntries {
    fn visit(&mut self, _: &mut Walk<'_, L>, _: &Visited, _: Visit) -> Result<Next, SplitError> {
        Ok(Next::Entry)
    }
}
