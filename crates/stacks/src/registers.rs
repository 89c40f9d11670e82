//! [`Registers`]: the registers from which a stack is unwound.

use perf_event::data::Registers as Sampled;

/// The registers of a task that say where it is and who called it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The link register; 0 on architectures without one.
    pub link: u64,
}

#[cfg(not(target_arch = "aarch64"))]
mod native {
    use std::sync::Arc;

    use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};

    use super::Registers;

    pub type Unwinder = UnwinderX86_64<Arc<[u8]>>;
    pub type Cache = CacheX86_64;
    pub type UnwindRegisters = UnwindRegsX86_64;

    /// `PERF_REG_X86_*` of rip, rsp, rbp (arch/x86/include/uapi/asm/perf_regs.h).
    pub const PERF_REGISTERS: [u32; 3] = [8, 7, 6];

    pub fn unwind_registers(of: &Registers) -> UnwindRegisters {
        UnwindRegsX86_64::new(of.instruction, of.stack, of.frame)
    }
}

#[cfg(target_arch = "aarch64")]
mod native {
    use std::sync::Arc;

    use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};

    use super::Registers;

    pub type Unwinder = UnwinderAarch64<Arc<[u8]>>;
    pub type Cache = CacheAarch64;
    pub type UnwindRegisters = UnwindRegsAarch64;

    /// `PERF_REG_ARM64_*` of pc, sp, x29, lr (arch/arm64/include/uapi/asm/perf_regs.h).
    pub const PERF_REGISTERS: [u32; 4] = [32, 31, 29, 30];

    /// A signed return address has its signature above the 48 bits of an address.
    pub fn unwind_registers(of: &Registers) -> UnwindRegisters {
        let mask = PtrAuthMask::from_max_known_address((1 << 48) - 1);
        UnwindRegsAarch64::new_with_ptr_auth_mask(mask, of.link, of.stack, of.frame)
    }
}

pub use native::{Cache, Unwinder, unwind_registers};

/// The mask of the registers that perf samples.
pub fn perf_mask() -> u64 {
    native::PERF_REGISTERS.iter().map(|register| 1 << register).sum()
}

impl Registers {
    /// The sampled registers; `None` for a 32-bit program, and for a task that has no user mode.
    pub fn of_sample(sampled: &Sampled) -> Option<Registers> {
        if sampled.abi != perf_event::data::SampleRegsAbi::ABI_64 {
            return None;
        }
        // The values are in the order of the mask's bits.
        let value = |register: &u32| {
            let below = sampled.mask & ((1 << register) - 1);
            sampled.regs.get(below.count_ones() as usize).copied()
        };
        let mut values = native::PERF_REGISTERS.iter().map(value);
        Some(Registers {
            instruction: values.next()??,
            stack: values.next()??,
            frame: values.next()??,
            link: values.next().flatten().unwrap_or_default(),
        })
    }
}
