//! The registers of a stopped task, as far as system calls need them.
//!
//! Each architecture is a table of positions in the kernel's general register set (`NT_PRSTATUS`), so every table
//! compiles and is tested on every host.

/// Positions of the registers of a system call, as indexes of 8-byte words in `NT_PRSTATUS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// 8-byte words in the register set.
    pub words: usize,
    /// The six arguments.
    pub arguments: [usize; 6],
    pub result: usize,
    /// The call number, if it can be changed at the entry stop; `None` if that requires `NT_ARM_SYSTEM_CALL`.
    pub number_at_entry: Option<usize>,
    /// The call number, as the program loads it before the instruction.
    pub number: usize,
    /// The instruction pointer.
    pub instruction: usize,
    /// Bytes of the system call instruction.
    pub instruction_bytes: u64,
    /// The stack pointer, the frame pointer, and the register that holds the return address at a call, if there is one.
    pub stack: usize,
    pub frame: usize,
    pub link: Option<usize>,
    /// Whether the first argument is in its register at the entry stop and can be changed there. riscv64 keeps it in
    /// `orig_a0`, which is not in the register set (arch/riscv/include/uapi/asm/ptrace.h); newer kernels put -ENOSYS
    /// into the register (`do_trap_ecall_u`, arch/riscv/kernel/traps.c).
    pub first_argument_at_entry: bool,
    /// `AUDIT_ARCH_*` of the 64-bit system calls (include/uapi/linux/audit.h).
    pub audit_arch: u32,
    /// prctl in the other ABIs that a kernel of this architecture supports: `AUDIT_ARCH_*` and call number.
    pub other_prctls: &'static [(u32, i64)],
}

/// arch/x86/include/asm/user_64.h, `struct user_regs_struct`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "every table is tested on every host"))]
pub const X86_64: Layout = Layout {
    words: 27,
    arguments: [14, 13, 12, 7, 9, 8],
    result: 10,
    number_at_entry: Some(15),
    number: 10,
    instruction: 16,
    instruction_bytes: 2,
    stack: 19,
    frame: 4,
    link: None,
    first_argument_at_entry: true,
    audit_arch: 0xc000_003e,
    // i386, and x32: arch/x86/entry/syscalls, `__X32_SYSCALL_BIT`.
    other_prctls: &[(0x4000_0003, 172), (0xc000_003e, 0x4000_0000 | 157)],
};

/// arch/arm64/include/uapi/asm/ptrace.h, `struct user_pt_regs`.
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "every table is tested on every host"))]
pub const AARCH64: Layout = Layout {
    words: 34,
    arguments: [0, 1, 2, 3, 4, 5],
    result: 0,
    number_at_entry: None,
    number: 8,
    instruction: 32,
    instruction_bytes: 4,
    stack: 31,
    frame: 29,
    link: Some(30),
    first_argument_at_entry: true,
    audit_arch: 0xc000_00b7,
    // arm: arch/arm64/tools/syscall_32.tbl.
    other_prctls: &[(0x4000_0028, 172)],
};

/// arch/riscv/include/uapi/asm/ptrace.h, `struct user_regs_struct`.
#[cfg_attr(not(target_arch = "riscv64"), allow(dead_code, reason = "every table is tested on every host"))]
pub const RISCV64: Layout = Layout {
    words: 32,
    arguments: [10, 11, 12, 13, 14, 15],
    result: 10,
    number_at_entry: Some(17),
    number: 17,
    instruction: 0,
    instruction_bytes: 4,
    stack: 2,
    frame: 8,
    link: Some(1),
    first_argument_at_entry: false,
    audit_arch: 0xc000_00f3,
    // rv32: include/uapi/asm-generic/unistd.h.
    other_prctls: &[(0x4000_00f3, 167)],
};

/// The layout of the running kernel.
#[cfg(target_arch = "x86_64")]
pub const NATIVE: Layout = X86_64;
/// The layout of the running kernel.
#[cfg(target_arch = "aarch64")]
pub const NATIVE: Layout = AARCH64;
/// The layout of the running kernel.
#[cfg(target_arch = "riscv64")]
pub const NATIVE: Layout = RISCV64;

