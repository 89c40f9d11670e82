//! Scans a long address range on several processors. The kernel takes its locks for one page table at a time, so readers do not
//! wait for each other.

use std::io;
use std::thread::ScopedJoinHandle;

use policy::size::PageSize;

/// The smallest address range, in bytes, that is worth a thread of its own.
const WORTH_A_THREAD_BYTES: u64 = 256 << 20;

/// Calls `work(from, to)` for consecutive parts of `start..end` that begin and end at multiples of `alignment` (except the outer
/// ends), on at most `threads` threads; the results are in order. If several parts fail, the error is the first in address order.
pub fn map<T: Send>(
    start: u64,
    end: u64,
    alignment: PageSize,
    threads: u64,
    work: impl Fn(u64, u64) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let parts = parts(start, end, alignment, threads);
    if let [(from, to)] = parts.as_slice() {
        return work(*from, *to).map(|result| vec![result]);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let spawn = |from, to| std::thread::Builder::new().spawn_scoped(scope, move || work(from, to));
        let threads: Vec<_> = parts.iter().map(|(from, to)| (spawn(*from, *to), *from, *to)).collect();
        let join = |(thread, from, to): (io::Result<ScopedJoinHandle<_>>, u64, u64)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No further thread is allowed here, so this one does the work.
            Err(_) => work(from, to),
        };
        threads.into_iter().map(join).collect()
    })
}

fn parts(start: u64, end: u64, alignment: PageSize, threads: u64) -> Vec<(u64, u64)> {
    let length = end.saturating_sub(start);
    let count = (length / WORTH_A_THREAD_BYTES).min(threads).max(1);
    let cut = |part: u64| match part {
        0 => start,
        part if part == count => end,
        part => alignment.align_down(start + length / count * part).clamp(start, end),
    };
    (0..count).map(|part| (cut(part), cut(part + 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn parts_cover_the_range_once_and_are_cut_at_alignments(
            start in 0u64..1 << 40, pages in 0u64..1 << 24, threads in 1u64..64,
        ) {
            let (start, end) = (start & !4095, (start & !4095) + pages * 4096);
            let parts = parts(start, end, PageSize::M2, threads);
            prop_assert_eq!(parts[0].0, start);
            prop_assert_eq!(parts[parts.len() - 1].1, end);
            for pair in parts.windows(2) {
                prop_assert_eq!(pair[0].1, pair[1].0);
                prop_assert_eq!(pair[0].1 % PageSize::M2.bytes(), 0);
            }
            prop_assert!(parts.len() as u64 <= threads);
        }
    }

    #[test]
    fn returns_the_first_error() {
        let failed = map(0, 1 << 32, PageSize::M2, 4, |from, _| {
            Err::<(), _>(io::Error::from_raw_os_error(1 + (from > 0) as i32))
        });
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(1));
        let sums = map(0, 1 << 32, PageSize::M2, 4, |from, to| Ok(to - from)).unwrap();
        assert_eq!((sums.len(), sums.iter().sum::<u64>()), (4, 1 << 32));
    }
}
