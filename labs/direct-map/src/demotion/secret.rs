//! [`SecretPages`]: memory that the kernel itself cannot reach. memfd_secret(2) removes every page from the direct map and so
//! splits the leaf that mapped the page (mm/secretmem.c, `secretmem_fault`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use policy::size::format_bytes;

/// Number of pages in one memfd. It is small because before Linux 6.1.191 the whole memfd counts as locked memory from mmap on.
const CHUNK_PAGES: usize = 256;

/// Secret pages, given back when dropped; the leaves stay split.
pub struct SecretPages {
    page_bytes: usize,
    chunks: Vec<Chunk>,
    pagemap: File,
    zero: File,
}

/// One memfd and its mapping.
struct Chunk {
    start: *mut libc::c_void,
    bytes: usize,
    used_pages: usize,
    _memfd: OwnedFd,
}

/// Why secret memory is not available.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The kernel does not have memfd_secret, or it is disabled for this boot.
    #[error(
        "memfd_secret is not available ({0}): boot with secretmem.enable=1 (the default since Linux 6.5); the kernel \
         needs CONFIG_SECRETMEM=y (Linux 5.14), and on arm64 rodata=full"
    )]
    Unavailable(#[source] io::Error),
    /// The limit of locked memory is reached.
    #[error(
        "no more locked memory (RLIMIT_MEMLOCK {limit_bytes} bytes, {used_bytes} used): secret memory is locked memory, \
         which newer kernels limit for root too; run as root with CAP_SYS_RESOURCE, which raises the limit, or after \
         `ulimit -l unlimited`"
    )]
    Locked {
        /// The limit in bytes.
        limit_bytes: u64,
        /// Bytes of secret memory taken before.
        used_bytes: u64,
    },
    /// The fault of a page failed.
    #[error(
        "the kernel gave no more secret memory after {} (EFAULT): it had no free page, or none for the page table that a \
         split leaf needs{}; stop programs or raise the memory limit of the cgroup (memory.max), and try again",
        format_bytes(*used_bytes), memlock_note(*limit_bytes)
    )]
    NoPage {
        /// Bytes of secret memory taken before.
        used_bytes: u64,
        /// The limit of locked memory in bytes, which also counts memory of the user's other processes; absent: no limit.
        limit_bytes: Option<u64>,
    },
    #[error("/proc/self/pagemap hides frame numbers: run as root with CAP_SYS_ADMIN")]
    Hidden,
    #[error("cannot {what} secret memory: {source}")]
    Failed {
        /// The operation that failed.
        what: &'static str,
        source: io::Error,
    },
}

impl SecretPages {
    /// Takes no page yet. Checks that secret memory is available and frame numbers are visible, so that this is known before a
    /// leaf is split. Raises this process's limit of locked memory as far as possible.
    pub fn new(page_bytes: usize) -> Result<SecretPages, SecretError> {
        let open = |path| File::open(path).map_err(|source| SecretError::Failed { what: "inspect", source });
        let present = 0u8;
        raise_memlock_limit();
        let mut secret = SecretPages {
            page_bytes,
            chunks: Vec::new(),
            pagemap: open("/proc/self/pagemap")?,
            zero: open("/dev/zero")?,
        };
        let chunk = secret.chunk()?;
        secret.chunks.push(chunk);
        // Fails if frame numbers are hidden, before a page is taken; any present page shows it.
        secret.frame((&raw const present).addr())?;
        Ok(secret)
    }

    /// Current bytes of secret memory.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| (chunk.used_pages * self.page_bytes) as u64).sum()
    }

    /// Takes one more page; returns its frame number. If the frame number of a page that was taken is not visible,
    /// [`SecretPages::bytes`] counts the page, and the call fails.
    pub fn take(&mut self) -> Result<u64, SecretError> {
        if self.chunks.last().is_none_or(|chunk| chunk.used_pages == CHUNK_PAGES) {
            let chunk = self.chunk()?;
            self.chunks.push(chunk);
        }
        let chunk = self.chunks.last().expect("a chunk with room was just added");
        let address = chunk.start as usize + chunk.used_pages * self.page_bytes;
        touch(&self.zero, address).map_err(|source| match source.raw_os_error() {
            Some(libc::EFAULT) => no_page(self.bytes(), self.page_bytes as u64, memlock_limit()),
            _ => SecretError::Failed { what: "take a page of", source },
        })?;
        self.chunks.last_mut().expect("the same").used_pages += 1;
        self.frame(address)
    }

    fn chunk(&self) -> Result<Chunk, SecretError> {
        Chunk::new(CHUNK_PAGES * self.page_bytes).map_err(|(what, source)| match (what, source.raw_os_error()) {
            ("make", Some(libc::ENOSYS | libc::EPERM)) => SecretError::Unavailable(source),
            ("map", Some(libc::EAGAIN)) => match memlock_limit() {
                Some(limit_bytes) => SecretError::Locked { limit_bytes, used_bytes: self.bytes() },
                None => SecretError::Failed { what, source },
            },
            _ => SecretError::Failed { what, source },
        })
    }

    /// The frame behind an address: bits 0 to 54 of its entry, zero without CAP_SYS_ADMIN
    /// (Documentation/admin-guide/mm/pagemap.rst).
    fn frame(&self, address: usize) -> Result<u64, SecretError> {
        let mut entry = [0; 8];
        let at = (address / self.page_bytes * 8) as u64;
        let read = self.pagemap.read_exact_at(&mut entry, at);
        read.map_err(|source| SecretError::Failed { what: "inspect", source })?;
        match u64::from_ne_bytes(entry) & ((1 << 55) - 1) {
            0 => Err(SecretError::Hidden),
            frame => Ok(frame),
        }
    }
}

