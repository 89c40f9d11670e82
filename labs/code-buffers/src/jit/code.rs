//! What generated code computes, and the instruction sets for which code can be generated.

use std::fmt;

use super::{ROTATION, arm64, x86_64};

/// An instruction set for which code can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// x86-64.
    X86_64,
    /// arm64 (A64).
    Arm64,
}

impl Isa {
    /// The instruction set of this machine; `None` where there is no generator for it.
    pub fn native() -> Option<Isa> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Isa::X86_64),
            "aarch64" => Some(Isa::Arm64),
            _ => None,
        }
    }

    /// Code of a function of one 64-bit number that performs one step for each constant; see [`compute`]. It uses no memory and
    /// follows the C calling convention.
    pub fn encode(self, constants: &[u64]) -> Vec<u8> {
        match self {
            Isa::X86_64 => x86_64::encode(constants),
            Isa::Arm64 => arm64::encode(constants),
        }
    }

    /// How many steps fit into `bytes` bytes of code.
    pub fn steps_in(self, bytes: usize) -> usize {
        let one_bytes = self.encode(&[0]).len();
        let step_bytes = self.encode(&[0, 0]).len() - one_bytes;
        bytes.saturating_sub(one_bytes - step_bytes) / step_bytes
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::X86_64 => "x86-64",
            Isa::Arm64 => "arm64",
        })
    }
}

/// The result of the code for these constants: an exclusive or, a rotation and an addition for each.
pub fn compute(constants: impl IntoIterator<Item = u64>, number: u64) -> u64 {
    constants
        .into_iter()
        .fold(number, |number, constant| (number ^ constant).rotate_left(ROTATION).wrapping_add(constant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_the_same_length() {
        for isa in [Isa::X86_64, Isa::Arm64] {
            for steps in [1, 7, 100] {
                let bytes = isa.encode(&vec![u64::MAX; steps]).len();
                assert_eq!((isa.steps_in(bytes), isa.steps_in(bytes - 1)), (steps, steps - 1), "{isa}");
            }
            assert_eq!(isa.steps_in(0), 0);
        }
    }
}
