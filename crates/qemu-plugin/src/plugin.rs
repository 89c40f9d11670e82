// SPDX-License-Identifier: GPL-2.0-or-later
//! The state of the plugin in this process. QEMU's callbacks get no pointer to it, so it is one static value. It is all zeros
//! initially, so it takes no room in the plugin's file; values created later are never freed.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::api::Api;
use crate::guest_memory::ProgramMemory;
use crate::guest_memory::ram::Ram;
use crate::processors::Processors;
use crate::recorder::Recorder;
use crate::reported::AccessInfoCache;
use crate::vcpu::{Current, Vcpu};
use crate::vcpus::Vcpus;

pub static PLUGIN: Plugin = Plugin::new();

/// The fields are set during installation and while the process runs.
pub struct Plugin {
    api: AtomicPtr<Api>,
    /// The recorder of this process. A forked process gets a new one, because the locks of the old one may be held.
    recorder: AtomicPtr<Recorder>,
    /// Number of events of all threads. Threads compare it with the number that they have seen.
    pub events: AtomicU64,
    /// Cached information from QEMU about accesses.
    pub access_info_cache: AccessInfoCache,
    /// The threads of a program, or the processors of a machine.
    pub vcpus: Vcpus,
    /// The state of a program.
    pub program: Program,
    /// The memory of a machine. It is known when the machine begins, which is later than the plugin is loaded.
    ram: AtomicPtr<Ram>,
    /// Held while the memory is being read.
    finding_ram: Mutex<()>,
    /// The state of a machine's processors.
    pub processors: Processors,
}

/// The state of a program.
pub struct Program {
    /// Whether its instruction set is x86-64.
    pub is_x86_64: AtomicBool,
    /// Whether its first translation was seen.
    pub has_begun: AtomicBool,
    /// Host address of its address 0.
    pub base: AtomicU64,
    /// Begin and end of its heap, from results of `brk`; 0 before the first.
    pub heap: [AtomicU64; 2],
}

impl Program {
    /// Access to its memory in this process.
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
            access_info_cache: AccessInfoCache::new(),
            vcpus: Vcpus::new(),
            program: Program {
                is_x86_64: AtomicBool::new(false),
                has_begun: AtomicBool::new(false),
                base: AtomicU64::new(0),
                heap: [const { AtomicU64::new(0) }; 2],
            },
            ram: AtomicPtr::new(std::ptr::null_mut()),
            finding_ram: Mutex::new(()),
            processors: Processors::new(),
        }
    }

    /// Sets QEMU's functions.
    pub fn set_api(&self, api: Api) {
        set(&self.api, api);
    }

    /// QEMU's functions.
    pub fn api(&self) -> &'static Api {
        get(&self.api).expect("callbacks come after the installation")
    }

    /// Sets the recorder to use from now on. The previous one is not freed, because a callback may still use it.
    pub fn set_recorder(&self, recorder: Recorder) {
        set(&self.recorder, recorder);
    }

    pub fn recorder(&self) -> &'static Recorder {
        get(&self.recorder).expect("callbacks come after the installation")
    }

    /// The memory of a machine; the first caller reads it.
    pub fn ram(&self, find: impl FnOnce() -> Ram) -> &'static Ram {
        get(&self.ram).unwrap_or_else(|| {
            let _alone = self.finding_ram.lock().unwrap_or_else(PoisonError::into_inner);
            get(&self.ram).unwrap_or_else(|| set(&self.ram, find()))
        })
    }

    /// The state of a vCPU; only its own thread may call this.
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn state(&self, vcpu: c_uint) -> &mut Vcpu {
        self.vcpus.state(vcpu, || self.recorder().begin_thread())
    }

    /// The part of a vCPU's state that callbacks use, if the vCPU has a state.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "what a thread is given is its own")]
    pub fn current(&self, vcpu: c_uint) -> Option<&mut Current> {
        self.vcpus.current(vcpu)
    }
}

/// Stores a value that is never freed.
fn set<T: Send + Sync>(place: &AtomicPtr<T>, value: T) -> &'static T {
    let value = Box::leak(Box::new(value));
    place.store(value, Ordering::Release);
    value
}

/// The value that was stored last, if any.
#[inline(always)]
fn get<T: Send + Sync>(place: &AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: only `set` stores there. Its values are never freed, and changed only through shared references.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}
