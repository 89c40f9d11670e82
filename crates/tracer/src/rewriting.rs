//! What the tracer does to the memory calls of a program under a policy, as data, and the calls that
//! must therefore stop.

use study::policy::{Geometry, Granularity, Modifier, Policy};
use study::size::PageSize;

use super::filter::{Condition, Watch};
use super::pace::Pace;

/// Flags of mappings that no advice and no population concerns: stacks, the program's own pages of a pool, shared memory.
pub const LEFT_ALONE: u64 = (libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_SHARED) as u64;

/// MADV_* of the kernel (include/uapi/asm-generic/mman-common.h) that older C libraries lack.
pub mod advice {
    /// Large pages wanted.
    pub const HUGE: u64 = libc::MADV_HUGEPAGE as u64;
    /// Large pages not wanted.
    pub const NO_HUGE: u64 = libc::MADV_NOHUGEPAGE as u64;
    /// Fault in for reading, since Linux 5.14.
    pub const POPULATE_READ: u64 = 22;
    /// Fault in for writing, since Linux 5.14.
    pub const POPULATE_WRITE: u64 = 23;
    /// Drop the content.
    pub const DONTNEED: u64 = libc::MADV_DONTNEED as u64;
    /// Let the kernel take the content when it needs the memory.
    pub const FREE: u64 = libc::MADV_FREE as u64;
    /// Drop the content, also of locked memory, since Linux 5.18.
    pub const DONTNEED_LOCKED: u64 = 24;
    /// Guard pages without a mapping of their own, since Linux 6.13.
    pub const GUARD_INSTALL: u64 = 102;
    /// Takes them away.
    pub const GUARD_REMOVE: u64 = 103;
}

/// How the memory calls of a program are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewriting {
    /// Anonymous mappings from [`Rewriting::advised_bytes`] on, what they are joined with, and the heap are given this
    /// advice.
    pub advice: Option<u64>,
    /// The smallest mapping that can hold a page of the policy's size by itself; the step of the heap.
    pub large: PageSize,
    /// Large anonymous mappings come from the hugetlb pool of pages of `large` bytes.
    pub hugetlb: bool,
    /// Guard pages are left accessible.
    pub no_guards: bool,
    /// Writable anonymous memory is populated when it is mapped.
    pub prefault: bool,
    /// Transparent huge pages are disabled for the whole tree before the program starts.
    pub disable_thp: bool,
    /// The base page of the kernel.
    pub base: PageSize,
    /// Where the calls only stop, and nothing is done: how often the policy was seen to do something there.
    pub sham: Option<Pace>,
}

impl Rewriting {
    /// What a policy asks for. `geometry` is the kernel's; a size that it lacks was refused before.
    pub fn of(policy: &Policy, geometry: &Geometry) -> Rewriting {
        let smallest_large = geometry.mthp.first().copied().or(geometry.pmd).unwrap_or(geometry.base);
        let (advice, large) = match policy.granularity {
            _ if policy.has(Modifier::NoHuge) => (None, smallest_large),
            Granularity::Thp => (Some(advice::HUGE), geometry.pmd.unwrap_or(geometry.base)),
            Granularity::Mthp(size) => (Some(advice::HUGE), size),
            Granularity::Hugetlb(size) => (None, size),
            Granularity::Default | Granularity::Base | Granularity::DirectMap(_) => (None, smallest_large),
        };
        Rewriting {
            advice,
            large,
            hugetlb: matches!(policy.granularity, Granularity::Hugetlb(_)),
            no_guards: policy.has(Modifier::NoGuards),
            prefault: policy.has(Modifier::Prefault),
            disable_thp: policy.granularity == Granularity::Base || policy.has(Modifier::NoHuge),
            base: geometry.base,
            sham: None,
        }
    }

    /// The stops of a policy, with nothing done at them, for a program with the memory of another one, which needs none.
    pub fn sham(stops: &Policy, ground: &Policy, geometry: &Geometry, pace: Pace) -> Rewriting {
        let disable_thp = Rewriting::of(ground, geometry).disable_thp;
        Rewriting { disable_thp, sham: Some(pace), ..Rewriting::of(stops, geometry) }
    }

    /// Whether the program's own calls that turn large pages off are answered and not passed on.
    pub fn wants_large(&self) -> bool {
        self.advises_large() && self.sham.is_none()
    }

    fn advises_large(&self) -> bool {
        self.advice == Some(advice::HUGE)
    }

