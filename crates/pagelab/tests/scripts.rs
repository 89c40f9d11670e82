//! Runs random programs of system calls and memory accesses, and compares them with their simulations: faults, bytes, tables and
//! verdicts must be equal under every policy. `cargo xtask truth --random` tries many more programs, and shrinks one that differs.

mod common;

use std::ops::RangeInclusive;
use std::path::Path;

use common::{Bench, needs, program, recording, root};
use validation::StablePageCache;
use validation::kinds::DifferenceKind;
use validation::lab::Lab;
use validation::script::Script;
use validation::scripts::Scripts;

const POLICIES: [&str; 4] = ["base", "mthp-64k", "thp", "hugetlb-2m"];
const SEEDS: RangeInclusive<u64> = 1..=14;
/// Seeds whose scripts may differ from their simulations, each for a known reason.
const KNOWN: [(u64, DifferenceKind); 1] = [(14, DifferenceKind::SpuriousStoreFaults)];

fn can_compare() -> bool {
    let here = [
        ("x86-64", cfg!(target_arch = "x86_64")),
        root(),
        program("setarch"),
        program("gcc"),
        recording("qemu-x86_64"),
        ("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir()),
    ];
    needs(&here)
}

fn scripts(bench: &Bench) -> Scripts<'static> {
    let pagelab = bench.program();
    let lab = Lab {
        plugin: testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))),
        directory: pagelab.parent().unwrap().to_path_buf(),
        pagelab,
        limit_s: 20,
        user: None,
        input: None,
        prepare: None,
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/script.c");
    Scripts::new(lab, &source, &POLICIES).unwrap_or_else(|problem| panic!("{problem}"))
}

#[test]
fn random_scripts_are_predicted() {
    if !can_compare() {
        return;
    }
    let bench = Bench::in_memory();
    let _stable = StablePageCache::new(&bench.path("")).unwrap();
    let mut scripts = scripts(&bench);
    for seed in SEEDS {
        let text = Script::random(seed).text();
        let mut off = scripts.differences(&text).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{text}"));
        off.retain(|off| !KNOWN.iter().any(|(known, kind)| *known == seed && kind.explains(off)));
        let differences: Vec<String> = off.iter().map(ToString::to_string).collect();
        assert!(off.is_empty(), "seed {seed}: {}\n{text}", differences.join("\n"));
    }
}

#[test]
fn scripts_that_were_off_once_are_predicted() {
    if !can_compare() {
        return;
    }
    // A mapping that grows into a hugetlb page is copied into it. The copy reads pages of the mapping that were never
    // touched.
    let texts = ["m 2 503 1 0\nm 1 1 3 0\nr 1 1 512\n"];
    let bench = Bench::in_memory();
    let _stable = StablePageCache::new(&bench.path("")).unwrap();
    let mut scripts = scripts(&bench);
    for text in texts {
        let off = scripts.differences(text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        let differences: Vec<String> = off.iter().map(ToString::to_string).collect();
        assert!(off.is_empty(), "{}\n{text}", differences.join("\n"));
    }
}
