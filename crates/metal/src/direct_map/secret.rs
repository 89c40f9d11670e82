//! Memory that the kernel itself cannot reach: memfd_secret(2), which takes every page out of the direct
//! map and so splits the leaf that mapped it (mm/secretmem.c, `secretmem_fault`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

/// Pages of one memfd. Its whole size counts as locked memory from mmap on, so it is small.
const CHUNK_PAGES: usize = 256;

/// Secret pages, given back when dropped; the leaves stay split.
pub struct Secret {
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

/// Why there is no secret memory.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The kernel has no memfd_secret, or not for this boot.
    #[error(
        "memfd_secret is not available ({0}): boot with secretmem.enable=1 (the default since Linux 6.5); the kernel \
         needs CONFIG_SECRETMEM=y (Linux 5.14), and on arm64 rodata=full"
    )]
    Unavailable(io::Error),
    /// The limit of locked memory.
    #[error(
        "no more locked memory (RLIMIT_MEMLOCK {limit_bytes} bytes, {used_bytes} used): secret memory is locked; run as \
         root with CAP_IPC_LOCK, or raise `ulimit -l`"
    )]
    Locked {
        /// The limit.
        limit_bytes: u64,
        /// Secret memory until then.
        used_bytes: u64,
    },
    /// Frame numbers are hidden.
    #[error("/proc/self/pagemap hides frame numbers: run as root with CAP_SYS_ADMIN")]
    Hidden,
    /// Something else.
    #[error("cannot {what} secret memory: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Secret {
    /// No page yet; tries whether there can be any and whether their frames are shown, so that this is known before
    /// a leaf is split.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(page_bytes: usize) -> Result<Secret, SecretError> {
        let open = |path| File::open(path).map_err(|source| SecretError::Failed { what: "look at", source });
        let present = 0u8;
        let mut secret =
            Secret { page_bytes, chunks: Vec::new(), pagemap: open("/proc/self/pagemap")?, zero: open("/dev/zero")? };
        let chunk = secret.chunk()?;
        secret.chunks.push(chunk);
        // That of any page that is there: whether frames are shown must be known before a page is taken.
        secret.frame((&raw const present).addr())?;
        Ok(secret)
    }

    /// Bytes that are secret now.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| (chunk.used_pages * self.page_bytes) as u64).sum()
    }

    /// Takes one more page; says which frame it is.
    ///
    /// # Errors
    /// [`SecretError`]: there is no page, or it was taken ([`Secret::bytes`] counts it) and its frame is not shown.
    pub fn take(&mut self) -> Result<u64, SecretError> {
        if self.chunks.last().is_none_or(|chunk| chunk.used_pages == CHUNK_PAGES) {
            let chunk = self.chunk()?;
            self.chunks.push(chunk);
        }
        let page_bytes = self.page_bytes;
        let chunk = self.chunks.last_mut().expect("one with room was just made sure of");
        let address = chunk.start as usize + chunk.used_pages * page_bytes;
        touch(&self.zero, address).map_err(|source| SecretError::Failed { what: "take a page of", source })?;
        chunk.used_pages += 1;
        self.frame(address)
    }

    fn chunk(&self) -> Result<Chunk, SecretError> {
        Chunk::new(CHUNK_PAGES * self.page_bytes).map_err(|(what, source)| match (what, source.raw_os_error()) {
            ("make", Some(libc::ENOSYS | libc::EPERM)) => SecretError::Unavailable(source),
            ("map", Some(libc::EAGAIN)) => {
                SecretError::Locked { limit_bytes: memlock_limit(), used_bytes: self.bytes() }
            }
            _ => SecretError::Failed { what, source },
        })
    }

    /// The frame behind an address: bits 0 to 54 of its entry, zero without CAP_SYS_ADMIN
    /// (Documentation/admin-guide/mm/pagemap.rst).
    fn frame(&self, address: usize) -> Result<u64, SecretError> {
        let mut entry = [0; 8];
        let at = (address / self.page_bytes * 8) as u64;
        let read = self.pagemap.read_exact_at(&mut entry, at);
        read.map_err(|source| SecretError::Failed { what: "look at", source })?;
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
        // SAFETY: the kernel just gave this descriptor to nobody else.
        let memfd = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: a plain system call on an open descriptor.
        if unsafe { libc::ftruncate(memfd.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(("size", io::Error::last_os_error()));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, memfd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(("map", io::Error::last_os_error()));
        }
        Ok(Chunk { start, bytes, used_pages: 0, _memfd: memfd })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nobody has a reference into it.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Faults a page in by letting the kernel write a zero to it: where there is no memory this is an error,
/// not a SIGBUS. (MADV_POPULATE_WRITE refuses secret memory.)
fn touch(zero: &File, address: usize) -> io::Result<()> {
    loop {
        // SAFETY: the byte lies in a mapping of this module's, which nobody has a reference into.
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

fn memlock_limit() -> u64 {
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft)
}
