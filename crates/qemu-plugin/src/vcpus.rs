// SPDX-License-Identifier: GPL-2.0-or-later
//! The vCPUs of this process by QEMU's numbers, and who may use them when.
//!
//! Each is used by its own thread, and by whoever ends the process. QEMU calls that one while other threads go on: in user
//! emulation no block is executed any more (`qemu_plugin_user_exit`, plugins/core.c, stops all vCPUs and removes the
//! callbacks from the blocks), but a thread may be in a callback of a system call; a vCPU of a whole machine may be in any
//! callback, because devices end the process from one of them (exit(3)). So what may run then is done by
//! [`while_running`], for whose end [`end_all`] waits.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::process::recorder;
use crate::streams::Current;
use crate::vcpu::Vcpu;

/// Most vCPUs at a time, that is threads of the program.
const VCPUS: usize = 1 << 16;

/// A vCPU. Alone in its cache line: others are written by other threads.
#[repr(align(64))]
struct Slot {
    vcpu: AtomicPtr<Vcpu>,
    /// What callbacks use of it.
    current: AtomicPtr<Current>,
    /// Its thread is in [`while_running`].
    busy: AtomicBool,
}

static SLOTS: [Slot; VCPUS] = [const {
    Slot {
        vcpu: AtomicPtr::new(std::ptr::null_mut()),
        current: AtomicPtr::new(std::ptr::null_mut()),
        busy: AtomicBool::new(false),
    }
}; VCPUS];
/// Slots from the first to the last that was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The process ends.
static ENDED: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for threads that are in callbacks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether they are out.
const INTERVAL: Duration = Duration::from_micros(200);

#[inline(always)]
fn slot(vcpu: c_uint) -> &'static Slot {
    &SLOTS[vcpu as usize % VCPUS]
}

fn used() -> &'static [Slot] {
    &SLOTS[..USED.load(Ordering::SeqCst)]
}

/// The state of a vCPU, for its own thread.
pub fn state(vcpu: c_uint) -> &'static mut Vcpu {
    let state = begun(vcpu).map_or_else(|| begin(vcpu), std::ptr::from_mut);
    // SAFETY: as in `begun`.
    unsafe { &mut *state }
}

/// The state of a vCPU that has one.
fn begun(vcpu: c_uint) -> Option<&'static mut Vcpu> {
    // SAFETY: a vCPU is run by one thread, callbacks do not nest, and each uses one reference at a time.
    unsafe { slot(vcpu).vcpu.load(Ordering::Relaxed).as_mut() }
}

/// What callbacks use of a vCPU that has a state.
#[inline(always)]
pub fn current(vcpu: c_uint) -> Option<&'static mut Current> {
    // SAFETY: as in `begun`; it is a part of the state, and changed where that is.
    unsafe { slot(vcpu).current.load(Ordering::Relaxed).as_mut() }
}

/// Must be called where the streams of a vCPU were replaced.
pub fn renew(vcpu: c_uint) {
    let current = begun(vcpu).map_or_else(std::ptr::null_mut, |state| std::ptr::from_mut(state.current()));
    slot(vcpu).current.store(current, Ordering::Relaxed);
}

#[cold]
fn begin(vcpu: c_uint) -> *mut Vcpu {
    let state = Box::into_raw(Box::new(recorder().begin_thread()));
    slot(vcpu).vcpu.store(state, Ordering::Release);
    renew(vcpu);
    USED.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
    state
}

/// Does something with a vCPU on its thread, and nothing once the process ends.
pub fn while_running<T>(vcpu: c_uint, work: impl FnOnce() -> T) -> Option<T> {
    let busy = &slot(vcpu).busy;
    if vcpu as usize % VCPUS >= USED.load(Ordering::Relaxed) {
        USED.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
    }
    // Either this sees that the process ends, or `end_all` sees that the thread is busy.
    busy.swap(true, Ordering::SeqCst);
    let done = (!ENDED.load(Ordering::SeqCst)).then(work);
    busy.store(false, Ordering::Release);
    done
}

/// A vCPU whose thread has ended, for that thread.
pub fn take(vcpu: c_uint) -> Option<Box<Vcpu>> {
    slot(vcpu).current.store(std::ptr::null_mut(), Ordering::Relaxed);
    let state = slot(vcpu).vcpu.swap(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: made by `begin`, and taken out just now.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
}

/// Shows every vCPU when the process ends, and lets no other callback use one from then on. Gives how many are left out,
/// because their threads do not come out of theirs.
pub fn end_all(mut each: impl FnMut(&mut Vcpu)) -> usize {
    ENDED.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let mut left_out = 0;
    for slot in used() {
        while slot.busy.load(Ordering::SeqCst) && begin.elapsed() < PATIENCE {
            std::thread::sleep(INTERVAL);
        }
        let is_busy = slot.busy.load(Ordering::SeqCst);
        // It is never freed: a callback that has just begun may have looked at the pointer, and the process ends anyway.
        // SAFETY: made by `begin`; its thread is in no callback, and leaves the next one at once.
        match unsafe { slot.vcpu.load(Ordering::Acquire).as_mut() } {
            Some(_) if is_busy => left_out += 1,
            Some(vcpu) => each(vcpu),
            None => {}
        }
    }
    left_out
}

/// Forgets all vCPUs but one: in a forked process, where their threads are not. What they own stays unused.
pub fn forget_others(vcpu: c_uint) {
    ENDED.store(false, Ordering::SeqCst);
    for other in used().iter().filter(|other| !std::ptr::eq(*other, slot(vcpu))) {
        other.vcpu.store(std::ptr::null_mut(), Ordering::Relaxed);
        other.current.store(std::ptr::null_mut(), Ordering::Relaxed);
        other.busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// The statics are those of the whole process: one test does it all.
    #[test]
    fn the_end_waits_for_who_is_in_a_callback_and_lets_nobody_in() {
        let ((inside, is_inside), (leave, may_leave)) = (channel(), channel::<()>());
        let callback = std::thread::spawn(move || {
            while_running(7, || {
                inside.send(()).unwrap();
                may_leave.recv().unwrap();
            })
        });
        is_inside.recv().unwrap();
        let end = std::thread::spawn(|| end_all(|_| unreachable!("there is no vCPU")));
        while !ENDED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Another thread is not let in, and the first is waited for.
        assert_eq!(while_running(8, || ()), None);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!end.is_finished());
        leave.send(()).unwrap();
        assert_eq!(callback.join().unwrap(), Some(()));
        assert_eq!(end.join().unwrap(), 0);
        // A forked process begins anew.
        forget_others(7);
        assert_eq!(while_running(8, || ()), Some(()));
    }
}
