//! The seccomp filter: its [`Watch`]es say which system calls of the traced program stop for the tracer. All other calls run
//! at full speed.
//!
//! A classic BPF program over `struct seccomp_data` (include/uapi/linux/seccomp.h). Callers watch calls of another
//! ABI (32-bit programs) only to have the filter answer them, never to stop them. The existing crates that assemble such
//! filters kill the process on a foreign architecture, which must not happen to a measured program, so the few
//! instructions are assembled here.

use libc::sock_filter;

use super::registers::NATIVE;

/// A condition on an argument (0 to 5) of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The argument, as 64 unsigned bits, is at least this.
    AtLeast(u8, u64),
    /// The argument, as 64 bits, is this.
    Equals64(u8, u64),
    /// The argument's lower 32 bits equal this.
    Equals32(u8, u32),
    /// The argument's lower 32 bits have all of these bits.
    Has(u8, u32),
    /// The argument's lower 32 bits have none of these bits.
    Lacks(u8, u32),
}

/// A system call to which `action` applies if all conditions hold. If several watches have the same number, the first whose
/// conditions hold decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// `AUDIT_ARCH_*` of the call's ABI.
    pub audit_arch: u32,
    /// The system call number in that ABI.
    pub number: i64,
    /// All of them must hold for the watch to apply.
    pub conditions: Vec<Condition>,
    /// What happens to the call if they hold.
    pub action: Action,
}

/// What happens to a watched call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call stops, and the tracer serves it.
    Stop,
    /// The call is not made and returns 0. This needs no tracer.
    Succeed,
}

impl Watch {
    /// A call of the native ABI that stops under the given conditions.
    pub fn new(number: i64, conditions: impl Into<Vec<Condition>>) -> Watch {
        Watch { audit_arch: NATIVE.audit_arch, number, conditions: conditions.into(), action: Action::Stop }
    }

    /// A call of the native ABI that is answered with success under the given conditions.
    pub fn succeeding(number: i64, conditions: impl Into<Vec<Condition>>) -> Watch {
        Watch { action: Action::Succeed, ..Watch::new(number, conditions) }
    }

    /// Whether this watch stops a call.
    pub fn stops(&self, number: i64, arguments: &[u64; 6]) -> bool {
        self.action == Action::Stop
            && self.audit_arch == NATIVE.audit_arch
            && self.number == number
            && self.conditions.iter().all(|condition| condition.holds(arguments))
    }
}

impl Condition {
    fn holds(self, arguments: &[u64; 6]) -> bool {
        match self {
            Condition::AtLeast(at, value) => arguments[at as usize] >= value,
            Condition::Equals64(at, value) => arguments[at as usize] == value,
            Condition::Equals32(at, value) => arguments[at as usize] as u32 == value,
            Condition::Has(at, bits) => arguments[at as usize] as u32 & bits == bits,
            Condition::Lacks(at, bits) => arguments[at as usize] as u32 & bits == 0,
        }
    }
}

/// SECCOMP_RET_DATA of the stops of this filter, which distinguishes them from those of the program's own filters.
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
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The filter program: it applies the actions of the watches, and allows all other calls (`SECCOMP_RET_ALLOW`).
pub fn program(watches: &[Watch]) -> Vec<sock_filter> {
    let mut abis: Vec<u32> = watches.iter().map(|watch| watch.audit_arch).collect();
    abis.sort_unstable();
    abis.dedup();
    let of_abi = |abi: u32| {
        let mut code = vec![op(LOAD, NUMBER)];
        for watch in watches.iter().filter(|watch| watch.audit_arch == abi) {
            let body = body(watch);
            let skip = u8::try_from(body.len()).expect("a watch is shorter than 256 instructions");
            code.push(jump(JUMP_EQUAL, watch.number as u32, 0, skip));
            code.extend(body);
        }
        code.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
        code
    };
    let mut code = vec![op(LOAD, ARCH)];
    for abi in abis {
        let calls = of_abi(abi);
        // A conditional jump reaches at most 255 instructions, an unconditional jump reaches any distance.
        code.extend([jump(JUMP_EQUAL, abi, 1, 0), op(JUMP, calls.len() as u32)]);
        code.extend(calls);
    }
    code.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
    code
}

