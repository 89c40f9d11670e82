//! Helpers for the tests of every crate. They report a skipped test, print a seed with which a random test can be repeated, and
//! find the recorder, which tests use but do not build.
//!
//! `cargo xtask test` counts the lines that [`skip`] writes, and `cargo xtask tidy` finds tests that report a skip in another way.
//! No program depends on this crate.

#![forbid(unsafe_code)]

pub mod mutation;
mod recorder;

use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::test_runner::{Config, RngSeed};

/// The variable that sets the seed of random tests.
pub const SEED: &str = "PAGELAB_TEST_SEED";

/// The variable that names the file to which [`skip`] appends a line. If it is not set, no line is written.
pub const SKIPS: &str = "PAGELAB_TEST_SKIPS";

/// Reports that a test, or a part of it, cannot run here, and what it needs: `skip("root, to mount")`.
///
/// Appends a line to the file named by [`SKIPS`]: the test program, the test and what the test needs, separated by tabs. If
/// nextest runs the test, the program has nextest's name for it (`study::runner`), and otherwise the name of its file.
pub fn skip(needs: impl Display) {
    let needs = needs.to_string();
    println!("skipped: needs {needs}");
    let Some(file) = std::env::var_os(SKIPS) else { return };
    let line = format!("{}\t{}\t{}\n", program(), test(), needs.replace(['\n', '\t'], " "));
    let written = File::options().append(true).open(&file).and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("{file:?}: {error}: this skipped test is not counted");
    }
}

/// The name of the running test program: nextest's name, or that of its file without cargo's hash.
fn program() -> String {
    if let Ok(name) = std::env::var("NEXTEST_BINARY_ID") {
        return name;
    }
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_string())
}

/// The name of the running test, which is the name of its thread.
fn test() -> String {
    std::thread::current().name().unwrap_or("?").to_string()
}

/// The recorder of this build: `libpagelab_qemu_plugin.so` in the directory of the given program. No test builds it; `cargo xtask
/// test` builds it before the tests.
///
/// # Panics
/// The recorder is missing, or older than its source. The message names the command to run.
pub fn recorder(program: &Path) -> PathBuf {
    recorder::next_to(program).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The seed of a random test: the value of [`SEED`], or a new seed in each run. It is printed, so that a failure can be
/// repeated.
///
/// # Panics
/// The variable is not a number.
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok();
    let seed = match &given {
        Some(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}: expected a number below 2^64, found {text:?}")),
        None => RandomState::new().build_hasher().finish(),
    };
    println!("seed {seed}: {SEED}={seed} repeats it");
    seed
}

/// The configuration of property tests: the number of cases, and a seed that is printed. Nothing is written to the source tree.
pub fn properties(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed()), ..Config::default() }
}

/// The random numbers of a test, from a seed that is printed (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with the seed of this run.
    #[expect(clippy::new_without_default, reason = "each has another seed, which is no default")]
    pub fn new() -> Random {
        Random(seed())
    }

    /// A number below `end`, which must not be zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = mixed ^ mixed >> 31;
        ((u128::from(bits) * u128::from(end)) >> 64) as u64
    }

    /// A number that is close to normally distributed, with mean 0 and deviation 1: the sum of twelve uniform numbers, minus
    /// six.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.below(1 << 32) as f64 / (1u64 << 32) as f64).sum::<f64>() - 6.0
    }
}
