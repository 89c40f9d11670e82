//! Architectures for which there is no guest.

use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use policy::size::PageSize;

use super::KvmError;
use super::program::{Data, Pass, Program};

/// The architecture's name in the kernel.
pub const ARCHITECTURE: &str = std::env::consts::ARCH;
/// A short description of the guest.
pub const GUEST: &str = "no guest";
/// The guest leaf sizes; there are none.
pub const GUEST_LEAVES: &[PageSize] = &[];

fn none() -> KvmError {
    KvmError::Unsupported {
        what: format!("pagelab has no guest for {ARCHITECTURE}"),
        remedy: "x86-64 and arm64 have one".into(),
    }
}

pub fn program(_: &Kvm, _: Data) -> Result<Program, KvmError> {
    Err(none())
}

pub fn prepare(_: &Kvm, _: &VmFd, _: &VcpuFd, _: &Program) -> Result<(), KvmError> {
    Err(none())
}

pub fn set(_: &VcpuFd, _: &Pass) -> Result<(), KvmError> {
    Err(none())
}
