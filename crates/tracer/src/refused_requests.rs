//! [`RefusedRequests`]: a program's own requests for pages of a hugetlb pool that the kernel refused, and the calls that stop
//! so that they can be seen.
//!
//! After a refusal programs use smaller pages, often silently. Only a call that names the pool by a flag stops, so that all others
//! run at full speed; a request by mapping a file of hugetlbfs is not seen.

use std::io;

use host::{Host, HostError, HugetlbGroups, Root};
use policy::call::map;
use policy::hugetlb::{ENOMEM, HugetlbLimit, Limited, RefusedRequest, RequestCall};
use policy::size::PageSize;

use crate::filter::{Condition, Watch};
use crate::ptrace::Tid;

/// SHM_HUGETLB (include/uapi/linux/shm.h).
const SHM_HUGETLB: u32 = 0o4000;
/// MFD_HUGETLB (include/uapi/linux/memfd.h).
const MFD_HUGETLB: u32 = 4;
/// The bits of a size's shift, in the flags of all three calls (include/uapi/asm-generic/hugetlb_encode.h).
const SHIFT_BITS: u64 = 63;

/// The calls that stop.
pub fn watches() -> Vec<Watch> {
    vec![
        Watch::new(libc::SYS_mmap, [Condition::Has(3, map::HUGETLB as u32)]),
        Watch::new(libc::SYS_shmget, [Condition::Has(2, SHM_HUGETLB)]),
        Watch::new(libc::SYS_memfd_create, [Condition::Has(1, MFD_HUGETLB)]),
    ]
}

/// A request: its call, its flags and the requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    call: RequestCall,
    flags: u64,
    bytes: u64,
}

fn request(number: i64, [_, second, third, fourth, ..]: [u64; 6]) -> Option<Request> {
    let (call, flags, bytes, bit) = match number {
        libc::SYS_mmap => (RequestCall::Mmap, fourth, second, map::HUGETLB),
        libc::SYS_shmget => (RequestCall::Shmget, third, second, u64::from(SHM_HUGETLB)),
        libc::SYS_memfd_create => (RequestCall::MemfdCreate, second, 0, u64::from(MFD_HUGETLB)),
        _ => return None,
    };
    (flags & bit != 0).then_some(Request { call, flags, bytes })
}

/// Whether a call requests pages of a pool.
pub fn is_request(number: i64, arguments: [u64; 6]) -> bool {
    request(number, arguments).is_some()
}

/// The refused requests of a tree.
#[derive(Debug, Default)]
pub struct RefusedRequests {
    /// Equal requests are counted together, in the order of their first occurrence.
    pub found: Vec<RefusedRequest>,
    /// Opened at the first request.
    host: Option<Host>,
}

impl RefusedRequests {
    /// Records a call that returned an error.
    pub fn note(&mut self, tid: Tid, number: i64, arguments: [u64; 6], result: i64) -> io::Result<()> {
        let Some(request) = request(number, arguments) else { return Ok(()) };
        let host = match self.host.take() {
            Some(host) => host,
            None => Host::open("/").map_err(io::Error::other)?,
        };
        let host = self.host.insert(host);
        let Some(size) = size_of(request.flags, host).map_err(io::Error::other)? else { return Ok(()) };
        let errno = i32::try_from(-result).unwrap_or(i32::MAX);
        let pages = request.bytes.div_ceil(size.bytes());
        let pool = host.page_sizes().hugetlb.contains(&size).then(|| host.pool(size)).transpose();
        let limit = if errno == ENOMEM { limit(tid, size, pages)? } else { None };
        self.add(RefusedRequest {
            call: request.call,
            size,
            errno,
            times: 1,
            pages,
            pool: pool.map_err(io::Error::other)?,
            limit,
        });
        Ok(())
    }

    fn add(&mut self, new: RefusedRequest) {
        let is_equal = |one: &&mut RefusedRequest| (one.call, one.size, one.errno) == (new.call, new.size, new.errno);
        match self.found.iter_mut().find(is_equal) {
            Some(one) => {
                *one = RefusedRequest { times: one.times + 1, pages: one.pages.max(new.pages), ..new };
            }
            None => self.found.push(new),
        }
    }
}

/// The size that the flags encode, or the kernel's default if they encode none. `None` if the encoded value is no page size.
fn size_of(flags: u64, host: &Host) -> Result<Option<PageSize>, HostError> {
    match flags >> map::HUGE_SHIFT & SHIFT_BITS {
        0 => host.default_hugetlb(),
        shift => Ok(PageSize::new(1 << shift).ok()),
    }
}

/// The nearest limit that leaves no room to reserve this number of pages. Limits of pages in use refuse no request.
fn limit(tid: Tid, size: PageSize, pages: u64) -> io::Result<Option<HugetlbLimit>> {
    let Some(memberships) = host::if_exists(host::content(format!("/proc/{tid}/cgroup")))? else { return Ok(None) };
    let root = Root::live();
    let groups = HugetlbGroups::of(&root, &memberships).map_err(io::Error::other)?;
    let limits = groups.limits(&root, size).map_err(io::Error::other)?.limits.into_iter();
    let needed = pages.saturating_mul(size.bytes());
    let mut refusing = limits.filter(|one| one.limited == Limited::Reservation && one.room_bytes() < needed);
    Ok(refusing.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_name_the_pool_stop() {
        let stops = |number, arguments| watches().iter().any(|watch| watch.stops(number, &arguments));
        let anonymous = map::PRIVATE | map::ANONYMOUS;
        for (number, arguments, asks) in [
            (libc::SYS_mmap, [0, 2 << 20, 3, anonymous | map::HUGETLB, u64::MAX, 0], true),
            (libc::SYS_mmap, [0, 2 << 20, 3, anonymous, u64::MAX, 0], false),
            (libc::SYS_mmap, [0, map::HUGETLB, map::HUGETLB, anonymous | map::NORESERVE, u64::MAX, 0], false),
            (libc::SYS_shmget, [0, 2 << 20, 0o4000 | 0o1600, 0, 0, 0], true),
            (libc::SYS_shmget, [0o4000, 2 << 20, 0o1600, 0, 0, 0], false),
            (libc::SYS_memfd_create, [0, 5, 0, 0, 0, 0], true),
            (libc::SYS_memfd_create, [4, 3, 0, 0, 0, 0], false),
        ] {
            assert_eq!(
                (stops(number, arguments), is_request(number, arguments)),
                (asks, asks),
                "{number} {arguments:?}"
            );
        }
    }

    #[test]
    fn equal_requests_are_counted_together() {
        let request = |size, pages| RefusedRequest {
            call: RequestCall::Mmap,
            size,
            errno: ENOMEM,
            times: 1,
            pages,
            pool: None,
            limit: None,
        };
        let mut all = RefusedRequests::default();
        for (size, pages) in [(PageSize::M2, 16), (PageSize::G1, 1), (PageSize::M2, 3)] {
            all.add(request(size, pages));
        }
        let found: Vec<_> = all.found.iter().map(|one| (one.size, one.times, one.pages)).collect();
        assert_eq!(found, [(PageSize::M2, 2, 16), (PageSize::G1, 1, 1)]);
    }
}