/// The instructions of one watch, to follow the test of its number. If a condition fails, they load the
/// number again and fall through to the next watch.
fn body(watch: &Watch) -> Vec<sock_filter> {
    let action = match watch.action {
        Action::Stop => libc::SECCOMP_RET_TRACE | MARK as u32,
        Action::Succeed => libc::SECCOMP_RET_ERRNO,
    };
    // Built backwards, so that each test knows the distance to the exit.
    let mut tail = vec![op(RETURN, action), op(LOAD, NUMBER)];
    for condition in watch.conditions.iter().rev() {
        let exit = u8::try_from(tail.len() - 1).expect("a watch is shorter than 256 instructions");
        let mut test = test(*condition, exit);
        test.append(&mut tail);
        tail = test;
    }
    tail
}

/// Instructions that fall through if the condition holds, and otherwise jump `exit` instructions ahead.
fn test(condition: Condition, exit: u8) -> Vec<sock_filter> {
    match condition {
        Condition::Equals64(argument, value) => {
            let (high, low) = ((value >> 32) as u32, value as u32);
            vec![
                op(LOAD, high_word(argument)),
                jump(JUMP_EQUAL, high, 0, exit + 2),
                op(LOAD, low_word(argument)),
                jump(JUMP_EQUAL, low, 0, exit),
            ]
        }
        Condition::Equals32(argument, value) => {
            vec![op(LOAD, low_word(argument)), jump(JUMP_EQUAL, value, 0, exit)]
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

    const OTHER_ARCH: u32 = 0x1234;

    /// A slow, obvious interpreter for the instructions that the filter uses.
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
                JUMP => at += instruction.k as usize,
                JUMP_EQUAL => at += take(accumulator == instruction.k),
                JUMP_GREATER => at += take(accumulator > instruction.k),
                JUMP_AT_LEAST => at += take(accumulator >= instruction.k),
                RETURN => return instruction.k,
                other => panic!("unexpected instruction {other:#x}"),
            }
        }
    }

    fn condition() -> impl Strategy<Value = Condition> {
        let value = prop_oneof![0..8u64, (0..8u64).prop_map(|v| v << 31), any::<u64>()];
        (0..6u8, value, 0..5u8).prop_map(|(at, value, kind)| match kind {
            0 => Condition::AtLeast(at, value),
            1 => Condition::Equals32(at, value as u32),
            2 => Condition::Equals64(at, value),
            3 => Condition::Has(at, value as u32),
            _ => Condition::Lacks(at, value as u32),
        })
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn the_program_agrees_with_its_conditions(
            watches in prop::collection::vec(
                (0..4i64, prop::collection::vec(condition(), 0..4), any::<bool>(), any::<bool>()), 0..6,
            ),
            number in 0..5u32,
            raw in prop::array::uniform6(prop_oneof![0..8u64, (0..8u64).prop_map(|v| v << 31), any::<u64>()]),
        ) {
            let watch = |(number, conditions, native, stops): (i64, Vec<Condition>, bool, bool)| Watch {
                audit_arch: if native { NATIVE.audit_arch } else { OTHER_ARCH },
                number,
                conditions,
                action: if stops { Action::Stop } else { Action::Succeed },
            };
            let watches: Vec<Watch> = watches.into_iter().map(watch).collect();
            let code = program(&watches);
            for abi in [NATIVE.audit_arch, OTHER_ARCH, 0x5678] {
                let concerned = |w: &&Watch| w.audit_arch == abi && w.number == i64::from(number);
                let first = watches.iter().filter(concerned).find(|w| w.conditions.iter().all(|c| c.holds(&raw)));
                let expected = match first.map(|watch| watch.action) {
                    Some(Action::Stop) => libc::SECCOMP_RET_TRACE | u32::from(MARK),
                    Some(Action::Succeed) => libc::SECCOMP_RET_ERRNO,
                    None => libc::SECCOMP_RET_ALLOW,
                };
                prop_assert_eq!(interpret(&code, abi, number, raw), expected);
            }
        }
    }
}