/// 8-byte words of the largest register set.
const MAX_WORDS: usize = 34;

/// A copy of a task's general registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The words of the register set; those past `Layout::words` are unused.
    pub words: [u64; MAX_WORDS],
}

impl Registers {
    pub const ZERO: Registers = Registers { words: [0; MAX_WORDS] };

    /// The six arguments.
    pub fn arguments(&self, layout: &Layout) -> [u64; 6] {
        layout.arguments.map(|at| self.words[at])
    }

    /// The result; negative for an error.
    pub fn result(&self, layout: &Layout) -> i64 {
        self.words[layout.result] as i64
    }

    /// The same registers, with `result` as the result of the call that was just made.
    pub fn returning(mut self, layout: &Layout, result: i64) -> Registers {
        self.words[layout.result] = result as u64;
        self
    }

    /// The same registers at an entry stop, with another call. If `number_at_entry` is `None`, the number must be
    /// changed separately.
    pub fn entering(mut self, layout: &Layout, number: i64, arguments: [u64; 6]) -> Registers {
        self.set_arguments(layout, arguments);
        if let Some(at) = layout.number_at_entry {
            self.words[at] = number as u64;
        }
        self
    }

    /// The registers of a task that has executed a system call instruction, moved back before that instruction with
    /// another call loaded.
    pub fn rewound(mut self, layout: &Layout, number: i64, arguments: [u64; 6]) -> Registers {
        self.words[layout.instruction] -= layout.instruction_bytes;
        if let Some(at) = layout.number_at_entry {
            self.words[at] = u64::MAX; // no call is in progress: the kernel has nothing to restart
        }
        self.set_arguments(layout, arguments);
        self.words[layout.number] = number as u64;
        self
    }

    fn set_arguments(&mut self, layout: &Layout, arguments: [u64; 6]) {
        for (at, value) in layout.arguments.into_iter().zip(arguments) {
            self.words[at] = value;
        }
    }
}

/// Whether a raw system call result is an error (a negated errno).
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewound_call_points_at_its_instruction() {
        for layout in [X86_64, AARCH64, RISCV64] {
            let mut registers = Registers::ZERO;
            registers.words[layout.instruction] = 0x1000;
            let call = registers.rewound(&layout, 28, [1, 2, 3, 4, 5, 6]);
            assert_eq!(call.words[layout.instruction], 0x1000 - layout.instruction_bytes);
            assert_eq!(call.arguments(&layout), [1, 2, 3, 4, 5, 6]);
            assert_eq!(call.words[layout.number], 28);
            assert_eq!(registers.returning(&layout, -12).result(&layout), -12);
        }
    }

    #[test]
    fn positions_are_distinct_and_inside_the_set() {
        for layout in [X86_64, AARCH64, RISCV64] {
            let mut seen: Vec<usize> = layout.arguments.into_iter().chain([layout.instruction]).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 7);
            assert!(seen.iter().all(|at| *at < layout.words) && layout.words <= MAX_WORDS);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_x86_64_table_agrees_with_libc() {
        use std::mem::{offset_of, size_of};
        type Kernel = libc::user_regs_struct;
        assert_eq!(size_of::<Kernel>(), X86_64.words * 8);
        let arguments = [
            offset_of!(Kernel, rdi),
            offset_of!(Kernel, rsi),
            offset_of!(Kernel, rdx),
            offset_of!(Kernel, r10),
            offset_of!(Kernel, r8),
            offset_of!(Kernel, r9),
        ];
        assert_eq!(arguments.map(|bytes| bytes / 8), X86_64.arguments);
        assert_eq!(offset_of!(Kernel, rax) / 8, X86_64.result);
        assert_eq!(Some(offset_of!(Kernel, orig_rax) / 8), X86_64.number_at_entry);
        assert_eq!(offset_of!(Kernel, rip) / 8, X86_64.instruction);
    }
}
