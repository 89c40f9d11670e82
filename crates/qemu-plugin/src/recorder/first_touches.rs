// SPDX-License-Identifier: GPL-2.0-or-later
//! The times of first touches, for programs in which the order of touches matters.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use trace::{Kind, page_of};

use super::Recorder;
use crate::vcpu::Vcpu;

/// Timestamps and events are written when there are this many.
const MAX_NOTED_WITH_TIMES: usize = 1 << 14;

impl Recorder {
    /// Records times from now on: the thread is about to create a thread or process, or was forked.
    pub fn record_times(&self, vcpu: &mut Vcpu) {
        if !self.plan.header.system {
            self.is_timed.store(true, Ordering::Relaxed);
            self.lock().record_times();
            vcpu.detect_first_touches();
        }
    }

    /// Whether times are recorded.
    pub fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    /// Records the time if this access of `bytes` bytes is the thread's first touch of one of its at most two pages.
    #[inline]
    pub fn touch(&self, vcpu: &mut Vcpu, address: u64, bytes: u64, kind: Kind) {
        if vcpu.detects_first_touches() {
            self.record_first_touch(vcpu, address, bytes, kind);
        }
    }

    fn record_first_touch(&self, vcpu: &mut Vcpu, address: u64, bytes: u64, kind: Kind) {
        if !vcpu.is_recording() {
            return;
        }
        let (first, last) = (page_of(address), page_of(address.wrapping_add(bytes.max(1) - 1)));
        let is_first = [vcpu.touch(first, kind), vcpu.touch(last, kind)];
        if is_first.contains(&true) {
            let mut unwritten = self.lock();
            unwritten.time(vcpu.thread, vcpu.place());
            if unwritten.count() >= MAX_NOTED_WITH_TIMES || unwritten.has_end() {
                self.attempt(&mut unwritten, |_| Ok(()));
            }
        }
    }

    /// Notes that memory is removed, so that the next touch of it is a first touch.
    pub fn forget(&self, vcpu: &mut Vcpu, ranges: Vec<Range<u64>>) {
        if vcpu.detects_first_touches() && !ranges.is_empty() {
            let mut freed_ranges = self.freed_ranges.lock().unwrap_or_else(PoisonError::into_inner);
            freed_ranges.add(ranges);
            vcpu.forget(&freed_ranges);
        }
    }
}
