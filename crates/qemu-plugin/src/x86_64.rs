// SPDX-License-Identifier: GPL-2.0-or-later
//! What instructions of x86-64 access, as far as that is known before they execute.
//!
//! Source: Intel's manual, volume 2, through `iced-x86`. Of accesses, those are known of which QEMU does one for each
//! operand in memory (`target/i386/tcg/translate.c`): general registers, the stack, and scalars of vector registers. What
//! is wider than 8 bytes, repeated, locked or conditional tells itself.

use iced_x86::{
    Code, CodeSize, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use crate::known::{Access, Address, Does, Symbol};

/// The instructions of a block, one after the other.
pub struct Instructions {
    factory: InstructionInfoFactory,
    registers: Registers,
}

impl Instructions {
    /// Those of a block of which nothing was seen yet.
    pub fn new() -> Instructions {
        Instructions { factory: InstructionInfoFactory::new(), registers: Registers::new() }
    }

    /// What the next one does, which has these bytes at this address.
    pub fn next(&mut self, bytes: &[u8], address: u64) -> Does {
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || instruction.len() != bytes.len() {
            self.registers.forget();
            return Does::Unknown;
        }
        let info = self.factory.info(&instruction);
        let does = self.registers.accessed(&instruction, info);
        self.registers.execute(&instruction, info);
        does
    }
}

/// What is in a register: what was somewhere at some time, and a constant.
#[derive(Clone, Copy)]
struct Value {
    /// Which it was; 0 is the number zero.
    symbol: u32,
    offset: u64,
}

impl Value {
    fn plus(self, offset: u64) -> Value {
        Value { offset: self.offset.wrapping_add(offset), ..self }
    }
}

/// What is in the general registers.
struct Registers {
    values: [Value; 16],
    /// The last symbol that was used.
    last: u32,
    /// A symbol for the bases of FS and GS, which do not change unnoticed.
    segments: u32,
}

const STACK: usize = 4;
const FRAME: usize = 5;

impl Registers {
    fn new() -> Registers {
        let mut registers = Registers { values: [Value { symbol: 0, offset: 0 }; 16], last: 0, segments: 0 };
        registers.forget();
        registers
    }

    fn fresh(&mut self) -> Value {
        self.last += 1;
        Value { symbol: self.last, offset: 0 }
    }

    fn forget(&mut self) {
        self.segments = self.fresh().symbol;
        for number in 0..self.values.len() {
            self.values[number] = self.fresh();
        }
    }

    fn accessed(&self, instruction: &Instruction, info: &InstructionInfo) -> Does {
        match info.used_memory() {
            [] if goes_on(instruction) => Does::Nothing,
            [] => Does::MayEnd,
            [memory] => match is_known(instruction).then(|| self.access(memory)).flatten() {
                Some(access) => Does::Access(access),
                None if matches!(memory.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite) => Does::Modifies,
                None => Does::Unknown,
            },
            _ => Does::Unknown,
        }
    }

    fn access(&self, memory: &UsedMemory) -> Option<Access> {
        let (loads, stores) = match memory.access() {
            OpAccess::Read => (true, false),
            OpAccess::Write => (false, true),
            OpAccess::ReadWrite => (true, true),
            _ => return None,
        };
        let bytes = memory.memory_size().size() as u8;
        let is_plain = matches!(bytes, 1 | 2 | 4 | 8) && memory.address_size() == CodeSize::Code64;
        let base = self.of(memory.base())?.plus(memory.displacement());
        let index = self.of(memory.index())?;
        let scale = if index.symbol == 0 { 0 } else { memory.scale() as u8 };
        let segment = match memory.segment() {
            Register::FS => self.segments << 1,
            Register::GS => self.segments << 1 | 1,
            _ => 0,
        };
        let displacement = base.offset.wrapping_add(index.offset.wrapping_mul(u64::from(memory.scale())));
        let symbol = Symbol { base: base.symbol, index: index.symbol, scale, segment };
        is_plain.then_some(Access { address: Address { symbol, displacement }, bytes, loads, stores })
    }

    /// What is in a register of 64 bits, or zero where there is none.
    fn of(&self, register: Register) -> Option<Value> {
        match register {
            Register::None => Some(Value { symbol: 0, offset: 0 }),
            _ => number(register).map(|number| self.values[number]),
        }
    }

    fn execute(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        let known = self.written(instruction);
        for used in info.used_registers() {
            let writes = !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead);
            match number(used.register().full_register()) {
                Some(number) if writes => self.values[number] = self.fresh(),
                None if writes && used.register().is_segment_register() => self.forget(),
                _ => {}
            }
        }
        if matches!(instruction.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase) || is_of_the_system(instruction) {
            self.forget();
        }
        if let Some((number, value)) = known {
            self.values[number] = value;
        }
    }

    /// The register of which it is known what is written to it.
    fn written(&self, instruction: &Instruction) -> Option<(usize, Value)> {
        let to = number(instruction.op0_register());
        let immediate = || instruction.try_immediate(1).ok();
        let added = |offset: Option<u64>| Some((to?, self.values[to?].plus(offset?)));
        let stack = self.values[STACK];
        match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                to.zip(number(instruction.op1_register()).map(|from| self.values[from]))
            }
            Mnemonic::Mov => to.zip(immediate().map(|offset| Value { symbol: 0, offset })),
            Mnemonic::Lea => to.zip(self.effective(instruction)),
            Mnemonic::Add => added(immediate()),
            Mnemonic::Sub => added(immediate().map(u64::wrapping_neg)),
            Mnemonic::Inc => added(Some(1)),
            Mnemonic::Dec => added(Some(u64::MAX)),
            Mnemonic::Leave if instruction.code() == Code::Leaveq => Some((STACK, self.values[FRAME].plus(8))),
            Mnemonic::Pop if to == Some(STACK) => None,
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call => {
                Some((STACK, stack.plus(i64::from(instruction.stack_pointer_increment()) as u64)))
            }
            _ => None,
        }
    }

    /// The address that an instruction computes, where it is a register and a constant.
    fn effective(&self, instruction: &Instruction) -> Option<Value> {
        if instruction.is_ip_rel_memory_operand() {
            return Some(Value { symbol: 0, offset: instruction.ip_rel_memory_address() });
        }
        let is_sum = instruction.memory_index() == Register::None;
        is_sum
            .then(|| self.of(instruction.memory_base()))
            .flatten()
            .map(|base| base.plus(instruction.memory_displacement64()))
    }
}

