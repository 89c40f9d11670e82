//! The four commands of bpf(2) that are needed, with `union bpf_attr` as include/uapi/linux/bpf.h lays it out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::program;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const BTF_LOAD: libc::c_int = 18;

const MAP_TYPE_ARRAY: u32 = 2;
/// BPF_F_MMAPABLE (Linux 5.5).
const MMAPABLE: u32 = 1 << 10;
/// BPF_PROG_TYPE_SYSCALL (Linux 5.14), which must be sleepable.
const PROG_TYPE_SYSCALL: u32 = 31;
const SLEEPABLE: u32 = 1 << 4;

const NAME: [u8; 16] = *b"pagelab_copy\0\0\0\0";

/// For BPF_MAP_CREATE.
#[repr(C)]
struct Map {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

/// For BPF_BTF_LOAD.
#[repr(C)]
struct Types {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
}

/// For BPF_PROG_LOAD.
#[repr(C)]
struct Program {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
}

/// For BPF_PROG_TEST_RUN, as far as the context.
#[repr(C)]
struct Run {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
}

/// # Safety
/// `attributes` must be what `command` reads, and every address in it that of memory of the length beside it.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: the caller's word on the content; the address and length are those of `attributes`. The kernel takes the
    // fields behind it for 0.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// # Safety
/// As [`bpf`], for a command that makes a file descriptor.
unsafe fn open<T>(command: libc::c_int, mut attributes: T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's word; and the descriptor is new, so nobody else owns it.
    unsafe { bpf(command, &mut attributes).map(|descriptor| OwnedFd::from_raw_fd(descriptor)) }
}

/// An array of one element, which can be mapped.
///
/// # Errors
/// What the kernel said.
pub fn map(bytes: usize) -> io::Result<OwnedFd> {
    let attributes = Map {
        map_type: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: bytes as u32,
        max_entries: 1,
        map_flags: MMAPABLE,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: NAME,
    };
    // SAFETY: these are the attributes of MAP_CREATE, and no address is among them.
    unsafe { open(MAP_CREATE, attributes) }
}

fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let attributes = Types {
        btf: types.as_ptr() as u64,
        btf_log_buf: 0,
        btf_size: types.len() as u32,
        btf_log_size: 0,
        btf_log_level: 0,
    };
    // SAFETY: these are the attributes of BTF_LOAD; `btf` and `btf_size` are those of a slice that lives until then.
    unsafe { open(BTF_LOAD, attributes) }
}

/// Loads the program for a map.
///
/// # Errors
/// What the kernel said: EPERM without CAP_BPF and CAP_PERFMON and where lockdown forbids it, EINVAL where it knows
/// the program's type or helpers not, or has no such thing as BTF.
pub fn load(map: impl AsFd) -> io::Result<OwnedFd> {
    let instructions = program::instructions(map.as_fd().as_raw_fd());
    let types = load_types(&program::types())?;
    let attributes = Program {
        prog_type: PROG_TYPE_SYSCALL,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: program::LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: SLEEPABLE,
        prog_name: NAME,
        prog_ifindex: 0,
        expected_attach_type: 0,
        prog_btf_fd: types.as_raw_fd() as u32,
        func_info_rec_size: size_of_val(&program::FUNCTIONS[0]) as u32,
        func_info: program::FUNCTIONS.as_ptr() as u64,
        func_info_cnt: program::FUNCTIONS.len() as u32,
    };
    // SAFETY: these are the attributes of PROG_LOAD; the addresses are those of data that lives until then, with
    // their lengths, and the licence ends with a 0.
    unsafe { open(PROG_LOAD, attributes) }
}

/// Runs the program on a context of one word.
///
/// # Errors
/// What the kernel said.
pub fn run(program: impl AsFd, context: u64) -> io::Result<()> {
    let mut attributes = Run {
        prog_fd: program.as_fd().as_raw_fd() as u32,
        retval: 0,
        data_size_in: 0,
        data_size_out: 0,
        data_in: 0,
        data_out: 0,
        repeat: 0,
        duration: 0,
        ctx_size_in: size_of_val(&context) as u32,
        ctx_size_out: 0,
        ctx_in: std::ptr::from_ref(&context) as u64,
    };
    // SAFETY: these are the attributes of PROG_TEST_RUN, and the address is that of `context`, with its size.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }.map(drop)
}
