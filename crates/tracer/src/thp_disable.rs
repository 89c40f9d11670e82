//! PR_SET_THP_DISABLE in a program that runs under a policy: which calls stop and are answered by the tracer
//! (`policy::decide`), and which the filter answers by itself.

use std::sync::LazyLock;

use policy::call::pr::{GET_THP_DISABLE as GET, SET_THP_DISABLE as SET, THP_DISABLE_EXCEPT_ADVISED as EXCEPT_ADVISED};

use super::filter::{Condition, Watch};
use super::registers::NATIVE;

/// The calls that stop under a tracer, and those of other ABIs, which the filter answers.
pub fn watches() -> Vec<Watch> {
    // Evaluated here, so that the cost of the check does not count as the program's.
    LazyLock::force(&EXCEPTS_ADVISED);
    let stops = [SET, GET].map(|option| Watch::new(libc::SYS_prctl, [Condition::Equals32(0, option)]));
    stops.into_iter().chain(of_other_abis()).collect()
}

/// The watches for a program without a tracer: the filter itself answers the calls that the tracer would answer. Calls that
/// the kernel refuses are still refused, and PR_GET_THP_DISABLE reports the actual state: 1.
pub fn watches_without_tracer() -> Vec<Watch> {
    let no_more = [Condition::Equals64(3, 0), Condition::Equals64(4, 0)];
    let plain = [Condition::Equals32(0, SET), Condition::Equals64(2, 0)];
    let excepting = [Condition::Equals32(0, SET), Condition::AtLeast(1, 1), Condition::Equals64(2, EXCEPT_ADVISED)];
    let mut watches = vec![Watch::succeeding(libc::SYS_prctl, [plain, no_more].concat())];
    if *EXCEPTS_ADVISED {
        watches.push(Watch::succeeding(libc::SYS_prctl, [&excepting[..], &no_more].concat()));
    }
    watches.extend(of_other_abis());
    watches
}

/// Programs of other ABIs are not traced. Their calls succeed whatever their other arguments are.
fn of_other_abis() -> impl Iterator<Item = Watch> {
    NATIVE.other_prctls.iter().map(|(audit_arch, number)| Watch {
        audit_arch: *audit_arch,
        ..Watch::succeeding(*number, [Condition::Equals32(0, SET)])
    })
}

/// Whether the kernel supports PR_THP_DISABLE_EXCEPT_ADVISED. The only way to find out is to set it, in a process
/// forked for that.
pub static EXCEPTS_ADVISED: LazyLock<bool> = LazyLock::new(|| {
    // SAFETY: the child makes plain system calls only, until it exits without running any code of its parent.
    unsafe {
        match libc::fork() {
            -1 => false,
            0 => libc::_exit(libc::prctl(libc::PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0)),
            child => {
                let mut status = 0;
                while libc::waitpid(child, &raw mut status, 0) == -1 {
                    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                        return false;
                    }
                }
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
});
