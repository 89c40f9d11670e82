//! Timestamps: when a thread did something that may depend on the order of threads and processes.
//!
//! All threads and processes of a recording share one logical time. When a thread touches a page for the first time, or makes a
//! call that changes the address space, its trace records the time. What the thread does up to its next timestamp does not
//! depend on other threads.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::block::MAX_NUMBER;
use crate::column::{ColumnError, push_varint, take_varint, unzigzag, zigzag};

/// The maximum number of timestamps in one block.
pub const MAX_TIMESTAMPS: usize = 1 << 16;
/// The maximum encoded size of a timestamp, in bytes: four numbers.
pub(crate) const MAX_TIMESTAMP_BYTES: usize = 40;

/// When a thread reached a position among its runs and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// The thread's number.
    pub thread: u32,
    /// How many runs the thread had begun before.
    pub run: u64,
    /// How many events the thread had before.
    pub event: u64,
    /// The time: nanoseconds of a clock that all processes of the recording share, or any increasing number.
    pub time_ns: u64,
}

/// Why bytes are not timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimestampError {
    /// The timestamps' column cannot be read.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The number of timestamps differs from the block's count.
    #[error("{found} timestamps; expected {expected}")]
    Count {
        /// The number of timestamps found.
        found: usize,
        /// The number that the block's prefix states.
        expected: usize,
    },
    /// A timestamp that is earlier than the previous one, or whose thread, run or event is out of range.
    #[error("a timestamp out of range")]
    Range,
}

/// Appends timestamps, which must be ordered by time.
pub(crate) fn push(bytes: &mut Vec<u8>, timestamps: &[Timestamp]) {
    let mut before = Previous::default();
    for timestamp in timestamps {
        let (run, event) = before.place(timestamp.thread);
        push_varint(bytes, u64::from(timestamp.thread));
        push_varint(bytes, zigzag(timestamp.run.wrapping_sub(run) as i64));
        push_varint(bytes, zigzag(timestamp.event.wrapping_sub(event) as i64));
        push_varint(bytes, timestamp.time_ns.wrapping_sub(before.time_ns));
        before.note(timestamp);
    }
}

/// Decodes the timestamps of [`push`].
pub(crate) fn parsed(mut bytes: &[u8], expected: usize) -> Result<Vec<Timestamp>, TimestampError> {
    let (mut timestamps, mut before) = (Vec::with_capacity(expected.min(MAX_TIMESTAMPS)), Previous::default());
    while !bytes.is_empty() {
        let mut number = || take_varint(&mut bytes).ok_or(ColumnError::CutOff("timestamp"));
        let thread = u32::try_from(number()?).map_err(|_| TimestampError::Range)?;
        let (run, event) = before.place(thread);
        let timestamp = Timestamp {
            thread,
            run: run.wrapping_add(unzigzag(number()?) as u64),
            event: event.wrapping_add(unzigzag(number()?) as u64),
            time_ns: before.time_ns.checked_add(number()?).ok_or(TimestampError::Range)?,
        };
        if timestamp.run >= MAX_NUMBER || timestamp.event >= MAX_NUMBER {
            return Err(TimestampError::Range);
        }
        before.note(&timestamp);
        timestamps.push(timestamp);
    }
    match timestamps.len() {
        found if found == expected => Ok(timestamps),
        found => Err(TimestampError::Count { found, expected }),
    }
}

/// The previous state, relative to which the next timestamp of a block is encoded.
#[derive(Default)]
struct Previous {
    /// The last run and event of each thread.
    places: BTreeMap<u32, (u64, u64)>,
    time_ns: u64,
}

impl Previous {
    fn place(&self, thread: u32) -> (u64, u64) {
        self.places.get(&thread).copied().unwrap_or_default()
    }

    fn note(&mut self, timestamp: &Timestamp) {
        self.places.insert(timestamp.thread, (timestamp.run, timestamp.event));
        self.time_ns = timestamp.time_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timestamps() -> impl Strategy<Value = Vec<Timestamp>> {
        let one = (0u32..5, 0..MAX_NUMBER, 0u64..100, 0u64..1 << 40);
        proptest::collection::vec(one, 0..200).prop_map(|all| {
            let mut time_ns = 0;
            let timestamp = |(thread, run, event, passed)| {
                time_ns += passed;
                Timestamp { thread, run, event, time_ns }
            };
            all.into_iter().map(timestamp).collect()
        })
    }

    proptest! {
        #![proptest_config(testing::properties(256))]

        #[test]
        fn parses_what_was_written(timestamps in timestamps()) {
            let mut bytes = Vec::new();
            push(&mut bytes, &timestamps);
            prop_assert!(bytes.len() <= timestamps.len() * MAX_TIMESTAMP_BYTES);
            prop_assert_eq!(parsed(&bytes, timestamps.len()).unwrap(), timestamps);
        }

        #[test]
        fn any_bytes_are_refused_or_in_the_order_of_time(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            count in 0usize..60,
        ) {
            if let Ok(timestamps) = parsed(&bytes, count) {
                prop_assert_eq!(timestamps.len(), count);
                prop_assert!(timestamps.is_sorted_by_key(|timestamp| timestamp.time_ns));
                prop_assert!(timestamps.iter().all(|timestamp| timestamp.run < MAX_NUMBER));
            }
        }
    }

    #[test]
    fn consecutive_timestamps_of_a_thread_are_short() {
        let place =
            |number: u64| Timestamp { thread: 3, run: 1000 + number, event: 7, time_ns: 9_000_000 + 60 * number };
        let mut bytes = Vec::new();
        push(&mut bytes, &(0..100).map(place).collect::<Vec<_>>());
        assert!(bytes.len() < 410, "{}", bytes.len());
    }
}
