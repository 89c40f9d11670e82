//! Leases what a policy needs on this host: exactly the settings that a user would lack.

use std::time::Duration;

use host::admit::{self, Privilege, Terms};
use host::{HUGETLB, Host, THP};
use lease::{Lease, Written};
use policy::size::PageSize;
use policy::{Granularity, Policy};
use testing::skip;

/// How long a test may wait for processes that have the host's settings.
const TURN: Duration = Duration::from_secs(900);

/// Maps, advises and touches `bytes`, and unmaps them.
fn touch_advised(bytes: usize) {
    // SAFETY: a new private mapping, used only within its length, and unmapped at the end.
    unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::madvise(start, bytes, libc::MADV_HUGEPAGE), 0);
        (0..bytes).step_by(4096).for_each(|offset| start.cast::<u8>().add(offset).write_volatile(1));
        assert_eq!(libc::munmap(start, bytes), 0);
    }
}

#[test]
fn leases_the_settings_that_a_user_would_need() {
    let host = Host::open("/").unwrap();
    let terms = Terms::assumed(&host, Privilege::of_this_process());
    let writable = std::fs::OpenOptions::new().write(true).open(format!("{THP}/enabled")).is_ok();
    if terms.privilege == Privilege::User || !writable || host.page_sizes().mthp.is_empty() {
        skip("root, a writable sysfs and mTHP");
        return;
    }
    let mut lease = Lease::acquire(TURN, |_, _| true).unwrap();
    let before = host.state().unwrap().settings;
    let transparent = Policy::granularities(host.page_sizes()).into_iter();
    for granularity in transparent.filter(|one| matches!(one, Granularity::Mthp(_) | Granularity::Thp)) {
        lease.apply([]).unwrap();
        let policy = Policy::plain(granularity);
        let lowering = admit::lower(&policy, &host, &terms).unwrap();
        let taken = lease.apply(lowering.pairs()).unwrap();
        assert!(taken.iter().all(|taken| *taken == Written::InFull));
        let as_user = Terms::assumed(&host, Privilege::User);
        assert_eq!(admit::lower(&policy, &host, &as_user).unwrap().settings, [], "{policy}");
        let counters = host.counters().unwrap();
        touch_advised(64 << 20);
        let moved = counters.delta(&host.counters().unwrap());
        let size = policy.target(host.page_sizes()).unwrap().bytes();
        let got = moved.get(&format!("hugepages-{}kB/anon_fault_alloc", size >> 10)).copied().unwrap_or(0);
        // The ends of the mapping may not be aligned to the size.
        assert!(got * size >= (64 << 20) - 2 * size, "{policy}: {moved:?}");
    }
    lease.restore().unwrap();
    let _lease = Lease::acquire(TURN, |_, _| true).unwrap();
    assert_eq!(host.state().unwrap().settings, before);
}

#[test]
fn pages_made_on_demand_are_not_a_change_of_settings() {
    let host = Host::open("/").unwrap();
    let terms = Terms::assumed(&host, Privilege::of_this_process());
    let size = PageSize::M2;
    let path = format!("{HUGETLB}/hugepages-2048kB/nr_overcommit_hugepages");
    let writable = std::fs::OpenOptions::new().write(true).open(&path).is_ok();
    if terms.privilege == Privilege::User || !writable {
        skip(format!("root and a writable {path}"));
        return;
    }
    let mut lease = Lease::acquire(TURN, |_, _| true).unwrap();
    let lowering = admit::lower(&Policy::plain(Granularity::Hugetlb(size)), &host, &terms).unwrap();
    lease.apply(lowering.pairs()).unwrap();
    let before = host.state().unwrap();
    let bytes = 8 * size.bytes() as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    // SAFETY: a new private mapping, used only within its length, and unmapped at the end.
    let during = unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        start.cast::<u8>().write_volatile(1);
        let during = host.state().unwrap();
        assert_eq!(libc::munmap(start, bytes), 0);
        during
    };
    assert_eq!(before.changes(&during), [], "pages in use are not a setting");
    lease.restore().unwrap();
}
