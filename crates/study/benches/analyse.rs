//! Time of one analysis, which the loop performs after every block: 12 arms, 100 blocks, every metric.
//!
//! `cargo bench -p study`

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{admitted, design, normal, record};
use policy::verdict::Holding;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::metric::Metric;
use study::stats::analyse;
use study::trial::Trial;

fn main() {
    for (arms, blocks) in [(2, 20), (12, 20), (12, 60), (12, 100)] {
        let mut design = design(&vec!["default"; arms], 1);
        design.metrics = Metric::of_every_trial();
        let mut random = Pcg64::seed_from_u64(1);
        let mut trials = Vec::new();
        for block in 0..=blocks {
            for arm in 0..arms {
                let trial = Trial { arm, block, position: arm as u32, attempt: 0 };
                let mut value = || (0.02 * normal(&mut random)).exp() * (1.0 + 0.01 * arm as f64);
                let values: Vec<(&str, f64)> =
                    design.metrics.iter().map(|metric| (metric.name.as_str(), value())).collect();
                trials.push(record(trial, Holding::Held, &values));
            }
        }
        let admissions = admitted(arms);
        let runs = 5;
        let started = Instant::now();
        for _ in 0..runs {
            assert_eq!(black_box(analyse(&design, &trials, &admissions)).map(|analysis| analysis.blocks), Some(blocks));
        }
        let ms = started.elapsed().as_secs_f64() * 1e3 / f64::from(runs);
        println!("{arms} arms, {blocks} blocks, {} metrics: {ms:.1} ms", design.metrics.len());
    }
}
