//! Runs the benchmark on a tiny trace.

#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/decode.rs"]
mod decode;

#[test]
fn what_is_made_is_decoded() {
    decode::decode(20_000);
}
