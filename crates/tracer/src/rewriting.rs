//! What the tracer does to the memory calls of a program under a policy, as data, and the calls that
//! must therefore stop.

use std::ops::Deref;

use policy::call::madv;
use policy::call::map::LEFT_ALONE;
use policy::{Mechanism, PageSizes, Policy};

use super::filter::{Condition, Watch};
use super::pace::Pace;

/// How the memory calls of a program are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewriting {
    /// What the policy is in terms of calls.
    mechanism: Mechanism,
    /// Where the calls only stop, and nothing is done: how often the policy was seen to do something there.
    pub sham: Option<Pace>,
}

/// A rewriting is a mechanism of which a part may be sham.
impl Deref for Rewriting {
    type Target = Mechanism;

    fn deref(&self) -> &Mechanism {
        &self.mechanism
    }
}

impl Rewriting {
    /// What a policy asks for. `page_sizes` is the kernel's; a size that it lacks was refused before.
    pub fn of(policy: &Policy, page_sizes: &PageSizes) -> Rewriting {
        Rewriting { mechanism: Mechanism::of(policy, page_sizes), sham: None }
    }

    /// The stops of a policy, with nothing done at them, for a program with the memory of another one, which needs none.
    pub fn sham(stops: &Policy, ground: &Policy, page_sizes: &PageSizes, pace: Pace) -> Rewriting {
        let disable_thp = Mechanism::of(ground, page_sizes).disable_thp;
        let mechanism = Mechanism { disable_thp, ..Mechanism::of(stops, page_sizes) };
        Rewriting { mechanism, sham: Some(pace) }
    }

    /// What is done to calls that stop: under a sham nothing, but that the ground's PR_SET_THP_DISABLE stays in force.
    pub fn in_force(&self) -> Mechanism {
        match self.sham {
            Some(_) => Mechanism { advice: None, prefault: false, no_guards: false, hugetlb: false, ..self.mechanism },
            None => self.mechanism,
        }
    }

    /// Whether the program's own calls that turn large pages off are answered and not passed on.
    pub fn wants_large(&self) -> bool {
        self.in_force().wants_large()
    }

    /// The calls that stop for the sake of the policy. A witness has more of them stop (`leaving`).
    pub fn watches(&self) -> Vec<Watch> {
        let mut watches = vec![Watch::new(libc::SYS_ptrace, [])];
        watches.extend(filter_watches());
        let anonymous = Condition::Has(3, libc::MAP_ANONYMOUS as u32);
        let not_left_alone = Condition::Lacks(3, LEFT_ALONE as u32);
        if self.prefault {
            // Reservations, whether without access or without a promise of memory, are not populated.
            let writable = Condition::Has(2, libc::PROT_WRITE as u32);
            let promised = Condition::Lacks(3, libc::MAP_NORESERVE as u32);
            watches.push(Watch::new(libc::SYS_mmap, [anonymous, not_left_alone, writable, promised]));
        }
        if self.hugetlb {
            return [watches, hugetlb_watches(self.large.bytes())].concat();
        }
        if self.advice.is_some() || self.prefault {
            watches.push(Watch::new(libc::SYS_brk, []));
        }
        if self.advice.is_some() {
            // Reservations without access are advised too: what is opened of them later keeps the advice.
            watches.push(Watch::new(
                libc::SYS_mmap,
                [Condition::AtLeast(1, self.advised_bytes()), anonymous, not_left_alone],
            ));
            let piece = Condition::Has(3, (libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u32);
            watches
                .push(Watch::new(libc::SYS_mmap, [Condition::AtLeast(1, self.piece_bytes()), piece, not_left_alone]));
            watches.push(Watch::new(libc::SYS_mremap, [Condition::AtLeast(2, self.advised_bytes())]));
        }
        if self.mechanism.wants_large() || self.disable_thp {
            watches.extend(super::thp_disable::watches());
        }
        if self.mechanism.wants_large() {
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals(2, madv::NOHUGEPAGE as u32)]));
            watches.push(Watch::new(libc::SYS_process_madvise, [Condition::Equals(3, madv::NOHUGEPAGE as u32)]));
        }
        if self.no_guards {
            let over = Condition::Has(3, (libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u32);
            watches.push(Watch::new(libc::SYS_mmap, [Condition::Equals(2, libc::PROT_NONE as u32), over]));
            watches.push(Watch::new(libc::SYS_mprotect, []));
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals(2, madv::GUARD_INSTALL as u32)]));
        }
        watches
    }
}

