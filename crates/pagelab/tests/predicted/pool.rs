//! Tests of what a hugetlb policy does to a program's calls, for one way of mapping memory at a time
//! (`programs/pool.c`).

use std::path::Path;
use std::process::Command;

use crate::common::{Bench, needs, observed, program};
use crate::{STRAY_FAULTS, can_compare, compared, near, same_start};

const POLICY: &str = "hugetlb-2m";

/// The ways of mapping memory that the program has, and the number of processes in each.
const WAYS: [(&str, f64); 12] = [
    ("reserved", 1.0),
    ("pieces", 1.0),
    ("arena", 1.0),
    ("grown", 1.0),
    ("inside", 1.0),
    ("read", 1.0),
    ("closed", 1.0),
    ("sealed", 1.0),
    ("dropped", 1.0),
    ("parts", 1.0),
    ("forked", 2.0),
    ("heap", 1.0),
];

#[test]
fn predicts_the_faults_and_calls_under_a_pool() {
    if !can_compare() || !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::in_memory();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pool.c");
    let compiled = bench.word("pool");
    let status = Command::new("gcc").args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&compiled).status().unwrap();
    assert!(status.success());
    let launch = same_start(&bench, &[compiled.clone(), "heap".to_owned()], &[]);
    let commands = WAYS.map(|(way, _)| vec![compiled.clone(), way.to_owned()]);
    let mut off = Vec::new();
    for ((way, processes), both) in WAYS.iter().zip(compared(&bench, &["base", POLICY], &commands, &launch)) {
        let (trial, simulation) = both.of(POLICY);
        assert_eq!(simulation["processes"].as_f64(), Some(*processes), "{way}");
        assert_eq!(simulation["verdict"]["holding"], trial["verdict"]["holding"], "{way}");
        let (native, simulated) = both.faults(POLICY);
        off.extend(near(&format!("{way}, faults"), native, simulated, STRAY_FAULTS));
        let native = observed(trial, "page_table_seen_bytes").unwrap();
        let simulated = simulation["process_table_bytes"].as_f64().unwrap();
        off.extend(near(&format!("{way}, bytes of tables"), native, simulated, 0.0));
        for key in ["covered_bytes", "concerned_bytes"] {
            let native = trial["verdict"][key].as_f64().unwrap();
            let simulated = simulation["verdict"][key].as_f64().unwrap();
            off.extend(near(&format!("{way}, {key}"), native, simulated, 0.0));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}
