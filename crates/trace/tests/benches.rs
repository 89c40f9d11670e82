//! Runs the benchmark on a tiny trace.

#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/decode.rs"]
mod decode;

#[test]
fn decodes_every_generated_trace() {
    decode::decode(20_000);
}
