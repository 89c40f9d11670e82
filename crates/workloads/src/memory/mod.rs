//! Memory of a workload: a private anonymous mapping as safe slices, and a safe fork.
//!
//! Nothing here advises, locks or populates the memory of a workload unless that is the workload (`advised`): the policy under which
//! the program runs decides how it is mapped.

mod advised;
mod anonymous;
pub mod capability;
mod fork;
mod fragments;
mod heap;
mod mapping;
mod permuted;
mod table_growth;

pub use advised::ReadOnlyStrips;
pub use anonymous::{Anonymous, MapError, Plain};
pub use fork::{ForkError, Forked, fork};
pub use fragments::{Degree, Fragments, FragmentsError, FreeMemory};
pub use heap::{HeapError, grow_and_shrink_heap};
pub use mapping::Mapping;
pub use table_growth::{TableGrowth, TableGrowthError, table_growth};

use policy::size::PageSize;

/// The base page of the running kernel (`sysconf(_SC_PAGESIZE)`).
pub fn base_page() -> PageSize {
    // SAFETY: sysconf takes no pointers and may be called at any time.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().and_then(|bytes| PageSize::new(bytes).ok()).expect("POSIX requires _SC_PAGESIZE")
}

/// Bytes available to a new program: `MemAvailable` and the hugetlb pools (`Hugetlb`) of /proc/meminfo, since a policy may take
/// the memory from either.
///
/// `None` if /proc/meminfo does not have these figures. In that case only an allocation shows what is available.
pub fn obtainable_bytes() -> Option<u64> {
    obtainable_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// A file of `bytes` zeros that exists in memory only (memfd_create(2)), until its last descriptor is closed.
pub fn memory_file(bytes: u64) -> std::io::Result<std::fs::File> {
    let descriptor = nix::sys::memfd::memfd_create(c"pagelab", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
    let file = std::fs::File::from(descriptor);
    file.set_len(bytes)?;
    Ok(file)
}

fn obtainable_of(meminfo: &str) -> Option<u64> {
    let bytes_of = |key: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    // A kernel without hugetlb pools has no line for them.
    bytes_of("MemAvailable")?.checked_add(bytes_of("Hugetlb").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_count_as_obtainable() {
        let meminfo = "MemTotal: 100 kB\nMemAvailable:   60 kB\nHugePages_Total: 1\nHugetlb:  20 kB\n";
        assert_eq!(obtainable_of(meminfo), Some(80 * 1024));
        assert_eq!(obtainable_of("MemAvailable: 60 kB\n"), Some(60 * 1024));
        assert_eq!(obtainable_of("MemTotal: 100 kB\n"), None);
        assert_eq!(obtainable_of("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn reads_available_memory_from_the_host() {
        assert!(obtainable_bytes().expect("/proc/meminfo") > base_page().bytes());
    }
}
