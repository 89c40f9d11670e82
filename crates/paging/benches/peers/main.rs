//! Compares the cost of mapping, translating, protecting and unmapping with that of other crates.
//!
//! ```text
//! cargo bench -p paging --bench peers -- [--bytes SIZE] [--rounds N]
//! ```
//! There are two scenes. `pages` is one range of `SIZE` (bytes, or a number followed by G or M) in 4K pages. `mixed` is
//! 64 ranges, mapped with the largest leaves that fit. One of them begins at a multiple of 1G and is slightly longer
//! than 1G. The others have random addresses and lengths.
//!
//! In each round, the contenders of a format take turns. Each makes the same calls on the same ranges: map all,
//! translate random addresses, translate 64 of them over and over, make all read-only, unmap all. It does so twice, and
//! only the second time is measured, so that no contender pays for caches that another one filled. Every contender
//! takes zeroed tables from one contiguous piece of memory with a free list. The results are checked: samples must
//! translate to the expected addresses, and must be writable only before they are protected.
//!
//! The output is pagelab's median time and, for each peer, the ratio of its time to pagelab's: the median over the
//! rounds, with quartiles. The peers x86_64 and page_table_multiarch keep empty tables when they unmap, which saves the
//! work of freeing them.
//!
//! Without arguments it runs two rounds on 8 MiB, as a quick check.

#[path = "../common/mod.rs"]
mod common;
mod contender;
mod engine;
mod linear;
mod memory;
mod multiarch;
mod scene;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::error::Error;
use std::time::Instant;

use common::{Spread, median};
use contender::Contender;
use engine::Engine;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::riscv::{RiscV, Stage};
use paging::format::x86_64::X86_64;
use scene::Scene;

/// Size in bytes of the memory from which one contender takes its tables.
const TABLES_BYTES: u64 = 32 << 20;
const OPERATIONS: [&str; 5] = ["map", "translate", "translate 64", "protect", "unmap"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    run(&arguments)
}

/// Runs all benchmarks. `arguments` does not include the program's name.
pub fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (bytes, rounds) = read_arguments(arguments)?;
    println!("{:<8} {:<6} {:<13} {:>10}  peers: time / pagelab's", "format", "scene", "operation", "pagelab");
    for scene in [Scene::pages(bytes), Scene::mixed(bytes)] {
        for (format, mut contenders) in formats() {
            measure(format, &scene, &mut contenders, rounds);
        }
    }
    Ok(())
}

fn read_arguments(arguments: &[String]) -> Result<(u64, usize), Box<dyn Error>> {
    let (mut bytes, mut rounds) = (8 << 20, 2);
    for pair in arguments.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
        match word.as_str() {
            "--bytes" => {
                let digits = value.trim_end_matches(['G', 'M']);
                let shift = if value.ends_with('G') {
                    30
                } else if value.ends_with('M') {
                    20
                } else {
                    0
                };
                bytes = digits.parse::<u64>()? << shift;
            }
            "--rounds" => rounds = value.parse::<usize>()?.max(1),
            _ => return Err(format!("unknown argument {word}; known: --bytes, --rounds").into()),
        }
    }
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) && (1 << 20..=4 << 30).contains(&bytes) => Ok((bytes, rounds)),
        _ => Err(format!("--bytes {bytes}: expected whole MiB up to 4G").into()),
    }
}

/// The contenders of each format; pagelab comes first.
fn formats() -> Vec<(&'static str, Vec<Box<dyn Contender>>)> {
    vec![
        (
            "x86-64",
            vec![
                Box::new(Engine::new(X86_64::new(4, 48))),
                #[cfg(target_arch = "x86_64")]
                Box::new(x86::Mapper::new()),
                #[cfg(target_arch = "x86_64")]
                Box::new(multiarch::X86::new()),
            ],
        ),
        (
            "arm64",
            vec![
                Box::new(Engine::new(Arm64Stage1::new(Granule::K4, 48))),
                Box::new(linear::Linear::new()),
                Box::new(multiarch::Arm64::new()),
            ],
        ),
        ("Sv39", vec![Box::new(Engine::new(RiscV::new(3, Stage::Supervisor))), Box::new(multiarch::Sv39::new())]),
        ("Sv48", vec![Box::new(Engine::new(RiscV::new(4, Stage::Supervisor))), Box::new(multiarch::Sv48::new())]),
    ]
}

/// Microseconds, by contender, operation and round.
type Times = Vec<[Vec<f64>; OPERATIONS.len()]>;

fn measure(format: &str, scene: &Scene, contenders: &mut [Box<dyn Contender>], rounds: usize) {
    let mut times: Times = contenders.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            // The first, unmeasured run fills the caches for this contender and faults in its memory.
            run_operations(&mut **contender, scene);
            let measured = run_operations(&mut **contender, scene);
            times.iter_mut().zip(measured).for_each(|(times, us)| times.push(us));
        }
    }
    for (operation, name) in OPERATIONS.into_iter().enumerate() {
        let own = &times[0][operation];
        let peers: Vec<String> = contenders[1..]
            .iter()
            .zip(&times[1..])
            .map(|(peer, times)| format!("{} {}", peer.name(), Spread::of_ratios(&times[operation], own)))
            .collect();
        println!("{format:<8} {:<6} {name:<13} {:>7.1} us  {}", scene.name, median(own), peers.join("; "));
    }
}

/// Runs all operations once, and checks the results. Returns the microseconds that each operation took.
fn run_operations(contender: &mut dyn Contender, scene: &Scene) -> [f64; OPERATIONS.len()] {
    let name = contender.name();
    contender.begin();
    let map = us_of(|| scene.ranges.iter().for_each(|range| contender.map(range)));
    let mut sums = [0; 2];
    let translate = us_of(|| sums[0] = contender.sum(&scene.random));
    let translate_few = us_of(|| sums[1] = contender.sum(&scene.few));
    assert_eq!(sums, scene.sums(), "{name}: wrong output addresses");
    for (va, pa) in scene.samples() {
        assert_eq!((contender.translate(va), contender.is_writable(va)), (Some(pa), true), "{name}: {va:#x}");
    }
    let protect = us_of(|| scene.ranges.iter().for_each(|range| contender.protect(range)));
    for (va, pa) in scene.samples() {
        assert_eq!((contender.translate(va), contender.is_writable(va)), (Some(pa), false), "{name}: {va:#x}");
    }
    let unmap = us_of(|| scene.ranges.iter().for_each(|range| contender.unmap(range)));
    for (va, _) in scene.samples() {
        assert_eq!(contender.translate(va), None, "{name}: {va:#x}");
    }
    [map, translate, translate_few, protect, unmap]
}

fn us_of(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}
