//! KVM's binary statistics of a VM (KVM_GET_STATS_FD).

use std::fs::File;

use host::kvm_statistics::{self, Leaves};

use super::{KvmError, calls};

/// The statistics of one VM.
#[derive(Debug)]
pub struct Statistics(File);

impl Statistics {
    pub fn new(file: File) -> Statistics {
        Statistics(file)
    }

    /// Makes an ioctl that no driver handles.
    pub fn ioctl_without_effect(&self) {
        // The kernel is expected to refuse the ioctl.
        let _ = calls::ioctl_without_handler(&self.0);
    }

    /// The current number of leaves; `None` where this KVM does not count them.
    pub fn leaves(&self) -> Result<Option<Leaves>, KvmError> {
        let bytes =
            kvm_statistics::read(&self.0).map_err(|error| KvmError::refused("reading the VM's statistics", error))?;
        kvm_statistics::leaves(&bytes).map_err(KvmError::Statistics)
    }
}
