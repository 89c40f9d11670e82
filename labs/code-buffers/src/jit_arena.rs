//! `jit-arena`: generates machine code into an arena of regions while running it, as translators and JITs do.
//!
//! A piece of code is a function of one number, with constants of its own. After each batch of pieces is generated, each new
//! piece is run once, and then some of all pieces generated so far. Every result is the input of the next call, so the last
//! number depends on every call. To verify that number, it is computed again without the generated code.

use std::time::{Duration, Instant};

use crate::jit::{self, Arena, Isa, JitError, Shape};
use census::{Observer, SmapsEntry};
use clap::ValueEnum;
use workloads::memory::base_page;
use workloads::random::{below, mix};

use verbs::lab::Report;
use verbs::lab::{WorkloadError, arguments, check};

/// The number of pieces that are generated and timed together.
const BATCH: u64 = 64;

/// Arguments of `jit-arena`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Code to generate
    #[arg(long, default_value = "350M", value_parser = arguments::size)]
    bytes: u64,
    /// Code of one piece, at most
    #[arg(long, default_value = "512", value_parser = arguments::size)]
    piece_bytes: u64,
    /// Distance from the start of a region to the start of the next, in whole base pages
    #[arg(long, default_value = "2M", value_parser = arguments::size)]
    stride: u64,
    /// No guard page at the end of each region (a policy's +no-guards removes them from outside)
    #[arg(long)]
    no_guards: bool,
    /// Write and execute through two views of one memfd, with guards in the first only
    #[arg(long)]
    dual: bool,
    /// The advice for the memory
    #[arg(long, default_value = "huge")]
    advice: Advice,
    /// Calls for each generated piece in addition to its first call; they go to random pieces among those generated
    /// so far
    #[arg(long, default_value_t = 8)]
    hotness: u64,
    /// Share of the pieces that these calls go to, spread evenly over all pieces
    #[arg(long, default_value_t = 1.0)]
    hot_share: f64,
    /// Generate at most this much in a second, then wait; default: no limit
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    rate: Option<u64>,
    /// Seed of the constants and of the order of calls
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The advice to the kernel about large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Advice {
    /// MADV_HUGEPAGE, as QEMU does
    Huge,
    /// MADV_NOHUGEPAGE
    NoHuge,
    /// Nothing
    None,
}

/// The pieces and their call order, which determine the result.
struct Program {
    pieces: u64,
    steps: usize,
    hotness: u64,
    hot_share: f64,
    seed: u64,
}

/// Totals of the run.
#[derive(Default)]
struct Work {
    generating: Duration,
    running: Duration,
    generated_bytes: u64,
    executed_bytes: u64,
    calls: u64,
}

impl Program {
    fn constants(&self, piece: u64) -> impl Iterator<Item = u64> {
        let piece_seed = mix(self.seed ^ mix(piece));
        (0..self.steps as u64).map(move |step| mix(piece_seed.wrapping_add(step)))
    }

    /// The indexes of the pieces of a batch.
    fn batch(&self, batch: u64) -> std::ops::Range<u64> {
        let first = batch * BATCH;
        first..(first + BATCH).min(self.pieces)
    }

    fn batches(&self) -> u64 {
        self.pieces.div_ceil(BATCH)
    }

    /// The pieces that are called after a batch has been generated: first those of the batch, then hot pieces among all
    /// pieces generated so far.
    fn calls(&self, batch: u64) -> impl Iterator<Item = u64> {
        let new = self.batch(batch);
        let generated = new.end;
        let hot = ((generated as f64 * self.hot_share).ceil() as u64).clamp(1, generated);
        let others = (new.end - new.start) * self.hotness;
        let order = mix(self.seed.rotate_left(32) ^ mix(batch));
        let any = (0..others).map(move |call| {
            let one = below(mix(order.wrapping_add(call)), hot as usize) as u64;
            (u128::from(one) * u128::from(generated) / u128::from(hot)) as u64
        });
        new.chain(any)
    }

    /// The last number, computed without generated code.
    fn answer(&self) -> u64 {
        let calls = (0..self.batches()).flat_map(|batch| self.calls(batch));
        calls.fold(self.seed, |number, piece| jit::compute(self.constants(piece), number))
    }
}

