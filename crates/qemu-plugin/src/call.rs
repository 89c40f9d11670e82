// SPDX-License-Identifier: GPL-2.0-or-later
//! Converts system calls to address-space events.
//!
//! Sources of the numbers: Linux `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`, which arm64
//! and riscv64 use.

use trace::Call;

use crate::guest_memory::GuestMemory;
use crate::kernel_accesses::{self, Abi, KernelAccess};

/// A system call that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Brk,
    Madvise,
    Mlock,
    Mlock2,
    Mlockall,
    Munlockall,
    /// System V shared memory: a mapping whose length is not an argument of the call.
    Shmat,
    Prctl,
    Execve,
    Execveat,
    Clone,
    Clone3,
    Fork,
    Vfork,
    Exit,
    ExitGroup,
    /// Sends a signal, which may end the program.
    Signal(Signalling),
}

/// Where the arguments of a call that sends a signal are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalling {
    /// `kill`: process, signal.
    Process,
    /// `tkill`: thread, signal.
    Thread,
    /// `tgkill`: process, thread, signal.
    ThreadOfProcess,
}

use Kind::*;

const X86_64: [(i64, Kind); 23] = [
    (9, Mmap),
    (10, Mprotect),
    (11, Munmap),
    (12, Brk),
    (25, Mremap),
    (28, Madvise),
    (30, Shmat),
    (56, Clone),
    (57, Fork),
    (58, Vfork),
    (59, Execve),
    (60, Exit),
    (62, Signal(Signalling::Process)),
    (149, Mlock),
    (151, Mlockall),
    (152, Munlockall),
    (157, Prctl),
    (200, Signal(Signalling::Thread)),
    (231, ExitGroup),
    (234, Signal(Signalling::ThreadOfProcess)),
    (322, Execveat),
    (325, Mlock2),
    (435, Clone3),
];

const GENERIC: [(i64, Kind); 21] = [
    (93, Exit),
    (94, ExitGroup),
    (129, Signal(Signalling::Process)),
    (130, Signal(Signalling::Thread)),
    (131, Signal(Signalling::ThreadOfProcess)),
    (167, Prctl),
    (196, Shmat),
    (214, Brk),
    (215, Munmap),
    (216, Mremap),
    (220, Clone),
    (221, Execve),
    (222, Mmap),
    (226, Mprotect),
    (228, Mlock),
    (230, Mlockall),
    (231, Munlockall),
    (233, Madvise),
    (281, Execveat),
    (284, Mlock2),
    (435, Clone3),
];

/// The system call numbers of an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    kinds: &'static [(i64, Kind)],
    abi: Abi,
}

impl Numbers {
    /// The numbers of a QEMU target; `None` for an unknown target.
    pub fn of(target: &str) -> Option<Numbers> {
        match target {
            "x86_64" => Some(Numbers { kinds: &X86_64, abi: Abi::X86_64 }),
            "aarch64" | "riscv64" => Some(Numbers { kinds: &GENERIC, abi: Abi::Generic }),
            _ => None,
        }
    }

    /// The kind of the call with this number; `None` if it is not recorded.
    pub fn kind(self, number: i64) -> Option<Kind> {
        self.kinds.binary_search_by_key(&number, |(number, _)| *number).ok().map(|index| self.kinds[index].1)
    }

    /// What the kernel accesses in the call with this number.
    pub fn kernel_accesses(self, number: i64) -> &'static [KernelAccess] {
        kernel_accesses::of_call(self.abi, number)
    }
}

/// A system call that a thread is in.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Its effect on the address space, if any.
    pub kind: Option<Kind>,
    /// What the kernel accesses in it.
    pub accesses: &'static [KernelAccess],
    pub arguments: [u64; 6],
    /// The size in bytes of the program's buffer, for a call in which the kernel overwrites that size with the actual length.
    pub buffer_bytes: u64,
}

/// The `CLONE_*` flags that vfork(2) is recorded with; fork(2) has none.
const VFORK_FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;

