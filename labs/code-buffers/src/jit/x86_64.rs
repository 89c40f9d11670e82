//! The generator for x86-64 (System V calling convention: the argument is in rdi and the result in rax).

use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, VecAssembler, dynasm};

use super::ROTATION;

pub(super) fn encode(constants: &[u64]) -> Vec<u8> {
    let mut ops = VecAssembler::<X64Relocation>::new(0);
    dynasm!(ops ; .arch x64 ; mov rax, rdi);
    for constant in constants {
        dynasm!(ops
            ; .arch x64
            ; mov rcx, QWORD constant.cast_signed()
            ; xor rax, rcx
            ; rol rax, ROTATION as i8
            ; add rax, rcx
        );
    }
    dynasm!(ops ; .arch x64 ; ret);
    ops.finalize().expect("code without labels")
}
