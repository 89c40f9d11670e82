//! Guests on /dev/kvm, as far as dirty logging needs them: memory slots, vCPUs that touch pages, the log, and the number of
//! leaves that map the slots.
//!
//! A guest has no kernel. It is a loop that touches one word of each page and then stores to an address without memory, its
//! *doorbell*, which ends a pass. All timing of phases is done here, directly around the calls, so that nothing else is included.
//!
//! A machine consists of file descriptors and mappings of this process: when the process ends, in whatever way, the kernel frees
//! all of it.
//!
//! Sources: Documentation/virt/kvm/api.rst for the calls, arch/x86/kvm/mmu/mmu.c and tdp_mmu.c for their effect on leaves,
//! arch/arm64/kvm/mmu.c for arm64.

mod backing;
mod bitmap;
mod calls;
mod capabilities;
mod draw;
mod error;
mod machine;
mod parameters;
// `program` has the guests of both architectures, and the tests build both.
#[allow(dead_code)]
mod program;
mod request;
mod statistics;
mod vcpu;

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "other.rs")]
mod processor;

pub use host::kvm_statistics::{Leaves, StatisticsError};

pub use backing::{GuestMemory, HostBacking};
pub use draw::RandomWrites;
pub use error::KvmError;
pub use machine::Machine;
pub use parameters::{EagerSplit, Parameters};
pub use processor::{ARCHITECTURE, GUEST, GUEST_LEAVES};
pub use request::{Clearing, Request, SplitChunk};
pub use vcpu::Access;
