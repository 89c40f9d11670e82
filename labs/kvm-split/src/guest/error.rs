//! Errors of guests, with remedies.

use std::io;

use host::kvm_statistics::StatisticsError;
use policy::size::PageSize;

/// A guest could not be created or did not behave as expected.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    #[error("cannot open /dev/kvm: {source}; {remedy}")]
    NoDevice {
        /// The error of open.
        source: io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    #[error("{what}; {remedy}")]
    Unsupported {
        /// The missing feature.
        what: String,
        /// How to remedy it.
        remedy: String,
    },
    /// A hugetlb pool has too few free pages.
    #[error(
        "the pool of {size} pages lacks the {pages} free pages that the guest's memory takes: {source}; as root echo \
         {pages} > /sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages, or let pagelab reserve them: pagelab exec -p \
         hugetlb-{} -- pagelab workload kvm-dirty-log, whose memory is that of the policy",
        size.to_string().to_lowercase(),
        kb = size.bytes() >> 10,
    )]
    Pool {
        /// Page size of the pool.
        size: PageSize,
        /// Number of pages that are needed.
        pages: u64,
        source: io::Error,
    },
    #[error("{call}: {source}; {remedy}")]
    Refused {
        /// The call and its object.
        call: String,
        source: io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    #[error("cannot map {bytes} bytes of guest memory: {source}; fewer --bytes, or a higher `ulimit -v`")]
    Memory {
        /// Requested size in bytes.
        bytes: u64,
        source: io::Error,
    },
    /// A vCPU stopped before its pass was done.
    #[error(
        "vCPU {vcpu} stopped inside the guest's loop: expected a store to its doorbell, found {exit}; the host's KVM \
         does not run this guest (dmesg may say more)"
    )]
    Guest {
        /// Index of the vCPU.
        vcpu: usize,
        /// The reason for its exit.
        exit: String,
    },
    /// The guest's page tables could not be built.
    #[error("the guest cannot address its memory: {0}; fewer bytes")]
    Tables(String),
    /// KVM's binary statistics have an unexpected format.
    #[error(
        "KVM's statistics: {0}: expected the format in Documentation/virt/kvm/api.rst (KVM_GET_STATS_FD); the \
         kernel may be newer than this program"
    )]
    Statistics(#[source] StatisticsError),
    /// A page does not hold what the guest wrote to it.
    #[error(
        "page {page} of the guest: expected {expected:#018x}, found {found:#018x}; the guest did not write it, or the \
         host lost it"
    )]
    Page {
        /// The page, counted from the first slot.
        page: u64,
        /// The value that the guest had to write.
        expected: u64,
        /// The value that was found.
        found: u64,
    },
}

impl KvmError {
    /// Whether this host, as it is configured, cannot run the guest at all.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, KvmError::NoDevice { .. } | KvmError::Unsupported { .. } | KvmError::Pool { .. })
    }

    pub(super) fn no_device(source: io::Error) -> KvmError {
        let remedy = match source.raw_os_error() {
            Some(libc::ENOENT) => {
                "this kernel has no KVM, its module is not loaded (modprobe kvm_intel or kvm_amd), or this is a virtual \
                 machine without nested virtualisation, which its host must allow"
            }
            Some(libc::EACCES | libc::EPERM) => "run as root, or as a member of the group that owns it (usually kvm)",
            Some(libc::ENODEV | libc::ENXIO) => "the processor's virtualisation is off: switch it on in the firmware",
            _ => "`ls -l /dev/kvm` and dmesg say more",
        };
        KvmError::NoDevice { source, remedy }
    }

    pub(super) fn refused(call: impl Into<String>, error: impl Into<io::Error>) -> KvmError {
        let source = error.into();
        let remedy = match source.raw_os_error() {
            Some(libc::EBUSY) => "another hypervisor may hold the processor's virtualisation: stop it",
            Some(libc::ENOMEM) => "too little memory, or a limit (`ulimit -v`, the cgroup's memory.max): fewer --bytes",
            Some(libc::EFAULT) => "the host could not give the guest a page: free memory, or fewer --bytes",
            Some(libc::EAGAIN) => "too many threads (`ulimit -u`, the cgroup's pids.max), or no memory: fewer --vcpus",
            Some(libc::EMFILE | libc::ENFILE) => "raise `ulimit -n`",
            Some(libc::EPERM | libc::EACCES) => "a security module or a seccomp filter forbids it",
            _ => "dmesg may say more",
        };
        KvmError::Refused { call: call.into(), source, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_says_what_to_do() {
        for (errno, word) in [
            (libc::ENOENT, "nested virtualisation"),
            (libc::EACCES, "group"),
            (libc::ENODEV, "firmware"),
            (libc::EIO, "dmesg"),
        ] {
            let error = KvmError::no_device(io::Error::from_raw_os_error(errno));
            assert!(error.is_unsupported());
            assert!(error.to_string().contains(word) && error.to_string().contains("/dev/kvm"), "{error}");
        }
    }

    #[test]
    fn refusals_name_the_call_and_are_no_lack() {
        let error = KvmError::refused("KVM_RUN of vCPU 0", io::Error::from_raw_os_error(libc::EFAULT));
        assert!(!error.is_unsupported());
        assert!(
            error.to_string().starts_with("KVM_RUN of vCPU 0: ") && error.to_string().contains("--bytes"),
            "{error}"
        );
    }
}
