// SPDX-License-Identifier: GPL-2.0-or-later
//! How instructions of x86-64 access memory, as far as that is known before they execute.
//!
//! Source: Intel's manual, volume 2, through `iced-x86`. An instruction counts as a pure load or store only if QEMU makes a
//! single access for its memory operand (`target/i386/tcg/translate.c`).

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind,
};

/// How an instruction accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// It loads and does not store.
    Loads,
    /// It stores and does not load.
    Stores,
    /// If it stores, it stores to the one address that it loads from.
    Modifies,
    /// Not known in advance; QEMU's callbacks must report each access.
    Unknown,
}

/// Analyses instructions one after the other.
pub struct Instructions(InstructionInfoFactory);

impl Instructions {
    /// An analyser without state from earlier instructions.
    pub fn new() -> Instructions {
        Instructions(InstructionInfoFactory::new())
    }

    /// How the instruction with these bytes accesses memory.
    pub fn access_pattern(&mut self, bytes: &[u8]) -> AccessPattern {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || instruction.len() != bytes.len() {
            return AccessPattern::Unknown;
        }
        let [memory] = self.0.info_options(&instruction, InstructionInfoOptions::NO_REGISTER_USAGE).used_memory()
        else {
            return AccessPattern::Unknown;
        };
        match memory.access() {
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => AccessPattern::Modifies,
            OpAccess::Read if is_known(&instruction) => AccessPattern::Loads,
            OpAccess::Write if is_known(&instruction) => AccessPattern::Stores,
            _ => AccessPattern::Unknown,
        }
    }
}

/// Whether QEMU makes exactly the access of its memory operand.
fn is_known(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let computes = matches!(
        instruction.mnemonic(),
        Mov | Movzx | Movsx | Movsxd | Add | Sub | Adc | Sbb | And | Or | Xor | Cmp | Test | Imul
    );
    let moves = matches!(instruction.mnemonic(), Movss | Movsd | Movd | Movq | Push | Pop | Call | Ret | Leave | Jmp);
    let depends = instruction.condition_code() != ConditionCode::None;
    (computes || moves || depends) && !instruction.has_lock_prefix() && has_plain_operands(instruction)
}

/// Whether its register operands are general-purpose or vector registers.
fn has_plain_operands(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).all(|operand| match instruction.op_kind(operand) {
        OpKind::Register => {
            let register = instruction.op_register(operand);
            register.is_gpr() || register.is_vector_register()
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_load_store_or_do_both_in_one_place() {
        let mut instructions = Instructions::new();
        for bytes in [
            &[0x48, 0x83, 0x07, 0x01][..],   // add qword [rdi], 1
            &[0xf0, 0x48, 0x83, 0x07, 0x01], // lock add
            &[0x48, 0x87, 0x07],             // xchg
            &[0x48, 0x0f, 0xab, 0x0f],       // bts [rdi], rcx
            &[0x48, 0xd1, 0x27],             // shl [rdi]
            &[0x48, 0x0f, 0xb1, 0x17],       // cmpxchg [rdi], rdx
            &[0x67, 0x83, 0x07, 0x01],       // add to an address of 32 bits
        ] {
            assert_eq!(instructions.access_pattern(bytes), AccessPattern::Modifies, "{bytes:x?}");
        }
        for (bytes, pattern) in [
            (&[0x48, 0x8b, 0x07][..], AccessPattern::Loads), // mov rax, [rdi]
            (&[0x80, 0x3f, 0x01], AccessPattern::Loads),     // cmp byte [rdi], 1
            (&[0x0f, 0x44, 0x07], AccessPattern::Loads),     // cmove eax, [rdi]
            (&[0xc3], AccessPattern::Loads),                 // ret
            (&[0x48, 0x89, 0x07], AccessPattern::Stores),    // mov [rdi], rax
            (&[0x0f, 0x94, 0x07], AccessPattern::Stores),    // sete [rdi]
            (&[0x55], AccessPattern::Stores),                // push rbp
            (&[0xf3, 0xa4], AccessPattern::Unknown),         // rep movsb
            (&[0xff, 0x37], AccessPattern::Unknown),         // push [rdi]
            (&[0xff, 0x17], AccessPattern::Unknown),         // call [rdi]
            (&[0x0f, 0x10, 0x07], AccessPattern::Unknown),   // movups
            (&[0x0f, 0xae, 0x07], AccessPattern::Unknown),   // fxsave
            (&[0x48, 0x01, 0xc8], AccessPattern::Unknown),   // add rax, rcx
            (&[0x0f, 0x0b, 0x90], AccessPattern::Unknown),   // ud2, and more
        ] {
            assert_eq!(instructions.access_pattern(bytes), pattern, "{bytes:x?}");
        }
    }
}
