// SPDX-License-Identifier: GPL-2.0-or-later
//! The vCPUs of this process by QEMU's numbers, and who may use them when.
//!
//! Each is used by its own thread, and by whoever ends the process. QEMU calls that one while other threads go on: in user
//! emulation no block is executed any more (`qemu_plugin_user_exit`, plugins/core.c, stops all vCPUs and removes the
//! callbacks from the blocks), but a thread may be in a callback of a system call; a vCPU of a whole machine may be in any
//! callback, because devices end the process from one of them (exit(3)). So what may run then is done by
//! [`Vcpus::while_running`], for whose end [`Vcpus::end_all`] waits.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::vcpu::{Current, Vcpu};

/// Most vCPUs at a time, that is threads of the program.
const VCPUS: usize = 1 << 16;

/// A vCPU. Alone in its cache line: others are written by other threads.
#[repr(align(64))]
struct Slot {
    vcpu: AtomicPtr<Vcpu>,
    /// Its thread is in [`Vcpus::while_running`].
    busy: AtomicBool,
    /// Whether others may use it: [`GOES_ON`], [`PARKED`] or [`TAKEN`].
    parked: AtomicU8,
    /// How many blocks had been written when it was parked, or used by another.
    since: AtomicU64,
}

/// The thread executes, or may at any moment.
const GOES_ON: u8 = 0;
/// It is in a call of which nothing is recorded before it returns.
const PARKED: u8 = 1;
/// Another thread uses its vCPU, for which it waits when it returns.
const TAKEN: u8 = 2;
/// Blocks of others after which one of them writes what a parked thread has.
const BLOCKS: u64 = 8;

/// All vCPUs of the process.
pub struct Vcpus {
    slots: [Slot; VCPUS],
    /// Slots from the first to the last that was ever used.
    used: AtomicUsize,
    /// The process ends.
    ended: AtomicBool,
    /// Blocks that threads have written of themselves.
    written: AtomicU64,
}

/// How long the end of the process waits for threads that are in callbacks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether they are out.
const INTERVAL: Duration = Duration::from_micros(200);

impl Vcpus {
    /// None yet.
    pub const fn new() -> Vcpus {
        let slots = [const {
            Slot {
                vcpu: AtomicPtr::new(std::ptr::null_mut()),
                busy: AtomicBool::new(false),
                parked: AtomicU8::new(GOES_ON),
                since: AtomicU64::new(0),
            }
        }; VCPUS];
        Vcpus { slots, used: AtomicUsize::new(0), ended: AtomicBool::new(false), written: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn slot(&self, vcpu: c_uint) -> &Slot {
        &self.slots[vcpu as usize % VCPUS]
    }

    fn used(&self) -> &[Slot] {
        &self.slots[..self.used.load(Ordering::SeqCst)]
    }

    /// The state of a vCPU, for its own thread: a new one where it has none yet.
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn state(&self, vcpu: c_uint, begin: impl FnOnce() -> Vcpu) -> &mut Vcpu {
        let state = self.begun(vcpu).map_or_else(|| self.begin(vcpu, begin()), std::ptr::from_mut);
        // SAFETY: as in `begun`.
        unsafe { &mut *state }
    }

    /// The state of a vCPU that has one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    fn begun(&self, vcpu: c_uint) -> Option<&mut Vcpu> {
        // SAFETY: a vCPU is run by one thread, callbacks do not nest, and each uses one reference at a time.
        unsafe { self.slot(vcpu).vcpu.load(Ordering::Relaxed).as_mut() }
    }

    /// What callbacks use of a vCPU that has a state.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn current(&self, vcpu: c_uint) -> Option<&mut Current> {
        self.begun(vcpu).map(Vcpu::current)
    }

    #[cold]
    fn begin(&self, vcpu: c_uint, state: Vcpu) -> *mut Vcpu {
        let state = Box::into_raw(Box::new(state));
        self.slot(vcpu).vcpu.store(state, Ordering::Release);
        self.used.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
        state
    }