/// The event of a call with these arguments.
pub fn event(kind: Kind, arguments: &[u64; 6], memory: &impl GuestMemory) -> Option<Call> {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    let (address, bytes) = (first, second);
    Some(match kind {
        Mmap => Call::Mmap {
            address,
            bytes,
            protection: third,
            flags: fourth,
            file: i64::from(fifth as i32),
            offset: sixth,
            file_system: file_system(fifth as i32, bytes, fourth),
        },
        Munmap => Call::Munmap { address, bytes },
        Mprotect => Call::Mprotect { address, bytes, protection: third },
        Mremap => Call::Mremap { address, old_bytes: bytes, new_bytes: third, flags: fourth, new_address: fifth },
        Brk => Call::Brk { address },
        Madvise => Call::Madvise { address, bytes, advice: third },
        Mlock => Call::Mlock { address, bytes, flags: 0 },
        Mlock2 => Call::Mlock { address, bytes, flags: third },
        Mlockall => Call::Mlockall { flags: first },
        Munlockall => Call::Mlockall { flags: 0 },
        Shmat => {
            let flags = if second == 0 { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_FIXED };
            let is_read_only = third & libc::SHM_RDONLY as u64 != 0;
            let protection = if is_read_only { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
            Call::Mmap {
                address: second,
                bytes: segment_bytes(first as i32)?,
                protection: protection as u64,
                flags: (flags | libc::MAP_ANONYMOUS) as u64,
                file: -1,
                offset: 0,
                file_system: None,
            }
        }
        Prctl => Call::Prctl { option: first, argument: second },
        Execve => Call::exec(lossy(memory, first)),
        Execveat => Call::exec(lossy(memory, second)),
        Clone => Call::Clone { flags: first },
        // The flags are the first word of struct clone_args.
        Clone3 => Call::Clone { flags: memory.word(first).unwrap_or(0) },
        Fork => Call::Clone { flags: 0 },
        Vfork => Call::Clone { flags: VFORK_FLAGS },
        Exit | ExitGroup => Call::Exit { status: i64::from(first as i32) },
        Signal(_) => return None,
    })
}

/// The smallest mapping that a file system may place differently (`__thp_get_unmapped_area`, mm/huge_memory.c).
const PLACED_BYTES: u64 = 2 << 20;

/// The type of the file's file system, where the mapping is long enough that the type decides its address. The file descriptor is
/// the same inside and outside QEMU. `None` where there is no such file.
fn file_system(file: i32, bytes: u64, flags: u64) -> Option<u64> {
    if file < 0 || bytes < PLACED_BYTES || flags & libc::MAP_ANONYMOUS as u64 != 0 {
        return None;
    }
    let mut reported = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fstatfs writes one statfs to the given place, or fails.
    let result = unsafe { libc::fstatfs(file, reported.as_mut_ptr()) };
    // SAFETY: the structure is plain numbers and was zeroed before.
    (result == 0).then(|| unsafe { reported.assume_init() }.f_type as u64)
}

/// The event [`Call::Hole`] that follows the mapping of a file in memory in which nothing is allocated; `None` for other
/// mappings.
pub fn hole(call: &Call, result: i64) -> Option<Call> {
    let Call::Mmap { bytes, flags, file, .. } = *call else { return None };
    let is_shared =
        flags & libc::MAP_TYPE as u64 != libc::MAP_PRIVATE as u64 && flags & libc::MAP_ANONYMOUS as u64 == 0;
    let is_mapped = !(-4095..0).contains(&result);
    (is_shared && is_mapped && is_unallocated(file as i32)).then_some(Call::Hole { address: result as u64, bytes })
}

/// Whether a file is in memory and has no page. The file descriptor is the same inside and outside QEMU.
fn is_unallocated(file: i32) -> bool {
    let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    let mut reported = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstatfs and fstat write one structure each to the given places, or fail.
    let results = unsafe { [libc::fstatfs(file, system.as_mut_ptr()), libc::fstat(file, reported.as_mut_ptr())] };
    // SAFETY: the structures are plain numbers and were zeroed before.
    let (system, reported) = unsafe { (system.assume_init(), reported.assume_init()) };
    results == [0, 0] && system.f_type == libc::TMPFS_MAGIC && reported.st_blocks == 0
}

/// The length of a System V segment, whose number is the same inside and outside QEMU. `None` where there is none.
fn segment_bytes(number: i32) -> Option<u64> {
    let mut reported = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: shmctl writes one shmid_ds to the given place, or fails.
    let result = unsafe { libc::shmctl(number, libc::IPC_STAT, reported.as_mut_ptr()) };
    // SAFETY: the structure is plain numbers and was zeroed before.
    (result == 0).then(|| unsafe { reported.assume_init() }.shm_segsz as u64)
}

fn lossy(memory: &impl GuestMemory, address: u64) -> String {
    String::from_utf8_lossy(&memory.text(address)).into_owned()
}

/// Signals whose default action ends the program and that programs send to themselves: abort(3), raise(3).
const ENDING: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGKILL,
    libc::SIGSEGV,
    libc::SIGTERM,
];

