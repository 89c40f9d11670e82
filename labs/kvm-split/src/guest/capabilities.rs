//! Capabilities of this host's KVM, which are checked and enabled before the virtual machine has any memory.

use std::io;

use kvm_bindings::{
    KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE, KVM_CAP_ARM_SUPPORTED_BLOCK_SIZES, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
    KVM_CAP_MAX_VCPUS, KVM_CAP_NR_MEMSLOTS, KVM_DIRTY_LOG_INITIALLY_SET, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE,
    kvm_enable_cap,
};
use kvm_ioctls::{Kvm, VmFd};
use policy::size::format_bytes;

use super::{Clearing, KvmError, Request, SplitChunk};

/// Converts KVM's refusal of a call to an error.
pub fn refused(call: &'static str) -> impl Fn(kvm_ioctls::Error) -> KvmError {
    move |error| KvmError::refused(call, io::Error::from_raw_os_error(error.errno()))
}

/// An error about something that this KVM lacks, with a remedy.
pub fn unsupported(what: String, remedy: impl Into<String>) -> KvmError {
    KvmError::Unsupported { what, remedy: remedy.into() }
}

/// Checks that /dev/kvm is KVM (Documentation/virt/kvm/api.rst, KVM_GET_API_VERSION).
pub fn check_version(kvm: &Kvm) -> Result<(), KvmError> {
    const VERSION: i32 = 12;
    match kvm.get_api_version() {
        VERSION => Ok(()),
        found => Err(unsupported(
            format!("/dev/kvm: expected KVM's API in version {VERSION}, found {found}"),
            "it may be another device under that name: `ls -l /dev/kvm` should show major 10, minor 232",
        )),
    }
}

/// Refuses more slots or vCPUs than this KVM supports.
pub fn check_counts(vm: &VmFd, request: &Request) -> Result<(), KvmError> {
    let max = |capability: u32| u32::try_from(vm.check_extension_raw(capability.into())).unwrap_or(0);
    // One slot is for the image with the loop.
    let max_slots = max(KVM_CAP_NR_MEMSLOTS).saturating_sub(1);
    for (option, requested, max) in
        [("--slots", request.slots, max_slots), ("--vcpus", request.vcpus, max(KVM_CAP_MAX_VCPUS))]
    {
        if requested > max {
            return Err(unsupported(
                format!("{option} {requested}: this KVM has at most {max}"),
                format!("fewer {option}"),
            ));
        }
    }
    Ok(())
}

fn enable(vm: &VmFd, cap: u32, value: u64, name: &'static str) -> Result<(), KvmError> {
    let capability = kvm_enable_cap { cap, args: [value, 0, 0, 0], ..Default::default() };
    vm.enable_cap(&capability).map_err(refused(name))
}

/// Selects which call clears the log.
pub fn clear_by(vm: &VmFd, clearing: Clearing) -> Result<(), KvmError> {
    if clearing == Clearing::ByGet {
        return Ok(());
    }
    let both = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET;
    let offered = vm.check_extension_raw(KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2.into());
    if u32::try_from(offered).unwrap_or(0) & both != both {
        let what = format!(
            "this KVM cannot clear its log by hand with all pages dirty at first \
             (KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 is {offered}, expected 3; Linux 5.8)"
        );
        return Err(unsupported(what, "--mode enable"));
    }
    enable(vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, both.into(), "enabling KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2")
}

/// Sets the chunk size; KVM accepts it only while there is no slot.
pub fn set_split_chunk(vm: &VmFd, chunk: Option<SplitChunk>) -> Result<(), KvmError> {
    let Some(SplitChunk(bytes)) = chunk else { return Ok(()) };
    let offered = chunk_sizes(vm.check_extension_raw(KVM_CAP_ARM_SUPPORTED_BLOCK_SIZES.into()));
    check_chunk(bytes, &offered)?;
    enable(vm, KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE, bytes, "enabling KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE")
}

/// The chunk sizes that KVM offers: KVM_CAP_ARM_SUPPORTED_BLOCK_SIZES has one bit for each.
fn chunk_sizes(bits: i32) -> Vec<u64> {
    let bits = u32::try_from(bits).unwrap_or(0);
    (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1).map(|bit| 1 << bit).collect()
}

fn check_chunk(bytes: u64, offered: &[u64]) -> Result<(), KvmError> {
    if offered.is_empty() {
        let what = "this KVM has no KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE: it needs arm64 and Linux 6.5".into();
        return Err(unsupported(what, "leave out --split-chunk; x86 splits as kvm.eager_page_split says"));
    }
    // 0 disables eager splitting.
    if bytes != 0 && !offered.contains(&bytes) {
        let sizes: Vec<String> = offered.iter().map(|size| format_bytes(*size)).collect();
        let what = format!("--split-chunk {}: this KVM offers {}", format_bytes(bytes), sizes.join(", "));
        return Err(unsupported(what, "one of these, or 0 for none"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_chunk_sizes_that_kvm_offers() {
        // The sizes that arm64 offers with 4K pages (4K, 2M, 1G), then with 64K pages.
        assert_eq!(chunk_sizes(0x4020_1000), [4 << 10, 2 << 20, 1 << 30]);
        assert_eq!(chunk_sizes(0x2001_0000), [64 << 10, 512 << 20]);
        assert!(chunk_sizes(0).is_empty());
        assert!(chunk_sizes(-1).is_empty());
    }

    #[test]
    fn refuses_a_chunk_that_kvm_does_not_offer() {
        let offered = chunk_sizes(0x4020_1000);
        assert!(check_chunk(2 << 20, &offered).is_ok() && check_chunk(0, &offered).is_ok());
        let error = check_chunk(4 << 20, &offered).unwrap_err().to_string();
        assert!(error.contains("--split-chunk 4M") && error.contains("4K, 2M, 1G"), "{error}");
        let error = check_chunk(2 << 20, &[]).unwrap_err().to_string();
        assert!(error.contains("needs arm64"), "{error}");
    }
}
