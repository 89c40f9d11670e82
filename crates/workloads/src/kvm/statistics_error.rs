//! Errors in the format of KVM's statistics file.

/// Bytes of `struct kvm_stats_header`.
pub const HEADER_BYTES: usize = 24;

/// An error in the format of the statistics file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatisticsError {
    /// There are more descriptors than an address can count.
    #[error("{count} descriptors with names of {name_bytes} bytes")]
    Descriptors {
        /// Number of descriptors according to the header.
        count: usize,
        /// Length of each name in bytes.
        name_bytes: usize,
    },
    /// The file ends before something that it refers to.
    #[error("there are {bytes} bytes{}, and {needed_bytes} at {at} are needed", less_than_header(*bytes))]
    Short {
        /// Length of the file in bytes.
        bytes: usize,
        /// Offset of the missing data.
        at: usize,
        /// Length of the missing data in bytes.
        needed_bytes: usize,
    },
}

fn less_than_header(bytes: usize) -> &'static str {
    if bytes < HEADER_BYTES { ", less than the header" } else { "" }
}
