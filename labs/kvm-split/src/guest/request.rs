//! [`Request`]: the properties of a virtual machine to be made.

use policy::size::PageSize;

use super::HostBacking;

/// Which call clears the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// KVM_GET_DIRTY_LOG itself. All pages are write-protected when logging is switched on.
    ByGet,
    /// KVM_CLEAR_DIRTY_LOG, with KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE and KVM_DIRTY_LOG_INITIALLY_SET: every page is dirty at
    /// first, and is write-protected when it is cleared.
    ByClear,
}

/// How many bytes KVM splits at a time (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE); arm64 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitChunk(pub u64);

/// The properties of a machine to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The memory that backs the guest.
    pub backing: HostBacking,
    /// Alignment of the memory, if the process chooses the page size itself.
    pub alignment: PageSize,
    /// Bytes of logged memory: whole host pages.
    pub bytes: u64,
    /// Number of slots that divide the memory, as equally as pages allow.
    pub slots: u32,
    /// Number of vCPUs, each with its part of the pages.
    pub vcpus: u32,
    /// The host's base page; one bit of the log represents one such page.
    pub page: PageSize,
    /// The largest leaves in the guest's own page tables: one of [`GUEST_LEAVES`](super::GUEST_LEAVES).
    pub guest_leaf: PageSize,
    /// Which call clears the log.
    pub clearing: Clearing,
    /// How much KVM splits at a time; `None`: KVM's default.
    pub split_chunk: Option<SplitChunk>,
    /// Whether slots are made by KVM_SET_USER_MEMORY_REGION2.
    pub region2: bool,
}
