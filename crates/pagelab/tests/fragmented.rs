//! Tests of `compare --fragmented`: free memory is in small blocks during the measurement, and the held memory is given
//! back afterwards.

mod common;

use common::*;

/// The share of free memory that is in blocks below 2M, in percent.
fn fragmented_percent() -> f64 {
    let text = std::fs::read_to_string("/proc/buddyinfo").unwrap();
    let (mut all, mut small) = (0.0, 0.0);
    for line in text.lines() {
        for (order, count) in line.split_whitespace().skip(4).enumerate() {
            let bytes = count.parse::<f64>().unwrap() * f64::from(4096u32 << order);
            all += bytes;
            small += if order < 9 { bytes } else { 0.0 };
        }
    }
    small / all * 100.0
}

#[test]
fn free_memory_is_fragmented_while_a_command_is_measured() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    // The workload leaves a reserve of free memory alone. If other tests have filled the page cache, there may be no
    // more free memory than that, so the cache is dropped.
    std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let before = fragmented_percent();
    let percent = (before + 20.0).round().min(99.0);
    let bench = Bench::new();
    let wish = format!("{percent}%");
    let options = [&["-p", "default,base", "--fragmented", &wish, "--json"][..], &QUICK].concat();
    let document = bench.compare(&options, &words_of(&["cat", "/proc/buddyinfo"])).ran().json();
    assert_eq!(document["design"]["fragmented"]["percent"].as_f64(), Some(percent));
    for trial in document["trials"].as_array().unwrap() {
        let blocks = trial["state_before"]["free_blocks_by_order"].as_array().unwrap();
        let bytes = |some: &[serde_json::Value]| -> f64 {
            some.iter().enumerate().map(|(order, count)| count.as_f64().unwrap() * f64::from(1u32 << order)).sum()
        };
        let reached = bytes(&blocks[..9]) / bytes(blocks) * 100.0;
        // Other processes allocate and free memory meanwhile.
        assert!(
            ((before + percent) / 2.0 - 1.0..percent + 20.0).contains(&reached),
            "{before} % before, {percent} % wanted, {reached} %"
        );
    }
    // The memory that the workload held is freed when it ends. Pages of other processes may still fragment the free
    // memory.
    assert_eq!(processes_with("workload fragments"), []);
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    shown.assert_stdout(&["free memory was fragmented: ", &format!("(--fragmented {wish})")]);
}

#[test]
fn a_part_that_is_none_is_refused() {
    let bench = Bench::new();
    for (wish, part) in [("0", "1% to 100%"), ("101%", "1% to 100%"), ("80%@3K", "80%@64K")] {
        bench
            .compare(&["-p", "default,base", "--fragmented", wish], &words_of(&["true"]))
            .ran()
            .assert_exit(2, &[part]);
    }
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let options = ["-p", "default,base", "--fragmented", "50"];
    bench.compare(&options, &words_of(&["true"])).as_nobody().ran().assert_exit(2, &["--fragmented: ", "root"]);
    let options = [&options[..3], &["50@1G"], &QUICK].concat();
    bench
        .compare(&options, &words_of(&["true"]))
        .ran()
        .assert_exit(2, &["blocks of 1G", "the allocator's largest block"]);
}
