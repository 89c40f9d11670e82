//! Where Linux puts what has a place, and QEMU what it emulates: on x86-64, and what differs from that elsewhere.

pub const PAGE: u64 = 4096;
/// What aligned mappings are aligned for, with base pages of 4K (`PMD_SIZE`).
pub const HUGE: u64 = 2 << 20;
/// Where position-independent programs go (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h, less a page).
pub const PROGRAM: u64 = 0x5555_5555_4000;
/// What a stack may grow to (the default of `ulimit -s`).
pub const STACK_BYTES: u64 = 8 << 20;
/// What is kept free below a stack that grows, in base pages (`stack_guard_gap`).
pub const STACK_GUARD_PAGES: u64 = 256;
/// The least gap for a stack, with its randomisation (`SZ_128M` in `mmap_base`).
pub const LEAST_GAP_BYTES: u64 = 128 << 20;
/// The end of user addresses (`TASK_SIZE` with four levels).
pub const STACK_END: u64 = 0x7fff_ffff_f000;
/// `mmap_base`: below the gap for a stack of 8M and its randomisation.
#[cfg(test)]
pub const MMAP_BASE: u64 = STACK_END - LEAST_GAP_BYTES;
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

/// The end of the addresses of programs on arm64 and RISC-V. (On x86-64 the last page below it is left out.) Linux gives arm64
/// programs 48 bits with pages of 4K. The model keeps to 47: the same tables, in other entries of the two uppermost levels.
const WHOLE_END: u64 = 1 << 47;
/// Position-independent programs on arm64. Linux puts them at two thirds of 48 bits (`ELF_ET_DYN_BASE`,
/// arch/arm64/include/asm/elf.h), at a multiple of 64K, for which the linkers of arm64 align them: 0xaaaa_aaaa_0000. Here that is
/// at two thirds of 47 bits, with the same offset in its 1G.
const PROGRAM_OF_ARM64: u64 = 0x5555_6aaa_0000;
/// The same with pages of 16K, where Linux gives addresses 47 bits (`ARM64_VA_BITS_47`, as Debian configures it).
const PROGRAM_OF_16K: u64 = 0x5555_5555_0000;
/// Position-independent programs on 64-bit RISC-V, at two thirds of its addresses of 47 bits with Sv48
/// (arch/riscv/include/asm/elf.h).
const PROGRAM_OF_RISC_V: u64 = 0x5555_5555_5000;

/// What differs by the architecture of a program and by its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home {
    /// Bytes of a base page: no mapping begins elsewhere.
    pub base_bytes: u64,
    /// What aligned mappings are aligned for (`PMD_SIZE`), if tables have such leaves.
    pub huge_bytes: Option<u64>,
    /// Where position-independent programs go.
    pub program: u64,
    /// The end of the stack.
    pub stack_end: u64,
    /// The vdso and its data.
    pub vdso_bytes: u64,
}

impl Home {
    /// That of programs of an architecture, by its name in a trace, on a kernel with base pages and pages of `PMD_SIZE` of so many
    /// bytes. `vdso_pages` is how many the vdso and its data have. Where it is not known, it is that of Linux 6.18: on arm64
    /// and RISC-V four of data (`VDSO_NR_PAGES`, include/vdso/datapage.h), and 8K of code or less.
    pub fn of(architecture: &str, base_bytes: u64, huge_bytes: Option<u64>, vdso_pages: Option<u64>) -> Home {
        let usual = 4 + (8u64 << 10).div_ceil(base_bytes);
        let vdso_bytes = vdso_pages.unwrap_or(usual) * base_bytes;
        let sizes = Home { base_bytes, huge_bytes, vdso_bytes, stack_end: WHOLE_END, program: 0 };
        match architecture {
            "aarch64" if base_bytes == 16 << 10 => Home { program: PROGRAM_OF_16K, ..sizes },
            "aarch64" => Home { program: PROGRAM_OF_ARM64, ..sizes },
            "riscv64" => Home { program: PROGRAM_OF_RISC_V, ..sizes },
            _ => {
                // Such a program has pages of 4K; where larger ones are asked for, all is at whole ones.
                let vdso_bytes = vdso_pages.map_or(VDSO_BYTES, |pages| pages * PAGE).next_multiple_of(base_bytes);
                let whole = |address: u64| address / base_bytes * base_bytes;
                Home { vdso_bytes, stack_end: whole(STACK_END), program: whole(PROGRAM), ..sizes }
            }
        }
    }
}

impl Default for Home {
    /// That of x86-64.
    fn default() -> Home {
        Home::of("x86_64", PAGE, Some(HUGE), None)
    }
}

/// Whole pages for so many bytes.
pub fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))
}
