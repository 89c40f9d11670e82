//! Reads arbitrary bytes as a trace.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the other targets use the rest")]
#[path = "../../tests/hostile/bodies.rs"]
mod bodies;

fuzz_target!(|data: &[u8]| {
    bodies::read(data);
});