/// The number of a general register of 64 bits.
fn number(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

/// Whether nothing but an access to memory ends the block within an instruction, and nothing that is not seen changes.
fn goes_on(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !is_of_the_system(instruction)
        && !matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv | Mnemonic::Wrfsbase | Mnemonic::Wrgsbase)
        && has_plain_operands(instruction)
        && (instruction.op_count() > 0 || has_no_operands(instruction))
}

/// Whether its registers are those that programs compute with.
fn has_plain_operands(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).all(|operand| match instruction.op_kind(operand) {
        OpKind::Register => {
            let register = instruction.op_register(operand);
            register.is_gpr() || register.is_vector_register()
        }
        _ => true,
    })
}

/// Whether it is one of those without operands that do nothing but compute.
fn has_no_operands(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(instruction.mnemonic(), Nop | Endbr64 | Cbw | Cwde | Cdqe | Cwd | Cdq | Cqo | Cld | Std | Clc | Stc | Cmc)
}

fn is_of_the_system(instruction: &Instruction) -> bool {
    instruction.is_privileged() || instruction.is_save_restore_instruction()
}

/// Whether QEMU does exactly the accesses of its operands, each at once.
fn is_known(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let computes = matches!(
        instruction.mnemonic(),
        Mov | Movzx
            | Movsx
            | Movsxd
            | Add
            | Sub
            | Adc
            | Sbb
            | And
            | Or
            | Xor
            | Cmp
            | Test
            | Inc
            | Dec
            | Neg
            | Not
            | Imul
    );
    let moves = matches!(instruction.mnemonic(), Movss | Movsd | Movd | Movq | Push | Pop | Call | Ret | Leave | Jmp);
    let depends = instruction.condition_code() != ConditionCode::None;
    (computes || moves || depends) && !instruction.has_lock_prefix() && has_plain_operands(instruction)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What instructions do, given as bytes.
    fn block(instructions: &[&[u8]]) -> Vec<Does> {
        let mut block = Instructions::new();
        let mut address = 0x40_0000;
        let next = |bytes: &&[u8]| {
            let does = block.next(bytes, address);
            address += bytes.len() as u64;
            does
        };
        instructions.iter().map(next).collect()
    }

    fn access(does: Does) -> Access {
        match does {
            Does::Access(access) => access,
            _ => panic!("{does:?}"),
        }
    }

    /// The distance of the accesses of two instructions, where it is known.
    fn distance(does: &[Does], first: usize, second: usize) -> Option<i64> {
        let [first, second] = [first, second].map(|index| access(does[index]).address);
        (first.symbol == second.symbol).then(|| second.displacement.wrapping_sub(first.displacement) as i64)
    }

    const PUSH_RBP: &[u8] = &[0x55];
    const POP_RBX: &[u8] = &[0x5b];
    const LOAD_RDI: &[u8] = &[0x48, 0x8b, 0x07];

    #[test]
    fn the_stack_is_followed() {
        // push rbp; mov rbp, rsp; push rbx; sub rsp, 24; mov [rbp-8], rdi; mov rax, [rsp+8]; leave; ret
        let does = block(&[
            PUSH_RBP,
            &[0x48, 0x89, 0xe5],
            &[0x53],
            &[0x48, 0x83, 0xec, 0x18],
            &[0x48, 0x89, 0x7d, 0xf8],
            &[0x48, 0x8b, 0x44, 0x24, 0x08],
            &[0xc9],
            &[0xc3],
        ]);
        let from_first = |index| distance(&does, 0, index);
        assert_eq!([2, 4, 5, 6, 7].map(from_first), [Some(-8), Some(-8), Some(-24), Some(0), Some(8)]);
        let kinds = [0, 2, 4, 5, 6, 7].map(|index| (access(does[index]).loads, access(does[index]).stores));
        assert_eq!(kinds, [(false, true), (false, true), (false, true), (true, false), (true, false), (true, false)]);
        assert_eq!((does[1], does[3]), (Does::Nothing, Does::Nothing));
    }

    #[test]
    fn what_is_written_is_another_value() {
        // mov rax, [rdi]; mov edi, edi; mov rax, [rdi]; add rdi, 16; mov rax, [rdi]; pop rdi; mov rax, [rdi]
        let does = block(&[LOAD_RDI, &[0x89, 0xff], LOAD_RDI, &[0x48, 0x83, 0xc7, 0x10], LOAD_RDI, &[0x5f], LOAD_RDI]);
        assert_eq!([distance(&does, 0, 2), distance(&does, 2, 4), distance(&does, 4, 6)], [None, Some(16), None]);
    }

    #[test]
    fn an_index_and_a_segment_belong_to_the_address() {
        // mov rax, [rdi+rcx*8]; mov [rdi+rcx*8+8], rax; mov rax, [rdi+rcx*4]; inc rcx; mov rax, [rdi+rcx*8];
        // mov rax, fs:[rdi+rcx*8]; mov rax, [rip+0]; mov rax, [rip+0x100]
        let does = block(&[
            &[0x48, 0x8b, 0x04, 0xcf],
            &[0x48, 0x89, 0x44, 0xcf, 0x08],
            &[0x48, 0x8b, 0x04, 0x8f],
            &[0x48, 0xff, 0xc1],
            &[0x48, 0x8b, 0x04, 0xcf],
            &[0x64, 0x48, 0x8b, 0x04, 0xcf],
            &[0x48, 0x8b, 0x05, 0, 0, 0, 0],
            &[0x48, 0x8b, 0x05, 0, 1, 0, 0],
        ]);
        assert_eq!([1, 2, 4, 5].map(|index| distance(&does, 0, index)), [Some(8), None, Some(8), None]);
        assert_eq!(distance(&does, 6, 7), Some(0x107));
    }

    #[test]
    fn one_instruction_may_load_and_store() {
        // add qword [rdi], 1; cmp byte [rdi], 1; cmove eax, [rdi]; sete [rdi]
        let does = block(&[&[0x48, 0x83, 0x07, 0x01], &[0x80, 0x3f, 0x01], &[0x0f, 0x44, 0x07], &[0x0f, 0x94, 0x07]]);
        let found: Vec<_> =
            does.iter().map(|does| access(*does)).map(|one| (one.loads, one.stores, one.bytes)).collect();
        assert_eq!(found, [(true, true, 8), (true, false, 1), (true, false, 4), (false, true, 1)]);
    }

    #[test]
    fn what_is_not_known_tells_itself() {
        for bytes in [
            &[0xf3, 0xa4][..],   // rep movsb
            &[0xa4],             // movsb
            &[0xff, 0x37],       // push [rdi]
            &[0xff, 0x17],       // call [rdi]
            &[0x0f, 0x10, 0x07], // movups
            &[0x48, 0xf7, 0x37], // div [rdi]
            &[0x67, 0x8b, 0x07], // an address of 32 bits
            &[0x0f, 0x0b, 0x90], // ud2, and more
        ] {
            assert_eq!(block(&[bytes]), [Does::Unknown], "{bytes:x?}");
        }
        for bytes in [
            &[0xf0, 0x48, 0x83, 0x07, 0x01][..], // lock add
            &[0x48, 0x87, 0x07],                 // xchg
            &[0x48, 0x0f, 0xab, 0x0f],           // bts [rdi], rcx
            &[0x48, 0xd1, 0x27],                 // shl [rdi]
            &[0x48, 0x0f, 0xb1, 0x17],           // cmpxchg [rdi], rdx
            &[0x67, 0x83, 0x07, 0x01],           // add to an address of 32 bits
        ] {
            assert_eq!(block(&[bytes]), [Does::Modifies], "{bytes:x?}");
        }
        // div rcx; cpuid; syscall; wrfsbase rax
        for bytes in [&[0x48, 0xf7, 0xf1][..], &[0x0f, 0xa2], &[0x0f, 0x05], &[0xf3, 0x48, 0x0f, 0xae, 0xd0]] {
            assert_eq!(block(&[bytes]), [Does::MayEnd], "{bytes:x?}");
        }
        // wrfsbase rax between accesses to thread-local variables
        let own: &[u8] = &[0x64, 0x48, 0x8b, 0x07];
        let does = block(&[own, own, &[0xf3, 0x48, 0x0f, 0xae, 0xd0], own]);
        assert_eq!([distance(&does, 0, 1), distance(&does, 0, 3)], [Some(0), None]);
        // pop rsp
        let does = block(&[POP_RBX, POP_RBX, &[0x5c], POP_RBX]);
        assert_eq!([distance(&does, 0, 1), distance(&does, 1, 3)], [Some(8), None]);
    }
}
