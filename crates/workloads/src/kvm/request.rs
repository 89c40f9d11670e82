//! What a machine is to be.

use policy::size::PageSize;

use super::HostBacking;

/// Who clears the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// KVM_GET_DIRTY_LOG itself. Everything is write-protected when logging is switched on.
    ByGet,
    /// KVM_CLEAR_DIRTY_LOG, with KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE and KVM_DIRTY_LOG_INITIALLY_SET: every page
    /// counts as dirty in the beginning, and is write-protected when it is cleared.
    ByClear,
}

/// What KVM is to split at a time (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE): arm64 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitChunk(pub u64);

/// A machine to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where its memory comes from.
    pub backing: HostBacking,
    /// Where the process chooses pages itself: multiples of this are where its memory begins.
    pub alignment: PageSize,
    /// Bytes of memory that is logged: whole host pages.
    pub bytes: u64,
    /// Slots that the memory is divided into, as equal as pages allow.
    pub slots: u32,
    /// vCPUs, each with its part of the pages.
    pub vcpus: u32,
    /// The host's base page, which is what one bit of the log stands for.
    pub page: PageSize,
    /// The largest leaves of the guest's own page tables: one of [`GUEST_LEAVES`](super::GUEST_LEAVES).
    pub guest_leaf: PageSize,
    /// Who clears the log.
    pub clearing: Clearing,
    /// What is split at a time; `None`: as KVM has it.
    pub split_chunk: Option<SplitChunk>,
    /// Slots are made by KVM_SET_USER_MEMORY_REGION2.
    pub region2: bool,
}
