//! The seccomp filter: which system calls of the traced program stop, and which run at full speed.
//!
//! A classic BPF program over `struct seccomp_data` (include/uapi/linux/seccomp.h). Calls of another
//! ABI (32-bit programs) are never stopped. Crates that assemble such filters kill on a foreign
//! architecture, which a measured program must not suffer, so the few instructions are made here.

use libc::sock_filter;

/// A condition on an argument (0 to 5) of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The argument, as 64 unsigned bits, is at least this.
    AtLeast(u8, u64),
    /// The argument's lower 32 bits equal this.
    Equals(u8, u32),
    /// The argument's lower 32 bits differ from this.
    Differs(u8, u32),
    /// The argument's lower 32 bits have all of these bits.
    Has(u8, u32),
    /// The argument's lower 32 bits have none of these bits.
    Lacks(u8, u32),
}

/// A call that stops when all conditions hold. Several of one number are alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The system call number of the native ABI.
    pub number: i64,
    /// All of them must hold.
    pub conditions: Vec<Condition>,
}

impl Watch {
    /// A call that stops under the given conditions.
    pub fn new(number: i64, conditions: impl Into<Vec<Condition>>) -> Watch {
        Watch { number, conditions: conditions.into() }
    }
}

/// What the event of a watched call carries, so that it is told from those of the program's own filters.
pub const MARK: u16 = 0x7067;

// Offsets in struct seccomp_data.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn low_word(argument: u8) -> u32 {
    // All supported architectures are little endian.
    16 + 8 * argument as u32
}
const fn high_word(argument: u8) -> u32 {
    low_word(argument) + 4
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The filter program: `SECCOMP_RET_TRACE` for watched calls, `SECCOMP_RET_ALLOW` for all others.
pub fn program(audit_arch: u32, watches: &[Watch]) -> Vec<sock_filter> {
    let mut code =
        vec![op(LOAD, ARCH), jump(JUMP_EQUAL, audit_arch, 1, 0), op(RETURN, libc::SECCOMP_RET_ALLOW), op(LOAD, NUMBER)];
    for watch in watches {
        let body = body(watch);
        let skip = u8::try_from(body.len()).expect("a watch is shorter than 256 instructions");
        code.push(jump(JUMP_EQUAL, watch.number as u32, 0, skip));
        code.extend(body);
    }
    code.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
    code
}

/// The instructions of one watch behind the test of its number. Falls through with the number loaded.
fn body(watch: &Watch) -> Vec<sock_filter> {
    // Built from the end, so that each test knows how far away the exit is.
    let mut tail = vec![op(RETURN, libc::SECCOMP_RET_TRACE | MARK as u32), op(LOAD, NUMBER)];
    for condition in watch.conditions.iter().rev() {
        let exit = u8::try_from(tail.len() - 1).expect("a watch is shorter than 256 instructions");
        let mut test = test(*condition, exit);
        test.append(&mut tail);
        tail = test;
    }
    tail
}

/// Instructions that fall through when the condition holds and else jump `exit` instructions further.
fn test(condition: Condition, exit: u8) -> Vec<sock_filter> {
    match condition {
        Condition::Equals(argument, value) => {
            vec![op(LOAD, low_word(argument)), jump(JUMP_EQUAL, value, 0, exit)]
        }
        Condition::Differs(argument, value) => {
            vec![op(LOAD, low_word(argument)), jump(JUMP_EQUAL, value, exit, 0)]
        }
        Condition::Has(argument, bits) => {
            vec![op(LOAD, low_word(argument)), op(AND, bits), jump(JUMP_EQUAL, bits, 0, exit)]
        }
        Condition::Lacks(argument, bits) => {
            vec![op(LOAD, low_word(argument)), op(AND, bits), jump(JUMP_EQUAL, 0, 0, exit)]
        }
        Condition::AtLeast(argument, value) => {
            let (high, low) = ((value >> 32) as u32, value as u32);
            vec![
                op(LOAD, high_word(argument)),
                jump(JUMP_GREATER, high, 3, 0),
                jump(JUMP_EQUAL, high, 0, exit + 2),
                op(LOAD, low_word(argument)),
                jump(JUMP_AT_LEAST, low, 0, exit),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARCH_HERE: u32 = 0xc000_003e;

    /// A slow, obvious interpreter of the instructions that the filter uses.
    fn interpret(code: &[sock_filter], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        for argument in arguments {
            data.extend(argument.to_le_bytes());
        }
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = code[at];
            at += 1;
            let take = |yes: bool| usize::from(if yes { instruction.jt } else { instruction.jf });
            match instruction.code {
                LOAD => {
                    let from = instruction.k as usize;
                    accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                }
                AND => accumulator &= instruction.k,
                JUMP_EQUAL => at += take(accumulator == instruction.k),
                JUMP_GREATER => at += take(accumulator > instruction.k),
                JUMP_AT_LEAST => at += take(accumulator >= instruction.k),
                RETURN => return instruction.k,
                other => panic!("unexpected instruction {other:#x}"),
            }
        }
    }

    fn holds(condition: Condition, arguments: [u64; 6]) -> bool {
        match condition {
            Condition::AtLeast(at, value) => arguments[at as usize] >= value,
            Condition::Equals(at, value) => arguments[at as usize] as u32 == value,
            Condition::Differs(at, value) => arguments[at as usize] as u32 != value,
            Condition::Has(at, bits) => arguments[at as usize] as u32 & bits == bits,
            Condition::Lacks(at, bits) => arguments[at as usize] as u32 & bits == 0,
        }
    }

    fn condition() -> impl Strategy<Value = Condition> {
        let value = prop_oneof![0..8u64, (0..8u64).prop_map(|v| v << 31), any::<u64>()];
        (0..6u8, value, 0..5u8).prop_map(|(at, value, kind)| match kind {
            0 => Condition::AtLeast(at, value),
            1 => Condition::Equals(at, value as u32),
            2 => Condition::Has(at, value as u32),
            3 => Condition::Differs(at, value as u32),
            _ => Condition::Lacks(at, value as u32),
        })
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn the_program_agrees_with_its_conditions(
            watches in prop::collection::vec((0..4i64, prop::collection::vec(condition(), 0..4)), 0..6),
            number in 0..5u32,
            raw in prop::array::uniform6(prop_oneof![0..8u64, (0..8u64).prop_map(|v| v << 31), any::<u64>()]),
        ) {
            let watches: Vec<Watch> = watches.into_iter().map(|(n, c)| Watch::new(n, c)).collect();
            let expected = watches
                .iter()
                .any(|w| w.number == i64::from(number) && w.conditions.iter().all(|c| holds(*c, raw)));
            let code = program(ARCH_HERE, &watches);
            let traced = interpret(&code, ARCH_HERE, number, raw) == libc::SECCOMP_RET_TRACE | u32::from(MARK);
            prop_assert_eq!(traced, expected);
            prop_assert_eq!(interpret(&code, 0x4000_0003, number, raw), libc::SECCOMP_RET_ALLOW);
        }
    }
}
