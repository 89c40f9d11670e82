//! The addresses and sizes that determine a layout on Linux: for x86-64, and the differences on other architectures. Also QEMU's
//! address of programs.

pub const PAGE: u64 = 4096;
/// The alignment of large mappings with base pages of 4K (`PMD_SIZE`).
pub const HUGE: u64 = 2 << 20;
/// The address of position-independent programs (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h, rounded down to a page).
pub const PROGRAM: u64 = 0x5555_5555_4000;
/// The maximum size of a stack (the default of `ulimit -s`).
pub const STACK_BYTES: u64 = 8 << 20;
/// The gap below a stack, in base pages (`stack_guard_gap`).
pub const STACK_GUARD_PAGES: u64 = 256;
/// The minimum gap for a stack and its randomisation (`SZ_128M` in `mmap_base`).
pub const MIN_GAP_BYTES: u64 = 128 << 20;
/// The end of user addresses (`TASK_SIZE` with four levels).
pub const STACK_END: u64 = 0x7fff_ffff_f000;
/// `mmap_base` without randomisation: below the minimum gap.
#[cfg(test)]
pub const MMAP_BASE: u64 = STACK_END - MIN_GAP_BYTES;
/// The lowest address that can be mapped (the default of `vm.mmap_min_addr`).
pub const MIN_ADDRESS: u64 = 64 << 10;
/// A hint at most this far from a mapping counts as computed from the mapping's address. It is the range of a near jump: JITs
/// search this far for room for their code. Hints farther away count as constants of the program.
pub const NEAR_BYTES: u64 = 2 << 30;
/// Size of the vDSO and its data, which the kernel maps directly after the interpreter: six pages of `[vvar]` and `[vvar_vclock]`,
/// two of code (`map_vdso`, arch/x86/entry/vdso/vma.c).
pub const VDSO_BYTES: u64 = 8 * PAGE;
/// Size of the interpreter, which the kernel maps first: that of ld.so of glibc 2.36. A larger one ends above `mmap_base`, where
/// nothing else is.
pub const INTERPRETER_BYTES: u64 = 53 * PAGE;
/// QEMU places position-independent programs at this address or above (`TASK_UNMAPPED_BASE`). A program below is at its link
/// address.
pub const QEMU_BASE: u64 = 0x40_0000_0000;

/// The end of user addresses on arm64 and RISC-V. (On x86-64, programs cannot use the last page below it.) On arm64 with pages of
/// 4K, Linux has 48-bit addresses. The model has 47 bits: the tables are the same, but other entries of the two highest levels are
/// used.
const USER_END: u64 = 1 << 47;
/// The address of position-independent programs on arm64. Linux places them at two thirds of 48 bits (`ELF_ET_DYN_BASE`,
/// arch/arm64/include/asm/elf.h), rounded down to 64K, to which linkers for arm64 align them: 0xaaaa_aaaa_0000. The model uses two
/// thirds of 47 bits with the same offset within 1G.
const ARM64_PROGRAM: u64 = 0x5555_6aaa_0000;
/// The address of position-independent programs on arm64 with pages of 16K. Linux then has 47-bit addresses
/// (`ARM64_VA_BITS_47`, as Debian configures it).
const ARM64_16K_PROGRAM: u64 = 0x5555_5555_0000;
/// The address of position-independent programs on 64-bit RISC-V, at two thirds of the 47-bit addresses of Sv48
/// (arch/riscv/include/asm/elf.h).
const RISC_V_PROGRAM: u64 = 0x5555_5555_5000;

/// The parameters that depend on the architecture of a program and on its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Platform {
    /// Base page size in bytes: mappings begin at multiples of it.
    pub base_bytes: u64,
    /// The alignment of large mappings (`PMD_SIZE`), if the tables have PMD leaves.
    pub huge_bytes: Option<u64>,
    /// The address of position-independent programs.
    pub program: u64,
    pub stack_end: u64,
    /// Size of the vDSO and its data in bytes.
    pub vdso_bytes: u64,
}

impl Platform {
    /// The parameters of an architecture, by its name in traces, on a kernel with this base page and `PMD_SIZE`. `vdso_pages` is
    /// the number of pages of the vDSO and its data. The default is that of Linux 6.18: on arm64 and RISC-V four pages of data
    /// (`VDSO_NR_PAGES`, include/vdso/datapage.h) and at most 8K of code.
    pub fn of(architecture: &str, base_bytes: u64, huge_bytes: Option<u64>, vdso_pages: Option<u64>) -> Platform {
        let default_pages = 4 + (8u64 << 10).div_ceil(base_bytes);
        let vdso_bytes = vdso_pages.unwrap_or(default_pages) * base_bytes;
        let sizes = Platform { base_bytes, huge_bytes, vdso_bytes, stack_end: USER_END, program: 0 };
        match architecture {
            "aarch64" if base_bytes == 16 << 10 => Platform { program: ARM64_16K_PROGRAM, ..sizes },
            "aarch64" => Platform { program: ARM64_PROGRAM, ..sizes },
            "riscv64" => Platform { program: RISC_V_PROGRAM, ..sizes },
            _ => {
                // x86-64 has 4K pages. If the policy has larger base pages, all addresses are multiples of those.
                let vdso_bytes = vdso_pages.map_or(VDSO_BYTES, |pages| pages * PAGE).next_multiple_of(base_bytes);
                let rounded_down = |address: u64| address / base_bytes * base_bytes;
                Platform { vdso_bytes, stack_end: rounded_down(STACK_END), program: rounded_down(PROGRAM), ..sizes }
            }
        }
    }
}

impl Default for Platform {
    /// The parameters of x86-64.
    fn default() -> Platform {
        Platform::of("x86_64", PAGE, Some(HUGE), None)
    }
}

/// Rounds a number of bytes up to whole 4K pages.
pub fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))
}
