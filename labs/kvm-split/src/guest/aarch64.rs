//! A vCPU of arm64: EL1 with page tables of its own, so that its memory is cacheable like the host's.

use kvm_bindings::{
    KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_ARM64_SYSREG, KVM_REG_SIZE_U64, kvm_regs, kvm_vcpu_init, user_pt_regs,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use paging::Format;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;

use super::KvmError;
use super::capabilities::refused;
use super::program::{ARM64_MAIR, DRAW_CONSTANTS, Data, Pass, Program, arm64};

pub use super::program::ARM64_LEAVES as GUEST_LEAVES;

/// The architecture's name in the kernel.
pub const ARCHITECTURE: &str = "arm64";
/// A short description of the guest.
pub const GUEST: &str = "an EL1 guest";

/// EL1h, with debug, SError, IRQ and FIQ masked.
const PSTATE: u64 = 0x3c5;
/// SCTLR_EL1: its RES1 bits, and I, C and M: caches and the MMU are on.
const SCTLR: u64 = 0x30d0_1805;

/// The ID of a system register (Documentation/virt/kvm/api.rst, KVM_SET_ONE_REG).
const fn system(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
    KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM64_SYSREG as u64 | op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

const SCTLR_EL1: u64 = system(3, 0, 1, 0, 0);
const TTBR0_EL1: u64 = system(3, 0, 2, 0, 0);
const TCR_EL1: u64 = system(3, 0, 2, 0, 2);
const MAIR_EL1: u64 = system(3, 0, 10, 2, 0);

/// The ID of a general register: its offset in `struct kvm_regs`, in 32-bit words.
const fn core(offset: usize) -> u64 {
    KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE as u64 | (offset / size_of::<u32>()) as u64
}

const fn x(index: usize) -> u64 {
    core(std::mem::offset_of!(kvm_regs, regs) + std::mem::offset_of!(user_pt_regs, regs) + index * size_of::<u64>())
}

const PC: u64 = core(std::mem::offset_of!(kvm_regs, regs) + std::mem::offset_of!(user_pt_regs, pc));
const PSTATE_ID: u64 = core(std::mem::offset_of!(kvm_regs, regs) + std::mem::offset_of!(user_pt_regs, pstate));

fn set_all(vcpu: &VcpuFd, registers: &[(u64, u64)]) -> Result<(), KvmError> {
    for (id, value) in registers {
        vcpu.set_one_reg(*id, &value.to_ne_bytes()).map_err(refused("KVM_SET_ONE_REG"))?;
    }
    Ok(())
}

/// The guest for this data.
pub fn program(_: &Kvm, data: Data) -> Result<Program, KvmError> {
    arm64(data)
}

/// Initialises a new vCPU.
pub fn prepare(_: &Kvm, vm: &VmFd, vcpu: &VcpuFd, program: &Program) -> Result<(), KvmError> {
    let mut target = kvm_vcpu_init::default();
    vm.get_preferred_target(&mut target).map_err(refused("KVM_ARM_PREFERRED_TARGET"))?;
    vcpu.vcpu_init(&target).map_err(refused("KVM_ARM_VCPU_INIT"))?;
    let format = Arm64Stage1::new(Granule::K4, 39);
    let ids = format.registers(program.root).into_iter().filter_map(|(name, value)| match name {
        "tcr_el1" => Some((TCR_EL1, value)),
        "ttbr0_el1" => Some((TTBR0_EL1, value)),
        _ => None,
    });
    let mut registers: Vec<(u64, u64)> = ids.collect();
    registers.extend([(MAIR_EL1, ARM64_MAIR), (SCTLR_EL1, SCTLR)]);
    set_all(vcpu, &registers)
}

/// Sets a vCPU to the beginning of a pass.
pub fn set(vcpu: &VcpuFd, pass: &Pass) -> Result<(), KvmError> {
    let Pass { entry, first, end, stride, value, doorbell, state, write_threshold } = *pass;
    let [step, factor] = DRAW_CONSTANTS;
    let general = [(0, first), (1, end), (2, stride), (3, doorbell), (4, value)];
    let drawing = [(6, state), (7, write_threshold), (8, step), (9, factor)];
    let mut registers: Vec<(u64, u64)> =
        general.into_iter().chain(drawing).map(|(index, value)| (x(index), value)).collect();
    registers.extend([(PC, entry), (PSTATE_ID, PSTATE)]);
    set_all(vcpu, &registers)
}
