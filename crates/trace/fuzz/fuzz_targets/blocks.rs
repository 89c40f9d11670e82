//! Reads a trace whose checksums are correct but whose blocks hold arbitrary bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the other targets use the rest")]
#[path = "../../tests/hostile/bodies.rs"]
mod bodies;

fuzz_target!(|data: &[u8]| {
    bodies::built(data);
});
