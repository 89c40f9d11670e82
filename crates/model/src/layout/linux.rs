//! Where Linux on x86-64 puts what has a place, and QEMU what it emulates.

pub const PAGE: u64 = 4096;
/// What aligned mappings are aligned for.
pub const HUGE: u64 = 2 << 20;
/// Where position-independent programs go (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h, less a page).
pub const PROGRAM: u64 = 0x5555_5555_4000;
/// What a stack may grow to (the default of `ulimit -s`).
pub const STACK_BYTES: u64 = 8 << 20;
/// What is kept free below a stack that grows (`stack_guard_gap`, 256 pages).
pub const STACK_GUARD_BYTES: u64 = 256 * PAGE;
/// The least gap for a stack, with its randomisation (`SZ_128M` in `mmap_base`).
pub const LEAST_GAP_BYTES: u64 = 128 << 20;
/// The end of user addresses (`TASK_SIZE` with four levels).
pub const STACK_END: u64 = 0x7fff_ffff_f000;
/// `mmap_base`: below the gap for a stack of 8M and its randomisation.
pub const MMAP_BASE: u64 = 0x7fff_f7ff_f000;
/// Below it nobody maps (the default of `vm.mmap_min_addr`).
pub const LOWEST: u64 = 64 << 10;
/// How far from what a program has an address lies at most that it has computed from it: what a near jump reaches. JITs look
/// so far for room for their code; farther addresses are numbers of the program's own.
pub const NEAR_BYTES: u64 = 2 << 30;
/// The vdso and its data, which are mapped after the interpreter and before anything else: six pages of `[vvar]` and
/// `[vvar_vclock]`, two of code (`map_vdso`, arch/x86/entry/vdso/vma.c).
pub const VDSO_BYTES: u64 = 8 * PAGE;
/// What an interpreter takes, which is mapped first of all: ld.so of glibc 2.36. Where one is larger its end lies above
/// `mmap_base`, where nothing else is.
pub const INTERPRETER_BYTES: u64 = 53 * PAGE;
/// QEMU puts position-independent programs here and above (`TASK_UNMAPPED_BASE`); what is below is where it was linked for.
pub const EMULATED: u64 = 0x40_0000_0000;

/// Whole pages for so many bytes.
pub fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))
}
