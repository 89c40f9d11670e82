//! What tests of every crate say in one way: that one is skipped, and by which seed its chance can be repeated. And where
//! the recorder is, which tests use but do not build.
//!
//! `cargo xtask test` counts what [`skip`] writes, and `cargo xtask tidy` finds tests that say it otherwise. No program
//! depends on this crate.

#![forbid(unsafe_code)]

pub mod mutation;
mod recorder;

use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::test_runner::{Config, RngSeed};

/// The variable by which a seed is given to tests again.
pub const SEED: &str = "PAGELAB_TEST_SEED";

/// The variable that names the file to which [`skip`] adds a line. Without it nothing is written.
pub const SKIPS: &str = "PAGELAB_TEST_SKIPS";

/// Says that a test cannot run here, or a part of it, and what it needs: `skip("root, to mount")`.
///
/// A line of the file that [`SKIPS`] names has the test program, the test and what it needs, with tabs between them. A program
/// is called as nextest calls it (`study::runner`) where that runs it, and by the name of its file otherwise.
pub fn skip(needs: impl Display) {
    let needs = needs.to_string();
    println!("skipped: needs {needs}");
    let Some(file) = std::env::var_os(SKIPS) else { return };
    let line = format!("{}\t{}\t{}\n", program(), test(), needs.replace(['\n', '\t'], " "));
    let written = File::options().append(true).open(&file).and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("{file:?}: {error}: that this test is skipped is not counted");
    }
}

/// The test program that runs: by nextest's name for it, or by its file's without cargo's hash.
fn program() -> String {
    if let Ok(name) = std::env::var("NEXTEST_BINARY_ID") {
        return name;
    }
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_string())
}

/// The test that runs, which is the name of its thread.
fn test() -> String {
    std::thread::current().name().unwrap_or("?").to_string()
}

/// The recorder of this build, `libpagelab_qemu_plugin.so` beside the program of which tests are given the path. No test
/// builds it: `cargo xtask test` does so before.
///
/// # Panics
/// It is not there, or older than its source. The message says what to run.
pub fn recorder(program: &Path) -> PathBuf {
    recorder::beside(program).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The seed of a test's chance: that of [`SEED`], or another one in each run. It is printed, which shows where a test fails.
///
/// # Panics
/// The variable holds no number.
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok();
    let seed = match &given {
        Some(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}: expected a number below 2^64, found {text:?}")),
        None => RandomState::new().build_hasher().finish(),
    };
    println!("seed {seed}: {SEED}={seed} repeats it");
    seed
}

/// How properties are tested: with so many cases, by a seed that is printed. Nothing is written beside the sources.
pub fn properties(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed()), ..Config::default() }
}

/// Random numbers of a test, by a seed that is printed (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers by the seed of this run.
    #[expect(clippy::new_without_default, reason = "each has another seed, which is no default")]
    pub fn new() -> Random {
        Random(seed())
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = mixed ^ mixed >> 31;
        ((u128::from(bits) * u128::from(end)) >> 64) as u64
    }
}