    /// Does something with a vCPU on its thread, and nothing once the process ends.
    pub fn while_running<T>(&self, vcpu: c_uint, work: impl FnOnce() -> T) -> Option<T> {
        let busy = &self.slot(vcpu).busy;
        if vcpu as usize % VCPUS >= self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
        }
        // Either this sees that the process ends, or `end_all` sees that the thread is busy.
        busy.swap(true, Ordering::SeqCst);
        let done = (!self.ended.load(Ordering::SeqCst)).then(work);
        busy.store(false, Ordering::Release);
        done
    }

    /// A thread is in a call of which nothing is recorded before it returns, which may take any time: until
    /// [`Vcpus::unpark`] others may use its vCPU. What it has and has not written others would wait for who read the file.
    pub fn park(&self, vcpu: c_uint) {
        let slot = self.slot(vcpu);
        slot.since.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        slot.parked.store(PARKED, Ordering::Release);
    }

    /// The call has returned. Waits for who uses the vCPU.
    pub fn unpark(&self, vcpu: c_uint) {
        let parked = &self.slot(vcpu).parked;
        while parked.load(Ordering::Relaxed) != GOES_ON
            && parked.compare_exchange(PARKED, GOES_ON, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            std::thread::sleep(INTERVAL);
        }
    }

    /// A thread has written a block: shows the vCPUs of threads that have been parked for some blocks.
    pub fn while_parked(&self, mut each: impl FnMut(&mut Vcpu)) {
        let written = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        for slot in self.used().iter().filter(|slot| slot.parked.load(Ordering::Relaxed) == PARKED) {
            let is_old = written.saturating_sub(slot.since.load(Ordering::Relaxed)) > BLOCKS;
            if is_old && slot.parked.compare_exchange(PARKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: made by `begin`; its thread waits until it is no longer taken, and so does the end of the process.
                if let Some(vcpu) =
                    unsafe { slot.vcpu.load(Ordering::Acquire).as_mut() }.filter(|vcpu| !vcpu.is_empty())
                {
                    each(vcpu);
                }
                slot.since.store(written, Ordering::Relaxed);
                slot.parked.store(PARKED, Ordering::Release);
            }
        }
    }

    /// A vCPU whose thread has ended, for that thread.
    pub fn take(&self, vcpu: c_uint) -> Option<Box<Vcpu>> {
        let state = self.slot(vcpu).vcpu.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: made by `begin`, and taken out just now.
        (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
    }

    /// Shows every vCPU when the process ends, and lets no other callback use one from then on. Gives how many are left
    /// out, because their threads do not come out of theirs.
    pub fn end_all(&self, mut each: impl FnMut(&mut Vcpu)) -> usize {
        self.ended.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        let mut left_out = 0;
        for slot in self.used() {
            let is_used = || slot.busy.load(Ordering::SeqCst) || slot.parked.load(Ordering::SeqCst) == TAKEN;
            while is_used() && begin.elapsed() < PATIENCE {
                std::thread::sleep(INTERVAL);
            }
            let is_busy = is_used();
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
    pub fn forget_others(&self, vcpu: c_uint) {
        self.ended.store(false, Ordering::SeqCst);
        for other in self.used().iter().filter(|other| !std::ptr::eq(*other, self.slot(vcpu))) {
            other.vcpu.store(std::ptr::null_mut(), Ordering::Relaxed);
            other.busy.store(false, Ordering::Relaxed);
            other.parked.store(GOES_ON, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    static VCPUS: Vcpus = Vcpus::new();

    #[test]
    fn the_end_waits_for_who_is_in_a_callback_and_lets_nobody_in() {
        let ((inside, is_inside), (leave, may_leave)) = (channel(), channel::<()>());
        let callback = std::thread::spawn(move || {
            VCPUS.while_running(7, || {
                inside.send(()).unwrap();
                may_leave.recv().unwrap();
            })
        });
        is_inside.recv().unwrap();
        let end = std::thread::spawn(|| VCPUS.end_all(|_| unreachable!("there is no vCPU")));
        while !VCPUS.ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Another thread is not let in, and the first is waited for.
        assert_eq!(VCPUS.while_running(8, || ()), None);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!end.is_finished());
        leave.send(()).unwrap();
        assert_eq!(callback.join().unwrap(), Some(()));
        assert_eq!(end.join().unwrap(), 0);
        // A forked process begins anew.
        VCPUS.forget_others(7);
        assert_eq!(VCPUS.while_running(8, || ()), Some(()));
    }
}