/// Under hugetlb every call that names a range may name one whose pages are larger than it thinks.
fn hugetlb_watches(large: u64) -> Vec<Watch> {
    let anonymous = Condition::Has(3, libc::MAP_ANONYMOUS as u32);
    let fixed = Condition::Has(3, libc::MAP_FIXED as u32);
    let mut watches = vec![
        Watch::new(libc::SYS_mmap, [Condition::AtLeast(1, large), anonymous]),
        Watch::new(libc::SYS_mmap, [fixed]),
        Watch::new(libc::SYS_mmap, [Condition::Has(3, libc::MAP_FIXED_NOREPLACE as u32)]),
    ];
    let ranges = [
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_pkey_mprotect,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_mbind,
        libc::SYS_brk,
    ];
    watches.extend(ranges.map(|number| Watch::new(number, [])));
    watches.extend(super::hugetlb::watches());
    watches
}

/// Calls with which a program filters its own calls, and so perhaps those that the tracer adds. The tracer's
/// own filter also stands in the way of strict mode.
fn filter_watches() -> [Watch; 2] {
    let prctl = Condition::Equals(0, libc::PR_SET_SECCOMP as u32);
    // Operations 0 and 1 install something, the others ask.
    let installs = Condition::Lacks(0, !1);
    [Watch::new(libc::SYS_seccomp, [installs]), Watch::new(libc::SYS_prctl, [prctl])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::size::PageSize;

    const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    const FILE: u64 = libc::MAP_PRIVATE as u64;
    const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

    fn stops(policy: &str, number: i64, arguments: [u64; 6]) -> bool {
        let page_sizes = PageSizes {
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            mthp: vec![PageSize::K64],
            hugetlb: vec![PageSize::M2],
        };
        let watches = Rewriting::of(&policy.parse().unwrap(), &page_sizes).watches();
        watches.iter().any(|watch| watch.stops(number, &arguments))
    }

    fn maps(policy: &str, bytes: u64, protection: u64, flags: u64) -> bool {
        stops(policy, libc::SYS_mmap, [0, bytes, protection, flags, u64::MAX, 0])
    }

    #[test]
    fn what_the_policy_does_not_concern_does_not_stop() {
        for policy in ["thp", "mthp-64k", "default+prefault", "thp+prefault"] {
            assert!(!maps(policy, 64 << 20, READ_WRITE, FILE), "{policy}: a file");
            let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
            assert!(!maps(policy, 64 << 20, READ_WRITE, shared), "{policy}: shared memory");
            assert!(maps(policy, 64 << 20, READ_WRITE, ANONYMOUS), "{policy}");
        }
        // A reservation is populated by nobody, and what is opened of an advised one keeps the advice.
        assert!(!maps("default+prefault", 64 << 20, 0, ANONYMOUS));
        assert!(!maps("default+prefault", 64 << 20, READ_WRITE, ANONYMOUS | libc::MAP_NORESERVE as u64));
        assert!(!maps("default+prefault", 64 << 20, libc::PROT_READ as u64, ANONYMOUS));
        assert!(maps("thp", 64 << 20, 0, ANONYMOUS));
        assert!(maps("default+prefault", 4096, READ_WRITE, ANONYMOUS));
    }

    #[test]
    fn policies_that_prctl_gives_stop_at_prctl_alone() {
        for policy in ["base", "default+no-huge", "thp+no-huge", "base+no-huge"] {
            assert!(!maps(policy, 64 << 20, READ_WRITE, ANONYMOUS), "{policy}");
            for call in [libc::SYS_brk, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_munmap] {
                assert!(!stops(policy, call, [0, 64 << 20, 64 << 20, 0, 0, 0]), "{policy} {call}");
            }
            for option in [libc::PR_SET_THP_DISABLE as u64, libc::PR_GET_THP_DISABLE as u64] {
                // With and without PR_THP_DISABLE_EXCEPT_ADVISED.
                for flags in [0, 2] {
                    assert!(stops(policy, libc::SYS_prctl, [option, 1, flags, 0, 0, 0]), "{policy}");
                }
            }
            let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] };
            let made = Rewriting::of(&policy.parse().unwrap(), &page_sizes);
            assert!(made.disable_thp && made.needs_no_tracer(), "{policy}");
        }
    }
}
