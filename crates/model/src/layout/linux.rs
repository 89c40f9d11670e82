//! The addresses of Linux's fixed places, and of QEMU's emulation: for x86-64, and the differences on other architectures.

pub const PAGE: u64 = 4096;
/// The alignment of aligned mappings with base pages of 4K (`PMD_SIZE`).
pub const HUGE: u64 = 2 << 20;
/// The address of position-independent programs (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h, less a page).
pub const PROGRAM: u64 = 0x5555_5555_4000;
/// The limit of a stack's growth (the default of `ulimit -s`).
pub const STACK_BYTES: u64 = 8 << 20;
/// The gap below a stack that grows, in base pages (`stack_guard_gap`).
pub const STACK_GUARD_PAGES: u64 = 256;
/// The minimum gap for a stack, with its randomisation (`SZ_128M` in `mmap_base`).
pub const MIN_GAP_BYTES: u64 = 128 << 20;
/// The end of user addresses (`TASK_SIZE` with four levels).
pub const STACK_END: u64 = 0x7fff_ffff_f000;
/// `mmap_base`: below the gap for a stack of 8M and its randomisation.
#[cfg(test)]
pub const MMAP_BASE: u64 = STACK_END - MIN_GAP_BYTES;
/// The lowest address that can be mapped (the default of `vm.mmap_min_addr`).
pub const LOWEST: u64 = 64 << 10;
/// The maximum distance from an existing mapping at which an address counts as computed from it: the range of a near
/// jump. JITs search this far for room for their code; addresses farther away are constants of the program.
pub const NEAR_BYTES: u64 = 2 << 30;
/// Size of the vdso and its data, which are mapped after the interpreter and before anything else: six pages of
/// `[vvar]` and `[vvar_vclock]`, two of code (`map_vdso`, arch/x86/entry/vdso/vma.c).
pub const VDSO_BYTES: u64 = 8 * PAGE;
/// Size of an interpreter, which is mapped first: that of ld.so of glibc 2.36. The end of a larger one is above
/// `mmap_base`, where there is nothing else.
pub const INTERPRETER_BYTES: u64 = 53 * PAGE;
/// QEMU puts position-independent programs at this address and above (`TASK_UNMAPPED_BASE`); a program below it is at
/// its link address.
pub const EMULATED: u64 = 0x40_0000_0000;

/// The end of user addresses on arm64 and RISC-V. (On x86-64 the last page below it is left out.) Linux gives arm64
/// programs 48 bits with pages of 4K. The model uses 47: the tables are the same, in other entries of the two uppermost
/// levels.
const WHOLE_END: u64 = 1 << 47;
/// The address of position-independent programs on arm64. Linux puts them at two thirds of 48 bits (`ELF_ET_DYN_BASE`,
/// arch/arm64/include/asm/elf.h), at a multiple of 64K, for which the linkers of arm64 align them: 0xaaaa_aaaa_0000.
/// The model uses two thirds of 47 bits, with the same offset within 1G.
const PROGRAM_OF_ARM64: u64 = 0x5555_6aaa_0000;
/// The same with pages of 16K, with which Linux has 47-bit addresses (`ARM64_VA_BITS_47`, as Debian configures it).
const PROGRAM_OF_16K: u64 = 0x5555_5555_0000;
/// The address of position-independent programs on 64-bit RISC-V, at two thirds of the 47-bit addresses of Sv48
/// (arch/riscv/include/asm/elf.h).
const PROGRAM_OF_RISC_V: u64 = 0x5555_5555_5000;

/// The parameters that depend on the architecture of a program and on its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home {
    /// Base page size in bytes: mappings begin at multiples of it.
    pub base_bytes: u64,
    /// The alignment of aligned mappings (`PMD_SIZE`), if the tables have such leaves.
    pub huge_bytes: Option<u64>,
    /// The address of position-independent programs.
    pub program: u64,
    pub stack_end: u64,
    /// Size of the vdso and its data in bytes.
    pub vdso_bytes: u64,
}

impl Home {
    /// The parameters for programs of an architecture, by its name in a trace, on a kernel with these base pages and
    /// pages of `PMD_SIZE`. `vdso_pages` is the number of pages of the vdso and its data. The default is that of Linux
    /// 6.18: on arm64 and RISC-V four pages of data (`VDSO_NR_PAGES`, include/vdso/datapage.h), and at most 8K of code.
    pub fn of(architecture: &str, base_bytes: u64, huge_bytes: Option<u64>, vdso_pages: Option<u64>) -> Home {
        let usual = 4 + (8u64 << 10).div_ceil(base_bytes);
        let vdso_bytes = vdso_pages.unwrap_or(usual) * base_bytes;
        let sizes = Home { base_bytes, huge_bytes, vdso_bytes, stack_end: WHOLE_END, program: 0 };
        match architecture {
            "aarch64" if base_bytes == 16 << 10 => Home { program: PROGRAM_OF_16K, ..sizes },
            "aarch64" => Home { program: PROGRAM_OF_ARM64, ..sizes },
            "riscv64" => Home { program: PROGRAM_OF_RISC_V, ..sizes },
            _ => {
                // Such a program has pages of 4K. If larger ones are requested, all addresses are multiples of them.
                let vdso_bytes = vdso_pages.map_or(VDSO_BYTES, |pages| pages * PAGE).next_multiple_of(base_bytes);
                let whole = |address: u64| address / base_bytes * base_bytes;
                Home { vdso_bytes, stack_end: whole(STACK_END), program: whole(PROGRAM), ..sizes }
            }
        }
    }
}

impl Default for Home {
    /// The parameters of x86-64.
    fn default() -> Home {
        Home::of("x86_64", PAGE, Some(HUGE), None)
    }
}

/// Rounds a number of bytes up to whole pages.
pub fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))
}
