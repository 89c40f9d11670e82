//! Tests that the seed printed by a failed test repeats that test.

use std::process::Command;

use proptest::prelude::*;
use testing::{Random, SEED};

/// Runs a test of this program with the given seed, or with a random one, and returns its output.
fn printed(test: &str, seed: Option<u64>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--nocapture"]).env_remove(SEED);
    command.envs(seed.map(|seed| (SEED, seed.to_string())));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn seed_of(printed: &str) -> u64 {
    let line =
        printed.lines().find_map(|line| line.split_once("seed ")?.1.split_once(':')).expect("it prints its seed");
    assert!(line.1.contains(&format!("{SEED}={} repeats it", line.0)), "{printed}");
    line.0.parse().unwrap()
}

fn drawn(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| line.contains("drawn")).collect()
}

#[test]
fn the_seed_that_a_test_prints_repeats_it() {
    for test in ["draws_numbers", "draws_cases"] {
        let (one, other) = (printed(test, None), printed(test, None));
        assert_ne!(seed_of(&one), seed_of(&other));
        assert_ne!(drawn(&one), drawn(&other));
        let again = printed(test, Some(seed_of(&one)));
        assert!(drawn(&again).len() >= 8, "{again}");
        assert_eq!(drawn(&one), drawn(&again));
    }
}

#[test]
fn refuses_text_that_is_no_seed() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--ignored", "--exact", "draws_numbers"]).env(SEED, "many").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && stdout.contains("expected a number below 2^64, found \"many\""), "{stdout}");
}

#[test]
#[ignore = "it is run by the others"]
fn draws_numbers() {
    let mut random = Random::new();
    let numbers: Vec<u64> = (0..8).map(|_| random.below(1000)).collect();
    assert!(numbers.iter().all(|number| *number < 1000));
    numbers.iter().for_each(|number| println!("drawn {number}"));
}

proptest! {
    #![proptest_config(testing::properties(8))]
    #[test]
    #[ignore = "it is run by the others"]
    fn draws_cases(number in any::<u64>()) {
        println!("drawn {number}");
    }
}
