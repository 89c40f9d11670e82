//! Reads arbitrary text as a machine file: it is either refused with a reason, or a machine that can be simulated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model::policy::ModelPolicy;
use model::simulation::Simulation;
use model::space::Physical;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let machine = match model::machine::read("fuzz.toml", text) {
        Ok(machine) => machine,
        Err(error) => return assert!(error.to_string().starts_with("fuzz.toml: ")),
    };
    let physical = Physical { bytes: 1 << 30, ..Physical::default() };
    for policy in ["base", "mthp-64k", "thp", "hugetlb-2m", "contig-64k", "base-64k", "contig-64k+thp", "base-64k+thp"] {
        let policy: ModelPolicy = policy.parse().expect("a policy");
        if let Ok(simulation) = Simulation::new(&machine, &policy, &physical) {
            simulation.outcome().expect("nothing has run");
        }
    }
});
