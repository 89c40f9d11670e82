//! Runs the benchmark on tiny traces.

#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/rates.rs"]
mod rates;

#[test]
fn measures_every_rate() {
    rates::rates(20_000, &[]);
}