/// Generates and runs the code.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let isa = Isa::native().ok_or(JitError::Architecture(std::env::consts::ARCH))?;
    let program = program(arguments, isa)?;
    let shape = shape(arguments, &program)?;
    let mut arena = Arena::map(shape)?;
    let (work, last) = work(&mut arena, &program, arguments.rate);
    check("the number that the last piece of code returned", program.answer(), last)?;
    let executed = mappings(arena.executed()).map_err(WorkloadError::Census)?;
    let report = Report::new("jit-arena", last)
        .argument("bytes", arguments.bytes)
        .argument("isa", isa.to_string())
        .argument("piece_bytes", arguments.piece_bytes)
        .argument("stride_bytes", arguments.stride)
        .argument("guard_bytes", shape.guard_bytes)
        .argument("dual", arguments.dual)
        .argument("advice", arguments.advice.name())
        .argument("hotness", arguments.hotness)
        .argument("hot_share", arguments.hot_share)
        .argument("seed", arguments.seed)
        .figure("piece_count", program.pieces as f64)
        .figure("region_count", shape.regions as f64)
        .figure("generated_bytes", work.generated_bytes as f64)
        .figure("executed_bytes", work.executed_bytes as f64)
        .figure("call_count", work.calls as f64)
        .figure("generate_s", work.generating.as_secs_f64())
        .figure("run_s", work.running.as_secs_f64())
        .figure("generated_bytes_per_s", work.generated_bytes as f64 / work.generating.as_secs_f64())
        .figure("executed_bytes_per_s", work.executed_bytes as f64 / work.running.as_secs_f64());
    let report = match arguments.rate {
        Some(rate) => report.argument("rate_bytes_per_s", rate),
        None => report,
    };
    let report = of_view(report, "code", &executed);
    Ok(match arena.written() {
        Some(written) => of_view(report, "write_view", &mappings(written).map_err(WorkloadError::Census)?),
        None => report,
    })
}

impl Advice {
    fn name(self) -> &'static str {
        match self {
            Advice::Huge => "huge",
            Advice::NoHuge => "no-huge",
            Advice::None => "none",
        }
    }
}

fn program(arguments: &Arguments, isa: Isa) -> Result<Program, WorkloadError> {
    let steps = isa.steps_in(usize::try_from(arguments.piece_bytes).unwrap_or(usize::MAX));
    if steps == 0 || arguments.piece_bytes > 1 << 20 {
        let least = isa.encode(&[0]).len();
        let (expected, found) = (format!("{least} bytes to 1M"), arguments.piece_bytes.to_string());
        return Err(WorkloadError::Argument { option: "piece-bytes", expected, found });
    }
    let piece_bytes = isa.encode(&vec![0; steps]).len() as u64;
    let pieces = arguments::at_least("bytes", piece_bytes, arguments.bytes)?.div_ceil(piece_bytes);
    let hot_share = arguments::share("hot-share", arguments.hot_share)?;
    if let Some(rate) = arguments.rate {
        arguments::at_least("rate", 1, rate)?;
    }
    Ok(Program { pieces, steps, hotness: arguments.hotness, hot_share, seed: arguments.seed })
}

/// The shape of an arena that has enough regions for all code.
fn shape(arguments: &Arguments, program: &Program) -> Result<Shape, WorkloadError> {
    let stride_bytes = arguments::whole_pages("stride", arguments.stride)?;
    let page_bytes = base_page().bytes() as usize;
    let guard_bytes = if arguments.no_guards { 0 } else { page_bytes };
    // Each piece starts at a multiple of 16 bytes.
    let slot_bytes = (arguments.piece_bytes as usize).next_multiple_of(16);
    let in_region = stride_bytes.saturating_sub(guard_bytes) / slot_bytes;
    if in_region == 0 {
        let expected = format!("room for a piece of {slot_bytes} bytes and a guard of {guard_bytes} in each region");
        return Err(WorkloadError::Argument { option: "stride", expected, found: stride_bytes.to_string() });
    }
    let regions = program.pieces.div_ceil(in_region as u64);
    arguments::room("bytes", u128::from(regions) * stride_bytes as u128)?;
    let host = host::Host::open("/").map_err(|error| WorkloadError::Host(error.to_string()))?;
    // A kernel without THP has no PMD leaf to align to, so the arena is aligned to the base page.
    let alignment = host.page_sizes().pmd.unwrap_or(base_page());
    let advice = match arguments.advice {
        Advice::Huge => jit::Advice::Huge,
        Advice::NoHuge => jit::Advice::NoHuge,
        Advice::None => jit::Advice::None,
    };
    let regions = usize::try_from(regions).unwrap_or(usize::MAX);
    Ok(Shape { regions, stride_bytes, guard_bytes, dual: arguments.dual, advice, alignment })
}

