//! [`Collapsed`]: the result of asking the kernel to collapse a region.

use std::collections::BTreeMap;

/// The result of MADV_COLLAPSE on one region.
#[derive(Clone, Debug, PartialEq)]
pub struct Collapsed {
    /// The first address of the region.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Bytes in the slots that the kernel was asked to collapse.
    pub asked_bytes: u64,
    /// Duration in seconds.
    pub took_s: f64,
    /// Number of slots that the kernel refused, by error number.
    pub refused: BTreeMap<i32, u64>,
}

/// The meaning of an error number of MADV_COLLAPSE (`madvise_collapse_errno`, mm/khugepaged.c).
pub fn collapse_refusal(errno: i32) -> String {
    let why = match errno {
        1 => "EPERM: it needs CAP_SYS_NICE and permission to trace the process",
        3 => "ESRCH: the process has ended",
        11 => "EAGAIN: pages are pinned, locked or not on an LRU list at the moment",
        12 => "ENOMEM: no free block of that size, or part of the range is not mapped",
        14 => "EFAULT: the memory is not the process's own",
        16 => "EBUSY: the control group's limit, or nothing present in the slot",
        22 => {
            "EINVAL: not eligible (protection, MADV_NOHUGEPAGE, kind of memory, or a cut in the slot), nothing mapped in the slot, or a kernel before 6.1"
        }
        _ => return format!("errno {errno}"),
    };
    why.to_string()
}
