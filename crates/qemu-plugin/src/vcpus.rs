// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Vcpus`]: the vCPUs of this process by QEMU's numbers, and which thread may use them when.
//!
//! Each vCPU is used by its own thread and by the thread that ends the process. QEMU calls the plugin in the latter thread
//! while other threads still run. In user emulation no block is executed any more (`qemu_plugin_user_exit`, plugins/core.c,
//! stops all vCPUs and removes the callbacks from the blocks), but a thread may be in a callback of a system call. A vCPU of a
//! whole machine may be in any callback, because devices end the process from one of them (exit(3)). All work that may run then
//! is done by [`Vcpus::while_running`], and [`Vcpus::end_all`] waits for its end.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::vcpu::{Current, Vcpu};

/// The maximum number of vCPUs at a time, that is, threads of the program.
const VCPUS: usize = 1 << 16;

/// A vCPU. It has a cache line of its own, because other threads write the neighbouring slots.
#[repr(align(64))]
struct Slot {
    vcpu: AtomicPtr<Vcpu>,
    /// Whether its thread is in [`Vcpus::while_running`].
    busy: AtomicBool,
    /// Whether other threads may use it: [`RUNNING`], [`PARKED`] or [`TAKEN`].
    parked: AtomicU8,
    /// The number of blocks written when it was parked, or last used by another thread.
    since: AtomicU64,
}

/// The thread executes, or may at any moment.
const RUNNING: u8 = 0;
/// The thread is in a call of which nothing is recorded before it returns.
const PARKED: u8 = 1;
/// Another thread uses its vCPU; the owner waits for it on return.
const TAKEN: u8 = 2;
/// After this many blocks by other threads, one of them writes a parked thread's data.
const PARKED_BLOCKS: u64 = 8;

/// All vCPUs of the process.
pub struct Vcpus {
    slots: [Slot; VCPUS],
    /// Slots from the first to the last that was ever used.
    used: AtomicUsize,
    /// Whether the process is ending.
    ended: AtomicBool,
    /// Number of blocks that threads have written of their own data.
    written: AtomicU64,
}

/// How long the end of the process waits for threads in callbacks.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between checks.
const INTERVAL: Duration = Duration::from_micros(200);

