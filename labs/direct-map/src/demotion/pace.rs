//! [`Pace`]: how much memory is held between two secret pages.

/// Bytes to hold next, with their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
}

impl Pace {
    /// At most half a frame is held, so that the next page is in the same frame or the next one.
    pub fn new(frame_bytes: u64, page_bytes: u64) -> Pace {
        Pace { bytes: page_bytes, min_bytes: page_bytes, max_bytes: (frame_bytes / 2).max(page_bytes) }
    }

    /// Records whether a page came from a new frame.
    pub fn record(&mut self, is_new: bool) {
        let bytes = if is_new { self.bytes / 2 } else { self.bytes * 2 };
        self.bytes = bytes.clamp(self.min_bytes, self.max_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// An allocator that returns frames in order: at most two or three pages of each frame are taken.
    #[test]
    fn pages_in_order_cost_few_secret_ones() {
        let (frame, page) = (2 << 20, 4096);
        let mut pace = Pace::new(frame, page);
        let (mut at, mut secret, mut frames) = (0u64, 0u64, BTreeSet::new());
        while at < 1000 * frame {
            secret += 1;
            pace.record(frames.insert(at / frame));
            at += page + pace.bytes;
        }
        assert_eq!(frames.len(), 1000, "no frame is left out");
        assert!(secret < 4_000, "{secret}");
    }

    /// Where every page comes from a new frame, nothing is held between pages.
    #[test]
    fn scattered_pages_are_taken_one_by_one() {
        let mut pace = Pace::new(2 << 20, 4096);
        (0..20).for_each(|_| pace.record(false));
        assert_eq!(pace.bytes, 1 << 20);
        (0..20).for_each(|_| pace.record(true));
        assert_eq!(pace.bytes, 4096);
    }
}