    /// Whether PR_SET_THP_DISABLE and the question for it are answered and not passed on.
    pub fn answers_thp_disable(&self) -> bool {
        self.wants_large() || self.disable_thp
    }

    /// Whether the policy holds without a tracer: nothing is done to the program's calls.
    pub fn needs_no_tracer(&self) -> bool {
        self.advice.is_none() && !self.hugetlb && !self.no_guards && !self.prefault
    }

    /// Whether the heap is grown ahead of the program.
    pub fn steps_heap(&self) -> bool {
        self.wants_large()
    }

    /// The smallest anonymous mapping that stops to be advised. The kernel joins mappings that touch and are alike, and
    /// then a page of the policy's size fits where none of them could hold one. A sixteenth of that size is 128K for 2M,
    /// from which on glibc's malloc maps what it is asked for by itself; below it stops would cost more than they bring.
    /// What is smaller is advised with the next mapping that it is joined with.
    pub fn advised_bytes(&self) -> u64 {
        (self.large.bytes() / 16).max(self.piece_bytes()).min(self.large.bytes())
    }

    /// The smallest piece of a reservation that is advised when it is opened by mmap: smaller ones are the
    /// ends of a program's own segments, which its loader maps this way.
    pub fn piece_bytes(&self) -> u64 {
        16 * self.base.bytes()
    }

    /// The calls that stop for the sake of the policy. A witness has more of them stop (`leaving`).
    pub fn watches(&self) -> Vec<Watch> {
        let mut watches = vec![Watch::new(libc::SYS_ptrace, [])];
        watches.extend(filter_watches());
        if self.hugetlb {
            return [watches, hugetlb_watches(self.large.bytes())].concat();
        }
        let anonymous = Condition::Has(3, libc::MAP_ANONYMOUS as u32);
        let not_left_alone = Condition::Lacks(3, LEFT_ALONE as u32);
        if self.advice.is_some() || self.prefault {
            watches.push(Watch::new(libc::SYS_brk, []));
        }
        if self.prefault {
            // Reservations, whether without access or without a promise of memory, are not populated.
            let writable = Condition::Has(2, libc::PROT_WRITE as u32);
            let promised = Condition::Lacks(3, libc::MAP_NORESERVE as u32);
            watches.push(Watch::new(libc::SYS_mmap, [anonymous, not_left_alone, writable, promised]));
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
        if self.advises_large() || self.disable_thp {
            watches.extend(super::thp_disable::watches());
        }
        if self.advises_large() {
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals(2, advice::NO_HUGE as u32)]));
            watches.push(Watch::new(libc::SYS_process_madvise, [Condition::Equals(3, advice::NO_HUGE as u32)]));
        }
        if self.no_guards {
            let over = Condition::Has(3, (libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u32);
            watches.push(Watch::new(libc::SYS_mmap, [Condition::Equals(2, libc::PROT_NONE as u32), over]));
            watches.push(Watch::new(libc::SYS_mprotect, []));
            watches.push(Watch::new(libc::SYS_madvise, [Condition::Equals(2, advice::GUARD_INSTALL as u32)]));
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
    watches.extend(super::hugetlb::parts_watches());
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

    #[test]
    fn stops_begin_at_a_sixteenth_of_the_size_but_not_below_a_piece() {
        let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
        let mthp = [14, 16, 19, 20].map(|order| PageSize::new(1 << order).unwrap()).to_vec();
        let geometry = Geometry { base, pmd, mthp, hugetlb: vec![] };
        let from = |policy: &str| Rewriting::of(&policy.parse().unwrap(), &geometry).advised_bytes() >> 10;
        let expected = [("thp", 128), ("mthp-1m", 64), ("mthp-512k", 64), ("mthp-64k", 64), ("mthp-16k", 16)];
        for (policy, kib) in expected {
            assert_eq!(from(policy), kib, "{policy}");
        }
    }

    const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    const FILE: u64 = libc::MAP_PRIVATE as u64;
    const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

    fn stops(policy: &str, number: i64, arguments: [u64; 6]) -> bool {
        let geometry = Geometry {
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            mthp: vec![PageSize::K64],
            hugetlb: vec![PageSize::M2],
        };
        let watches = Rewriting::of(&policy.parse().unwrap(), &geometry).watches();
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
            let geometry = Geometry { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] };
            let made = Rewriting::of(&policy.parse().unwrap(), &geometry);
            assert!(made.disable_thp && made.needs_no_tracer(), "{policy}");
        }
    }
}