fn work(arena: &mut Arena, program: &Program, rate: Option<u64>) -> (Work, u64) {
    let mut work = Work::default();
    let mut number = program.seed;
    let mut constants = Vec::with_capacity(program.steps);
    let start = Instant::now();
    let mut piece_bytes = 0;
    for batch in 0..program.batches() {
        let generating = Instant::now();
        for piece in program.batch(batch) {
            constants.clear();
            constants.extend(program.constants(piece));
            let (_, bytes) = arena.generate(&constants).expect("the arena has a region for every piece");
            piece_bytes = bytes as u64;
            work.generated_bytes += piece_bytes;
        }
        work.generating += generating.elapsed();
        let running = Instant::now();
        let calls = work.calls;
        for piece in program.calls(batch) {
            number = arena.run(piece as usize, number);
            work.calls += 1;
        }
        work.running += running.elapsed();
        work.executed_bytes += (work.calls - calls) * piece_bytes;
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(work.generated_bytes as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    (work, number)
}

fn mappings(addresses: std::ops::Range<u64>) -> Result<Vec<SmapsEntry>, census::CensusError> {
    let mut entries = Observer::open()?.smaps(std::process::id())?;
    entries.retain(|entry| entry.vma.start < addresses.end && addresses.start < entry.vma.end);
    Ok(entries)
}

/// Adds figures about the mappings of a view, not counting guards.
fn of_view(report: Report, name: &str, entries: &[SmapsEntry]) -> Report {
    let areas = entries.iter().filter(|entry| entry.vma.is_writable() || entry.vma.is_executable()).count();
    let resident: u64 = entries.iter().map(SmapsEntry::resident_bytes).sum();
    let huge: u64 = entries.iter().map(SmapsEntry::pmd_mapped_bytes).sum();
    report
        .figure(format!("{name}_area_count"), areas as f64)
        .figure(format!("{name}_resident_bytes"), resident as f64)
        .figure(format!("{name}_huge_bytes"), huge as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(hot_share: f64) -> Program {
        Program { pieces: 150, steps: 3, hotness: 4, hot_share, seed: 9 }
    }

    #[test]
    fn every_piece_is_called_and_none_before_it_is_generated() {
        let program = small(1.0);
        let mut called = vec![0; 150];
        for batch in 0..program.batches() {
            for piece in program.calls(batch) {
                assert!(piece < program.batch(batch).end, "piece {piece} in batch {batch}");
                called[piece as usize] += 1;
            }
        }
        assert_eq!(called.iter().sum::<u64>(), 150 * 5);
        assert!(called.iter().all(|times| *times > 0));
    }

    #[test]
    fn hot_pieces_are_few_and_spread() {
        let program = small(0.1);
        let mut hot: Vec<u64> = program.calls(2).skip(22).collect();
        hot.sort_unstable();
        hot.dedup();
        assert!(hot.len() <= 15 && hot.len() > 5, "{hot:?}");
        assert!(hot.iter().any(|piece| *piece < 30) && hot.iter().any(|piece| *piece > 120), "{hot:?}");
    }

    #[test]
    fn the_answer_depends_on_the_seed_and_on_every_piece() {
        let answer = small(1.0).answer();
        assert_ne!(answer, Program { seed: 10, ..small(1.0) }.answer());
        assert_ne!(answer, Program { pieces: 151, ..small(1.0) }.answer());
        assert_ne!(answer, Program { hotness: 5, ..small(1.0) }.answer());
    }
}
