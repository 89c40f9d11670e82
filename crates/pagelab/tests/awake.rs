//! Tests that the request of `compare --awake` is in force during the measurement, and gone afterwards.
//!
//! This is a test program of its own, because comparisons of other tests would see the setting change.

mod common;

use std::io::Read;

use common::*;

const DEVICE: &str = "/dev/cpu_dma_latency";

fn limit_us() -> i32 {
    let mut bytes = [0; 4];
    std::fs::File::open(DEVICE).unwrap().read_exact(&mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

#[test]
fn processors_are_awake_while_a_command_is_measured() {
    if !needs(&[root(), ("a kernel with CONFIG_CPU_IDLE", std::path::Path::new(DEVICE).exists())]) {
        return;
    }
    let _alone = Alone::wait();
    let before = limit_us();
    assert_ne!(before, 0, "somebody else keeps processors awake");
    let bench = Bench::new();
    let look = words_of(&["sh", "-c", &format!("test \"$(od -An -td4 {DEVICE} | tr -d ' ')\" = 0")]);
    bench.compare(&[&["-p", "default,base", "--awake"][..], &QUICK].concat(), &look).ran().assert_exit(0, &[]);
    assert_eq!(limit_us(), before);
    bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &look).ran().assert_exit(1, &[]);
}
