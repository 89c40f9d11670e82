// SPDX-License-Identifier: GPL-2.0-or-later
//! The processors of a machine: how many are at work, and of how many of them all is recorded that was asked for.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::recorder::Recorder;

/// Processors that have executed something.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
/// Those of them of which as much is recorded as was asked for.
static COMPLETE: AtomicUsize = AtomicUsize::new(0);

/// A processor is about to execute its first instruction.
pub fn begins() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

/// As much is recorded of a processor as was asked for. Where that is true of each one that was ever at work, nothing more
/// will be: pagelab is told, and ends the machine.
pub fn is_complete(recorder: &Recorder) {
    let complete = COMPLETE.fetch_add(1, Ordering::SeqCst) + 1;
    if recorder.header.system && complete >= BEGUN.load(Ordering::SeqCst) {
        recorder.say_complete();
    }
}
