//! Runs the checker on arbitrary memory and on arbitrary steps.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the other targets use the rest")]
#[path = "../../tests/check/bodies.rs"]
mod bodies;

fuzz_target!(|data: &[u8]| bodies::check(data));
