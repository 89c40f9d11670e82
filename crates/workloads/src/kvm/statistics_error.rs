//! What can be wrong with the file of KVM's statistics.

/// Bytes of `struct kvm_stats_header`.
pub const HEADER_BYTES: usize = 24;

/// What is wrong with the file of the statistics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatisticsError {
    /// More descriptors than addresses can tell.
    #[error("{count} descriptors with names of {name_bytes} bytes")]
    Descriptors {
        /// How many the header tells of.
        count: usize,
        /// Bytes of each name.
        name_bytes: usize,
    },
    /// The file ends before what it tells of.
    #[error("there are {bytes} bytes{}, and {needed_bytes} at {at} are needed", less_than_header(*bytes))]
    Short {
        /// Bytes of the file.
        bytes: usize,
        /// Where something is to be.
        at: usize,
        /// How long that is.
        needed_bytes: usize,
    },
}

fn less_than_header(bytes: usize) -> &'static str {
    if bytes < HEADER_BYTES { ", less than the header" } else { "" }
}
