//! What tests of every crate say in one way: that one is skipped, and by which seed its chance can be repeated.
//!
//! `cargo xtask test` counts what [`skip`] prints, and `cargo xtask tidy` finds tests that say it otherwise. No program
//! depends on this crate.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// The variable by which a seed is given to tests again.
pub const SEED: &str = "PAGELAB_TEST_SEED";

/// Says that a test cannot run here, or a part of it, and what it needs: `skip("root, to mount")`.
pub fn skip(needs: impl Display) {
    println!("skipped: needs {needs}");
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
