//! A vCPU of x86-64: ring 3 in long mode.
//!
//! The guest runs in ring 3 because a KVM without nested page tables may emulate a guest's kernel code (kvm_pvm does), which
//! takes a few microseconds for each instruction, but runs user code natively. On other hosts it makes no difference.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};

use super::KvmError;
use super::capabilities::refused;
use super::program::{DRAW_CONSTANTS, Data, Pass, Program, x86_64};

pub use super::program::X86_64_LEAVES as GUEST_LEAVES;

/// The architecture's name in the kernel.
pub const ARCHITECTURE: &str = "x86_64";
/// A short description of the guest.
pub const GUEST: &str = "a ring-3 long-mode guest";

/// CR0: PE, MP, ET, NE, WP, PG.
const CR0: u64 = 0x8001_0033;
/// CR4: PAE.
const CR4: u64 = 1 << 5;
/// EFER: SCE, LME, LMA.
const EFER: u64 = 0x501;
/// RFLAGS: only the bit that is always set.
const RFLAGS: u64 = 1 << 1;
/// The CPUID leaf whose EAX has the width of physical addresses in its lowest byte.
const ADDRESS_SIZES: u32 = 0x8000_0008;

fn supported(kvm: &Kvm) -> Result<CpuId, KvmError> {
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(refused("KVM_GET_SUPPORTED_CPUID"))
}

/// Builds the guest for this data.
pub fn program(kvm: &Kvm, data: Data) -> Result<Program, KvmError> {
    /// The width of physical addresses of a processor that does not report it (Intel SDM vol. 3A, MAXPHYADDR).
    const DEFAULT_BITS: u8 = 36;
    let cpuid = supported(kvm)?;
    let sizes = cpuid.as_slice().iter().find(|entry| entry.function == ADDRESS_SIZES);
    let physical_bits = sizes.map_or(DEFAULT_BITS, |entry| entry.eax as u8).clamp(32, 52);
    x86_64(physical_bits, data)
}

/// Initialises a new vCPU.
pub fn prepare(kvm: &Kvm, _: &VmFd, vcpu: &VcpuFd, program: &Program) -> Result<(), KvmError> {
    vcpu.set_cpuid2(&supported(kvm)?).map_err(refused("KVM_SET_CPUID2"))?;
    let mut registers = vcpu.get_sregs().map_err(refused("KVM_GET_SREGS"))?;
    let data = kvm_segment {
        limit: u32::MAX,
        selector: 0x2b,
        type_: 3, // read, write, accessed
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    };
    registers.cs = kvm_segment { selector: 0x33, type_: 11 /* execute, read, accessed */, db: 0, l: 1, ..data };
    [registers.ss, registers.ds, registers.es, registers.fs, registers.gs] = [data; 5];
    (registers.cr0, registers.cr3, registers.cr4) = (CR0, program.root.0, CR4);
    registers.efer = EFER;
    vcpu.set_sregs(&registers).map_err(refused("KVM_SET_SREGS"))
}

/// Sets a vCPU to the beginning of a pass.
pub fn set(vcpu: &VcpuFd, pass: &Pass) -> Result<(), KvmError> {
    let [step, factor] = DRAW_CONSTANTS;
    let registers = kvm_regs {
        rip: pass.entry,
        rdi: pass.first,
        rsi: pass.end,
        rdx: pass.stride,
        rax: pass.value,
        rbx: pass.doorbell,
        r9: pass.state,
        r10: pass.write_threshold,
        r11: step,
        r12: factor,
        rflags: RFLAGS,
        ..Default::default()
    };
    vcpu.set_regs(&registers).map_err(refused("KVM_SET_REGS"))
}