impl Chunk {
    fn new(bytes: usize) -> Result<Chunk, (&'static str, io::Error)> {
        // SAFETY: the call takes flags only.
        let made = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
        let number = i32::try_from(made).unwrap_or(-1);
        if number < 0 {
            return Err(("make", io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
        let memfd = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: a plain system call on an open descriptor.
        if unsafe { libc::ftruncate(memfd.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(("size", io::Error::last_os_error()));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, memfd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(("map", io::Error::last_os_error()));
        }
        Ok(Chunk { start, bytes, used_pages: 0, _memfd: memfd })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference into it exists.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Faults a page in by letting the kernel write a zero to it: without memory this fails with an error instead of a SIGBUS.
/// (MADV_POPULATE_WRITE refuses secret memory.)
fn touch(zero: &File, address: usize) -> io::Result<()> {
    loop {
        // SAFETY: the byte is in a mapping of this module, and no reference into it exists.
        let read = unsafe { libc::read(zero.as_raw_fd(), address as *mut libc::c_void, 1) };
        match read {
            1 => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Why a fault failed. The kernel returns EFAULT in all cases: it has no page (`VM_FAULT_OOM`), no table to split the leaf with
/// (`set_direct_map_invalid_noflush`), or the page is beyond the limit (`VM_FAULT_SIGBUS`; mm/secretmem.c, `secretmem_fault`).
fn no_page(used_bytes: u64, page_bytes: u64, limit_bytes: Option<u64>) -> SecretError {
    match limit_bytes {
        Some(limit_bytes) if used_bytes + page_bytes > limit_bytes => SecretError::Locked { limit_bytes, used_bytes },
        _ => SecretError::NoPage { used_bytes, limit_bytes },
    }
}

fn memlock_note(limit_bytes: Option<u64>) -> String {
    let limited = |bytes| format!(", or other processes of the user use up RLIMIT_MEMLOCK ({bytes} bytes)");
    limit_bytes.map_or_else(String::new, limited)
}

/// Since Linux 6.1.191 and 6.12.113 every page that is faulted in counts as locked memory of the user, regardless of capabilities
/// (mm/secretmem.c, `__secretmem_account_pages`). Before, only mappings of a process without CAP_IPC_LOCK counted (mm/mmap.c,
/// `mlock_future_ok`). If the limit cannot be raised, the error of the first page beyond it reports it.
fn raise_memlock_limit() {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return };
    for limit in [libc::RLIM_INFINITY, hard] {
        if setrlimit(Resource::RLIMIT_MEMLOCK, limit, limit).is_ok() {
            return;
        }
    }
}

/// The limit in bytes; absent where there is none.
fn memlock_limit() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    Some(soft).filter(|soft| *soft != libc::RLIM_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_fails_is_explained_by_the_limit_or_by_memory() {
        let locked = no_page(8 << 20, 4096, Some(8 << 20));
        assert!(matches!(locked, SecretError::Locked { limit_bytes: 0x80_0000, used_bytes: 0x80_0000 }), "{locked}");
        assert!(
            matches!(no_page(8 << 20, 4096, Some((8 << 20) + 4095)), SecretError::Locked { .. }),
            "whole pages count"
        );
        let [alone, limited] = [None, Some(9 << 20)].map(|limit| no_page(8 << 20, 4096, limit).to_string());
        assert!(alone.contains("after 8M") && alone.contains("no free page") && !alone.contains("MEMLOCK"), "{alone}");
        assert!(limited.contains("RLIMIT_MEMLOCK (9437184 bytes)"), "{limited}");
    }
}
