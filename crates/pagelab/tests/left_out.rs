//! Tests of memory that a verdict of `compare` leaves out without `--prove-all`: the difference that the option makes on a
//! running kernel, and the prediction of `sim`.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Alone, Bench, Runs, arm, needs, program, recording, root};
use serde_json::Value;

const POLICIES: [&str; 2] = ["base", "thp"];
/// The memory that a program frees while it starts, which differs under QEMU.
const ALLOWED_BYTES: f64 = 131072.0;

/// In the median trial, the bytes that the verdict on a policy concerns, and those that it covers. The tracer also leaves out
/// memory whose inspection would take too long, which is more memory on a busy machine.
fn verdict(comparison: &Value, policy: &str) -> [f64; 2] {
    arm(comparison, policy);
    let trials = comparison["trials"].as_array().unwrap();
    let counted = trials.iter().filter(|trial| trial["label"] == policy && trial["counted"] == true);
    let counted: Vec<&Value> = counted.collect();
    ["concerned_bytes", "covered_bytes"].map(|key| {
        let mut bytes: Vec<f64> = counted.iter().map(|trial| trial["verdict"][key].as_f64().unwrap()).collect();
        bytes.sort_by(f64::total_cmp);
        bytes[bytes.len() / 2]
    })
}

#[test]
fn predicts_the_inspections_skipped_without_prove_all() {
    let here = [
        ("x86-64", cfg!(target_arch = "x86_64")),
        root(),
        program("gcc"),
        program("setarch"),
        recording("qemu-x86_64"),
    ];
    if !needs(&here) {
        return;
    }
    let bench = Bench::in_memory();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/advice.c");
    let compiled = bench.word("advice");
    assert!(Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap().success());
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))).display().to_string();
    let (trace, policies) = (bench.word("trace"), POLICIES.join(","));
    bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin, "--", &compiled]).ran().assert_exit(0, &[]);
    let compare = |option: &[&str]| {
        let options = ["--json", "--blocks", "7", "--min-blocks", "7", "-p", &policies, "--khugepaged", "off"];
        // The addresses of mappings decide which of them contain a large page, so both comparisons need the same addresses.
        let command = ["setarch", "--addr-no-randomize", &compiled].map(str::to_owned);
        let ran = bench.compare(&[&options[..], option].concat(), &command).ran();
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.json()
    };
    let (all, large) = {
        let _alone = Alone::wait();
        (compare(&["--prove-all"]), compare(&[]))
    };
    let simulated = bench.pagelab(&["sim", &trace, "-m", "cascade-lake", "-p", &policies, "--json"]).ran().json();
    for simulation in simulated["traces"][0]["simulations"].as_array().unwrap() {
        let policy = simulation["policy"].as_str().unwrap();
        let (all, large) = (verdict(&all, policy), verdict(&large, policy));
        for (key, all, large) in [("concerned_bytes", all[0], large[0]), ("covered_bytes", all[1], large[1])] {
            let left_out = simulation["left_out"][key].as_f64().unwrap();
            println!("{policy}, {key}: {} measured, {left_out} simulated", all - large);
            assert!((all - large - left_out).abs() <= ALLOWED_BYTES, "{policy}, {key}: {}, {left_out}", all - large);
            assert!(left_out > 1e6, "{policy}, {key}: {left_out}");
        }
    }
}
