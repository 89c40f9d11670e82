//! Writes and reads under a memory limit: in a child, which joins a control group and leaves it when it ends.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use platform::MemoryGroup;
use workloads::memory::fork;

use super::{Pages, Run, WorkloadError, check, in_swap};
use crate::workload::latency::Latencies;

/// Numbers of the child before those of its rounds: whether it joined the group, the time of the writes, and the memory in swap
/// after them, in kilobytes and one more (0: not known).
const FIXED: usize = 3;

/// Runs the rounds. The group is removed at the end.
pub fn run(pages: &mut Pages, limit_bytes: u64, rounds: u64) -> Result<Run, WorkloadError> {
    let host = |error: &dyn std::fmt::Display| WorkloadError::Host(format!("--limit: {error}"));
    let group = MemoryGroup::with_limit_and_swap(limit_bytes).map_err(|error| host(&error))?;
    let mut entry = File::from(group.entry().map_err(|error| host(&error))?);
    let count = usize::try_from(rounds).unwrap_or(usize::MAX);
    let numbers = count.saturating_mul(2).saturating_add(FIXED);
    let forked = fork(numbers, |results| work(pages, &mut entry, results))?;
    let (fixed, of_rounds) = forked.results.split_at(FIXED);
    if fixed[0] == 0 {
        return Err(host(&"the child cannot join its control group; run pagelab as root"));
    }
    let [mut write, mut swap_in] = [Latencies::new(), Latencies::new()];
    write.record(Duration::from_nanos(fixed[1]));
    for (round, numbers) in of_rounds.chunks_exact(2).enumerate() {
        check(format!("sum of the pages of round {round}"), pages.expected(), numbers[1])?;
        swap_in.record(Duration::from_nanos(numbers[0]));
    }
    let status = fixed[2].checked_sub(1).map(|kilobytes| format!("VmSwap: {kilobytes} kB"));
    let swapped_bytes = in_swap(&status.unwrap_or_default())?;
    Ok(Run { write, page_out: Latencies::new(), swap_in, swapped_bytes })
}

/// The work of the child.
fn work(pages: &mut Pages, entry: &mut File, results: &mut [u64]) {
    let (fixed, of_rounds) = results.split_at_mut(FIXED);
    // 0 is the process that writes.
    if entry.write_all(b"0").is_err() {
        return;
    }
    fixed[0] = 1;
    fixed[1] = time(|| pages.write()).0;
    let status = super::status().ok();
    fixed[2] = status.as_deref().and_then(super::swapped_of).map_or(0, |bytes| (bytes >> 10) + 1);
    for numbers in of_rounds.chunks_exact_mut(2) {
        let (ns, sum) = time(|| pages.sum());
        numbers.copy_from_slice(&[ns, sum]);
    }
}

fn time<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let start = Instant::now();
    let result = work();
    (u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), result)
}