impl Vcpus {
    /// No vCPUs.
    pub const fn new() -> Vcpus {
        let slots = [const {
            Slot {
                vcpu: AtomicPtr::new(std::ptr::null_mut()),
                busy: AtomicBool::new(false),
                parked: AtomicU8::new(RUNNING),
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

    /// The state of a vCPU, created if it does not exist; only its own thread may call this.
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn state(&self, vcpu: c_uint, begin: impl FnOnce() -> Vcpu) -> &mut Vcpu {
        let state = self.existing(vcpu).map_or_else(|| self.begin(vcpu, begin()), std::ptr::from_mut);
        // SAFETY: as in `existing`.
        unsafe { &mut *state }
    }

    /// The state of a vCPU, if it exists.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    fn existing(&self, vcpu: c_uint) -> Option<&mut Vcpu> {
        // SAFETY: a vCPU is run by one thread, callbacks do not nest, and each uses one reference at a time.
        unsafe { self.slot(vcpu).vcpu.load(Ordering::Relaxed).as_mut() }
    }

    /// The part of a vCPU's state that callbacks use, if the vCPU has a state.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn current(&self, vcpu: c_uint) -> Option<&mut Current> {
        self.existing(vcpu).map(Vcpu::current)
    }

    #[cold]
    fn begin(&self, vcpu: c_uint, state: Vcpu) -> *mut Vcpu {
        let state = Box::into_raw(Box::new(state));
        self.slot(vcpu).vcpu.store(state, Ordering::Release);
        self.used.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
        state
    }

    /// Runs `work` on a vCPU's own thread; does nothing once the process is ending.
    pub fn while_running<T>(&self, vcpu: c_uint, work: impl FnOnce() -> T) -> Option<T> {
        let busy = &self.slot(vcpu).busy;
        if vcpu as usize % VCPUS >= self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(vcpu as usize % VCPUS + 1, Ordering::SeqCst);
        }
        // Either this thread sees that the process is ending, or `end_all` sees that the thread is busy.
        busy.swap(true, Ordering::SeqCst);
        let done = (!self.ended.load(Ordering::SeqCst)).then(work);
        busy.store(false, Ordering::Release);
        done
    }

    /// The thread enters a call of which nothing is recorded before it returns, and which may take any time. Until
    /// [`Vcpus::unpark`] other threads may use its vCPU. Otherwise a reader of the file would have to wait for its unwritten
    /// data.
    pub fn park(&self, vcpu: c_uint) {
        let slot = self.slot(vcpu);
        slot.since.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        slot.parked.store(PARKED, Ordering::Release);
    }

    /// The call has returned. Waits for a thread that uses the vCPU.
    pub fn unpark(&self, vcpu: c_uint) {
        let parked = &self.slot(vcpu).parked;
        while parked.load(Ordering::Relaxed) != RUNNING
            && parked.compare_exchange(PARKED, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            std::thread::sleep(INTERVAL);
        }
    }

    /// Called after a thread has written a block: visits the vCPUs of threads that have been parked for some blocks.
    pub fn while_parked(&self, mut each: impl FnMut(&mut Vcpu)) {
        let written = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        for slot in self.used().iter().filter(|slot| slot.parked.load(Ordering::Relaxed) == PARKED) {
            let is_old = written.saturating_sub(slot.since.load(Ordering::Relaxed)) > PARKED_BLOCKS;
            if is_old && slot.parked.compare_exchange(PARKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: made by `begin`; its thread waits until it is no longer taken, and so does the end of the process.
                let vcpu = unsafe { slot.vcpu.load(Ordering::Acquire).as_mut() };
                vcpu.filter(|vcpu| !vcpu.is_empty()).into_iter().for_each(&mut each);
                slot.since.store(written, Ordering::Relaxed);
                slot.parked.store(PARKED, Ordering::Release);
            }
        }
    }

    /// Takes the vCPU of a thread that has ended; only that thread may call this.
    pub fn take(&self, vcpu: c_uint) -> Option<Box<Vcpu>> {
        let state = self.slot(vcpu).vcpu.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: made by `begin`, and taken out just now.
        (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
    }

    /// Visits every vCPU when the process ends, and lets no other callback use one from then on. Returns how many are left out
    /// because their threads do not leave their callbacks.
    pub fn end_all(&self, mut each: impl FnMut(&mut Vcpu)) -> usize {
        self.ended.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        let mut left_out = 0;
        for slot in self.used() {
            let is_used = || slot.busy.load(Ordering::SeqCst) || slot.parked.load(Ordering::SeqCst) == TAKEN;
            while is_used() && begin.elapsed() < END_TIMEOUT {
                std::thread::sleep(INTERVAL);
            }
            let is_busy = is_used();
            // The vCPU is never freed: a callback that has just begun may have read the pointer, and the process ends anyway.
            // SAFETY: made by `begin`; its thread is in no callback, and leaves the next one at once.
            match unsafe { slot.vcpu.load(Ordering::Acquire).as_mut() } {
                Some(_) if is_busy => left_out += 1,
                Some(vcpu) => each(vcpu),
                None => {}
            }
        }
        left_out
    }

    /// Forgets all vCPUs but one, in a forked process, where the other threads do not exist. Their memory is not freed.
    pub fn forget_others(&self, vcpu: c_uint) {
        self.ended.store(false, Ordering::SeqCst);
        for other in self.used().iter().filter(|other| !std::ptr::eq(*other, self.slot(vcpu))) {
            other.vcpu.store(std::ptr::null_mut(), Ordering::Relaxed);
            other.busy.store(false, Ordering::Relaxed);
            other.parked.store(RUNNING, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    static VCPUS: Vcpus = Vcpus::new();

    #[test]
    fn the_end_waits_for_running_callbacks_and_admits_no_more() {
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
        // Other threads are not let in any more, and `end_all` waits for the thread that is already in.
        assert_eq!(VCPUS.while_running(8, || ()), None);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!end.is_finished());
        leave.send(()).unwrap();
        assert_eq!(callback.join().unwrap(), Some(()));
        assert_eq!(end.join().unwrap(), 0);
        // A forked process starts again.
        VCPUS.forget_others(7);
        assert_eq!(VCPUS.while_running(8, || ()), Some(()));
    }
}