/// Whether the call sends a signal to its own process that may end it.
pub fn may_end(kind: Signalling, arguments: &[u64; 6], process: u32) -> bool {
    let (target, signal) = match kind {
        Signalling::Process => (arguments[0] as i32, arguments[1]),
        Signalling::ThreadOfProcess => (arguments[0] as i32, arguments[2]),
        // The target thread is not compared, because it may be any thread of this process.
        Signalling::Thread => (0, arguments[1]),
    };
    ENDING.contains(&(signal as i32)) && (target == 0 || target == -1 || target.unsigned_abs() == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl GuestMemory for Nothing {
        fn read(&self, _address: u64, _to: &mut [u8]) -> usize {
            0
        }

        fn text(&self, address: u64) -> Vec<u8> {
            format!("text at {address}").into_bytes()
        }
    }

    #[test]
    fn numbers_can_be_searched() {
        assert!(X86_64.is_sorted_by_key(|(number, _)| number) && GENERIC.is_sorted_by_key(|(number, _)| number));
        let x86 = Numbers::of("x86_64").unwrap();
        assert_eq!((x86.kind(9), x86.kind(222), x86.kind(-1)), (Some(Mmap), None, None));
        assert_eq!(Numbers::of("riscv64").unwrap().kind(222), Some(Mmap));
        assert!(Numbers::of("hppa").is_none());
    }

    #[test]
    fn libc_agrees_on_this_machine() {
        let numbers = Numbers::of(std::env::consts::ARCH);
        let Some(numbers) = numbers else { return };
        for (number, kind) in [
            (libc::SYS_mmap, Mmap),
            (libc::SYS_munmap, Munmap),
            (libc::SYS_mprotect, Mprotect),
            (libc::SYS_mremap, Mremap),
            (libc::SYS_brk, Brk),
            (libc::SYS_madvise, Madvise),
            (libc::SYS_shmat, Shmat),
            (libc::SYS_prctl, Prctl),
            (libc::SYS_execve, Execve),
            (libc::SYS_execveat, Execveat),
            (libc::SYS_clone, Clone),
            (libc::SYS_clone3, Clone3),
            (libc::SYS_exit, Exit),
            (libc::SYS_exit_group, ExitGroup),
            (libc::SYS_kill, Signal(Signalling::Process)),
            (libc::SYS_tkill, Signal(Signalling::Thread)),
            (libc::SYS_tgkill, Signal(Signalling::ThreadOfProcess)),
        ] {
            assert_eq!(numbers.kind(number), Some(kind), "{number}");
        }
    }

    #[test]
    fn the_file_system_of_a_large_mapping_is_asked_for() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let mapped = |bytes, flags, number: i32| match event(Mmap, &[0, bytes, 1, flags, number as u64, 0], &Nothing) {
            Some(Call::Mmap { file_system, .. }) => file_system,
            _ => panic!("no mmap"),
        };
        assert!(mapped(PLACED_BYTES, 2, number).is_some());
        assert_eq!(mapped(PLACED_BYTES - 1, 2, number), None, "its place is the same in all");
        assert_eq!(mapped(PLACED_BYTES, 0x22, number), None, "anonymous");
        assert_eq!(mapped(PLACED_BYTES, 2, -1), None);
    }

    #[test]
    fn a_segment_is_a_mapping_of_its_length() {
        // SAFETY: a segment of this test alone, which is removed below.
        let number = unsafe { libc::shmget(libc::IPC_PRIVATE, 3 * 4096, 0o600) };
        assert!(number >= 0);
        let attached = event(Shmat, &[number as u64, 0, libc::SHM_RDONLY as u64, 0, 0, 0], &Nothing);
        // SAFETY: only this test uses the segment.
        assert_eq!(unsafe { libc::shmctl(number, libc::IPC_RMID, std::ptr::null_mut()) }, 0);
        let (bytes, flags) = (3 * 4096, 0x21);
        assert_eq!(
            attached,
            Some(Call::Mmap { address: 0, bytes, protection: 1, flags, file: -1, offset: 0, file_system: None })
        );
        assert_eq!(event(Shmat, &[u64::MAX, 0, 0, 0, 0, 0], &Nothing), None);
    }

    #[test]
    fn a_signal_to_oneself_may_end_the_program() {
        let abort = [100, 101, libc::SIGABRT as u64, 0, 0, 0];
        assert!(may_end(Signalling::ThreadOfProcess, &abort, 100));
        assert!(!may_end(Signalling::ThreadOfProcess, &abort, 99));
        assert!(!may_end(Signalling::Process, &[100, libc::SIGURG as u64, 0, 0, 0, 0], 100));
        assert!(may_end(Signalling::Process, &[-100i64 as u64, libc::SIGTERM as u64, 0, 0, 0, 0], 100));
    }

    #[test]
    fn arguments_of_32_bits_have_signs() {
        let mmap = event(Mmap, &[1, 2, 3, 4, 0xffff_ffff, 6], &Nothing);
        assert_eq!(
            mmap,
            Some(Call::Mmap { address: 1, bytes: 2, protection: 3, flags: 4, file: -1, offset: 6, file_system: None })
        );
        assert_eq!(event(Exit, &[0xffff_ffff, 0, 0, 0, 0, 0], &Nothing), Some(Call::Exit { status: -1 }));
        assert_eq!(event(Execve, &[5, 0, 0, 0, 0, 0], &Nothing), Some(Call::exec("text at 5")));
    }
}
