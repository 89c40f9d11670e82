//! The ioctl PROCMAP_QUERY (Linux 6.11) on `/proc/PID/maps`, declared in include/uapi/linux/fs.h.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::vma::Vma;
use crate::read::escaped_line;

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct QueryArgument {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::Ioctl = libc::_IOWR::<QueryArgument>(b'f' as u32, 17);
const QUERY_SHARED: u64 = 1 << 3;
const QUERY_COVERING_OR_NEXT: u64 = 1 << 4;
const NAME_BYTES: usize = libc::PATH_MAX as usize;

/// The mapping at `address` or the next one above, with its page size (`vma_kernel_pagesize`: larger than a base page only for
/// hugetlb and device DAX); `None` above the last mapping. Fails with `ENOTTY` on kernels before 6.11.
pub fn query(maps: &File, address: u64) -> io::Result<Option<(Vma, u64)>> {
    let mut name = [0u8; NAME_BYTES];
    let mut argument = QueryArgument {
        size: size_of::<QueryArgument>() as u64,
        query_flags: QUERY_COVERING_OR_NEXT,
        query_addr: address,
        vma_name_size: name.len() as u32,
        vma_name_addr: name.as_mut_ptr() as u64,
        ..QueryArgument::default()
    };
    // SAFETY: `argument` has the layout that PROCMAP_QUERY reads and writes, and the name's address and
    // size describe `name`, which nothing else uses during the call.
    let status = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &mut argument) };
    if status < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    let length = (argument.vma_name_size as usize).saturating_sub(1).min(name.len());
    let vma = Vma {
        start: argument.vma_start,
        end: argument.vma_end,
        // PROCMAP_QUERY_VMA_READABLE, _WRITABLE and _EXECUTABLE have the values of PROT_*.
        protection: argument.vma_flags & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64,
        shared: argument.vma_flags & QUERY_SHARED != 0,
        device: (argument.dev_major, argument.dev_minor),
        inode: argument.inode,
        offset: argument.vma_offset,
        name: escaped_line(&name[..length]).into_owned(),
    };
    Ok(Some((vma, argument.vma_page_size)))
}
