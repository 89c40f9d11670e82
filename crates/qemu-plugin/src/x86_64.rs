// SPDX-License-Identifier: GPL-2.0-or-later
//! Which instructions of x86-64 store to where they load from.
//!
//! Source: Intel's manual, volume 2, through `iced-x86`.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, InstructionInfoOptions, OpAccess};

/// Looks at instructions, one after the other.
pub struct Instructions(InstructionInfoFactory);

impl Instructions {
    /// That has looked at none.
    pub fn new() -> Instructions {
        Instructions(InstructionInfoFactory::new())
    }

    /// Whether the instruction with these bytes stores to the one place that it loads from.
    pub fn modifies(&mut self, bytes: &[u8]) -> bool {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || instruction.len() != bytes.len() {
            return false;
        }
        match self.0.info_options(&instruction, InstructionInfoOptions::NO_REGISTER_USAGE).used_memory() {
            [memory] => matches!(memory.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loads_and_stores_in_one_place_modifies() {
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
            assert!(instructions.modifies(bytes), "{bytes:x?}");
        }
        for bytes in [
            &[0x48, 0x8b, 0x07][..], // mov rax, [rdi]
            &[0x48, 0x89, 0x07],     // mov [rdi], rax
            &[0x80, 0x3f, 0x01],     // cmp byte [rdi], 1
            &[0xf3, 0xa4],           // rep movsb
            &[0xff, 0x37],           // push [rdi]
            &[0x0f, 0x94, 0x07],     // sete [rdi]
            &[0x48, 0x01, 0xc8],     // add rax, rcx
            &[0x0f, 0x0b, 0x90],     // ud2, and more
        ] {
            assert!(!instructions.modifies(bytes), "{bytes:x?}");
        }
    }
}
