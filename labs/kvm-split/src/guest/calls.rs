//! The calls that kvm-ioctls does not have, and KVM_GET_DIRTY_LOG, whose wrapper in kvm-ioctls would allocate and zero a bitmap
//! inside the timed part.
//!
//! Numbers and structures: include/uapi/linux/kvm.h.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use kvm_bindings::{KVMIO, kvm_clear_dirty_log, kvm_dirty_log, kvm_pre_fault_memory};
use kvm_ioctls::{VcpuFd, VmFd};

use super::bitmap;

/// The number of a call, as _IO, _IOW and _IOWR compute it (include/uapi/asm-generic/ioctl.h, which x86 and arm64 use).
const fn number(direction: u32, nr: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | KVMIO << 8 | nr
}

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ_WRITE: u32 = 3;

const GET_DIRTY_LOG: u32 = number(WRITE, 0x42, size_of::<kvm_dirty_log>());
const CLEAR_DIRTY_LOG: u32 = number(READ_WRITE, 0xc0, size_of::<kvm_clear_dirty_log>());
const GET_STATS_FD: u32 = number(NONE, 0xce, 0);
const PRE_FAULT_MEMORY: u32 = number(READ_WRITE, 0xd5, size_of::<kvm_pre_fault_memory>());

fn result(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// KVM_GET_DIRTY_LOG of a slot of `pages` pages.
pub fn get_dirty_log(vm: &VmFd, slot: u32, pages: u64, log: &mut [u64]) -> io::Result<()> {
    assert!(log.len() >= bitmap::words(pages), "a bitmap for {pages} pages");
    let mut argument = kvm_dirty_log { slot, ..Default::default() };
    argument.__bindgen_anon_1.dirty_bitmap = log.as_mut_ptr().cast();
    // SAFETY: the kernel writes one bit for each page of the slot, in whole words, and the slice is long enough.
    result(unsafe { libc::ioctl(vm.as_raw_fd(), GET_DIRTY_LOG.into(), &raw const argument) }).map(drop)
}

/// KVM_CLEAR_DIRTY_LOG for the pages that are set in `log`, whose first bit is `first_page`.
pub fn clear_dirty_log(vm: &VmFd, slot: u32, first_page: u64, pages: u64, log: &[u64]) -> io::Result<()> {
    assert!(log.len() >= bitmap::words(pages), "a bitmap for {pages} pages");
    let num_pages = u32::try_from(pages).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut argument = kvm_clear_dirty_log { slot, num_pages, first_page, ..Default::default() };
    argument.__bindgen_anon_1.dirty_bitmap = log.as_ptr().cast_mut().cast();
    // SAFETY: the kernel only reads the bitmap, one bit for each of `pages`, and the slice is long enough.
    result(unsafe { libc::ioctl(vm.as_raw_fd(), CLEAR_DIRTY_LOG.into(), &raw const argument) }).map(drop)
}

/// KVM_GET_STATS_FD of the VM.
pub fn statistics(vm: &VmFd) -> io::Result<File> {
    // SAFETY: the call has no argument.
    let descriptor = result(unsafe { libc::ioctl(vm.as_raw_fd(), GET_STATS_FD.into(), 0) })?;
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// An ioctl without effect: the statistics file of a VM has no ioctl handler (`kvm_vm_stats_fops`, virt/kvm/kvm_main.c), so the
/// kernel returns ENOTTY where it would call a driver.
pub fn ioctl_without_handler(statistics: &File) -> io::Result<()> {
    /// A call of /dev/kvm, which has no argument and no effect either.
    const GET_API_VERSION: u32 = number(NONE, 0, 0);
    // SAFETY: the call has no argument.
    result(unsafe { libc::ioctl(statistics.as_raw_fd(), GET_API_VERSION.into(), 0) }).map(drop)
}

/// KVM_PRE_FAULT_MEMORY for a range of guest memory, repeated until all of it is mapped.
pub fn pre_fault(vcpu: &VcpuFd, gpa: u64, bytes: u64) -> io::Result<()> {
    let mut argument = kvm_pre_fault_memory { gpa, size: bytes, ..Default::default() };
    while argument.size > 0 {
        // SAFETY: the kernel reads and writes the structure and nothing else.
        let done = result(unsafe { libc::ioctl(vcpu.as_raw_fd(), PRE_FAULT_MEMORY.into(), &raw mut argument) });
        match done.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::EINTR | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_file_handles_no_ioctl() {
        let Ok(vm) = kvm_ioctls::Kvm::new().and_then(|kvm| kvm.create_vm()) else {
            testing::skip("/dev/kvm");
            return;
        };
        let error = ioctl_without_handler(&statistics(&vm).unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!(GET_DIRTY_LOG, 0x4010_ae42);
        assert_eq!(CLEAR_DIRTY_LOG, 0xc018_aec0);
        assert_eq!(GET_STATS_FD, 0xaece);
        assert_eq!(PRE_FAULT_MEMORY, 0xc040_aed5);
    }
}
