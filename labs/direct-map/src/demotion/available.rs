//! [`Available`]: the memory that a demotion may still take. It is read rarely, because a reading costs as much as dozens of
//! pages.

use std::time::{Duration, Instant};

use host::HostError;

/// The interval between readings of /proc files.
pub(super) const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Available memory: the value that the host last reported, less what was taken since. It is read again when it is old, or
/// when an eighth of the memory that may be taken has been taken.
pub(super) struct Available<Ask> {
    ask: Ask,
    read_bytes: u64,
    taken_bytes: u64,
    asked: Instant,
}

impl<Ask: FnMut() -> Result<u64, HostError>> Available<Ask> {
    /// Reads the value for the first time.
    pub fn new(mut ask: Ask) -> Result<Self, HostError> {
        Ok(Available { read_bytes: ask()?, ask, taken_bytes: 0, asked: Instant::now() })
    }

    /// Records that `bytes` were taken.
    pub fn take(&mut self, bytes: u64) {
        self.taken_bytes += bytes;
    }

    /// Bytes available now, including the `left_bytes` that must not be taken.
    pub fn bytes(&mut self, left_bytes: u64) -> Result<u64, HostError> {
        let is_much = self.taken_bytes > self.read_bytes.saturating_sub(left_bytes) / 8;
        if is_much || self.asked.elapsed() >= READ_INTERVAL {
            (self.read_bytes, self.taken_bytes, self.asked) = ((self.ask)()?, 0, Instant::now());
        }
        Ok(self.read_bytes.saturating_sub(self.taken_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn reads_available_memory_seldom_and_never_overestimates_it() {
        let (asked, free) = (Cell::new(0), Cell::new(1000u64 << 20));
        let ask = || {
            asked.set(asked.get() + 1);
            Ok(free.get())
        };
        let mut available = Available::new(ask).unwrap();
        let begin = Instant::now();
        let mut taken = 0u64;
        while available.bytes(64 << 20).unwrap() > 64 << 20 {
            available.take(64 << 10);
            free.set(free.get() - (64 << 10));
            taken += 64 << 10;
        }
        assert_eq!(taken, 936 << 20);
        // Each reading follows an eighth of the memory left, down to the last piece; a slow machine makes more readings.
        let by_age = begin.elapsed().as_millis() / 50;
        assert!(asked.get() < 200 + by_age, "{} of {} pieces", asked.get(), taken >> 16);
    }

    #[test]
    fn memory_that_cannot_be_asked_for_is_an_error() {
        let unreadable = || {
            let (path, expected) = ("/proc/meminfo".into(), "a line MemAvailable");
            Err(HostError::Unexpected { path, expected, found: "none".into() })
        };
        assert!(Available::new(unreadable).is_err());
    }
}
