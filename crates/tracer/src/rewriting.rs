//! [`Rewriting`]: how the tracer changes the memory calls of a program under a policy, and which calls must stop for that.

use std::ops::Deref;

use policy::call::madv;
use policy::call::map::LEFT_ALONE;
use policy::windows::Windows;
use policy::{Granularity, Mechanism, PageSizes, Policy};

use super::filter::{Condition, Watch};
use super::pace::Pace;

/// How the memory calls of a program are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewriting {
    /// The policy in terms of calls.
    mechanism: Mechanism,
    /// In a sham trial: how often the policy had work to do at stopped calls. The calls stop as under the policy but are not
    /// changed.
    pub imitated_pace: Option<Pace>,
    /// Whether a witness counts the accesses to each window at every tick.
    pub watches_heat: bool,
}

/// Derefs to the mechanism of the policy whose calls stop. What is really done to them is [`Rewriting::applied_mechanism`].
impl Deref for Rewriting {
    type Target = Mechanism;

    fn deref(&self) -> &Mechanism {
        &self.mechanism
    }
}

impl Rewriting {
    /// The rewriting for a policy. `page_sizes` is the kernel's; sizes that it lacks were refused earlier.
    pub fn of(policy: &Policy, page_sizes: &PageSizes) -> Rewriting {
        Rewriting { mechanism: Mechanism::of(policy, page_sizes), imitated_pace: None, watches_heat: false }
    }

    /// The stops of the policy `stops` without its changes. The program's memory follows the policy `memory`, which needs no
    /// stops.
    pub fn sham(stops: &Policy, memory: &Policy, page_sizes: &PageSizes, pace: Pace) -> Rewriting {
        let disable_thp = Mechanism::of(memory, page_sizes).disable_thp;
        let mechanism = Mechanism { disable_thp, ..Mechanism::of(stops, page_sizes) };
        Rewriting { mechanism, imitated_pace: Some(pace), watches_heat: false }
    }

    /// Base pages in windows that are VMAs of their own, so that accesses to each can be counted.
    pub fn heat(windows: Windows, page_sizes: &PageSizes) -> Rewriting {
        let divided = Policy::plain(Granularity::Thp).within(windows.alternating());
        let mechanism = Mechanism { disable_thp: true, ..Mechanism::of(&divided, page_sizes) };
        Rewriting { mechanism, imitated_pace: None, watches_heat: true }
    }

    /// What is done to calls that stop: nothing in a sham trial, except that PR_SET_THP_DISABLE stays in force if the policy of the
    /// memory sets it.
    pub fn applied_mechanism(&self) -> Mechanism {
        match self.imitated_pace {
            Some(_) => Mechanism {
                advice: None,
                prefault: false,
                no_guards: false,
                hugetlb: false,
                pte_mapped: false,
                windows: None,
                ..self.mechanism
            },
            None => self.mechanism,
        }
    }

    /// Whether the program's own calls that turn large pages off are answered instead of passed to the kernel.
    pub fn wants_large(&self) -> bool {
        self.applied_mechanism().wants_large()
    }

    /// The calls that stop because of the policy. A witness adds more (`freed_ranges`).
    pub fn watches(&self) -> Vec<Watch> {
        let mut watches = vec![Watch::new(libc::SYS_ptrace, [])];
        watches.extend(filter_watches());
        let anonymous = Condition::Has(3, libc::MAP_ANONYMOUS as u32);
        let not_left_alone = Condition::Lacks(3, LEFT_ALONE as u32);
        if self.prefault {
            // Reservations (mapped without access or with MAP_NORESERVE) are not populated.
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
            // Reservations without access are advised too: parts that become accessible later keep the advice.
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
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals32(2, madv::NOHUGEPAGE as u32)]));
            watches.push(Watch::new(libc::SYS_process_madvise, [Condition::Equals32(3, madv::NOHUGEPAGE as u32)]));
        }
        if self.windows.is_some() {
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals32(2, madv::HUGEPAGE as u32)]));
        }
        if self.no_guards {
            let over = Condition::Has(3, (libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u32);
            watches.push(Watch::new(libc::SYS_mmap, [Condition::Equals32(2, libc::PROT_NONE as u32), over]));
            watches.push(Watch::new(libc::SYS_mprotect, []));
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals32(2, madv::GUARD_INSTALL as u32)]));
        }
        watches
    }
}

/// Under hugetlb every call that names a range may name one with larger pages than the program expects.
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
    watches.extend(super::hugetlb_calls::watches());
    watches
}

/// Calls that install a seccomp filter, which may also refuse the calls that the tracer adds. The kernel refuses strict mode
/// because of the tracer's own filter.
fn filter_watches() -> [Watch; 2] {
    let prctl = Condition::Equals32(0, libc::PR_SET_SECCOMP as u32);
    // Operations 0 and 1 install a filter, the others only query.
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
    fn calls_outside_the_policy_do_not_stop() {
        for policy in ["thp", "mthp-64k", "default+prefault", "thp+prefault"] {
            assert!(!maps(policy, 64 << 20, READ_WRITE, FILE), "{policy}: a file");
            let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
            assert!(!maps(policy, 64 << 20, READ_WRITE, shared), "{policy}: shared memory");
            assert!(maps(policy, 64 << 20, READ_WRITE, ANONYMOUS), "{policy}");
        }
        // A reservation is not populated. Parts of an advised reservation that become accessible keep the advice.
        assert!(!maps("default+prefault", 64 << 20, 0, ANONYMOUS));
        assert!(!maps("default+prefault", 64 << 20, READ_WRITE, ANONYMOUS | libc::MAP_NORESERVE as u64));
        assert!(!maps("default+prefault", 64 << 20, libc::PROT_READ as u64, ANONYMOUS));
        assert!(maps("thp", 64 << 20, 0, ANONYMOUS));
        assert!(maps("default+prefault", 4096, READ_WRITE, ANONYMOUS));
    }

    #[test]
    fn policies_that_prctl_implements_stop_only_prctl() {
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
