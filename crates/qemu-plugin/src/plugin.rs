// SPDX-License-Identifier: GPL-2.0-or-later
//! The state of the plugin in this process, which QEMU's callbacks are not given: one static value holds it. It is all zeros
//! at first, so that it takes no room in the plugin's file, and what is made later stays for ever.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::api::Api;
use crate::guest_memory::ProgramMemory;
use crate::guest_memory::ram::Ram;
use crate::processors::Processors;
use crate::recorder::Recorder;
use crate::told::Told;
use crate::vcpu::{Current, Vcpu};
use crate::vcpus::Vcpus;

/// The state.
pub static PLUGIN: Plugin = Plugin::new();

/// What the plugin knows.
pub struct Plugin {
    api: AtomicPtr<Api>,
    /// The process's recorder. A forked process has another one, whatever the locks of the first were at that moment.
    recorder: AtomicPtr<Recorder>,
    /// How many events of all threads there were. Threads compare it with what they have seen.
    pub events: AtomicU64,
    /// What QEMU has told of accesses.
    pub told: Told,
    /// The threads of a program, or the processors of a machine.
    pub vcpus: Vcpus,
    /// Of a program.
    pub program: Program,
    /// Of a machine: where its memory is, known when it begins, which is later than the plugin is loaded.
    ram: AtomicPtr<Ram>,
    /// Held by who finds that out.
    finding_ram: Mutex<()>,
    /// Of a machine.
    pub processors: Processors,
}

/// What is known of a program.
pub struct Program {
    /// Whether its instruction set is x86-64.
    pub is_x86_64: AtomicBool,
    /// Whether its first translation was seen.
    pub begun: AtomicBool,
    /// Where its address 0 is.
    pub base: AtomicU64,
    /// Where its heap begins and ends, as `brk` has said; 0 before.
    pub heap: [AtomicU64; 2],
}

impl Program {
    /// Its memory, in this process.
    pub fn memory(&self) -> ProgramMemory {
        ProgramMemory { base: self.base.load(Ordering::Relaxed) }
    }
}

impl Plugin {
    const fn new() -> Plugin {
        Plugin {
            api: AtomicPtr::new(std::ptr::null_mut()),
            recorder: AtomicPtr::new(std::ptr::null_mut()),
            events: AtomicU64::new(0),
            told: Told::new(),
            vcpus: Vcpus::new(),
            program: Program {
                is_x86_64: AtomicBool::new(false),
                begun: AtomicBool::new(false),
                base: AtomicU64::new(0),
                heap: [const { AtomicU64::new(0) }; 2],
            },
            ram: AtomicPtr::new(std::ptr::null_mut()),
            finding_ram: Mutex::new(()),
            processors: Processors::new(),
        }
    }

    /// Knows QEMU's functions from now on.
    pub fn set_api(&self, api: Api) {
        set(&self.api, api);
    }

    /// QEMU's functions.
    pub fn api(&self) -> &'static Api {
        get(&self.api).expect("callbacks come after the installation")
    }

    /// Records with this from now on. What was there before stays: a callback may use it.
    pub fn set_recorder(&self, recorder: Recorder) {
        set(&self.recorder, recorder);
    }

    /// The process's recorder.
    pub fn recorder(&self) -> &'static Recorder {
        get(&self.recorder).expect("callbacks come after the installation")
    }

    /// Where a machine's memory is, which the first to ask finds out.
    pub fn ram(&self, find: impl FnOnce() -> Ram) -> &'static Ram {
        get(&self.ram).unwrap_or_else(|| {
            let _alone = self.finding_ram.lock().unwrap_or_else(PoisonError::into_inner);
            get(&self.ram).unwrap_or_else(|| set(&self.ram, find()))
        })
    }

    /// The state of a vCPU, for its own thread.
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn state(&self, vcpu: c_uint) -> &mut Vcpu {
        self.vcpus.state(vcpu, || self.recorder().begin_thread())
    }

    /// What callbacks use of a vCPU that has a state.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn current(&self, vcpu: c_uint) -> Option<&mut Current> {
        self.vcpus.current(vcpu)
    }
}

/// Keeps a value for ever.
fn set<T: Send + Sync>(place: &AtomicPtr<T>, value: T) -> &'static T {
    let value = Box::leak(Box::new(value));
    place.store(value, Ordering::Release);
    value
}

/// The value that was kept last, if there is one.
#[inline(always)]
fn get<T: Send + Sync>(place: &AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: `set` alone stores there, what is never freed and never changed but through shared references.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}
