//! Calls that stop under a hugetlb policy in addition to those that map, protect and advise. They lock, name, query or watch parts
//! of memory at base page granularity, or fork.

use crate::filter::{Condition, Watch};

/// _IOWR(0xAA, 0x00, struct uffdio_register) of include/uapi/linux/userfaultfd.h; all supported architectures have
/// the generic encoding.
pub const UFFDIO_REGISTER: u32 = 0xc020_aa00;
/// _IOWR(0xAA, 0x05, struct uffdio_move), since Linux 6.8.
const UFFDIO_MOVE: u32 = 0xc028_aa05;
/// PR_SET_VMA (include/uapi/linux/prctl.h), since Linux 5.17.
const SET_VMA: u32 = 0x5356_4d41;
/// set_mempolicy_home_node, since Linux 5.17; the same number on every architecture.
pub const SET_MEMPOLICY_HOME_NODE: i64 = 450;
/// mseal, since Linux 6.10; the same number on every architecture.
pub const MSEAL: i64 = 462;

pub fn watches() -> Vec<Watch> {
    let always = [
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_mincore,
        libc::SYS_msync,
        libc::SYS_process_madvise,
        SET_MEMPOLICY_HOME_NODE,
        MSEAL,
    ];
    let mut watches: Vec<Watch> = always.map(|number| Watch::new(number, [])).into();
    watches
        .extend([UFFDIO_REGISTER, UFFDIO_MOVE].map(|what| Watch::new(libc::SYS_ioctl, [Condition::Equals32(1, what)])));
    watches.push(Watch::new(libc::SYS_prctl, [Condition::Equals32(0, SET_VMA)]));
    watches.push(Watch::new(libc::SYS_clone, [Condition::Lacks(0, libc::CLONE_VM as u32)]));
    watches.push(Watch::new(libc::SYS_clone3, []));
    #[cfg(target_arch = "x86_64")]
    watches.push(Watch::new(libc::SYS_fork, []));
    watches
}
